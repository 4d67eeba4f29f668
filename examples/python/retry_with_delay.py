"""Retries with growing delay: a charge that fails is tried again after 0.5, 1 and 2 seconds, then put aside.

Shows a consumer that sends a record back to its topic: it copies the record with all its headers, including
`postdate-origin` and `postdate-due` of the previous delivery, and adds a new time. The consumer commits the request and
the consumed offset in one transaction. So if it dies at any point, no charge is lost, and no failure is retried twice.
The delays need no retry topics.

    python examples/python/retry_with_delay.py

BOOTSTRAP and REQUESTS name the broker and the request topic (localhost:9092, postdate.requests).
"""

from __future__ import annotations

import os
from typing import cast

from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

BOOTSTRAP = os.environ.get("BOOTSTRAP", "localhost:9092")
REQUESTS = os.environ.get("REQUESTS", "postdate.requests")
CHARGES, RETRIES, PUT_ASIDE = "example.charges", "example.charges.retry", "example.charges.put-aside"

FIRST_DELAY_MS = 500
RETRIES_MAX = 3

Headers = list[tuple[str, str | bytes | None]]


class Declined(Exception):
    """The bank refused the payment."""


def charge(customer: str, attempt: int) -> None:
    """Charges a customer: Alice pays at once, Bob at the third attempt, and Carol never."""
    if attempt < {"alice": 1, "bob": 3}.get(customer, 1_000):
        raise Declined(f"{customer} was declined")


def after_failure(record: Message, attempt: int, why: Declined) -> tuple[str, Headers]:
    """Returns the next topic of the record, and its headers."""
    copied = cast(Headers, record.headers() or [])
    headers = [header for header in copied if header[0] not in ("attempt", "error")]
    headers += [("attempt", str(attempt)), ("error", str(why))]
    if attempt > RETRIES_MAX:
        return PUT_ASIDE, headers
    delay_ms = FIRST_DELAY_MS * 2 ** (attempt - 1)
    return REQUESTS, [*headers, ("postdate-topic", RETRIES), ("postdate-delay", f"{delay_ms}ms")]


def handle(record: Message, consumer: Consumer, producer: Producer) -> bool:
    """Charges once. Returns True if the record needs no further attempt."""
    customer = (record.key() or b"").decode()
    attempt = int(dict(record.headers() or []).get("attempt") or 0) + 1
    topic = ""
    producer.begin_transaction()
    try:
        charge(customer, attempt)
        print(f"{customer}: charged at attempt {attempt}")
    except Declined as why:
        topic, headers = after_failure(record, attempt, why)
        producer.produce(topic, key=record.key(), value=record.value(), headers=headers)
        print(f"{customer}: attempt {attempt} failed, {'put aside' if topic == PUT_ASIDE else 'to be tried again'}")
    producer.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata())
    producer.commit_transaction()
    return topic != REQUESTS


def main() -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    missing = {CHARGES, RETRIES, PUT_ASIDE} - admin.list_topics(timeout=10).topics.keys()
    for made in admin.create_topics([NewTopic(name, 1) for name in missing]).values() if missing else ():
        made.result()
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": "example.charger"})
    producer.init_transactions()
    producer.begin_transaction()
    for customer in ("alice", "bob", "carol"):
        producer.produce(CHARGES, key=customer, value="9.90", headers={"traceparent": f"00-{customer}-01"})
    producer.commit_transaction()
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": "example.charger",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([CHARGES, RETRIES])
    open_charges = 3
    while open_charges:
        record = consumer.poll(1.0)
        if record is not None and record.error() is None:
            open_charges -= handle(record, consumer, producer)
    consumer.close()


if __name__ == "__main__":
    main()
