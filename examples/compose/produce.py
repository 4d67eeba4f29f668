"""The producer of compose.yaml: 20 requests a second, due in 1 s to 10 min, and a cancel for every twentieth.

    BOOTSTRAP=localhost:9092 python examples/compose/produce.py

BOOTSTRAP, REQUESTS and TARGET name the broker and the topics (localhost:9092, postdate.requests, example.compose).
"""

from __future__ import annotations

import os
import random
import time
from datetime import timedelta

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from postdate.client import RequestTopic

BOOTSTRAP = os.environ.get("BOOTSTRAP", "localhost:9092")
REQUESTS = os.environ.get("REQUESTS", "postdate.requests")
TARGET = os.environ.get("TARGET", "example.compose")
PER_SECOND = 20
DELAYS_S = (1, 1, 2, 5, 10, 30, 60, 120, 300, 600)


def main() -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    topics = admin.list_topics(timeout=60).topics
    if TARGET not in topics:
        admin.create_topics([NewTopic(TARGET, 4, 1)])[TARGET].result(60)
    requests = RequestTopic(REQUESTS, len(topics[REQUESTS].partitions))
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    number = 0
    while True:
        number += 1
        delay = timedelta(seconds=random.choice(DELAYS_S))  # noqa: S311 - no secret
        producer.produce(**requests.schedule(TARGET, "hello", key=f"k-{number % 50}", delay=delay, id=f"n-{number}"))
        if number % 20 == 0:
            producer.produce(**requests.cancel(id=f"n-{number - 1}"))
        producer.poll(0)
        time.sleep(1 / PER_SECOND)


if __name__ == "__main__":
    try:
        main()
    except KafkaException as error:
        raise SystemExit(f"the broker at {BOOTSTRAP} does not answer: {error}") from error
