"""Spreads a burst: newsletters that are due at one instant are delivered at an even rate over a window after it.

Shows `postdate-window` and `postdate-spread: even`. Each message is delivered at the emptiest time of its window, never
before its due time. The header `postdate-due` keeps the requested time. The sidecars need the setting
format_version = 2 for it.

    python examples/python/spread_newsletter.py

BOOTSTRAP and REQUESTS name the broker and the request topic (localhost:9092, postdate.requests).
"""

from __future__ import annotations

import os
import time

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

BOOTSTRAP = os.environ.get("BOOTSTRAP", "localhost:9092")
REQUESTS = os.environ.get("REQUESTS", "postdate.requests")
NEWSLETTERS = "example.newsletters"
COUNT = 20


def main() -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    if NEWSLETTERS not in admin.list_topics(timeout=10).topics:
        # The broker sets the timestamps, so that they show when each newsletter has left.
        topic = NewTopic(NEWSLETTERS, 1, config={"message.timestamp.type": "LogAppendTime"})
        admin.create_topics([topic])[NEWSLETTERS].result()
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    due = str(int(time.time() * 1000) + 2_000)
    for _ in range(COUNT):
        producer.produce(
            REQUESTS,
            value="news",
            headers={
                "postdate-topic": NEWSLETTERS,
                "postdate-at": due,
                "postdate-window": "3s",
                "postdate-spread": "even",
            },
        )
    producer.flush()
    print(f"{COUNT} newsletters are due at one instant")
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": f"example.newsletters.{due}",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([NEWSLETTERS])
    left: list[int] = []
    while len(left) < COUNT:
        record = consumer.poll(1.0)
        if record is None or record.error() is not None:
            continue
        if dict(record.headers() or []).get("postdate-due") == due.encode():
            left.append(record.timestamp()[1] - int(due))
    consumer.close()
    print(f"{len(left)} newsletters have left, {sum(late < 0 for late in left)} of them before that instant")
    print(f"they left {min(left)} to {max(left)} ms after it")


if __name__ == "__main__":
    main()
