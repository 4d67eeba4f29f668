"""Goal: clients get the properties that the protocol needs. Properties that would break it are refused with the reason;
all others pass unchanged.

Method: the properties of each client, and a real client created with them: librdkafka refuses properties that it does
not know.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from postdate.kafka.client import ConfluentKafka
from postdate.kafka.errors import SettingRefused
from postdate.kafka.interface import Isolation, Partition
from postdate.kafka.limits import FETCH_SIZE_BYTES_MAX
from postdate.kafka.settings import KafkaSettings

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize("section", ["common", "consumer", "producer", "admin"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bootstrap.servers", "x:1"),
        ("transactional.id", "mine"),
        ("isolation.level", "read_uncommitted"),
        ("enable.auto.commit", "true"),
        ("auto.offset.reset", "latest"),
        ("partitioner", "consistent_random"),
        ("acks", "1"),
        ("transaction.timeout.ms", "10"),
        ("message.timeout.ms", "soon"),
        ("statistics.interval.ms", "0"),
    ],
)
def test_settings_that_break_the_protocol_are_refused_with_the_reason(section: str, name: str, value: str) -> None:
    with pytest.raises(SettingRefused, match=rf"kafka\.{section}: {name} "):
        KafkaSettings(NOWHERE, **{section: {name: value}})  # type: ignore[arg-type]  # one section by its name


def test_given_properties_win_over_defaults_and_those_of_a_role_over_common_ones() -> None:
    settings = KafkaSettings(
        NOWHERE,
        common={"client.id": "mine", "message.timeout.ms": "3000"},
        producer={"message.timeout.ms": "4000", "transaction.timeout.ms": "20000"},
        consumer={"session.timeout.ms": 30_000},
    )
    producer = settings.producer_conf("tid", 5_000_000)
    assert producer["client.id"] == "mine"
    assert producer["message.timeout.ms"] == "4000"
    assert producer["transaction.timeout.ms"] == settings.transaction_timeout_ms == 20_000
    assert producer["message.max.bytes"] == 5_000_000
    assert settings.group_consumer_conf("g", None)["session.timeout.ms"] == 30_000


def test_a_fetch_holds_the_largest_message() -> None:
    """librdkafka refuses a consumer with smaller fetches."""
    settings = KafkaSettings(NOWHERE, common={"message.max.bytes": "20000000"})
    for conf in (settings.group_consumer_conf("g", None), settings.reader_conf("read_committed")):
        assert conf["fetch.max.bytes"] == 20_000_000
        Consumer(conf).close()
    assert KafkaSettings(NOWHERE).reader_conf("read_committed")["fetch.max.bytes"] == FETCH_SIZE_BYTES_MAX


def test_each_client_has_the_settings_of_the_protocol() -> None:
    settings = KafkaSettings(NOWHERE)
    producer = settings.producer_conf("tid", 1_048_588)
    assert producer["transactional.id"] == "tid"
    assert producer["partitioner"] == "murmur2_random"
    assert producer["allow.auto.create.topics"] is False
    assert producer["enable.metrics.push"] is False
    member = settings.group_consumer_conf("g", "pod-0")
    assert member["isolation.level"] == "read_committed"
    assert member["partition.assignment.strategy"] == "cooperative-sticky"
    assert member["auto.offset.reset"] == "error"
    assert member["group.instance.id"] == "pod-0"
    assert "group.instance.id" not in settings.group_consumer_conf("g", None)
    assert settings.reader_conf("read_uncommitted")["isolation.level"] == "read_uncommitted"


def test_a_member_whose_broker_assigns_has_no_settings_of_the_classic_protocol() -> None:
    """librdkafka refuses these settings."""
    settings = KafkaSettings(NOWHERE, group_protocol="consumer")
    member = settings.group_consumer_conf("g", "pod-0")
    assert member["group.protocol"] == "consumer"
    assert not {"partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"} & member.keys()
    ConfluentKafka(settings).group_consumer("g", "pod-0").close()
    for name in ("session.timeout.ms", "heartbeat.interval.ms"):
        with pytest.raises(SettingRefused, match=rf"set group\.consumer\.{name} on the brokers"):
            KafkaSettings(NOWHERE, consumer={name: "9000"}, group_protocol="consumer")


def test_librdkafka_knows_every_property_of_every_client() -> None:
    kafka = ConfluentKafka(KafkaSettings(NOWHERE))
    kafka.group_consumer("g", "pod-0").close()
    kafka.log_reader(Partition("t", 0), 0, Isolation.READ_COMMITTED).close()
    kafka.producer("tid").destroy()
    kafka.plain_producer().destroy()
    kafka.admin().close()


def test_an_unknown_property_is_refused_when_a_client_is_created() -> None:
    with pytest.raises(SettingRefused, match=r"no\.such\.thing"):
        ConfluentKafka(KafkaSettings(NOWHERE, producer={"no.such.thing": "1"})).producer("tid")
    with pytest.raises(SettingRefused, match="sasl"):
        ConfluentKafka(KafkaSettings(NOWHERE, common={"sasl.mechanism": "PLAIN", "sasl.nonsense": "x"})).admin()
