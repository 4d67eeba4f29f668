"""Goal: the transactional producer fences older producers, and its commits and aborts have the documented outcome.

Method: two producers and a reader use one partition. Only the log, never the producer, shows the outcome.
"""

from __future__ import annotations

import pytest

from postdate.kafka.errors import AbortRequired, FatalClient, Fenced, KafkaFault, RecordRejected
from postdate.kafka.interface import Isolation, Kafka, Partition
from support.brokers.broker import unique_name
from support.brokers.kafka_clock import now_s, wall_ms
from support.brokers.kafka_steps import (
    abort_values,
    append,
    commit_until_settled,
    commit_values,
    new_topic,
    open_producer,
    read_committed,
    read_to_end,
)
from support.waiting.timeouts import WAIT_TIMEOUT_S

#: Seconds: below the time-out of an open transaction, so that no call has waited for that time-out.
_PROMPT_S = 9.0


class TestFencing:
    def test_commit_of_an_older_producer_is_refused(self, kafka: Kafka) -> None:
        topic = new_topic(kafka)
        tid = unique_name("tid")
        older = open_producer(kafka, tid)
        older.begin()
        older.produce(topic, b"old", None, [], 0)
        assert older.flush(WAIT_TIMEOUT_S) == 0
        newer = open_producer(kafka, tid)
        with pytest.raises(Fenced):
            older.commit()
        commit_values(newer, topic, [b"new"])
        assert [r.value for r in read_committed(kafka, Partition(topic, 0))] == [b"new"]
        older.destroy()
        newer.destroy()

    def test_an_idle_older_producer_is_fenced_too(self, kafka: Kafka) -> None:
        topic = new_topic(kafka)
        tid = unique_name("tid")
        older = open_producer(kafka, tid)
        commit_values(older, topic, [b"first"])
        newer = open_producer(kafka, tid)
        with pytest.raises((Fenced, FatalClient, AbortRequired)) as refused:
            commit_values(older, topic, [b"late"])
        assert isinstance(refused.value, Fenced)
        assert [r.value for r in read_committed(kafka, Partition(topic, 0))] == [b"first"]
        older.destroy()
        newer.destroy()

    def test_init_ends_the_open_transaction_of_the_older_producer(self, kafka: Kafka) -> None:
        topic = new_topic(kafka)
        part = Partition(topic, 0)
        tid = unique_name("tid")
        older = open_producer(kafka, tid)
        older.begin()
        older.produce(topic, b"open", None, [], 0)
        assert older.flush(WAIT_TIMEOUT_S) == 0
        admin = kafka.admin()
        assert admin.end_offsets([part], Isolation.READ_COMMITTED)[part] == 0
        newer = open_producer(kafka, tid)
        deadline = now_s(kafka) + WAIT_TIMEOUT_S
        while admin.end_offsets([part], Isolation.READ_COMMITTED)[part] < 2:  # the record and the abort marker
            assert now_s(kafka) < deadline
        assert read_committed(kafka, part) == []
        older.destroy()
        newer.destroy()

    def test_other_ids_do_not_fence(self, kafka: Kafka) -> None:
        topic = new_topic(kafka)
        one, other = open_producer(kafka), open_producer(kafka)
        commit_values(one, topic, [b"1"])
        commit_values(other, topic, [b"2"])
        commit_values(one, topic, [b"3"])
        assert [r.value for r in read_committed(kafka, Partition(topic, 0))] == [b"1", b"2", b"3"]
        one.destroy()
        other.destroy()


class TestOutcome:
    def test_a_commit_makes_all_records_visible_at_once(self, kafka: Kafka) -> None:
        one, two = new_topic(kafka), new_topic(kafka)
        producer = open_producer(kafka)
        producer.begin()
        producer.produce(one, b"a", None, [], 0)
        producer.produce(two, b"b", None, [], 0)
        assert producer.flush(WAIT_TIMEOUT_S) == 0
        assert read_committed(kafka, Partition(one, 0), beside_open=True) == []
        producer.commit()
        assert [r.value for r in read_committed(kafka, Partition(one, 0))] == [b"a"]
        assert [r.value for r in read_committed(kafka, Partition(two, 0))] == [b"b"]
        producer.destroy()

    def test_aborted_records_are_hidden_from_read_committed_only(self, kafka: Kafka) -> None:
        topic = new_topic(kafka)
        producer = open_producer(kafka)
        abort_values(producer, topic, [b"no", b"no"])
        commit_values(producer, topic, [b"yes"])
        part = Partition(topic, 0)
        assert [r.value for r in read_to_end(kafka, part, Isolation.READ_COMMITTED)[0]] == [b"yes"]
        assert [r.value for r in read_to_end(kafka, part, Isolation.READ_UNCOMMITTED)[0]] == [b"no", b"no", b"yes"]
        producer.destroy()

    def test_a_quick_end_settles_and_the_next_may_begin(self, kafka: Kafka) -> None:
        topic = new_topic(kafka)
        producer = open_producer(kafka)
        committed = [value for number in range(5) for value in commit_until_settled(producer, topic, b"%d" % number)]
        assert [r.value for r in read_committed(kafka, Partition(topic, 0))] == committed
        producer.destroy()

    def test_an_empty_transaction_commits_and_aborts(self, kafka: Kafka) -> None:
        producer = open_producer(kafka)
        deadline = now_s(kafka) + WAIT_TIMEOUT_S
        while True:
            producer.begin()
            producer.commit()
            producer.begin()
            producer.abort()
            if producer.settle():
                break
            assert now_s(kafka) < deadline, "no end of a transaction was quick"
        producer.destroy()

    def test_destroy_leaves_an_open_transaction_without_waiting(self, kafka: Kafka) -> None:
        topic = new_topic(kafka)
        producer = open_producer(kafka)
        producer.begin()
        producer.produce(topic, b"open", None, [], 0)
        started = now_s(kafka)
        producer.destroy()
        producer.destroy()
        assert now_s(kafka) - started < _PROMPT_S
        with pytest.raises(FatalClient):
            producer.begin()


class TestRefusedRecords:
    def test_an_unknown_topic_fails_the_transaction_and_is_named(self, kafka: Kafka) -> None:
        topic, absent = new_topic(kafka), unique_name("absent")
        faults: list[KafkaFault | None] = []
        producer = open_producer(kafka)
        producer.begin()
        producer.produce(topic, b"fine", None, [], 0)
        producer.produce(absent, b"lost", None, [], on_delivery=lambda fault, *_: faults.append(fault))
        with pytest.raises(RecordRejected):
            producer.commit()
        producer.abort()
        assert [type(fault) for fault in faults] == [RecordRejected]
        assert absent in str(faults[0])
        commit_values(producer, topic, [b"next"])
        assert [r.value for r in read_committed(kafka, Partition(topic, 0))] == [b"next"]
        admin = kafka.admin()
        assert absent not in admin.describe([absent])
        producer.destroy()

    def test_an_unknown_partition_is_refused(self, kafka: Kafka) -> None:
        topic = new_topic(kafka)
        producer = open_producer(kafka)
        commit_values(producer, topic, [b"known now"])
        with pytest.raises(AbortRequired):
            commit_values(producer, topic, [b"lost"], partition=7)
        producer.abort()
        commit_values(producer, topic, [b"next"])
        assert [r.value for r in read_committed(kafka, Partition(topic, 0))] == [b"known now", b"next"]
        producer.destroy()

    def test_a_record_beyond_the_topics_limit_is_rejected(self, kafka: Kafka) -> None:
        topic = new_topic(kafka, max_message_bytes="2000")
        faults: list[KafkaFault | None] = []
        producer = open_producer(kafka)
        producer.begin()
        producer.produce(topic, bytes(3000), None, [], 0, lambda fault, *_: faults.append(fault))
        with pytest.raises(RecordRejected):
            producer.commit()
        producer.abort()
        assert [type(fault) for fault in faults] == [RecordRejected]
        producer.destroy()

    def test_a_record_without_a_key_is_rejected_by_a_compacted_topic(self, kafka: Kafka) -> None:
        topic = new_topic(kafka, cleanup_policy="compact")
        faults: list[KafkaFault | None] = []
        producer = open_producer(kafka)
        producer.begin()
        producer.produce(topic, b"v", None, [], 0, lambda fault, *_: faults.append(fault))
        with pytest.raises(RecordRejected):
            producer.commit()
        producer.abort()
        assert [type(fault) for fault in faults] == [RecordRejected]
        producer.destroy()  # librdkafka has skipped a sequence number, so its next transaction would fail
        append(kafka, topic, b"v", b"k")
        assert [r.key for r in read_committed(kafka, Partition(topic, 0))] == [b"k"]

    def test_a_record_beyond_the_clients_limit_is_refused_at_once(self, kafka: Kafka) -> None:
        topic = new_topic(kafka)
        producer = kafka.producer(unique_name("tid"), 100_000)
        producer.init(WAIT_TIMEOUT_S)
        producer.begin()
        with pytest.raises(RecordRejected):
            producer.produce(topic, bytes(200_000), None, [], 0)
        producer.produce(topic, b"small", None, [], 0)
        producer.commit()  # a record that was refused at once is not part of the transaction
        assert [r.value for r in read_committed(kafka, Partition(topic, 0))] == [b"small"]
        producer.destroy()


class TestDeliveryReport:
    def test_a_delivery_report_has_the_offset_and_the_time_of_the_brokers_clock(self, kafka: Kafka) -> None:
        topic = new_topic(kafka, message_timestamp_type="LogAppendTime")
        append(kafka, topic)
        before_ms = wall_ms(kafka)
        reports: list[tuple[KafkaFault | None, int, int]] = []
        producer = open_producer(kafka)
        producer.begin()
        producer.produce(topic, b"x", None, [], 0, lambda *report: reports.append(report))
        producer.commit()
        producer.settle()
        ((fault, offset, timestamp_ms),) = reports
        assert fault is None
        (_, record) = read_committed(kafka, Partition(topic, 0))
        assert (record.offset, record.timestamp_ms, record.log_append) == (offset, timestamp_ms, True)
        assert before_ms - 5_000 < timestamp_ms < before_ms + 60_000
        producer.destroy()

    def test_a_timestamp_of_the_clients_clock_is_marked_as_such(self, kafka: Kafka) -> None:
        topic = new_topic(kafka, message_timestamp_type="CreateTime")
        append(kafka, topic)
        (record,) = read_committed(kafka, Partition(topic, 0))
        assert record.timestamp_ms > 0
        assert not record.log_append


class TestTimestamps:
    def test_records_get_the_create_time_that_the_transaction_was_begun_with(self, kafka: Kafka) -> None:
        topic = new_topic(kafka)
        producer = open_producer(kafka, unique_name("tid"))
        producer.begin(1_700_000_000_123)
        producer.produce(topic, b"plain", None, [], 0)
        producer.produce(topic, b"reported", None, [("a", b"b")], 0, lambda *_: None)
        producer.commit()
        producer.settle()
        producer.begin()
        producer.produce(topic, b"now", None, [], 0)
        producer.commit()
        records = read_committed(kafka, Partition(topic, 0))
        assert [(record.value, record.timestamp_ms) for record in records[:2]] == [
            (b"plain", 1_700_000_000_123),
            (b"reported", 1_700_000_000_123),
        ]
        assert abs(records[2].timestamp_ms - wall_ms(kafka)) < 600_000
        producer.destroy()
