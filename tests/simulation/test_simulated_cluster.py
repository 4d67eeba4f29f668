"""Goal: several simulated brokers, and topics with a fault, fail like real ones.

Method: injects one fault at a time and observes one client; waiting takes no real time. `test_simulated_broker` covers
the faults of one connection, and `tests/contract` the behaviour without faults.
"""

from __future__ import annotations

import functools

import pytest

from postdate.kafka.errors import (
    AbortRequired,
    KafkaFault,
    OffsetOutOfRange,
    RecordRejected,
    UnknownOutcome,
    Unreachable,
)
from postdate.kafka.interface import Isolation, NewTopic, Partition, TransactionalProducer
from support.brokers.kafka_steps import commit_values, open_producer, read_committed
from support.kafka_simulator import SimBroker, SimClock, SimKafka, SimTime
from support.kafka_simulator.brokers import BELIEF_MS_MAX, SESSION_MS
from support.kafka_simulator.misbehaviour import Misbehaviour
from support.kafka_simulator.silence import Server

LOG, TARGET = "log", "target"
PART, AT_TARGET = Partition(LOG, 0), Partition(TARGET, 0)
STAMPED = {"message.timestamp.type": "LogAppendTime"}


@pytest.fixture
def kafka() -> SimKafka:
    """Returns a cluster of three brokers: the first leads `log`, the second `target`."""
    broker = SimBroker(SimTime())
    broker.brokers.grow(3)
    broker.create(NewTopic(LOG, 1, 1, STAMPED))
    broker.create(NewTopic(TARGET, 1, 1, {}))
    return SimKafka(broker)


def _end(kafka: SimKafka) -> int:
    return kafka.admin().end_offsets([PART], Isolation.READ_UNCOMMITTED)[PART]


def _produced(kafka: SimKafka, values: list[tuple[str, bytes]]) -> list[tuple[bytes, KafkaFault | None]]:
    """Returns the delivery reports of one transaction, which stays open."""
    reports: list[tuple[bytes, KafkaFault | None]] = []

    def note(value: bytes, fault: KafkaFault | None, _offset: int, _timestamp_ms: int) -> None:
        reports.append((value, fault))

    producer = open_producer(kafka)
    producer.begin()
    for topic, value in values:
        producer.produce(topic, value, b"k", [], 0, functools.partial(note, value))
    producer.flush(5)
    return reports


class TestLeaders:
    def test_a_deposed_leader_reports_old_offsets_until_it_is_updated(self, kafka: SimKafka) -> None:
        brokers, time = kafka.broker.brokers, kafka.broker.time
        commit_values(open_producer(kafka), LOG, [b"old"])
        admin = kafka.admin()
        old = admin.end_offsets([PART], Isolation.READ_UNCOMMITTED)[PART]
        assert brokers.freeze(0)
        time.wait(SESSION_MS + 1)
        commit_values(open_producer(SimKafka(kafka.broker), "other"), LOG, [b"new"])
        reader = SimKafka(kafka.broker).log_reader(PART, 0, Isolation.READ_COMMITTED)
        assert [record.value for record in reader.read(10, 0)] == [b"old", b"new"]
        brokers.resume(0)
        assert admin.end_offsets([PART], Isolation.READ_UNCOMMITTED) == {PART: old}
        assert kafka.broker.stale_answers == 1
        time.wait(BELIEF_MS_MAX)
        assert admin.end_offsets([PART], Isolation.READ_UNCOMMITTED) == {PART: old + 2}

    def test_a_request_to_a_frozen_leader_waits_until_it_resumes(self, kafka: SimKafka) -> None:
        brokers, time = kafka.broker.brokers, kafka.broker.time
        admin = kafka.admin()
        assert admin.end_offsets([PART], Isolation.READ_UNCOMMITTED) == {PART: 0}
        brokers.freeze(0)
        time.at(time.now_ms + 12_000, lambda: brokers.resume(0))
        time.at(time.now_ms + 10_000, lambda: kafka.broker.append(PART, None, b"new", [], 0) and None)
        before = time.now_ms
        assert admin.end_offsets([PART], Isolation.READ_UNCOMMITTED) == {PART: 0}
        assert 12_000 <= time.now_ms - before < 13_000

    def test_a_reader_of_a_deposed_leader_sees_no_newer_records(self, kafka: SimKafka) -> None:
        brokers = kafka.broker.brokers
        reader = kafka.log_reader(PART, 0, Isolation.READ_COMMITTED)
        assert reader.read(10, 0) == []
        ahead = kafka.log_reader(PART, 1, Isolation.READ_COMMITTED)
        ahead_metadata = ahead._metadata  # type: ignore[attr-defined]  # fills the client's cache
        ahead_metadata.leader(PART)
        brokers.freeze(0)
        kafka.broker.time.wait(SESSION_MS + 1)
        for value in (b"a", b"b"):
            kafka.broker.append(PART, None, value, [], 0)
        brokers.resume(0)
        assert (reader.read(10, 0), reader.position()) == ([], 0)
        with pytest.raises(OffsetOutOfRange):
            ahead.read(10, 0)
        kafka.broker.time.wait(BELIEF_MS_MAX)
        reader.read(10, 0)  # refused, so the reader refreshes its metadata
        assert [record.value for record in reader.read(10, 0)] == [b"a", b"b"]

    def test_nothing_is_acknowledged_or_visible_while_a_replica_is_silent(self, kafka: SimKafka) -> None:
        commit_values(open_producer(kafka), LOG, [b"seen"])
        producer = open_producer(kafka, "waits")
        kafka.broker.brokers.freeze(2)
        producer.begin()
        producer.produce(LOG, b"held", None, [], 0)
        assert producer.flush(1) == 1
        assert _end(kafka) == 2
        kafka.broker.time.wait(SESSION_MS)
        assert kafka.broker.log(PART).is_held is False

    def test_a_killed_leader_is_replaced(self, kafka: SimKafka) -> None:
        commit_values(open_producer(kafka), LOG, [b"a"])
        producer = open_producer(kafka, "other")
        assert kafka.broker.brokers.kill(0)
        assert not kafka.broker.brokers.freeze(1), "two brokers are unwell"
        kafka.broker.time.wait(SESSION_MS + 1)
        commit_values(producer, LOG, [b"b"])
        kafka.broker.brokers.restart(0)
        assert kafka.broker.brokers.all_well()
        assert [record.value for record in read_committed(kafka, PART)] == [b"a", b"b"]

    def test_clients_find_the_new_leader_of_a_log(self, kafka: SimKafka) -> None:
        producer = open_producer(kafka)
        commit_values(producer, LOG, [b"a"])
        assert kafka.broker.brokers.move(kafka.broker.log(PART), 2)
        commit_values(producer, LOG, [b"b"])
        assert [record.value for record in read_committed(kafka, PART)] == [b"a", b"b"]

    def test_the_clock_of_the_leader_stamps_records(self, kafka: SimKafka) -> None:
        brokers = kafka.broker.brokers
        brokers.nodes[0].skew_ms, brokers.nodes[1].drift = 200.0, 0.01
        kafka.broker.time.wait(10_000)
        now = kafka.broker.now_ms()
        assert kafka.broker.append(PART, None, b"v", [], 0)[1] == now + 200
        brokers.move(kafka.broker.log(PART), 1)
        assert kafka.broker.append(PART, None, b"v", [], 0)[1] == now + 100

    def test_the_end_of_a_transaction_waits_for_a_log_without_leader(self, kafka: SimKafka) -> None:
        producer = open_producer(kafka)
        producer.begin()
        producer.produce(LOG, b"v", None, [], 0)
        assert producer.flush(1) == 0
        log = kafka.broker.log(PART)
        log.has_leader = False
        producer.commit()
        assert log.committed() == []
        log.has_leader = True
        kafka.broker.time.wait(200)
        assert [record.value for record in log.committed()] == [b"v"]


class TestAdmin:
    @pytest.mark.parametrize("refuses", [True, False])
    def test_requests_of_admin_clients_fail_while_producers_work(self, kafka: SimKafka, refuses: bool) -> None:
        kafka.broker.silence.begin({Server.CONTROLLER}, 60_000, refuses)
        before = kafka.broker.time.now_ms
        with pytest.raises(Unreachable):
            kafka.admin().describe([LOG])
        assert (kafka.broker.time.now_ms - before < 1_000) == refuses
        assert _end(kafka) == 0
        commit_values(open_producer(kafka), LOG, [b"v"])
        kafka.broker.silence.end()
        assert LOG in kafka.admin().describe([LOG])


class TestTargets:
    def test_a_record_stamped_too_far_ahead_is_refused(self, kafka: SimKafka) -> None:
        ahead = SimKafka(kafka.broker, clock=SimClock(kafka.broker.time, 2 * 3_600_000))
        ((_, fault),) = _produced(ahead, [(TARGET, b"v")])
        assert isinstance(fault, RecordRejected)
        assert _produced(ahead, [(LOG, b"v")]) == [(b"v", None)]

    def test_an_invalid_record_fails_its_batch(self, kafka: SimKafka) -> None:
        kafka.broker.misbehaving[TARGET] = Misbehaviour(kafka.broker.time, lambda value: value == b"bad")
        reports = dict(_produced(kafka, [(TARGET, b"good"), (TARGET, b"bad"), (LOG, b"elsewhere")]))
        assert isinstance(reports[b"bad"], RecordRejected)
        assert isinstance(reports[b"good"], AbortRequired)
        assert not isinstance(reports[b"good"], RecordRejected)
        assert reports[b"elsewhere"] is None

    def test_a_slow_target_accepts_some_records_and_the_others_time_out(self, kafka: SimKafka) -> None:
        kafka.broker.misbehaving[TARGET] = Misbehaviour(kafka.broker.time, per_second=10)
        reports = _produced(kafka, [*[(TARGET, b"%d" % number) for number in range(100)], (LOG, b"elsewhere")])
        taken = [value for value, fault in reports if fault is None]
        assert 20 <= len(taken) <= 40
        assert b"elsewhere" in taken
        assert len(reports) == 101

    def test_a_deleted_topic_keeps_every_partition_out_of_the_transaction(self, kafka: SimKafka) -> None:
        producer = open_producer(kafka)
        commit_values(producer, TARGET, [b"v"])
        kafka.admin().delete_topics([TARGET])
        producer.begin()
        faults: list[KafkaFault | None] = []
        for topic in (TARGET, LOG):
            producer.produce(topic, b"v", b"k", [], 0, lambda fault, _offset, _time: faults.append(fault))
        producer.flush(5)
        assert [isinstance(fault, RecordRejected) for fault in faults] == [True, True]
        assert kafka.broker.log(PART).end == 0

    def test_a_recreated_topic_has_none_of_the_old_records(self, kafka: SimKafka) -> None:
        producer = open_producer(kafka)
        commit_values(producer, TARGET, [b"old"])
        kafka.admin().delete_topics([TARGET])
        kafka.broker.create(NewTopic(TARGET, 1, 1, {}))
        commit_values(producer, TARGET, [b"new"])
        assert [record.value for record in read_committed(kafka, AT_TARGET)] == [b"new"]
        (gone,) = kafka.broker.deleted
        assert [record.value for record in gone.logs[0].committed()] == [b"old"]


def _about_to_end_twice(kafka: SimKafka) -> TransactionalProducer:
    """Returns a producer with one record in its transaction. The first copy of its EndTxn will be late, and the second
    will be refused."""
    producer = open_producer(kafka)
    kafka.link.faults.rates |= {"end-copied": 1.0, "end-refused": 1.0}
    producer.begin()
    producer.produce(LOG, b"first", None, [], 0)
    producer.flush(1)
    return producer


def test_an_end_that_was_copied_and_refused_may_decide_the_next_transaction(kafka: SimKafka) -> None:
    producer = _about_to_end_twice(kafka)
    with pytest.raises(AbortRequired):
        producer.commit()
    kafka.link.faults.rates.clear()
    producer.abort()
    assert not producer.settle()
    producer.begin()
    producer.produce(LOG, b"torn", None, [], 0)
    producer.flush(1)
    kafka.broker.time.wait(1_000)
    assert [record.value for record in kafka.broker.log(PART).committed()] == [b"torn"]


def test_an_abort_that_was_copied_and_refused_has_an_unknown_outcome(kafka: SimKafka) -> None:
    producer = _about_to_end_twice(kafka)
    with pytest.raises(UnknownOutcome):
        producer.abort()
    assert kafka.link.faults.struck["end-refused"] == 1


def test_a_steady_clock_stops_while_its_machine_is_suspended() -> None:
    time = SimTime(0.0)
    clock = SimClock(time)
    time.wait(100)
    clock.stop_steady(50)
    time.wait(30)
    assert clock.steady_ms() == 100
    time.wait(70)
    assert clock.steady_ms() == 150
    clock.stop_steady(10)
    time.wait(20)
    assert clock.steady_ms() == 160
