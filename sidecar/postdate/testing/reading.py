"""What was delivered to a topic, as a consumer of it would see it: committed records alone, from the beginning.

Over the interface of `postdate.kafka`. One thread.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from postdate.kafka.interface import Isolation, Kafka, Partition, Record
from postdate.wire.headers import DUE, ID, ORIGIN, Headers, is_ours

RECORDS_MAX: Final = 10_000
"""Records that are read of a topic at most: a test that delivers more wants a consumer of its own."""
_WAIT_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Delivered:
    """A record of a target. `headers` are those of the message; what Postdate adds is apart: `origin` of the request,
    due time in epoch ms (-1 on a dead letter), the caller's `id`, empty where there is none."""

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
    """What requests on the topic `requests` brought to a topic, in order of time, once there are `count` of them at
    least, or when `timeout_s` have passed.

    Raises Unreachable, NotAuthorized, and RecordRejected where the topic does not exist.
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
