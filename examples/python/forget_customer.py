"""Forgets a customer: one call cancels all pending messages of the customer, whatever their targets.

Shows a bulk cancel and its exact count, and a message that is delivered now. The ids of a customer's messages begin
with the customer's name. A bulk control is one record for each partition, since a control acts only on one partition.
The sidecars need the setting format_version = 2 for it.

    python examples/python/forget_customer.py

BOOTSTRAP and REQUESTS name the broker and the request topic (localhost:9092, postdate.requests).
"""

from __future__ import annotations

import os
import time
from datetime import timedelta

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from postdate.client import RequestTopic, Verdict, decode_verdict

BOOTSTRAP = os.environ.get("BOOTSTRAP", "localhost:9092")
REQUESTS = os.environ.get("REQUESTS", "postdate.requests")
OFFERS = "example.offers"
VERDICTS = f"{REQUESTS}.verdicts"


def count_of(value: bytes | None, origins: set[str]) -> int | None:
    """Returns the number of messages that one of these controls cancelled; None if the verdict is on another
    request."""
    answer = decode_verdict(value)
    return answer.count if answer.verdict is Verdict.APPLIED and answer.origin in origins else None


def main() -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    if OFFERS not in admin.list_topics(timeout=10).topics:
        admin.create_topics([NewTopic(OFFERS, 1)])[OFFERS].result()
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    partitions = len(producer.list_topics(REQUESTS, timeout=10).topics[REQUESTS].partitions)
    requests, run = RequestTopic(REQUESTS, partitions=partitions), time.time_ns()
    for customer, offers in (("alice", 3), ("bob", 1)):
        for number in range(offers):
            name = f"{customer}-{run}/{number}"
            producer.produce(**requests.schedule(OFFERS, f"an offer for {customer}", delay=timedelta(days=1), id=name))
    producer.flush()
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": f"example.{run}",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([OFFERS, VERDICTS])
    controls: set[str] = set()
    for record in requests.cancel_selected(id_prefix=f"alice-{run}/"):
        producer.produce(
            **record, on_delivery=lambda _, sent: controls.add(f"{sent.topic()}/{sent.partition()}/{sent.offset()}")
        )
    producer.flush()
    counts: list[int] = []
    is_delivered = False
    while not is_delivered:
        message = consumer.poll(1.0)
        if message is None or message.error() is not None:
            continue
        if message.topic() == OFFERS:
            is_delivered = dict(message.headers() or []).get("postdate-id") == b"bob-%d/0" % run
            if is_delivered:
                print(f"delivered now: {(message.value() or b'').decode()}")
            continue
        count = count_of(message.value(), controls)
        if count is not None:
            counts.append(count)
            if len(counts) == partitions:
                print(f"alice is forgotten: {sum(counts)} messages cancelled")
                producer.produce(**requests.deliver(id=f"bob-{run}/0"))
                producer.flush()
    consumer.close()


if __name__ == "__main__":
    main()
