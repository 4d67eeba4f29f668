"""Writes topics as sidecars leave them: requests, their deliveries, and the dispatch log.

For programs that need a long history and no sidecar. One process fills each request partition with the real codecs. It
writes the requests first, then transactions with deliveries and one dispatch-log record each, in the order of the
protocol. At least one request in a hundred is due in a year and stays pending. `fill` returns the positions at which
the next filling continues.

Due times are the same for all requests, or spread around the present like those of live traffic.

In a mixed filling, one request in twenty is cancelled, moved, replaced or dead. One in twenty has no key, one in twenty
has an id, and one in a hundred was stored before it was delivered. Another producer writes one in twenty records of a
target.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

from confluent_kafka import Producer

from postdate.wire.delivered import dead_letter_headers, delivered_headers
from postdate.wire.dispatch_log import OWNER, DispatchRecord, Fate, Moved, PlainFate, encode_record
from postdate.wire.headers import ACTION, AT, ID, TOPIC, Headers
from postdate.wire.origins import format_origin
from postdate.wire.topics import OwnTopics

PENDING_EVERY = 100
_FATES_A_TRANSACTION = 2_000
_YEAR_MS = 365 * 86_400_000
_VALUE = b"v" * 100
_DATA: Headers = [("kind", b"reminder")]
_CYCLE, _ENDED, _CONTROL = 20, 17, 18
_ENDS = ("cancelled", "moved", "replaced", "dead")
"""The ends of the requests at place `_ENDED` of each cycle, in turn. The next request acts on this request, unless its
end is `dead`."""
_CONTROLS = ("cancel", "reschedule", "replacement", "plain")
_OTHERS = {3: "without key", 4: "with id", 5: "stored"}
_STORED_EVERY = 5
_LATER_MS = 500
"""The time by which a message is moved."""
_SOON_MS = 300_000
"""The time until the first pending message of a live history is due: after the audits."""
_SETTINGS: Mapping[str, str | int] = {
    "enable.idempotence": True,
    "linger.ms": 20,
    "compression.type": "lz4",
    "partitioner": "murmur2_random",
    "queue.buffering.max.messages": 200_000,
}


_VERDICTS = ("cancelled", "replaced", "dead")


@dataclass(frozen=True)
class Filling:
    """One request partition: the positions of its next request and next dispatch-log record, and its parameters.

    `targets` take the messages in turn. Due times are drawn from the range of `spread_ms` before and after the present.
    If `spread_ms` is 0, all ended requests have one due time, and all pending requests another.
    """

    bootstrap: str
    requests: str
    partition: int
    targets: tuple[str, ...]
    next_request: int = 0
    next_seq: int = 1
    is_mixed: bool = False
    pending_every: int = PENDING_EVERY
    spread_ms: int = 0

    def kind(self, offset: int) -> str:
        """Returns the kind of a request. The kind determines how the request ends, unless it stays pending."""
        place, cycle = offset % _CYCLE, offset // _CYCLE
        if not self.is_mixed:
            return "plain"
        if place in (_ENDED, _CONTROL):
            return (_ENDS if place == _ENDED else _CONTROLS)[cycle % len(_ENDS)]
        found = _OTHERS.get(place, "plain")
        return "plain" if found == "stored" and cycle % _STORED_EVERY else found

    def verdict(self, offset: int) -> str:
        """Returns the verdict that an audit must find for the request."""
        if offset % self.pending_every == 0:
            return "pending"
        kind = self.kind(offset)
        return {"cancel": "applied", "reschedule": "applied"}.get(kind, kind if kind in _VERDICTS else "delivered")


def fill(fillings: Sequence[Filling], rows: Sequence[int], processes: int = 2) -> list[Filling]:
    """Adds requests and their deliveries to each partition, and returns the positions to continue from."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return list(pool.map(_filled, fillings, rows))


def _filled(filling: Filling, rows: int) -> Filling:
    assert not filling.is_mixed or rows % _CYCLE == 0, "a control follows what it acts on"
    now_ms = int(time.time() * 1_000)
    first, end = filling.next_request, filling.next_request + rows
    chance = random.Random(filling.partition)  # not a secret

    def due_ms_of(offset: int) -> int:
        is_pending = filling.verdict(offset) == "pending"
        if not filling.spread_ms:
            return now_ms + (_YEAR_MS if is_pending else -1_000)
        return now_ms + (
            chance.randint(_SOON_MS, filling.spread_ms) if is_pending else -chance.randint(1_000, filling.spread_ms)
        )

    dues = [due_ms_of(offset) for offset in range(first, end)]
    _ask(filling, dues)
    ended = [(first + place, due_ms) for place, due_ms in enumerate(dues) if due_ms < now_ms]
    return replace(filling, next_request=end, next_seq=_dispatch(filling, ended, end))


def _ask(filling: Filling, dues: Sequence[int]) -> None:
    """Produces the requests. Their offsets are those expected, since no other producer writes and there are no
    transaction markers."""
    producer, last = Producer({"bootstrap.servers": filling.bootstrap, **_SETTINGS}), list[int]()
    for offset, due_ms in enumerate(dues, filling.next_request):
        headers = _request_headers(filling, offset, due_ms)
        _put(producer, filling.requests, filling.partition, _key(filling, offset), headers, last)
    assert producer.flush(120) == 0, "all requests are written"
    assert not dues or last[0] == filling.next_request + len(dues) - 1, "somebody else writes to the request topic"


def _request_headers(filling: Filling, offset: int, due_ms: int) -> Headers:
    kind, id_ = filling.kind(offset), (ID, _id(filling, offset))
    if kind == "cancel":
        return [(ACTION, b"cancel"), id_]
    if kind == "reschedule":
        return [(ACTION, b"reschedule"), id_, (AT, b"%d" % (due_ms + _LATER_MS))]
    headers = [*_DATA, (TOPIC, _target(filling, offset).encode()), (AT, b"%d" % due_ms)]
    return [*headers, id_] if id_[1] else headers


def _dispatch(filling: Filling, ended: Sequence[tuple[int, int]], next_request: int) -> int:
    """Commits the ends of the requests, each transaction with its dispatch-log record last. Returns the next `seq`."""
    name = f"postdate/{filling.requests}/{filling.partition}"
    producer = Producer({"bootstrap.servers": filling.bootstrap, "transactional.id": name, **_SETTINGS})
    producer.init_transactions(60)
    log, seq = OwnTopics.of(filling.requests).dispatch_log, filling.next_seq
    for some in _transactions(ended, is_new=seq == 1):
        producer.begin_transaction()
        fates: list[Fate] = [fate for offset, due_ms in some for fate in _end(producer, filling, offset, due_ms)]
        record = DispatchRecord(
            seq=seq,
            takeover=1,
            instance="past",
            group="postdate",
            at=int(time.time() * 1_000),
            next_request=next_request,
            low_water=0,
            fates=fates,
        )
        if not fates:
            record.kind = OWNER
        producer.produce(log, encode_record(record), partition=filling.partition)
        producer.commit_transaction(60)
        seq += 1
    return seq


def _end(producer: Producer, filling: Filling, offset: int, due_ms: int) -> list[Fate]:
    """Produces the records that end a request and the control behind it, and returns the fates of both."""
    kind, control = filling.kind(offset), offset + 1
    if filling.is_mixed and offset % _CYCLE == 0:
        _put(producer, _target(filling, offset), -1, b"foreign", [("kind", b"foreign")])
    if kind in ("cancel", "reschedule", "replacement"):
        return []
    if kind == "cancelled":
        return [PlainFate(offset, due_ms, "cancelled"), PlainFate(control, 0, "applied")]
    if kind == "dead":
        sent = _request_headers(filling, offset, due_ms)
        letter = dead_letter_headers(sent, "unknown-target", "", _origin(filling, offset))
        letters = OwnTopics.of(filling.requests).dead_letters
        _put(producer, letters, filling.partition, _key(filling, offset), letter)
        return [PlainFate(offset, due_ms, "dead")]
    if kind == "moved":
        _deliver(producer, filling, offset, due_ms + _LATER_MS)
        moved = Moved(offset, due_ms, "moved", due_ms + _LATER_MS, control)
        return [moved, PlainFate(control, 0, "applied"), PlainFate(offset, due_ms, "delivered")]
    _deliver(producer, filling, control if kind == "replaced" else offset, due_ms)
    before: dict[str, list[Fate]] = {
        "replaced": [PlainFate(offset, due_ms, "replaced")],
        "stored": [PlainFate(offset, due_ms, "stored")],
    }
    delivered = PlainFate(control if kind == "replaced" else offset, due_ms, "delivered")
    return [*before.get(kind, ()), delivered]


def _deliver(producer: Producer, filling: Filling, offset: int, due_ms: int) -> None:
    headers = delivered_headers(_DATA, _origin(filling, offset), due_ms, _id(filling, offset))
    _put(producer, _target(filling, offset), -1, _key(filling, offset), headers)


def _transactions(ended: Sequence[tuple[int, int]], is_new: bool) -> Iterator[Sequence[tuple[int, int]]]:
    """Yields the deliveries of each transaction. The first transaction of a partition delivers nothing and names its
    owner."""
    if is_new:
        yield ()
    for start in range(0, len(ended), _FATES_A_TRANSACTION):
        yield ended[start : start + _FATES_A_TRANSACTION]


def _target(filling: Filling, offset: int) -> str:
    return filling.targets[offset % len(filling.targets)]


def _key(filling: Filling, offset: int) -> bytes | None:
    return None if filling.kind(offset) == "without key" else b"customer-%d" % offset


def _id(filling: Filling, offset: int) -> bytes:
    """Returns the id of a request. A control has the id of the request before it."""
    kind = filling.kind(offset)
    if kind in ("cancel", "reschedule", "replacement"):
        return b"id-%d" % (offset - 1)
    return b"id-%d" % offset if kind in ("with id", "cancelled", "moved", "replaced") else b""


def _origin(filling: Filling, offset: int) -> bytes:
    return format_origin(filling.requests, filling.partition, offset)


def _put(
    producer: Producer, topic: str, partition: int, key: bytes | None, headers: Headers, last: list[int] | None = None
) -> None:
    """Produces one record, and waits for space in the queue. `last` gets the offset of the last written record."""

    def noted(error: object, message: object) -> None:
        assert error is None, error
        if last is not None:
            last[:] = [message.offset()]  # type: ignore[attr-defined]

    while True:
        try:
            producer.produce(topic, _VALUE, key, partition, noted, headers=[*headers])
            return
        except BufferError:
            producer.poll(0.1)
