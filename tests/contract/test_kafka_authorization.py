"""Goal: what ACLs forbid is seen before anything is produced to it, and what it would do otherwise is known.

Method: a local broker of this module's own with an authorizer, and one topic to which nobody may write. Only the real
implementation shows that; the simulated one does as it was seen here.
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

from postdate.connectors.kafka.client import ConfluentKafka
from postdate.connectors.kafka.errors import AbortRequired, FatalClient, KafkaFault
from postdate.connectors.kafka.seam import Kafka
from postdate.connectors.kafka.settings import KafkaSettings
from postdate.connectors.kafka.sim import SimBroker, SimKafka
from support.broker import local_broker
from support.kafka_steps import new_topic, open_producer


def _forbid(bootstrap_servers: str, topic: str) -> None:
    """Lets everybody look at the topic, and nobody write to it."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    allow, literal = AclPermissionType.ALLOW, ResourcePatternType.LITERAL
    binding = AclBinding(ResourceType.TOPIC, topic, literal, "User:*", "*", AclOperation.DESCRIBE, allow)
    for future in admin.create_acls([binding]).values():
        future.result(30)


def _expect_refusal(kafka: Kafka, allowed: str, forbidden: str) -> None:
    """The whole transaction is refused, no report names the culprit, and the producer may be done for."""
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


def test_a_forbidden_topic_is_described_as_such_and_takes_its_transaction_with_it() -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with local_broker(authorizer_class_name=authorizer, allow_everyone_if_no_acl_found="true") as broker:
        kafka = ConfluentKafka(KafkaSettings(broker.bootstrap_servers))
        allowed, forbidden = new_topic(kafka), new_topic(kafka)
        _forbid(broker.bootstrap_servers, forbidden)
        described = kafka.admin().describe([allowed, forbidden])
        assert {name: info.writable for name, info in described.items()} == {allowed: True, forbidden: False}
        _expect_refusal(kafka, allowed, forbidden)


def test_the_simulation_does_the_same() -> None:
    kafka = SimKafka(SimBroker())
    allowed, forbidden = new_topic(kafka), new_topic(kafka)
    kafka.broker.denied.add(forbidden)
    described = kafka.admin().describe([allowed, forbidden])
    assert {name: info.writable for name, info in described.items()} == {allowed: True, forbidden: False}
    _expect_refusal(kafka, allowed, forbidden)
