"""Messages whose producer traces them, queued between the shards and the thread that makes spans of them.

A producer that traces its messages adds the header `traceparent` of W3C Trace Context. A shard only copies that header
and a few numbers; `process.span_exporter` makes the spans. A message without the header, or with one that its producer
did not sample, costs only a scan of its header names. Nothing waits: messages that do not fit into the queue are
counted and dropped.

Thread rule: shards append, one thread takes; the lock is held for a few microseconds.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from postdate.kafka.interface import Partition, Record
from postdate.sidecar.context.limits import SPANS_QUEUED_MAX, TRACEPARENT_BYTES_MAX, TRACESTATE_BYTES_MAX
from postdate.wire.dispatch_log import DELIVERED, EXTRA, OCCURRED, Fate
from postdate.wire.headers import Headers
from postdate.wire.requests.request import Request

#: The length of a `traceparent` of version 00, and the place of its flags, whose lowest bit is set for sampled traces.
_LENGTH, _FLAGS_AT = 55, 53
_SAMPLED = frozenset(b"13579bdf")


class TracedStep(NamedTuple):
    """One step of a message whose producer traces it: its acceptance or its delivery. `began_ms`, `ended_ms`: epoch ms,
    from the timestamp of the request to its acceptance, or from the time at which the message could have left to the
    commit. `target` is empty if the request names none."""

    is_delivery: bool
    part: Partition
    offset: int
    target: str
    began_ms: int
    ended_ms: int
    traceparent: bytes
    tracestate: bytes


class Exemplar(NamedTuple):
    """The span of one delivery, for its class of lateness."""

    trace_id: str
    span_id: str
    lateness_ms: int
    at_ms: int


@dataclass(slots=True)
class Step:
    """The data of one message that was accepted or delivered; `began_ms` as in `TracedStep`."""

    offset: int
    target: str
    began_ms: int
    headers: Headers


class TraceQueue:
    """The queue of one process, and the exemplars of its deliveries."""

    def __init__(self, queued_max: int = SPANS_QUEUED_MAX) -> None:
        self._queued_max = queued_max
        self._queue: deque[TracedStep] = deque()
        self._lock = threading.Lock()
        self._filled = threading.Event()
        self.dropped = 0
        """Steps that did not fit into the queue."""
        self.exemplars: dict[tuple[str, int], Exemplar] = {}
        """The last delivery by request topic and class of lateness; written by the thread that makes spans."""

    def accepted(self, part: Partition, accepted: Iterable[tuple[Record, Request]], now_ms: int) -> None:
        """Queues the requests of a batch that were accepted at `now_ms`."""
        self._offer(
            part,
            False,
            (Step(record.offset, request.target, record.timestamp_ms, request.headers) for record, request in accepted),
            now_ms,
        )

    def delivered(
        self,
        part: Partition,
        messages: Iterable[tuple[int, str, Headers]],
        fates: Iterable[Fate],
        dues_ms: Sequence[int],
        now_ms: int,
    ) -> None:
        """Queues the deliveries of a transaction that was committed at `now_ms`.

        `messages`: request offset, topic and headers of each record of the transaction. The first record of a delivered
        request is its delivery. The first records of a schedule are its occurrences, one for each of its fates.
        `dues_ms`: for each `delivered`, `occurred` or `extra` fate the time from which its message could have left.
        """
        offsets = (fate.offset for fate in fates if fate.name in (DELIVERED, OCCURRED, EXTRA))
        due_ms: dict[int, list[int]] = {}
        for offset, at_ms in zip(offsets, dues_ms, strict=True):
            due_ms.setdefault(offset, []).append(at_ms)
        self._offer(
            part,
            True,
            (
                Step(offset, topic, due_ms[offset].pop(0), headers)
                for offset, topic, headers in messages
                if due_ms.get(offset)
            ),
            now_ms,
        )

    def next_steps(self, count_max: int, timeout_s: float) -> list[TracedStep]:
        """Returns up to `count_max` queued steps, the oldest first; waits for the first one for at most `timeout_s`."""
        if not self._filled.wait(timeout_s):
            return []
        with self._lock:
            taken = [self._queue.popleft() for _ in range(min(count_max, len(self._queue)))]
            if not self._queue:
                self._filled.clear()
        return taken

    def _offer(self, part: Partition, is_delivery: bool, steps: Iterable[Step], now_ms: int) -> None:
        traced = [
            TracedStep(
                is_delivery,
                part,
                step.offset,
                step.target,
                min(step.began_ms, now_ms),  # a timestamp from a producer's clock may be ahead, even by centuries
                now_ms,
                context[0],
                context[1],
            )
            for step in steps
            if (context := trace_context(step.headers)) is not None
        ]
        if not traced:
            return
        with self._lock:
            free = max(self._queued_max - len(self._queue), 0)
            self._queue.extend(traced[:free])
            self.dropped += len(traced[free:])
        self._filled.set()


def trace_context(headers: Headers) -> tuple[bytes, bytes] | None:
    """Returns `traceparent` and `tracestate` of a message; None if its producer does not trace it or has not sampled
    its trace, or if the length of `traceparent` is invalid. `tracestate` is empty if it is absent or too long."""
    parent = state = b""
    for name, value in headers:
        if name == "traceparent":
            parent = value or b""
        elif name == "tracestate":
            state = value or b""
    is_sampled = _LENGTH <= len(parent) <= TRACEPARENT_BYTES_MAX and parent[_FLAGS_AT + 1] in _SAMPLED
    return (parent, state if len(state) <= TRACESTATE_BYTES_MAX else b"") if is_sampled else None
