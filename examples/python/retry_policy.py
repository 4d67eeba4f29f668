"""Retries by a policy: a payment that fails is returned, and is delivered again after 0.2, 0.4 and 0.8 seconds.

Shows a consumer that returns a record in the transaction of its offset. It copies the record with all its headers, and
adds `postdate-retry`, the policy. Postdate counts the attempts in the headers of the record, and delivers it again to
its topic, so there is no retry topic. After the last attempt Postdate writes a dead letter. If the consumer dies at any
point, no payment is lost, and each failure is returned exactly once.

    python examples/python/retry_policy.py

BOOTSTRAP and REQUESTS name the broker and the request topic (localhost:9092, postdate.requests). The request topic
needs `format_version = 2`. The value of a payment is the number of times that it fails. PAYMENTS names the topic; if it
is set, the program sends no payments, and consumes until it is stopped.
"""

from __future__ import annotations

import os
from typing import cast

from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

BOOTSTRAP = os.environ.get("BOOTSTRAP", "localhost:9092")
REQUESTS = os.environ.get("REQUESTS", "postdate.requests")
PAYMENTS = os.environ.get("PAYMENTS", "example.payments")
PAID = f"{PAYMENTS}.paid"

POLICY = "base=200ms, factor=2, max=10s, attempts=3"
ATTEMPTS = 3

Headers = list[tuple[str, str | bytes | None]]


class Declined(Exception):
    """The bank refused the payment."""


def pay(customer: str, failures: int, attempt: int) -> None:
    """Raises Declined in the first `failures` attempts."""
    if attempt < failures:
        raise Declined(f"{customer} was declined")


def handle(record: Message, consumer: Consumer, producer: Producer) -> bool:
    """Tries to pay once, and returns the record if that fails. True if no further attempt follows."""
    customer = (record.key() or b"").decode()
    headers = cast(Headers, record.headers() or [])
    attempt = int(dict(headers).get("postdate-attempt") or 0)
    is_over = True
    producer.begin_transaction()
    try:
        pay(customer, int(record.value() or b"0"), attempt)
        producer.produce(PAID, key=record.key(), value=record.value())
        print(f"{customer}: paid after {attempt} retries", flush=True)
    except Declined as why:
        retry: Headers = [("postdate-topic", PAYMENTS), ("postdate-retry", POLICY), ("postdate-error", str(why))]
        producer.produce(REQUESTS, key=record.key(), value=record.value(), headers=[*headers, *retry])
        is_over = attempt == ATTEMPTS
        print(f"{customer}: failed after {attempt} retries{', which were all' if is_over else ''}", flush=True)
    producer.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata())
    producer.commit_transaction()
    return is_over


def begin(producer: Producer) -> int:
    """Creates the topics and sends three payments; returns their number."""
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    missing = {PAYMENTS, PAID} - admin.list_topics(timeout=10).topics.keys()
    for made in admin.create_topics([NewTopic(name, 1) for name in missing]).values() if missing else ():
        made.result()
    payments = {"alice": "0", "bob": "2", "carol": "99"}
    producer.begin_transaction()
    for customer, failures in payments.items():
        producer.produce(PAYMENTS, key=customer, value=failures, headers={"traceparent": f"00-{customer}-01"})
    producer.commit_transaction()
    return len(payments)


def main() -> None:
    # A process that starts with this id ends the transaction in which its predecessor died.
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": f"{PAYMENTS}.payer"})
    producer.init_transactions()
    is_example = "PAYMENTS" not in os.environ
    open_payments = begin(producer) if is_example else -1
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": f"{PAYMENTS}.payer",
            "group.instance.id": "payer-1",  # it gets its partitions back at once when it starts again
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([PAYMENTS])
    while open_payments:
        record = consumer.poll(1.0)
        if record is not None and record.error() is None:
            open_payments -= handle(record, consumer, producer)
    consumer.close()


if __name__ == "__main__":
    main()
