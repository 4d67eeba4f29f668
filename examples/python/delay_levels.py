"""Delay levels as in RocketMQ: 1 for 1 s, 2 for 5 s, 3 for 10 s and so on; 0 delivers immediately.

Shows `postdate-level`, and the lateness of each message by its headers and its timestamp. The table of levels is a
setting of the request topic: `levels_ms`.

    python examples/python/delay_levels.py

BOOTSTRAP and REQUESTS name the broker and the request topic (localhost:9092, postdate.requests).
"""

from __future__ import annotations

import os

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

BOOTSTRAP = os.environ.get("BOOTSTRAP", "localhost:9092")
REQUESTS = os.environ.get("REQUESTS", "postdate.requests")
TARGET = "example.levels"
LEVELS = (2, 0, 1)


def main() -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    if TARGET not in admin.list_topics(timeout=10).topics:
        admin.create_topics([NewTopic(TARGET, 1)])[TARGET].result()
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": "example.levels",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([TARGET])
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    for level in LEVELS:
        producer.produce(
            REQUESTS, value=f"level {level}", headers={"postdate-topic": TARGET, "postdate-level": str(level)}
        )
    producer.flush()
    arrived = 0
    while arrived < len(LEVELS):
        record = consumer.poll(1.0)
        if record is not None and record.error() is None:
            due_ms = int(dict(record.headers() or [])["postdate-due"] or 0)
            print(f"{(record.value() or b'').decode()} arrived, {record.timestamp()[1] - due_ms} ms after its due time")
            arrived += 1
    consumer.close()


if __name__ == "__main__":
    main()
