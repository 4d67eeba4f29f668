"""Goal: a takeover does not wait for half a second until the client library asks for the coordinator again.

Method: new producers take a transactional id, alternately with and without a topic through which they first learn their
brokers. The library logs its steps. Without the topic, it asks for the coordinator before it knows a broker, and may
then retry only after a fixed 500 ms. With the topic, it never asks too early. The test measures no time, so its result
does not depend on the machine. Only the real client is tested.
"""

from __future__ import annotations

import logging

import pytest

from postdate.kafka.client import ConfluentKafka
from postdate.kafka.settings import KafkaSettings
from support.brokers.broker import RunningBroker, unique_name
from support.brokers.kafka_steps import new_topic
from support.waiting.timeouts import WAIT_TIMEOUT_S

_ROUNDS = 5
#: The line that librdkafka logs with `debug=eos` if it asks too early (`rdkafka_txnmgr.c`).
_TOO_EARLY = "Unable to query for transaction coordinator"


def test_a_producer_that_knows_its_brokers_never_asks_too_early(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    kafka = ConfluentKafka(KafkaSettings(broker.bootstrap_servers, producer={"debug": "eos"}))
    topic, transactional_id = new_topic(kafka), unique_name("tid")
    too_early = {"": 0, topic: 0}
    with caplog.at_level(logging.DEBUG):
        for _ in range(_ROUNDS):
            for known in too_early:
                caplog.clear()
                producer = kafka.producer(transactional_id)
                producer.init(WAIT_TIMEOUT_S, known)
                producer.settle()  # serves the library's log lines
                too_early[known] += _TOO_EARLY in caplog.text
                producer.destroy()
    assert too_early[""] > 0, "nothing to avoid any more: the topic can go"
    assert too_early[topic] == 0


def test_a_producer_takes_its_id_if_its_topic_does_not_exist(broker: RunningBroker) -> None:
    kafka = ConfluentKafka(KafkaSettings(broker.bootstrap_servers))
    absent = unique_name("absent")
    producer = kafka.producer(unique_name("tid"))
    producer.init(WAIT_TIMEOUT_S, absent)
    producer.destroy()
    admin = kafka.admin()
    assert absent not in admin.describe([absent])
    admin.close()
