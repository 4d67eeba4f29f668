"""Confirms once: a shop that repeats a request after an error sends only one confirmation for each order.

Shows how requests are dropped. With `postdate-if-pending: keep` and `postdate-if-ended: drop`, a request ends without a
delivery if its id is pending, or was delivered within the last hour. The sidecars need the setting format_version = 2.

    python examples/python/confirm_once.py

BOOTSTRAP and REQUESTS name the broker and the request topic (localhost:9092, postdate.requests).
"""

from __future__ import annotations

import json
import os
import time

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

BOOTSTRAP = os.environ.get("BOOTSTRAP", "localhost:9092")
REQUESTS = os.environ.get("REQUESTS", "postdate.requests")
CONFIRMATIONS = "example.confirmations"
VERDICTS = f"{REQUESTS}.verdicts"

# The id is also the record's key. With `murmur2_random`, librdkafka chooses partitions as Java's clients do. So
# all requests for one order go to the same partition of the request topic, where a later one finds an earlier one.
producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True, "partitioner": "murmur2_random"})


def confirm(order: str) -> None:
    producer.produce(
        REQUESTS,
        key=order,
        value="thank you for your order",
        headers={
            "postdate-topic": CONFIRMATIONS,
            "postdate-delay": "1s",
            "postdate-id": order,
            "postdate-if-pending": "keep",
            "postdate-if-ended": "drop",
        },
    )
    producer.flush()
    print("a confirmation is requested")


def verdict_of(value: bytes | None, order: str) -> str | None:
    """Returns the verdict on a request for this order; None if it is on another order."""
    verdict: dict[str, str | None] = json.loads(value or b"{}")
    return verdict["verdict"] if verdict.get("id") == order else None


def main() -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    if CONFIRMATIONS not in admin.list_topics(timeout=10).topics:
        admin.create_topics([NewTopic(CONFIRMATIONS, 1)])[CONFIRMATIONS].result()
    order = f"order-{time.time_ns()}"
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": f"example.{order}",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([CONFIRMATIONS, VERDICTS])
    confirm(order)
    confirm(order)
    verdict = None
    while verdict != "dropped":
        record = consumer.poll(1.0)
        if record is None or record.error() is not None:
            continue
        if record.topic() == VERDICTS:
            verdict = verdict_of(record.value(), order)
            if verdict is not None:
                print(f"a repeated request was {verdict}")
        elif record.key() == order.encode():
            print(f"confirmed: {(record.value() or b'').decode()}")
            confirm(order)
    consumer.close()


if __name__ == "__main__":
    main()
