"""Goal: readers return the visible records with the bytes that were sent, and report their position.

Method: the test builds a log record by record with transactions that commit, abort and stay open, and reads it at both
isolation levels.
"""

from __future__ import annotations

import struct

import pytest

from postdate.kafka.errors import FatalClient, OffsetOutOfRange
from postdate.kafka.interface import Headers, Isolation, Kafka, LogReader, Partition
from support.brokers.kafka_clock import now_s
from support.brokers.kafka_steps import (
    abort_values,
    append,
    commit_values,
    new_topic,
    open_producer,
    read_committed,
    read_to_end,
)
from support.brokers.topic_changes import delete_records
from support.waiting.timeouts import WAIT_TIMEOUT_S


class TestPosition:
    def test_a_position_passes_a_trailing_commit_marker(self, kafka: Kafka) -> None:
        topic = new_topic(kafka)
        producer = open_producer(kafka)
        commit_values(producer, topic, [b"a", b"b"])
        records, position = read_to_end(kafka, Partition(topic, 0), Isolation.READ_COMMITTED)
        assert [r.offset for r in records] == [0, 1]
        assert position == 3
        producer.destroy()

    def test_a_position_passes_trailing_aborted_records(self, kafka: Kafka) -> None:
        topic = new_topic(kafka)
        producer = open_producer(kafka)
        commit_values(producer, topic, [b"a"])
        abort_values(producer, topic, [b"x", b"x", b"x"])
        records, position = read_to_end(kafka, Partition(topic, 0), Isolation.READ_COMMITTED)
        assert [r.offset for r in records] == [0]
        assert position == 6
        producer.destroy()

    def test_a_position_passes_a_whole_log_of_aborted_records(self, kafka: Kafka) -> None:
        topic = new_topic(kafka)
        producer = open_producer(kafka)
        abort_values(producer, topic, [b"x"])
        assert read_to_end(kafka, Partition(topic, 0), Isolation.READ_COMMITTED) == ([], 2)
        producer.destroy()

    def test_a_position_before_the_first_read_is_the_start_of_the_reader(self, kafka: Kafka) -> None:
        topic = new_topic(kafka)
        for _ in range(3):
            append(kafka, topic)
        reader = kafka.log_reader(Partition(topic, 0), 3, Isolation.READ_COMMITTED)
        assert reader.position() == 3
        assert reader.read(10, 0.3) == []
        assert reader.position() == 3
        append(kafka, topic)
        deadline = now_s(kafka) + WAIT_TIMEOUT_S
        while reader.position() < 4:
            assert now_s(kafka) < deadline
            reader.read(10, 0.2)
        reader.close()

    def test_a_position_stops_before_an_open_transaction_of_another_producer(self, kafka: Kafka) -> None:
        topic = new_topic(kafka)
        part = Partition(topic, 0)
        append(kafka, topic)
        foreign = open_producer(kafka)
        foreign.begin()
        foreign.produce(topic, b"open", None, [], 0)
        assert foreign.flush(WAIT_TIMEOUT_S) == 0
        append(kafka, topic, b"behind")
        reader = kafka.log_reader(part, 0, Isolation.READ_COMMITTED)
        seen: list[int] = []
        quiet_since = now_s(kafka)
        while now_s(kafka) - quiet_since < 1.0:
            records = reader.read(10, 0.1)
            seen += [r.offset for r in records]
            if records:
                quiet_since = now_s(kafka)
        assert (seen, reader.position()) == ([0], 1)
        foreign.commit()
        deadline = now_s(kafka) + WAIT_TIMEOUT_S
        while reader.position() < 4:
            assert now_s(kafka) < deadline
            seen += [r.offset for r in reader.read(10, 0.2)]
        assert seen == [0, 1, 2]
        reader.close()
        foreign.destroy()


class TestRange:
    @pytest.mark.parametrize("isolation", list(Isolation))
    def test_an_offset_above_the_end_is_out_of_range(self, kafka: Kafka, isolation: Isolation) -> None:
        topic = new_topic(kafka)
        append(kafka, topic)
        reader = kafka.log_reader(Partition(topic, 0), 100, isolation)
        with pytest.raises(OffsetOutOfRange):
            _read_until_something(kafka, reader)
        reader.close()

    def test_an_offset_below_the_start_is_out_of_range(self, kafka: Kafka) -> None:
        topic = new_topic(kafka)
        part = Partition(topic, 0)
        for _ in range(5):
            append(kafka, topic)
        admin = kafka.admin()
        assert delete_records(admin, {part: 3}) == {part: 3}
        reader = kafka.log_reader(part, 1, Isolation.READ_COMMITTED)
        with pytest.raises(OffsetOutOfRange):
            _read_until_something(kafka, reader)
        reader.close()
        assert [r.offset for r in read_to_end(kafka, part, Isolation.READ_COMMITTED, 3)[0]] == [3, 4]

    def test_a_closed_reader_raises_fatal_client(self, kafka: Kafka) -> None:
        reader = kafka.log_reader(Partition(new_topic(kafka), 0), 0, Isolation.READ_COMMITTED)
        reader.close()
        reader.close()
        with pytest.raises(FatalClient):
            reader.read(1, 0)

    def test_a_read_returns_at_most_the_requested_number_of_records(self, kafka: Kafka) -> None:
        topic = new_topic(kafka)
        producer = open_producer(kafka)
        commit_values(producer, topic, [b"%d" % n for n in range(10)])
        reader = kafka.log_reader(Partition(topic, 0), 0, Isolation.READ_COMMITTED)
        seen: list[int] = []
        deadline = now_s(kafka) + WAIT_TIMEOUT_S
        while len(seen) < 10:
            assert now_s(kafka) < deadline
            records = reader.read(3, 0.2)
            assert len(records) <= 3
            seen += [r.offset for r in records]
            if records:
                assert reader.position() >= records[-1].offset + 1
        assert seen == list(range(10))
        reader.close()
        producer.destroy()


class TestBytes:
    @pytest.mark.parametrize(
        "headers",
        [
            [],
            [("a", b"1"), ("b", b"2")],
            [("same", b"1"), ("other", b"x"), ("same", b"2"), ("same", b"1")],
            [("null", None), ("empty", b"")],
            [("binary", bytes(range(256)))],
            [("", b"no name"), ("\u00e4\u6f22", b"utf-8 name")],
        ],
    )
    def test_headers_come_back_in_order(self, kafka: Kafka, headers: Headers) -> None:
        topic = new_topic(kafka)
        append(kafka, topic, b"v", b"k", headers)
        (record,) = read_committed(kafka, Partition(topic, 0))
        assert record.headers == headers

    @pytest.mark.parametrize("key", [None, b"", b"k", bytes(range(256))])
    @pytest.mark.parametrize("value", [None, b"", b"v", bytes(10_000)])
    def test_null_and_empty_keys_and_values_are_kept_apart(
        self, kafka: Kafka, key: bytes | None, value: bytes | None
    ) -> None:
        topic = new_topic(kafka)
        append(kafka, topic, value, key)
        (record,) = read_committed(kafka, Partition(topic, 0))
        assert (record.key, record.value) == (key, value)


class TestPartitioning:
    def test_a_key_lands_where_a_java_producer_puts_it(self, kafka: Kafka) -> None:
        topic = new_topic(kafka, partitions=7)
        keys = [b"", b"a", b"ab", b"abc", b"abcd", b"order-4711", "sch\u00f6n".encode(), bytes(range(200, 256))]
        producer = open_producer(kafka)
        producer.begin()
        for key in keys:
            producer.produce(topic, key, key, [])
        producer.commit()
        landed = {r.value: part for part in range(7) for r in read_committed(kafka, Partition(topic, part))}
        assert landed == {key: _java_partition(key, 7) for key in keys}
        producer.destroy()

    def test_a_given_partition_wins_over_the_key(self, kafka: Kafka) -> None:
        topic = new_topic(kafka, partitions=3)
        for index in range(3):
            append(kafka, topic, b"%d" % index, b"same", partition=index)
        for index in range(3):
            assert [r.value for r in read_committed(kafka, Partition(topic, index))] == [b"%d" % index]


def _read_until_something(kafka: Kafka, reader: LogReader) -> None:
    deadline = now_s(kafka) + WAIT_TIMEOUT_S
    while not reader.read(10, 0.2):
        assert now_s(kafka) < deadline, "neither records nor an error"


def _java_partition(key: bytes, partitions: int) -> int:
    """Returns the partition by Kafka's rule. The code follows org.apache.kafka.common.utils.Utils, so it is an oracle
    that is independent of both clients."""
    m, mask, length = 0x5BD1E995, 0xFFFFFFFF, len(key)
    h = (0x9747B28C ^ length) & mask
    whole = length // 4 * 4
    for (k,) in struct.iter_unpack("<I", key[:whole]):
        k = k * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    rest = key[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return ((h ^ h >> 15) & 0x7FFFFFFF) % partitions
