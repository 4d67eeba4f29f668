"""The interface of a sidecar for the tests of a service, which creates targets and reads deliveries.

Deliveries are read as by a consumer: only committed records, from the beginning. Thread rule: one thread.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from postdate.client import RequestTopic
from postdate.kafka.client import ConfluentKafka
from postdate.kafka.interface import Isolation, Kafka, NewTopic, Partition, Record
from postdate.kafka.settings import KafkaSettings
from postdate.wire.headers import DUE, ID, ORIGIN, Headers, is_postdate_header


class NotDelivered(AssertionError):
    """The expected messages did not arrive, the topics could not be created, or the sidecar did not start. The text
    contains the end of the log."""


class Observed:
    """A sidecar that serves one request topic, seen from a test.

    `bootstrap_servers`: the address of Kafka for the test. `requests`: the request topic for `postdate.client`.
    """

    bootstrap_servers: str
    requests: RequestTopic

    @abstractmethod
    def log(self) -> str:
        """Returns the end of the sidecar's log."""

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Creates a topic, such as a target, unless it exists. A message for a missing target becomes a dead letter."""
        admin = self._kafka().admin()
        admin.create_topics([NewTopic(name, partitions, -1, dict(config or {}))])
        admin.close()

    def delivered(self, topic: str, count: int, timeout_s: float = 60.0) -> list[DeliveredRecord]:
        """Returns the messages that this sidecar has delivered to an existing topic so far, in order of time, once
        there are at least `count` (at most RECORDS_MAX). `timeout_s` includes the delays. Raises NotDelivered if there
        are fewer after this time, and the errors of `consume_delivered`."""
        records = consume_delivered(self._kafka(), self.requests.name, topic, count, timeout_s)
        if len(records) < count:
            raise NotDelivered(f"{topic} has {len(records)} of {count} records after {timeout_s:.0f} s.\n{self.log()}")
        return records

    def dead_letters(self, count: int, timeout_s: float = 60.0) -> list[DeliveredRecord]:
        """Returns the dead letters, as `delivered` returns messages."""
        return self.delivered(f"{self.requests.name}.dead-letters", count, timeout_s)

    def _kafka(self) -> ConfluentKafka:
        return ConfluentKafka(KafkaSettings(self.bootstrap_servers))


RECORDS_MAX: Final = 10_000
"""Reading a topic ends once this many deliveries have been found. A test with more deliveries needs a consumer."""
_WAIT_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class DeliveredRecord:
    """A delivered message or a dead letter. `headers`: the headers of the message, without those of Postdate. Three of
    the latter are separate fields: `origin`, the origin of the request; `due_ms`, the due time in epoch ms, -1 if
    the record has none; `id`, empty if there is none."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    origin: str
    due_ms: int
    id: bytes


def consume_delivered(kafka: Kafka, requests: str, topic: str, count: int, timeout_s: float) -> list[DeliveredRecord]:
    """Returns the deliveries to `topic` that originate from the request topic `requests`, in order of time, once there
    are at least `count`, or after `timeout_s`.

    Raises Unreachable, NotAuthorized, and KeyError if `topic` does not exist.
    """
    deadline = time.monotonic() + timeout_s
    with closing(kafka.admin()) as admin:
        parts = [Partition(topic, index) for index in admin.describe([topic])[topic].partitions]
        starts = admin.start_offsets(parts)
    readers = {part: kafka.log_reader(part, starts[part], Isolation.READ_COMMITTED) for part in parts}
    delivered: list[DeliveredRecord] = []
    try:
        while True:
            for part, reader in readers.items():
                records = (_delivered(part.index, record) for record in reader.read(RECORDS_MAX, _WAIT_S))
                delivered += [record for record in records if record.origin.startswith(f"{requests}/")]
            if len(delivered) >= count or time.monotonic() >= deadline or len(delivered) >= RECORDS_MAX:
                return sorted(delivered, key=lambda record: (record.timestamp_ms, record.partition, record.offset))
    finally:
        for reader in readers.values():
            reader.close()


def _delivered(partition: int, record: Record) -> DeliveredRecord:
    headers = record.headers or []
    ours = {name: value or b"" for name, value in headers if is_postdate_header(name)}
    return DeliveredRecord(
        partition,
        record.offset,
        record.key,
        record.value,
        [header for header in headers if not is_postdate_header(header[0])],
        record.timestamp_ms,
        ours.get(ORIGIN, b"").decode(),
        int(ours.get(DUE, b"-1")),
        ours.get(ID, b""),
    )
