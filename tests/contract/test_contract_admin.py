"""Goal: the admin client reports the ends of logs by isolation level, topics and their identity, and deleted records.

Method: each answer is compared with a log in which the test has written every offset.
"""

from __future__ import annotations

import pytest

from postdate.kafka.errors import KafkaFault, OffsetOutOfRange, SettingRefused
from postdate.kafka.interface import Isolation, Kafka, NewTopic, Partition, TopicInfo
from support.brokers.broker import unique_name
from support.brokers.kafka_clock import now_s
from support.brokers.kafka_steps import append, new_topic, open_producer
from support.brokers.topic_changes import alter_topic_config, delete_records
from support.deployments.sidecars import wait_until
from support.waiting.timeouts import WAIT_TIMEOUT_S


class TestOffsets:
    def test_an_open_transaction_holds_back_the_stable_end_only(self, kafka: Kafka) -> None:
        topic = new_topic(kafka, partitions=2)
        part, empty = Partition(topic, 0), Partition(topic, 1)
        admin = kafka.admin()
        append(kafka, topic)
        foreign = open_producer(kafka)
        foreign.begin()
        foreign.produce(topic, b"open", None, [], 0)
        assert foreign.flush(WAIT_TIMEOUT_S) == 0
        append(kafka, topic)
        assert admin.end_offsets([part, empty], Isolation.READ_COMMITTED) == {part: 1, empty: 0}
        assert admin.end_offsets([part, empty], Isolation.READ_UNCOMMITTED) == {part: 3, empty: 0}
        foreign.commit()
        deadline = now_s(kafka) + WAIT_TIMEOUT_S
        while admin.end_offsets([part], Isolation.READ_COMMITTED)[part] != 4:
            assert now_s(kafka) < deadline
        foreign.destroy()

    def test_starts_move_with_deleted_records(self, kafka: Kafka) -> None:
        topic = new_topic(kafka)
        part = Partition(topic, 0)
        for _ in range(4):
            append(kafka, topic)
        admin = kafka.admin()
        assert admin.start_offsets([part]) == {part: 0}
        assert delete_records(admin, {part: 2}) == {part: 2}
        assert admin.start_offsets([part]) == {part: 2}
        assert delete_records(admin, {part: -1}) == {part: 4}
        with pytest.raises(OffsetOutOfRange):
            delete_records(admin, {part: 99})

    def test_a_time_finds_the_first_record_at_or_after_it(self, kafka: Kafka) -> None:
        topic = new_topic(kafka, message_timestamp_type="LogAppendTime")
        part = Partition(topic, 0)
        admin = kafka.admin()
        assert admin.offset_for_time(part, 0) is None
        first_offset, first_ms = append(kafka, topic)
        assert admin.offset_for_time(part, 0) == first_offset
        assert admin.offset_for_time(part, first_ms) == first_offset
        assert admin.offset_for_time(part, first_ms + 3_600_000) is None

    def test_an_absent_partition_is_a_fault(self, kafka: Kafka) -> None:
        with pytest.raises(KafkaFault):
            kafka.admin().end_offsets([Partition(unique_name("absent"), 0)], Isolation.READ_UNCOMMITTED)


class TestTopics:
    def test_created_topics_are_described_with_the_requested_settings(self, kafka: Kafka) -> None:
        admin = kafka.admin()
        name, absent = unique_name("created"), unique_name("absent")
        new = NewTopic(name, 3, 1, {"retention.ms": "7777777", "message.timestamp.type": "LogAppendTime"})
        assert admin.create_topics([new]) == [name]
        assert admin.create_topics([new]) == []
        found: dict[str, TopicInfo] = {}
        described = admin.describe([name, absent], ["retention.ms", "message.timestamp.type", "cleanup.policy"])
        assert set(described) == {name}
        assert described[name].partitions == {0: True, 1: True, 2: True}
        assert described[name].config == {
            "retention.ms": "7777777",
            "message.timestamp.type": "LogAppendTime",
            "cleanup.policy": "delete",
        }
        assert admin.describe([name])[name].config == {}
        assert admin.describe([]) == {}
        looked = admin.look_up([name, absent], ["retention.ms"])
        wait_until(lambda: bool(found.update(looked(0.05) or {}) or found), "the look-up is answered")
        assert found == admin.describe([name, absent], ["retention.ms"])

    def test_a_topic_created_again_has_another_id(self, kafka: Kafka) -> None:
        admin = kafka.admin()
        name = new_topic(kafka)
        first_id = admin.describe([name])[name].topic_id
        assert admin.describe([name])[name].topic_id == first_id != ""
        admin.delete_topics([name, unique_name("absent")])
        deadline = now_s(kafka) + WAIT_TIMEOUT_S
        while name in admin.describe([name]):
            assert now_s(kafka) < deadline
        assert admin.create_topics([NewTopic(name, 1, 1, {})]) == [name]
        assert admin.describe([name])[name].topic_id not in ("", first_id)

    def test_partitions_and_settings_change(self, kafka: Kafka) -> None:
        admin = kafka.admin()
        name = new_topic(kafka, retention_ms="5000000")
        admin.add_partitions({name: 3})
        alter_topic_config(admin, name, {"max.message.bytes": "54321"})
        wanted = {"max.message.bytes": "54321", "retention.ms": "5000000"}
        # A broker may show a change only some time after it was accepted.
        wait_until(lambda: admin.describe([name], list(wanted))[name].config == wanted, "the settings are changed")
        assert admin.describe([name], list(wanted))[name].partitions == {0: True, 1: True, 2: True}
        with pytest.raises(SettingRefused):
            admin.add_partitions({name: 2})
        with pytest.raises(SettingRefused):
            alter_topic_config(admin, name, {"retention.ms": "soon"})
        with pytest.raises(SettingRefused):
            admin.create_topics([NewTopic(unique_name("refused"), 1, 1, {"no.such.setting": "1"})])

    def test_the_cluster_has_one_id(self, kafka: Kafka) -> None:
        first, second = kafka.admin(), kafka.admin()
        assert first.cluster_id() == second.cluster_id() != ""
        first.close()
        first.close()
        with pytest.raises(KafkaFault):
            first.cluster_id()
