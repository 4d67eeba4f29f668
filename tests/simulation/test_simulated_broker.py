"""Goal: each fault that a test injects into the simulated cluster has the effect that it has on a real one.

Method: injects one fault at a time and observes one client; waiting takes no real time. `tests/contract` covers the
behaviour without faults.
"""

from __future__ import annotations

from random import Random

import pytest

from postdate.kafka.errors import (
    AbortRequired,
    Fenced,
    KafkaFault,
    OffsetOutOfRange,
    RecordRejected,
    UnknownOutcome,
    Unreachable,
)
from postdate.kafka.interface import Isolation, NewTopic, Partition
from support.brokers.kafka_steps import Member, commit_values, open_producer, read_committed, read_to_end
from support.kafka_simulator import Faults, Link, SimBroker, SimKafka, SimTime

TOPIC, OTHER = "one", "other"
PART = Partition(TOPIC, 0)


@pytest.fixture
def kafka() -> SimKafka:
    broker = SimBroker(SimTime())
    for name in (TOPIC, OTHER):
        broker.create(NewTopic(name, 1, 1, {"message.timestamp.type": "LogAppendTime", "retention.ms": "60000"}))
    return SimKafka(broker)


def _values(kafka: SimKafka) -> list[bytes | None]:
    return [record.value for record in read_committed(kafka, PART, beside_open=True)]


def _cut(kafka: SimKafka, for_ms: float, answers_only: bool = False) -> None:
    kafka.link.cut_until_ms, kafka.link.cut_answers = kafka.broker.time.now_ms + for_ms, answers_only


class TestTornTransaction:
    """KAFKA-17754: a late EndTxn ends whatever transaction of its epoch is open when it arrives."""

    def test_a_late_commit_decides_the_next_transaction_of_the_same_epoch(self, kafka: SimKafka) -> None:
        producer = open_producer(kafka)
        producer.begin()
        producer.produce(TOPIC, b"first", None, [], 0)
        producer.flush(1)
        kafka.link.faults.rates["end-copied"] = 1.0
        kafka.link.at_step = lambda step: kafka.link.faults.rates.clear() if step == "commit.done" else None
        producer.commit()
        assert not producer.settle()
        producer.begin()
        producer.produce(TOPIC, b"torn", None, [], 0)
        producer.flush(1)
        kafka.broker.time.wait(1_000)
        assert _values(kafka) == [b"first", b"torn"]
        assert kafka.broker.transactions.decided["late"] == 1

    def test_a_late_commit_does_not_affect_a_newer_epoch(self, kafka: SimKafka) -> None:
        producer = open_producer(kafka, "tid")
        producer.begin()
        producer.produce(TOPIC, b"first", None, [], 0)
        kafka.link.faults.rates["end-copied"] = 1.0
        kafka.link.at_step = lambda step: kafka.link.faults.rates.clear() if step == "commit.done" else None
        producer.commit()
        successor = open_producer(kafka, "tid")
        successor.begin()
        successor.produce(TOPIC, b"safe", None, [], 0)
        successor.flush(1)
        kafka.broker.time.wait(1_000)
        assert _values(kafka) == [b"first"]


class TestOutcome:
    def test_a_commit_whose_response_is_lost_takes_effect_with_an_unknown_outcome(self, kafka: SimKafka) -> None:
        producer = open_producer(kafka)
        producer.begin()
        producer.produce(TOPIC, b"v", None, [], 0)
        producer.flush(1)
        _cut(kafka, 60_000, answers_only=True)
        with pytest.raises(UnknownOutcome):
            producer.commit()
        kafka.link.cut_until_ms = 0
        assert _values(kafka) == [b"v"]

    def test_a_commit_that_never_arrives_is_aborted_by_the_coordinator(self, kafka: SimKafka) -> None:
        producer = open_producer(kafka)
        producer.begin()
        producer.produce(TOPIC, b"v", None, [], 0)
        producer.flush(1)
        _cut(kafka, 60_000)
        with pytest.raises(UnknownOutcome):
            producer.commit()
        kafka.link.cut_until_ms = 0
        assert _values(kafka) == []
        assert kafka.broker.transactions.decided["timeout"] == 1

    def test_a_lost_response_is_retried_and_taints_the_producer(self, kafka: SimKafka) -> None:
        producer = open_producer(kafka)
        producer.begin()
        producer.produce(TOPIC, b"v", None, [], 0)
        producer.flush(1)
        _cut(kafka, 40, answers_only=True)
        producer.commit()
        assert not producer.settle()
        assert _values(kafka) == [b"v"]

    def test_a_short_outage_of_the_coordinator_only_delays(self, kafka: SimKafka) -> None:
        producer = open_producer(kafka)
        producer.begin()
        producer.produce(TOPIC, b"v", None, [], 0)
        producer.flush(1)
        kafka.broker.transactions.away_until_ms = kafka.broker.time.now_ms + 3_000
        producer.commit()
        assert not producer.settle()
        assert _values(kafka) == [b"v"]

    def test_a_producer_that_exceeds_its_transaction_timeout_is_fenced(self, kafka: SimKafka) -> None:
        producer = open_producer(kafka)
        producer.begin()
        producer.produce(TOPIC, b"v", None, [], 0)
        producer.flush(1)
        kafka.broker.time.wait(11_000)
        with pytest.raises(Fenced):
            producer.commit()

    def test_late_markers_delay_the_next_transaction_and_hide_the_last(self, kafka: SimKafka) -> None:
        kafka.broker.faults.rates["markers-late"] = 1.0
        producer = open_producer(kafka)
        commit_values(producer, TOPIC, [b"v"])
        assert kafka.broker.log(PART).stable_end == 0
        commit_values(producer, TOPIC, [b"w"])
        kafka.broker.time.wait(1_000)
        assert _values(kafka) == [b"v", b"w"]


class TestRecords:
    def test_records_for_a_missing_leader_time_out(self, kafka: SimKafka) -> None:
        faults: list[KafkaFault | None] = []
        producer = open_producer(kafka)
        producer.begin()
        kafka.broker.topics[TOPIC].logs[0].has_leader = False
        producer.produce(TOPIC, b"v", None, [], 0, lambda fault, *_: faults.append(fault))
        with pytest.raises(AbortRequired):
            producer.commit()
        assert [type(fault) for fault in faults] == [RecordRejected]
        kafka.broker.topics[TOPIC].logs[0].has_leader = True
        producer.abort()
        commit_values(producer, TOPIC, [b"w"])
        assert _values(kafka) == [b"w"]

    def test_a_record_whose_response_is_lost_is_not_written_twice(self, kafka: SimKafka) -> None:
        producer = open_producer(kafka)
        producer.begin()
        producer.produce(OTHER, b"x", None, [], 0)
        producer.flush(1)
        producer.produce(TOPIC, b"v", None, [], 0)
        _cut(kafka, 100, answers_only=True)
        assert producer.flush(5) == 0
        producer.commit()
        assert _values(kafka) == [b"v"]


class TestLogs:
    def test_retention_moves_the_start_but_keeps_undecided_records(self, kafka: SimKafka) -> None:
        producer = open_producer(kafka)
        commit_values(producer, TOPIC, [b"old", b"old"])
        log = kafka.broker.log(PART)
        kafka.broker.time.wait(61_000)
        commit_values(producer, TOPIC, [b"new"])
        assert kafka.broker.expire() == {PART: 3}
        assert log.start == 3
        assert [r.value for r in read_to_end(kafka, PART, Isolation.READ_COMMITTED, 3)[0]] == [b"new"]
        with pytest.raises(OffsetOutOfRange):
            kafka.log_reader(PART, 0, Isolation.READ_COMMITTED).read(1, 0)

    def test_a_truncated_log_loses_its_end(self, kafka: SimKafka) -> None:
        commit_values(open_producer(kafka), TOPIC, [b"a", b"b"])
        kafka.broker.log(PART).truncate(1)
        assert kafka.admin().end_offsets([PART], Isolation.READ_UNCOMMITTED) == {PART: 1}
        with pytest.raises(OffsetOutOfRange):
            kafka.log_reader(PART, 3, Isolation.READ_COMMITTED).read(1, 0)


class TestCompaction:
    """A reader of a compacted topic sees the last record of each key, and each tombstone until its retention ends."""

    @pytest.fixture
    def store(self, kafka: SimKafka) -> Partition:
        kafka.broker.create(NewTopic("store", 1, 1, {"cleanup.policy": "compact", "delete.retention.ms": "5000"}))
        return Partition("store", 0)

    @staticmethod
    def _produce(kafka: SimKafka, *records: tuple[bytes, bytes | None], commit: bool = True) -> None:
        producer = open_producer(kafka, "tid")
        producer.begin()
        for key, value in records:
            producer.produce("store", value, key, [], 0)
        assert producer.flush(1) == 0
        if commit:
            producer.commit()
        else:
            producer.abort()

    @staticmethod
    def _held(kafka: SimKafka, part: Partition) -> list[tuple[int, bytes | None, bytes | None]]:
        records, position = read_to_end(kafka, part, Isolation.READ_COMMITTED, 0)
        assert position == kafka.broker.log(part).end
        return [(record.offset, record.key, record.value) for record in records]

    def test_the_last_committed_record_of_each_key_keeps_its_offset(self, kafka: SimKafka, store: Partition) -> None:
        self._produce(kafka, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
        self._produce(kafka, (b"a", b"aborted"), commit=False)
        end = kafka.broker.log(store).end
        assert kafka.broker.compact("store", active_offsets=0) == 2
        assert self._held(kafka, store) == [(1, b"b", b"1"), (2, b"a", b"2")]
        assert (kafka.broker.log(store).start, kafka.broker.log(store).end) == (0, end)
        uncommitted = read_to_end(kafka, store, Isolation.READ_UNCOMMITTED, 0)[0]
        assert b"aborted" not in [record.value for record in uncommitted]

    def test_a_tombstone_removes_earlier_records_and_is_retained_for_a_while(
        self, kafka: SimKafka, store: Partition
    ) -> None:
        self._produce(kafka, (b"a", b"1"), (b"b", b"1"))
        self._produce(kafka, (b"a", None))
        kafka.broker.time.wait(60_000)  # the retention of a tombstone starts when compaction first finds it
        kafka.broker.compact("store", active_offsets=0)
        assert self._held(kafka, store) == [(1, b"b", b"1"), (3, b"a", None)]
        kafka.broker.time.wait(4_900)
        kafka.broker.compact("store", active_offsets=0)
        assert len(self._held(kafka, store)) == 2
        kafka.broker.time.wait(200)
        assert kafka.broker.compact("store", active_offsets=0) == 1
        assert self._held(kafka, store) == [(1, b"b", b"1")]

    def test_neither_the_active_segment_nor_undecided_records_are_compacted(
        self, kafka: SimKafka, store: Partition
    ) -> None:
        self._produce(kafka, (b"a", b"1"))
        self._produce(kafka, (b"a", b"2"))
        assert kafka.broker.compact("store", active_offsets=2) == 0
        other = open_producer(kafka, "other tid")
        other.begin()
        other.produce("store", b"1", b"b", [], 0)
        assert other.flush(1) == 0
        self._produce(kafka, (b"a", None))  # committed, above the start of an open transaction
        assert kafka.broker.compact("store", active_offsets=0) == 1
        assert kafka.broker.log(store).read(0, Isolation.READ_UNCOMMITTED, 1)[0][0].value == b"2"
        other.abort()
        assert kafka.broker.compact("store", active_offsets=0) == 2
        assert [held[1:] for held in self._held(kafka, store)] == [(b"a", None)]


class TestGroup:
    def test_a_member_without_heartbeats_loses_its_partitions_and_is_notified(self, kafka: SimKafka) -> None:
        first, second = (Member(kafka.group_consumer("group")) for _ in range(2))
        first.consumer.subscribe([TOPIC], first)
        first.poll()
        assert first.events == [("assigned", (PART,))]
        second.consumer.subscribe([TOPIC], second)
        for _ in range(200):  # the first member does not poll for 20 s
            second.poll(0.1)
        assert second.events == [("assigned", (PART,))]
        first.poll()
        assert first.events[1] == ("lost", (PART,))

    def test_an_admin_client_that_is_cut_off_raises_an_error(self, kafka: SimKafka) -> None:
        _cut(kafka, 60_000)
        with pytest.raises(Unreachable):
            kafka.admin().cluster_id()


def test_faults_follow_from_the_seed() -> None:
    def struck() -> list[bool]:
        faults = Faults(Random(7), {"slow": 0.5})
        return [faults.strikes("slow") for _ in range(50)]

    assert struck() == struck()
    assert len(set(struck())) == 2
    with pytest.raises(AssertionError):
        Faults(None, {"no such fault": 1.0})


def test_a_link_may_end_a_process_between_request_and_response(kafka: SimKafka) -> None:
    class Killed(BaseException):
        pass

    def at_step(step: str) -> None:
        if step == "commit.done":
            raise Killed

    link = Link(kafka.broker.time, at_step=at_step)
    producer = open_producer(SimKafka(kafka.broker, link))
    with pytest.raises(Killed):
        commit_values(producer, TOPIC, [b"v"])
    assert _values(kafka) == [b"v"]
