"""Changes of holds that were requested over HTTP. Only the poll thread writes them to the group.

Thread rule: `submit` from any thread but the poll thread, `serve` from the poll thread.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from postdate.kafka.errors import KafkaFault
from postdate.kafka.interface import GroupConsumer, Partition
from postdate.sidecar.context.holds import Holds
from postdate.sidecar.group.limits import HOLD_NOTE_CHARS_MAX, HOLD_REQUESTS_MAX
from postdate.sidecar.shard.shard_thread import ShardThread
from postdate.sidecar.states import DELIVERING

log = logging.getLogger(__name__)


class _HoldChange:
    def __init__(self, parts: Sequence[Partition], change: Callable[[Holds], Holds]) -> None:
        self.parts = parts
        self.change = change
        self.done = threading.Event()
        self.refusals: dict[Partition, str] = {}


class HoldRequests:
    """A queue of requested changes for the thread that may write to the group."""

    def __init__(self) -> None:
        self._submitting = threading.Lock()
        self._waiting: deque[_HoldChange] = deque()  # at most HOLD_REQUESTS_MAX

    def submit(
        self, parts: Sequence[Partition], change: Callable[[Holds], Holds], timeout_s: float
    ) -> dict[Partition, str]:
        """Changes the holds of these shards, and waits for that. Returns the reason for each shard whose holds could
        not be changed; after a time-out the change may still happen later. From any thread but the poll thread."""
        request = _HoldChange(parts, change)
        with self._submitting:
            if len(self._waiting) >= HOLD_REQUESTS_MAX:
                return dict.fromkeys(parts, f"{HOLD_REQUESTS_MAX} changes wait for the poll loop: request this again")
            self._waiting.append(request)
        if not request.done.wait(timeout_s):
            return dict.fromkeys(parts, f"no answer from the poll loop within {timeout_s:g} s: list the holds")
        return request.refusals

    def serve(self, consumer: GroupConsumer, shards: Mapping[Partition, ShardThread]) -> None:
        """Carries out the requested changes. From the poll thread; costs a comparison if there are none."""
        while self._waiting:
            request = self._waiting.popleft()
            for part in request.parts:
                refusal = _hold(consumer, part, shards.get(part), request.change)
                if refusal:
                    request.refusals[part] = refusal
            request.done.set()


def _hold(
    consumer: GroupConsumer, part: Partition, thread: ShardThread | None, change: Callable[[Holds], Holds]
) -> str:
    """Writes the holds to Kafka, then applies them. Returns the reason if that failed, otherwise an empty text."""
    if thread is None:
        return "this process no longer holds it"
    shard = thread.shard
    if shard.state not in DELIVERING or shard.next_request < 0:
        return f"it is {shard.state}; request this again once it delivers"
    held = shard.ctx.held
    holds = change(held.current)
    note = holds.encode()
    if len(note) > HOLD_NOTE_CHARS_MAX:
        return "too many targets are held one by one: hold the delivery of the shard instead"
    if holds == held.current:
        return ""
    try:
        consumer.commit_note(part, shard.next_request, note)
    except KafkaFault as fault:
        return f"Kafka did not accept it: {fault}"
    held.current = holds
    thread.inbox.wake()
    log.warning("shard %s: held by an operator: %s", shard.ctx.name, ", ".join(holds.words()) or "nothing")
    return ""
