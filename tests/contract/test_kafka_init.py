"""Goal: a takeover does not wait for half a second until the client library asks for the coordinator again.

Method: new producers take an id, by turns with and without a topic through which they get to know their brokers first.
Those without wait for 500 ms in every other case, so the sums differ by seconds, on a busy machine too. Only the real
implementation.
"""

from __future__ import annotations

import time

from postdate.kafka.client import ConfluentKafka
from postdate.kafka.settings import KafkaSettings
from support.broker import RunningBroker, unique_name
from support.kafka_steps import new_topic
from support.timeouts import WAIT_TIMEOUT_S

_ROUNDS = 20
#: s. Of the two sums. Fewer than three waits in twenty rounds are not to be expected.
_DIFFERENCE_S = 1.0


def test_a_producer_that_knows_its_brokers_takes_its_id_sooner(broker: RunningBroker) -> None:
    kafka = ConfluentKafka(KafkaSettings(broker.bootstrap_servers))
    topic, transactional_id = new_topic(kafka), unique_name("tid")
    took_s = {"": 0.0, topic: 0.0}
    for _ in range(_ROUNDS):
        for known in took_s:
            started = time.monotonic()
            producer = kafka.producer(transactional_id)
            producer.init(WAIT_TIMEOUT_S, known)
            took_s[known] += time.monotonic() - started
            producer.destroy()
    assert took_s[""] - took_s[topic] >= _DIFFERENCE_S


def test_a_topic_that_does_not_exist_is_no_hindrance(broker: RunningBroker) -> None:
    kafka = ConfluentKafka(KafkaSettings(broker.bootstrap_servers))
    absent = unique_name("absent")
    producer = kafka.producer(unique_name("tid"))
    producer.init(WAIT_TIMEOUT_S, absent)
    producer.destroy()
    admin = kafka.admin()
    assert absent not in admin.describe([absent])
    admin.close()
