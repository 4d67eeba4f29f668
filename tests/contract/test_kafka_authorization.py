"""Goal: a client recognizes a topic that ACLs forbid before it produces to that topic. Producing to such a topic has a
known effect.

Method: a local broker for this module, with an authorizer, and one topic to which no user may write. Only the real
implementation shows this; the simulation copies the behaviour observed here.
"""

from __future__ import annotations

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package does not mark its re-exports
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from postdate.kafka.client import ConfluentKafka
from postdate.kafka.errors import AbortRequired, FatalClient, KafkaFault
from postdate.kafka.interface import Kafka, TopicInfo
from postdate.kafka.settings import KafkaSettings
from support.brokers.broker import local_broker, unique_name
from support.brokers.kafka_steps import new_topic, open_producer
from support.kafka_simulator import SimBroker, SimKafka
from support.waiting.timeouts import WAIT_TIMEOUT_S


def _allow(bootstrap_servers: str, topic: str, whom: str) -> None:
    """Lets only the user `whom` describe the topic. No user may write to it or read its settings."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    allow, literal = AclPermissionType.ALLOW, ResourcePatternType.LITERAL
    binding = AclBinding(ResourceType.TOPIC, topic, literal, whom, "*", AclOperation.DESCRIBE, allow)
    for future in admin.create_acls([binding]).values():
        future.result(WAIT_TIMEOUT_S)


def _expect_refusal(kafka: Kafka, allowed: str, forbidden: str) -> None:
    """Checks that the whole transaction is refused, that no report names the forbidden topic, and that `abort` then
    raises FatalClient."""
    faults: list[KafkaFault | None] = []
    producer = open_producer(kafka)
    producer.begin()
    for topic in (forbidden, allowed):
        producer.produce(topic, b"v", None, [], 0, lambda fault, *_: faults.append(fault))
    with pytest.raises(AbortRequired):
        producer.commit()
    assert [type(fault) for fault in faults] == [AbortRequired, AbortRequired]
    with pytest.raises(FatalClient):
        producer.abort()
    producer.destroy()


def _expect_described(kafka: Kafka, allowed: str, forbidden: str, hidden: list[str], absent: str) -> None:
    """Checks that visible topics are described beside hidden ones, and that a hidden topic is not writable and has no
    other property."""
    described = kafka.admin().describe([allowed, forbidden, *hidden, absent], ["cleanup.policy"])
    assert described.keys() == {allowed, forbidden, *hidden}
    assert {name for name, info in described.items() if info.writable} == {allowed}
    assert described[allowed].config == {"cleanup.policy": "delete"}
    assert described[forbidden].partitions == {0: True}
    assert described[forbidden].topic_id != ""
    assert [described[name] for name in hidden] == [TopicInfo(name, "", {}, {}, writable=False) for name in hidden]
    assert kafka.admin().describe(hidden, ["cleanup.policy"]).keys() == set(hidden)


def test_a_forbidden_topic_is_described_as_such_and_fails_its_transaction() -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with local_broker(authorizer_class_name=authorizer, allow_everyone_if_no_acl_found="true") as broker:
        kafka = ConfluentKafka(KafkaSettings(broker.bootstrap_servers))
        allowed, forbidden = new_topic(kafka), new_topic(kafka)
        hidden, hidden_and_absent, absent = new_topic(kafka), unique_name("contract"), unique_name("contract")
        _allow(broker.bootstrap_servers, forbidden, "User:*")
        for name in (hidden, hidden_and_absent):
            _allow(broker.bootstrap_servers, name, "User:somebody")
        _expect_described(kafka, allowed, forbidden, [hidden, hidden_and_absent], absent)
        _expect_refusal(kafka, allowed, forbidden)


def test_the_simulation_treats_a_forbidden_topic_in_the_same_way() -> None:
    kafka = SimKafka(SimBroker())
    allowed, forbidden = new_topic(kafka), new_topic(kafka)
    kafka.broker.denied.add(forbidden)
    described = kafka.admin().describe([allowed, forbidden])
    assert {name: info.writable for name, info in described.items()} == {allowed: True, forbidden: False}
    _expect_refusal(kafka, allowed, forbidden)
