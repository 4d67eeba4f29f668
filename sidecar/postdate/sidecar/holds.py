"""What a person has told a shard not to do for now: deliver at all, deliver to some targets, take in requests.

It belongs to the shard and not to a process or a disk, so it lies where Kafka keeps a word for each partition of a
group: in the metadata of the group's committed offset. Whoever takes the shard over reads it before it delivers. Only
the member that holds the partition can write there, and every commit of R carries it on.

What is held is never lost, early or repeated: a held shard goes on to read, to end what is cancelled and to write its
beats, with the hand at rest; entries for a held target are parked, without a budget that could be used up.

Thread rule: `Held.now` is replaced whole, by the shard's thread before its first takeover and from then on by the poll
thread alone; all may read it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from postdate.connectors.kafka.errors import KafkaFault
from postdate.connectors.kafka.seam import Admin, GroupConsumer, Partition
from postdate.sidecar.limits import HOLD_NOTE_CHARS_MAX, HOLD_REQUESTS_MAX
from postdate.sidecar.states import DELIVERING

if TYPE_CHECKING:
    from postdate.sidecar.shard_thread import ShardThread

log = logging.getLogger(__name__)

DELIVERY: Final = "delivery"
INTAKE: Final = "intake"
TARGET: Final = "target"


class Holds(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What one shard may not do. Unknown fields are ignored, missing ones have their defaults."""

    delivery: bool = False
    intake: bool = False
    targets: frozenset[str] = frozenset()

    def words(self) -> list[str]:
        """What is held, in the words of the command line; empty where nothing is."""
        words = [word for word, held in ((DELIVERY, self.delivery), (INTAKE, self.intake)) if held]
        return words + [f"{TARGET} {name}" for name in sorted(self.targets)]

    def encode(self) -> str:
        """The note beside the group's offset; empty where nothing is held."""
        return "" if self == NOTHING else msgspec.json.encode(_Note(holds=self)).decode()

    def before_ms(self, before_ms: int) -> int:
        """What is due before this may leave, where it would be `before_ms` without a hold. Due time 0, which is what
        ends without a delivery, always may."""
        return min(before_ms, 1) if self.delivery else before_ms

    def changed(self, what: str, is_held: bool, target: str = "") -> Holds:
        """The same with one thing held or released."""
        if what == DELIVERY:
            return msgspec.structs.replace(self, delivery=is_held)
        if what == INTAKE:
            return msgspec.structs.replace(self, intake=is_held)
        targets = self.targets | {target} if is_held else self.targets - {target}
        return msgspec.structs.replace(self, targets=targets)


class _Note(msgspec.Struct, kw_only=True, frozen=True):
    """The note as it lies in Kafka."""

    v: Literal[1] = 1
    holds: Holds


NOTHING: Final = Holds()
_decoder = msgspec.json.Decoder(_Note)


class Held:
    """What is held of one shard at present."""

    def __init__(self) -> None:
        self.now = NOTHING
        self._recalled = False

    def recall(self, admin: Admin, group_id: str, part: Partition) -> None:
        """Read what is held from the group, once: later changes come from this process. One question to Kafka; raises
        KafkaFault: nothing is known, try again."""
        if self._recalled:
            return
        note = admin.group_note(group_id, part)
        try:
            self.now = _decoder.decode(note).holds if note else NOTHING
        except msgspec.MsgspecError as error:
            log.error("shard %s/%d: the note at its group offset is not Postdate's: %s", part.topic, part.index, error)
            self.now = NOTHING
        self._recalled = True
        if self.now != NOTHING:
            log.warning("shard %s/%d: held by a person: %s", part.topic, part.index, ", ".join(self.now.words()))


class _Asked:
    def __init__(self, parts: Sequence[Partition], change: Callable[[Holds], Holds]) -> None:
        self.parts = parts
        self.change = change
        self.done = threading.Event()
        self.why_not: dict[Partition, str] = {}


class HoldRequests:
    """Changes that people ask for, on their way to the thread that may write to the group."""

    def __init__(self) -> None:
        self._waiting: deque[_Asked] = deque(maxlen=HOLD_REQUESTS_MAX)

    def ask(
        self, parts: Sequence[Partition], change: Callable[[Holds], Holds], timeout_s: float
    ) -> dict[Partition, str]:
        """Change what is held of these shards. Returns why not, for each for which it is not done; where that says that
        no answer came, it may be done later. From any thread but the poll thread."""
        asked = _Asked(parts, change)
        self._waiting.append(asked)
        if not asked.done.wait(timeout_s):
            return dict.fromkeys(parts, f"no answer from the poll loop within {timeout_s:g} s: look what is held")
        return asked.why_not

    def serve(self, consumer: GroupConsumer, shards: Mapping[Partition, ShardThread]) -> None:
        """Do what is asked for. From the poll thread; costs a comparison where there is nothing to do."""
        while self._waiting:
            asked = self._waiting.popleft()
            for part in asked.parts:
                why_not = _hold(consumer, part, shards.get(part), asked.change)
                if why_not:
                    asked.why_not[part] = why_not
            asked.done.set()


def _hold(
    consumer: GroupConsumer, part: Partition, thread: ShardThread | None, change: Callable[[Holds], Holds]
) -> str:
    """Write what is held, and only then act on it; why not, or empty."""
    if thread is None:
        return "this process holds it no more"
    shard = thread.shard
    if shard.state not in DELIVERING or shard.next_request < 0:
        return f"it is {shard.state}: it delivers nothing, and takes this when it does again"
    held = shard.ctx.held
    holds = change(held.now)
    note = holds.encode()
    if len(note) > HOLD_NOTE_CHARS_MAX:
        return "these are too many targets to hold one by one: hold the delivery of the shard"
    if holds == held.now:
        return ""
    try:
        consumer.commit_note(part, shard.next_request, note)
    except KafkaFault as fault:
        return f"Kafka has not taken it: {fault}"
    held.now = holds
    thread.inbox.wake()
    log.warning("shard %s: held by a person: %s", shard.ctx.name, ", ".join(holds.words()) or "nothing")
    return ""
