"""Reads the deliveries to a topic as a consumer would: only committed records, from the beginning.

Uses the interface of `postdate.kafka`. Thread rule: one thread.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from postdate.kafka.interface import Isolation, Kafka, Partition, Record
from postdate.wire.headers import DUE, ID, ORIGIN, Headers, is_ours

RECORDS_MAX: Final = 10_000
"""The most records that are read from a topic: a test with more needs its own consumer."""
_WAIT_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Delivered:
    """A record of a target. `headers` are those of the message. The headers of Postdate are separate: the `origin` of
    the request, the due time in epoch ms (-1 on a dead letter), and the `id`, empty if there is none."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    origin: str
    due_ms: int
    id: bytes


def read_delivered(kafka: Kafka, requests: str, topic: str, count: int, timeout_s: float) -> list[Delivered]:
    """The deliveries of requests on the topic `requests` to a topic, in order of time, once there are at least
    `count`, or after `timeout_s`.

    Raises Unreachable, NotAuthorized, and RecordRejected if the topic does not exist.
    """
    deadline = time.monotonic() + timeout_s
    admin = kafka.admin()
    parts = [Partition(topic, index) for index in admin.describe([topic])[topic].partitions]
    starts = admin.start_offsets(parts)
    admin.close()
    readers = {part: kafka.log_reader(part, starts[part], Isolation.READ_COMMITTED) for part in parts}
    found: list[Delivered] = []
    try:
        while True:
            for part, reader in readers.items():
                records = (_delivered(part.index, record) for record in reader.read(RECORDS_MAX, _WAIT_S))
                found += [each for each in records if each.origin.startswith(f"{requests}/")]
            if len(found) >= count or time.monotonic() >= deadline or len(found) >= RECORDS_MAX:
                return sorted(found, key=lambda each: (each.timestamp_ms, each.partition, each.offset))
    finally:
        for reader in readers.values():
            reader.close()


def _delivered(partition: int, record: Record) -> Delivered:
    headers = record.headers or []
    ours = {name: value or b"" for name, value in headers if is_ours(name)}
    return Delivered(
        partition,
        record.offset,
        record.key,
        record.value,
        [header for header in headers if not is_ours(header[0])],
        record.timestamp_ms,
        ours.get(ORIGIN, b"").decode(),
        int(ours.get(DUE, b"-1")),
        ours.get(ID, b""),
    )
