"""Snooze: a pending reminder is put off without an id. Its origin, from the producer's acknowledgement, names it.

Shows `postdate-action: reschedule` with `postdate-origin`, produced to the partition that the origin names. The message
itself does not change, since a reschedule contains only a new time.

    python examples/python/snooze.py

BOOTSTRAP and REQUESTS name the broker and the request topic (localhost:9092, postdate.requests).
"""

from __future__ import annotations

import os

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

BOOTSTRAP = os.environ.get("BOOTSTRAP", "localhost:9092")
REQUESTS = os.environ.get("REQUESTS", "postdate.requests")
REMINDERS = "example.reminders"


def main() -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    if REMINDERS not in admin.list_topics(timeout=10).topics:
        admin.create_topics([NewTopic(REMINDERS, 1)])[REMINDERS].result()
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    origins: dict[str, str] = {}

    def note_origin(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        text = (message.value() or b"").decode()
        origins[text] = f"{message.topic()}/{message.partition()}/{message.offset()}"

    for text in ("water the plants", "call the bank"):
        producer.produce(
            REQUESTS,
            value=text,
            headers={"postdate-topic": REMINDERS, "postdate-delay": "2s"},
            on_delivery=note_origin,
        )
    producer.flush()
    origin = origins["water the plants"]
    producer.produce(
        REQUESTS,
        partition=int(origin.split("/")[1]),
        headers={"postdate-action": "reschedule", "postdate-origin": origin, "postdate-delay": "3500ms"},
    )
    producer.flush()
    print("water the plants: put off")
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": "example.reminders",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([REMINDERS])
    for _ in origins:
        record = None
        while record is None or record.error() is not None:
            record = consumer.poll(1.0)
        print(f"reminder: {(record.value() or b'').decode()}")
    consumer.close()


if __name__ == "__main__":
    main()
