"""Goal: a partition whose start is refused starts as soon as the refusal ends.

Method: the real group consumer over a stand-in for the library's client, since no broker refuses on demand.
"""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from postdate.kafka import limits
from postdate.kafka.consumer.group_consumer import ConfluentGroupConsumer
from postdate.kafka.interface import Partition
from postdate.kafka.settings import KafkaSettings

PART = Partition("requests", 3)


class _Client:
    """Refuses a seek with each of the given codes in turn. If `stuck`, it also refuses to unassign partitions."""

    def __init__(self, codes: list[int], stuck: bool = False) -> None:
        self.codes = codes
        self.stuck = stuck
        self.sought: list[int] = []
        self.assigned: list[int] = []
        self.calls: list[str] = []

    def seek(self, at: TopicPartition) -> None:
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        self.calls.append("seek")
        self.sought.append(at.offset)

    def incremental_unassign(self, parts: list[TopicPartition]) -> None:
        if self.stuck:
            raise KafkaException(KafkaError(KafkaError._STATE))

    def incremental_assign(self, parts: list[TopicPartition]) -> None:
        self.assigned += [part.offset for part in parts]

    def resume(self, parts: list[TopicPartition]) -> None:
        self.calls.append("resume")

    def pause(self, parts: list[TopicPartition]) -> None:
        self.calls.append("pause")

    def position(self, parts: list[TopicPartition]) -> list[TopicPartition]:
        raise AssertionError("a partition that is not started has no position")

    def poll(self, timeout_s: float) -> None:
        return None


def _consumer(client: _Client) -> ConfluentGroupConsumer:
    consumer = ConfluentGroupConsumer(KafkaSettings("127.0.0.1:1"), "group", None)
    consumer.close()
    consumer.errors()  # discards the error that nothing listens at the address
    consumer._consumer = client  # type: ignore[assignment]
    consumer._assigned.add(PART)
    return consumer


@pytest.mark.parametrize("code", [KafkaError._STATE, KafkaError._TIMED_OUT, KafkaError._UNKNOWN_PARTITION])
@pytest.mark.parametrize("stuck", [False, True])
def test_a_partition_is_started_in_the_end_and_the_refusals_are_reported(
    code: int, stuck: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "START_TIMEOUT_S", 0.0)
    monkeypatch.setattr(limits, "SEEK_TIMEOUT_S", 0.0)
    client = _Client([code] * 3, stuck)
    consumer = _consumer(client)
    consumer.start(PART, 70)
    while client.codes:
        assert consumer.poll(10, 0.0) == []
        assert not consumer.positions([PART])
    reports = consumer.errors()
    assert {part for part, fault in reports if fault.code == code} == {PART}
    consumer.poll(10, 0.0)
    assert client.sought == [70]
    assert client.calls[-2:] == ["resume", "seek"]
    assert set(client.assigned) == {70}


def test_a_refusal_that_repeats_itself_is_reported_now_and_then_only() -> None:
    client = _Client([KafkaError._TIMED_OUT] * 100)
    consumer = _consumer(client)
    consumer.start(PART, 70)
    for _ in range(99):
        consumer.poll(10, 0.0)
    assert [part for part, _ in consumer.errors()] == [PART]
