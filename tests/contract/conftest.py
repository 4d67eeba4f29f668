"""The implementations of the Kafka interface that the contract suite is run against."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from postdate.kafka.client import ConfluentKafka
from postdate.kafka.interface import Kafka
from postdate.kafka.settings import GroupProtocol, KafkaSettings
from support.brokers.broker import RunningBroker
from support.brokers.kafka_clock import now_s
from support.brokers.kafka_steps import Join, Member
from support.kafka_simulator import SimBroker, SimKafka


@pytest.fixture(scope="session", params=["simulated", "confluent"])
def kafka(request: pytest.FixtureRequest) -> Kafka:
    """Returns each implementation in turn: a test with this fixture must pass for all of them. Tests of groups also get
    `consumer`, the real implementation with the group protocol of that name."""
    if request.param == "simulated":
        return SimKafka(SimBroker())
    running: RunningBroker = request.getfixturevalue("broker")
    protocol: GroupProtocol = "consumer" if request.param == "consumer" else "classic"
    return ConfluentKafka(KafkaSettings(running.bootstrap_servers, group_protocol=protocol))


@pytest.fixture
def join(kafka: Kafka) -> Iterator[Join]:
    """Yields a function that creates members, and closes the members that a test leaves open."""
    members: list[Member] = []

    def make(group: str, topic: str, first_offset: int | None = 0, instance_id: str | None = None) -> Member:
        member = Member(kafka.group_consumer(group, instance_id), first_offset, lambda: now_s(kafka))
        member.consumer.subscribe([topic], member)
        members.append(member)
        return member

    yield make
    for member in members:
        member.consumer.close()
