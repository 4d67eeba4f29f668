"""The judge of exactly-once delivery: compares the requests with the records of a read_committed reader.

It shares no state with the sidecar: it records the acknowledged requests, and reads everything else from Kafka. It
checks the rules O1 to O6 of docs/testing.md: no origin occurs twice; each request ends once; an end and its record
occur together; bytes are equal; no message leaves before its due time by the broker's clock; `seq` has no gap.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from postdate.wire.dispatch_log import DispatchRecord, decode_record
from postdate.wire.topics import OwnTopics
from support.brokers.end_offsets import end_offsets
from support.oracles.expected_records import (
    FINAL_FATES,
    VALUE_LEFT_OUT,
    Headers,
    data_headers,
    dead_letter_complaints,
    delivery_headers,
    origin_of,
    partition_of,
)
from support.waiting.timeouts import WAIT_TIMEOUT_S

#: The number of violations of each kind that a failed test prints.
_SHOWN = 10


@dataclass(slots=True)
class Sent:
    """An acknowledged request, with the expected `due_ms` and `target`."""

    target: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    due_ms: int = -1
    target_key: bytes | None = None
    origin: bytes = b""
    appended_ms: int = -1

    @property
    def data_headers(self) -> Headers:
        return data_headers(self.headers)

    @property
    def id(self) -> bytes:
        return next((value or b"" for name, value in self.headers if name == "postdate-id"), b"")

    def partition_among(self, partitions: int) -> int:
        """Returns the partition of the target in which it must arrive; -1: any, as for a message without a key."""
        named = next((value for name, value in self.headers if name == "postdate-partition"), None)
        if named is not None:
            return int(named)
        key = self.key if self.target_key is None else self.target_key
        return -1 if key is None else partition_of(key, partitions)


@dataclass(slots=True)
class Seen:
    """A record that a reader has received, with the time of arrival (epoch ms, this machine's clock)."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    arrived_ms: float

    def last(self, name: str) -> bytes:
        """Returns the value of the last header with this name, which is the valid one in a dead letter."""
        return next(value or b"" for header, value in reversed(self.headers) if header == name)

    @property
    def origin(self) -> bytes:
        return self.last("postdate-origin")


class Sender:
    """Produces requests as any client would, and records their offsets."""

    def __init__(self, bootstrap: str, **properties: str | int) -> None:
        conf = {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 2, **properties}
        self._producer = Producer(conf)
        self.failures: list[KafkaError] = []

    def send(self, requests: str, sent: Sent, partition: int = -1) -> Sent:
        """Sends the request; `flush` waits for its acknowledgement."""

        def acknowledged(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(error)
                return
            where, offset = message.partition(), message.offset()
            assert where is not None, "a request was acknowledged without its partition"
            assert offset is not None, "a request was acknowledged without its offset"
            sent.origin = origin_of(requests, where, offset)
            sent.appended_ms = message.timestamp()[1]

        while True:
            try:
                self._producer.produce(
                    requests, sent.value, sent.key, partition, acknowledged, headers=list(sent.headers)
                )
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)
        return sent

    def serve(self) -> None:
        """Handles the acknowledgements that have arrived."""
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(WAIT_TIMEOUT_S) == 0, "requests were not acknowledged"
        assert not self.failures, self.failures[:3]


class Reader:
    """Reads topics from their beginning as a read_committed consumer without a group."""

    def __init__(self, bootstrap: str, topics: Iterable[str]) -> None:
        topics = list(topics)
        self.records: list[Seen] = []
        self.taken = 0
        conf = {
            "bootstrap.servers": bootstrap,
            "group.id": "oracle",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        }
        self._consumer = Consumer(conf)
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        known = self._admin.list_topics(timeout=WAIT_TIMEOUT_S).topics
        self.partitions = {topic: len(known[topic].partitions) for topic in topics}
        self._parts = [(topic, index) for topic in topics for index in known[topic].partitions]
        self._consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for topic, index in self._parts])

    def read_new(self, timeout_s: float = 0.1) -> list[Seen]:
        """Returns the records since the last call. Waits only for the first one."""
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        messages = [first, *self._consumer.consume(2000, 0)]
        arrived_ms = time.time() * 1000
        taken = [_seen(message, arrived_ms) for message in messages]
        self.records += taken
        self.taken += len(taken)
        return taken

    def forgotten(self) -> list[Seen]:
        """Returns the records since the last call without keeping them, so that memory does not limit their number."""
        passed, self.records = self.records, []
        return passed

    def until(self, condition: Callable[[], bool], what: str, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Reads until the condition holds; fails with `what` after a time-out."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what} ({self.taken} seen)"
            self.read_new()

    def to_end(self, timeout_s: float = WAIT_TIMEOUT_S) -> list[Seen]:
        """Reads to the present end of every partition, and returns everything read since the beginning."""
        reached = self._end()
        self.until(reached, "the ends of all partitions are reached", timeout_s)
        return self.records

    def passing(self, timeout_s: float = WAIT_TIMEOUT_S) -> Iterator[Seen]:
        """Yields each record up to the present end of its partition. None is kept."""
        reached, deadline = self._end(), time.monotonic() + timeout_s
        while not reached():
            assert time.monotonic() < deadline, f"not read to the end within {timeout_s:.0f} s ({self.taken} seen)"
            self.read_new()
            yield from self.forgotten()

    def _end(self) -> Callable[[], bool]:
        """Returns a condition that is True once the reader has reached the present ends, including all transaction
        markers, which the broker may write after the transaction has ended.
        """
        ends = end_offsets(self._admin, self._parts)

        def reached() -> bool:
            positions = self._consumer.position([TopicPartition(*part) for part in self._parts])
            return all(p.offset >= ends[(p.topic, p.partition)] or ends[(p.topic, p.partition)] == 0 for p in positions)

        return reached

    def close(self) -> None:
        self._consumer.close()


def _seen(message: Message, arrived_ms: float) -> Seen:
    assert message.error() is None, message.error()
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return Seen(
        topic,
        partition,
        offset,
        message.key(),
        message.value(),
        cast(Headers, message.headers() or []),
        message.timestamp()[1],
        arrived_ms,
    )


@dataclass
class Outcome:
    """All records of some request topics, and the violations in them."""

    delivered: list[Seen]
    dead: list[Seen]
    log: list[tuple[Seen, DispatchRecord]]
    wrong: list[str] = field(default_factory=list)
    partitions: dict[str, int] = field(default_factory=dict)
    """The number of records of each topic."""

    @property
    def fates(self) -> dict[bytes, list[tuple[str, int]]]:
        """The final fates by origin, each with the broker's timestamp of its record."""
        found: dict[bytes, list[tuple[str, int]]] = {}
        for seen, record in self.log:
            requests = seen.topic.removesuffix(".dispatch-log")
            for fate in record.fates:
                if fate.name in FINAL_FATES:
                    origin = origin_of(requests, seen.partition, fate.offset)
                    found.setdefault(origin, []).append((fate.name, seen.timestamp_ms))
        return found

    def reasons(self) -> Counter[str]:
        return Counter(letter.last("postdate-dead-reason").decode() for letter in self.dead)

    def takeovers(self) -> int:
        return sum(record.kind == "owner" for _, record in self.log)


def gather(bootstrap: str, requests: Sequence[str], targets: Iterable[str]) -> Outcome:
    """Reads targets, dead letters and dispatch logs to their ends."""
    own = [OwnTopics.of(name) for name in requests]
    logs, letters = {each.dispatch_log for each in own}, {each.dead_letters for each in own}
    reader = Reader(bootstrap, [*targets, *letters, *logs])
    try:
        records = reader.to_end()
    finally:
        reader.close()
    return Outcome(
        delivered=[seen for seen in records if seen.topic not in logs | letters],
        dead=[seen for seen in records if seen.topic in letters],
        log=[(seen, decode_record(seen.value)) for seen in records if seen.topic in logs],
        partitions=reader.partitions,
    )


def judge(outcome: Outcome, expected: Sequence[Sent], dead: Sequence[Sent] = (), silent: Sequence[Sent] = ()) -> None:
    """Raises AssertionError unless the log and the topics agree, and each request ended as it must.

    Each of `expected` must be delivered and each of `dead` dead-lettered exactly once. Each of `silent` (cancelled,
    replaced, controls) must end without a record.
    """
    wrong = outcome.wrong
    _judge_ends(outcome, expected, dead, silent)
    by_origin = {seen.origin: seen for seen in outcome.delivered}
    fates = outcome.fates
    for sent in expected:
        seen = by_origin.get(sent.origin)
        if seen is not None:
            wrong += _differences(sent, seen, outcome.partitions)
            wrong += _early(sent, seen, fates.get(sent.origin, []))
    letters = {seen.origin: seen for seen in outcome.dead}
    for sent in dead:
        if sent.origin in letters:
            wrong += _letter_differences(sent, letters[sent.origin])
    wrong += _sequence(outcome)
    assert not wrong, f"{len(wrong)} violations:\n" + "\n".join(wrong[:_SHOWN])


def _judge_ends(outcome: Outcome, expected: Sequence[Sent], dead: Sequence[Sent], silent: Sequence[Sent]) -> None:
    """Checks O1 to O3: each expected origin occurs exactly once on the topics and in the log."""
    fates = outcome.fates
    for name, found, wanted, fate in (
        ("delivered", outcome.delivered, expected, "delivered"),
        ("dead letters", outcome.dead, dead, "dead"),
    ):
        counts = Counter(seen.origin for seen in found)
        asked = {sent.origin for sent in wanted}
        said = {origin for origin, ends in fates.items() if fate in [end for end, _ in ends]}
        outcome.wrong += _some(f"{name} twice", [origin for origin, count in counts.items() if count > 1])
        outcome.wrong += _some(f"{name}: lost", asked - counts.keys())
        outcome.wrong += _some(f"{name} though not expected", counts.keys() - asked)
        outcome.wrong += _some(f"{name} without a fate", counts.keys() - said)
        outcome.wrong += _some(f"{name}: fate without a record", said - counts.keys())
    outcome.wrong += _some("two fates", [origin for origin, ends in fates.items() if len(ends) > 1])
    outcome.wrong += _some("no fate", {sent.origin for sent in silent} - fates.keys())


def _differences(sent: Sent, seen: Seen, partitions: dict[str, int]) -> list[str]:
    """Returns the differences between a delivered record and its message, including the partition (O4)."""
    headers = delivery_headers(sent.data_headers, sent.origin, sent.due_ms, sent.id)
    key = sent.key if sent.target_key is None else sent.target_key
    wanted = (sent.target, key, sent.value, headers)
    found = (seen.topic, seen.key, seen.value, seen.headers)
    wrong = [] if wanted == found else [f"{sent.origin!r} differs: sent {wanted}, seen {found}"]
    partition = sent.partition_among(partitions[seen.topic]) if seen.topic in partitions else -1
    if partition >= 0 and seen.partition != partition:
        wrong.append(f"{sent.origin!r} is delivered to partition {seen.partition}, not {partition}")
    return wrong


def _letter_differences(sent: Sent, letter: Seen) -> list[str]:
    """Returns the differences between a dead letter and its request (O4). The dead letter may lack a value that is too
    large; then it has a note."""
    wrong = dead_letter_complaints(sent.headers, letter.headers, sent.origin)
    left_out = letter.value is None and letter.last("postdate-dead-detail").startswith(VALUE_LEFT_OUT)
    if letter.key != sent.key or (letter.value != sent.value and not left_out):
        wrong.append(f"the dead letter has key {letter.key!r} and value {letter.value!r}")
    return [f"{sent.origin!r}: {each}" for each in wrong]


def _early(sent: Sent, seen: Seen, ends: list[tuple[str, int]]) -> list[str]:
    """Returns a complaint if the broker appended the record of the dispatch log before the message was due (O5)."""
    appended = min((at for _, at in ends), default=-1)
    return [f"{sent.origin!r} due {sent.due_ms} was dispatched at {appended}"] if appended < sent.due_ms else []


def _sequence(outcome: Outcome) -> list[str]:
    """Returns the violations of O6: in each partition `seq` begins with 1 and rises by one, in the order of offsets."""
    wrong: list[str] = []
    last: dict[tuple[str, int], int] = {}
    for seen, record in sorted(outcome.log, key=lambda pair: (pair[0].topic, pair[0].partition, pair[0].offset)):
        part = (seen.topic, seen.partition)
        if record.seq != last.get(part, 0) + 1:
            wrong.append(f"{part} offset {seen.offset}: seq {record.seq} after {last.get(part, 0)}")
        last[part] = record.seq
    return wrong


def _some(what: str, origins: Iterable[bytes]) -> list[str]:
    listed = sorted(origins, key=_parsed)
    return [f"{what}: {len(listed)}, among them {listed[:5]}"] if listed else []


def _parsed(origin: bytes) -> tuple[str, int, int]:
    """Returns the topic, partition and offset that an origin names."""
    topic, partition, offset = origin.decode().rsplit("/", 2)
    return topic, int(partition), int(offset)


def overtaken(outcome: Outcome) -> list[str]:
    """Returns the overtaken messages: messages of one request partition, target and key must leave by due time, then by
    request offset.

    A message counts as overtaken only if the sender of the other message knew it: its request lies below the
    `next_request` of that transaction. REQUIRES: no message was moved or stored, and no target failed. O(messages of a
    key, squared).
    """
    known = {
        origin_of(seen.topic.removesuffix(".dispatch-log"), seen.partition, fate.offset): record.next_request
        for seen, record in outcome.log
        for fate in record.fates
        if fate.name == "delivered"
    }
    by_key: dict[tuple[str, int, str, int, bytes | None], list[Seen]] = {}
    for seen in outcome.delivered:
        requests, partition, _ = _parsed(seen.origin)
        by_key.setdefault((requests, partition, seen.topic, seen.partition, seen.key), []).append(seen)
    wrong = []
    for messages in by_key.values():
        messages.sort(key=lambda seen: seen.offset)
        order = [(int(seen.last("postdate-due")), _parsed(seen.origin)[2]) for seen in messages]
        for place, earlier in enumerate(order):
            before = known[messages[place].origin]
            wrong += [f"{late} after {earlier}" for late in order[place + 1 :] if late < earlier and late[1] < before]
    return wrong
