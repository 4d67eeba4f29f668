"""Writes topics as sidecars leave them: requests, their deliveries, and the dispatch log.

For programs that need a long history and no sidecar. Each request partition is filled by a process of its own with the
real codecs: first its requests, then transactions of the deliveries and one dispatch-log record each, in that order, as
the protocol has them. One request in a hundred is due in a year and stays pending. A partition that was filled before
is filled on: what `fill` returns is where the next filling begins.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

from confluent_kafka import Producer

from postdate.wire.delivered import delivered_headers
from postdate.wire.dispatch_log import OWNER, DispatchRecord, Fate, PlainFate, encode_record
from postdate.wire.headers import AT, TOPIC, Headers
from postdate.wire.origins import format_origin
from postdate.wire.topics import OwnTopics

PENDING_EVERY = 100
_FATES_A_TRANSACTION = 2_000
_YEAR_MS = 365 * 86_400_000
_VALUE = b"v" * 100
_DATA: Headers = [("kind", b"reminder")]
_SETTINGS: Mapping[str, str | int] = {
    "enable.idempotence": True,
    "linger.ms": 20,
    "compression.type": "lz4",
    "partitioner": "murmur2_random",
    "queue.buffering.max.messages": 200_000,
}


@dataclass(frozen=True)
class Filling:
    """One request partition: where its next request and its next dispatch-log record come, and what they are for.

    `targets` take the messages in turn.
    """

    bootstrap: str
    requests: str
    partition: int
    targets: tuple[str, ...]
    next_request: int = 0
    next_seq: int = 1


def fill(fillings: Sequence[Filling], rows: Sequence[int], processes: int = 2) -> list[Filling]:
    """Adds requests to each partition, and their deliveries; returns the positions to continue from."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return list(pool.map(_filled, fillings, rows))


def _filled(filling: Filling, rows: int) -> Filling:
    now_ms = int(time.time() * 1_000)
    first, end = filling.next_request, filling.next_request + rows
    dues = [now_ms + (_YEAR_MS if offset % PENDING_EVERY == 0 else -1_000) for offset in range(first, end)]
    _ask(filling, dues)
    ended = [(first + place, due_ms) for place, due_ms in enumerate(dues) if due_ms < now_ms]
    return replace(filling, next_request=end, next_seq=_dispatch(filling, ended, end))


def _ask(filling: Filling, dues: Sequence[int]) -> None:
    """Produces the requests, which get the offsets that are expected: nobody else writes, and there are no markers."""
    producer, last = Producer({"bootstrap.servers": filling.bootstrap, **_SETTINGS}), list[int]()
    for offset, due_ms in enumerate(dues, filling.next_request):
        headers = [*_DATA, (TOPIC, _target(filling, offset).encode()), (AT, b"%d" % due_ms)]
        _put(producer, filling.requests, filling.partition, _key(offset), headers, last)
    assert producer.flush(120) == 0, "all requests are written"
    assert not dues or last[0] == filling.next_request + len(dues) - 1, "somebody else writes to the request topic"


def _dispatch(filling: Filling, ended: Sequence[tuple[int, int]], next_request: int) -> int:
    """Commits the deliveries, each transaction with its dispatch-log record last; returns the next `seq`."""
    name = f"postdate/{filling.requests}/{filling.partition}"
    producer = Producer({"bootstrap.servers": filling.bootstrap, "transactional.id": name, **_SETTINGS})
    producer.init_transactions(60)
    log, seq = OwnTopics.of(filling.requests).dispatch_log, filling.next_seq
    for some in _transactions(ended, is_new=seq == 1):
        producer.begin_transaction()
        for offset, due_ms in some:
            origin = format_origin(filling.requests, filling.partition, offset)
            _put(producer, _target(filling, offset), -1, _key(offset), delivered_headers(_DATA, origin, due_ms, b""))
        fates: list[Fate] = [PlainFate(offset, due_ms, "delivered") for offset, due_ms in some]
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


def _transactions(ended: Sequence[tuple[int, int]], is_new: bool) -> Iterator[Sequence[tuple[int, int]]]:
    """What each transaction delivers; the first one of a partition delivers nothing and says who its owner is."""
    if is_new:
        yield ()
    for start in range(0, len(ended), _FATES_A_TRANSACTION):
        yield ended[start : start + _FATES_A_TRANSACTION]


def _target(filling: Filling, offset: int) -> str:
    return filling.targets[offset % len(filling.targets)]


def _key(offset: int) -> bytes:
    return b"customer-%d" % offset


def _put(
    producer: Producer, topic: str, partition: int, key: bytes, headers: Headers, last: list[int] | None = None
) -> None:
    """Produces one record, waiting for room; the offset of the last record that was written is kept in `last`."""

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
