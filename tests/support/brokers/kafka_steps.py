"""Steps shared by contract tests, written against the interface: they run on the real and on the simulated Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from postdate.kafka.errors import KafkaFault
from postdate.kafka.interface import (
    GroupConsumer,
    Headers,
    Isolation,
    Kafka,
    NewTopic,
    Partition,
    Record,
    TransactionalProducer,
)
from support.brokers.broker import unique_name
from support.brokers.kafka_clock import now_s
from support.waiting.timeouts import WAIT_TIMEOUT_S


def new_topic(kafka: Kafka, partitions: int = 1, **config: str) -> str:
    """Creates a topic with a unique name and returns the name; underscores in setting names stand for dots."""
    name = unique_name("contract")
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin = kafka.admin()
    assert admin.create_topics([NewTopic(name, partitions, 1, settings)]) == [name]
    admin.close()
    return name


def open_producer(kafka: Kafka, transactional_id: str | None = None) -> TransactionalProducer:
    """Returns a transactional producer that has initialised its transactions."""
    producer = kafka.producer(transactional_id or unique_name("tid"))
    producer.init(WAIT_TIMEOUT_S)
    return producer


def commit_values(producer: TransactionalProducer, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
    """Commits one transaction with these values."""
    producer.begin()
    for value in values:
        producer.produce(topic, value, None, [], partition)
    producer.commit()


def commit_until_settled(producer: TransactionalProducer, topic: str, value: bytes) -> list[bytes]:
    """Commits transactions with one value each, until one finishes quickly enough for the producer to remain usable.
    Returns the committed values in order; a busy machine may need several transactions."""
    committed: list[bytes] = []
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    while True:
        commit_values(producer, topic, [value])
        committed.append(value)
        if producer.settle():
            return committed
        assert time.monotonic() < deadline, f"no end of {len(committed)} transactions was quick"


def abort_values(producer: TransactionalProducer, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
    """Aborts one transaction after its records have reached the log."""
    producer.begin()
    for value in values:
        producer.produce(topic, value, None, [], partition)
    assert producer.flush(WAIT_TIMEOUT_S) == 0
    producer.abort()


def append(
    kafka: Kafka,
    topic: str,
    value: bytes | None = b"v",
    key: bytes | None = None,
    headers: Headers | None = None,
    partition: int = 0,
) -> tuple[int, int]:
    """Appends one record outside of any transaction; returns the offset and the timestamp of its delivery report."""
    reported: list[tuple[int, int]] = []

    def report(fault: KafkaFault | None, offset: int, timestamp_ms: int) -> None:
        assert fault is None, fault
        reported.append((offset, timestamp_ms))

    producer = kafka.plain_producer()
    producer.produce(topic, value, key, headers or [], partition, report)
    assert producer.flush(WAIT_TIMEOUT_S) == 0
    producer.destroy()
    assert len(reported) == 1
    return reported[0]


def read_to_end(
    kafka: Kafka, part: Partition, isolation: Isolation, offset: int = 0, *, beside_open: bool = False
) -> tuple[list[Record], int]:
    """Returns all records from `offset` to the end of the log, and the position reached. `beside_open`: stops at the
    end that this isolation level can reach now, even if a transaction is open. By default waits for open transactions,
    since the broker confirms a commit before it writes the markers."""
    admin, reader = kafka.admin(), kafka.log_reader(part, offset, isolation)
    bound = isolation if beside_open else Isolation.READ_UNCOMMITTED
    try:
        records: list[Record] = []
        deadline = now_s(kafka) + WAIT_TIMEOUT_S
        while reader.position() < (end := admin.end_offsets([part], bound)[part]):
            assert now_s(kafka) < deadline, f"{part} stays at {reader.position()} of {end}"
            records += reader.read(100, 0.2)
        return records, reader.position()
    finally:
        reader.close()
        admin.close()


def read_committed(kafka: Kafka, part: Partition, *, beside_open: bool = False) -> list[Record]:
    return read_to_end(kafka, part, Isolation.READ_COMMITTED, beside_open=beside_open)[0]


@dataclass
class Member:
    """A group member that starts each assigned partition at `first_offset`, and records events and messages."""

    consumer: GroupConsumer
    first_offset: int | None = 0
    now_s: Callable[[], float] = time.monotonic
    events: list[tuple[str, tuple[Partition, ...]]] = field(default_factory=list)
    seen: dict[Partition, list[Record]] = field(default_factory=dict)
    _to_start: list[Partition] = field(default_factory=list)

    def assigned(self, parts: Sequence[Partition]) -> None:
        self.events.append(("assigned", tuple(parts)))
        self._to_start += parts

    def revoked(self, parts: Sequence[Partition]) -> None:
        self.events.append(("revoked", tuple(parts)))

    def lost(self, parts: Sequence[Partition]) -> None:
        self.events.append(("lost", tuple(parts)))

    def poll(self, timeout_s: float = 0.1) -> None:
        for part, records in self.consumer.poll(1000, timeout_s):
            self.seen.setdefault(part, []).extend(records)
        while self._to_start and self.first_offset is not None:
            part = self._to_start.pop()
            if part in self.consumer.assignment():
                self.consumer.start(part, self.first_offset)

    def offsets(self, part: Partition) -> list[int]:
        return [record.offset for record in self.seen.get(part, [])]


def poll_until(members: Sequence[Member], condition: Callable[[], bool], what: str) -> None:
    """Polls all members in turn until the condition holds; fails with `what` after the time-out."""
    now = members[0].now_s
    deadline = now() + WAIT_TIMEOUT_S
    while not condition():
        assert now() < deadline, f"never happened: {what}"
        for member in members:
            member.poll()


def poll_for(members: Sequence[Member], seconds: float) -> None:
    """Polls for a fixed time, to check that something does *not* happen."""
    now = members[0].now_s
    deadline = now() + seconds
    while now() < deadline:
        for member in members:
            member.poll(0.05)


#: Makes a group member for a topic. Arguments: its first offset (None: it starts no partition) and its static name.
Join = Callable[..., Member]


def confirms(member: Member, part: Partition) -> bool:
    """True if the coordinator reports that this member owns the partition."""
    return member.consumer.confirm([part], 10) == {part}
