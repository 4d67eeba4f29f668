"""Foreign clients that break the rules: they use a shard's transactional id, or leave transactions open."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException, Producer

from postdate.wire.headers import Headers
from support.brokers.broker import unique_name
from support.waiting.timeouts import WAIT_TIMEOUT_S


def take_id(bootstrap: str, transactional_id: str) -> None:
    """Initializes a foreign producer with this id, which fences the id's owner, and closes the producer without a
    transaction.

    If the broker reports that this producer is fenced, a new one repeats the attempt, as the sidecar does. Kafka 4.2
    reports this although no other client takes the id: the coordinator plans to abort the owner's open transaction, but
    before it does so, the owner may abort it and begin another one (`handleInitProducerId` in TransactionCoordinator
    does not hold its lock in between).
    """
    settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0}
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    producer = Producer(settings)
    while True:
        try:
            producer.init_transactions(20)
            return
        except KafkaException as raised:
            error = raised.args[0]
            if time.monotonic() >= deadline or not (error.retriable() or error.code() == KafkaError._FENCED):
                raise
            if error.fatal():
                producer = Producer(settings)


@contextmanager
def open_transaction(
    bootstrap: str, topic: str, partition: int, value: bytes, headers: Headers | None = None, *, commit: bool = False
) -> Iterator[None]:
    """Keeps a foreign transaction with one record open during the context; then commits or aborts it."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": unique_name("stranger"),
            "transaction.timeout.ms": 120_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(WAIT_TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, value, b"a stranger's", partition, headers=list(headers or []))
    assert producer.flush(WAIT_TIMEOUT_S) == 0, "the stranger's record was not taken"
    try:
        yield
    finally:
        if commit:
            producer.commit_transaction(WAIT_TIMEOUT_S)
        else:
            producer.abort_transaction(WAIT_TIMEOUT_S)
