"""Goal: a producer reports a failed transaction at once, not after the delivery report of its last record.

After one refused record the client library sends nothing more of a transaction. Records that it has not sent get their
reports only after `message.timeout.ms`. So a slow topic would delay the abort, for which all other records wait.
Method: a proxy delays the records of a second topic for longer than this time-out. Only the real client is tested.
"""

from __future__ import annotations

import time

import pytest

from postdate.kafka.client import ConfluentKafka
from postdate.kafka.errors import RecordRejected
from postdate.kafka.interface import Partition, TransactionalProducer
from postdate.kafka.limits import MESSAGE_TIMEOUT_MS
from postdate.kafka.settings import KafkaSettings
from support.brokers.kafka_steps import commit_until_settled, new_topic, open_producer, read_committed
from support.faults.proxied_broker import proxied_broker
from support.faults.proxy import PRODUCE
from support.waiting.timeouts import WAIT_TIMEOUT_S

#: Seconds: enough time for the second topic to join the transaction. Before that, its record is not in flight.
_JOINS_S = 0.5


def test_flush_raises_before_unsent_records_time_out() -> None:
    with proxied_broker(1) as broker:
        kafka = ConfluentKafka(KafkaSettings(broker.way(0)))
        refusing, other = new_topic(kafka, max_message_bytes="100"), new_topic(kafka)
        producer = open_producer(kafka)
        assert commit_until_settled(producer, refusing, b"taken")
        assert commit_until_settled(producer, other, b"taken")
        proxy = broker.proxies[0]
        proxy.throttle(other, 100)
        first = proxy.hold(PRODUCE, lose_client=False)
        producer.begin()
        producer.produce(refusing, b"x" * 200, None, [], 0)
        assert first.caught.wait(WAIT_TIMEOUT_S)
        producer.produce(other, b"aborted", None, [], 0)
        assert producer.flush(_JOINS_S) == 2
        proxy.release(first)
        started = time.monotonic()
        with pytest.raises(RecordRejected):
            _finish(producer)
        assert time.monotonic() - started < MESSAGE_TIMEOUT_MS / 2_000
        broker.heal()
        producer.abort()
        producer.destroy()
        assert b"aborted" not in [record.value for record in read_committed(kafka, Partition(other, 0))]


def _finish(producer: TransactionalProducer) -> None:
    """Flushes and commits. The flush raises, unless the library has given up the second record before sending it."""
    producer.flush(WAIT_TIMEOUT_S)
    producer.commit()
