"""Order time-out: an order that is not paid within three seconds is given up; a payment cancels the time-out.

Shows an id, `cancel`, and its verdict: `cancelled` means that the time-out will never be delivered, `too-late` that it
was delivered before. `postdate.client` builds the requests, and finds the partition of an id. debounce.py shows the
same with plain headers.

    python examples/python/order_timeout.py

BOOTSTRAP and REQUESTS name the broker and the request topic (localhost:9092, postdate.requests).
"""

from __future__ import annotations

import os
from datetime import timedelta

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from postdate.client import RequestTopic, Verdict, decode_verdict

BOOTSTRAP = os.environ.get("BOOTSTRAP", "localhost:9092")
REQUESTS = os.environ.get("REQUESTS", "postdate.requests")
VERDICTS = f"{REQUESTS}.verdicts"
TIMEOUTS = "example.order-timeouts"
TO_PAY = timedelta(seconds=3)


def settle(orders: set[str]) -> None:
    """Reads time-outs and verdicts, as an order service does, until each order has ended."""
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": "example.order-service",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([TIMEOUTS, VERDICTS])
    while orders:
        record = consumer.poll(1.0)
        if record is None or record.error() is not None:
            continue
        order = (record.key() or b"").decode()
        if record.topic() == TIMEOUTS:
            print(f"{order}: given up, it was not paid")
            orders.discard(order)
        elif order in orders:
            verdict = decode_verdict(record.value()).verdict
            if verdict in (Verdict.CANCELLED, Verdict.TOO_LATE):
                print(f"{order}: {'paid in time' if verdict is Verdict.CANCELLED else 'paid too late, refund it'}")
                orders.remove(order)
    consumer.close()


def main() -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    topics = admin.list_topics(timeout=10).topics
    if TIMEOUTS not in topics:
        admin.create_topics([NewTopic(TIMEOUTS, 1)])[TIMEOUTS].result()
    requests = RequestTopic(REQUESTS, partitions=len(topics[REQUESTS].partitions))
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    for order in ("order-1", "order-2"):
        producer.produce(**requests.schedule(TIMEOUTS, "time is up", key=order, delay=TO_PAY, id=order))
        print(f"{order}: placed")
    producer.produce(**requests.cancel(id="order-2"))
    print("order-2: paid")
    producer.flush()
    settle({"order-1", "order-2"})


if __name__ == "__main__":
    main()
