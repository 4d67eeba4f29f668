"""Debounce: however often a document changes, it is indexed once, two seconds after the last change, but at most ten
seconds after the first change.

Shows replacing: a request with the id of a pending entry replaces that entry, so only the last change is indexed.
`postdate-latest` limits the total delay. The sidecars need the setting format_version = 2 for it.

    python examples/python/debounce.py

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
TO_INDEX = "example.documents-to-index"

# The id is also the record's key. With `murmur2_random`, librdkafka chooses partitions as Java's clients do. So
# all changes of one document go to the same partition of the request topic, where a later one finds an earlier one.
producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True, "partitioner": "murmur2_random"})


def changed(document: str, text: str) -> None:
    producer.produce(
        REQUESTS,
        key=document,
        value=text,
        headers={
            "postdate-topic": TO_INDEX,
            "postdate-delay": "2s",
            "postdate-id": document,
            "postdate-latest": "10s",
        },
    )
    producer.flush()
    print(f"{document} is now: {text}")


def index(count: int) -> None:
    """Reads the documents to index, until `count` have arrived."""
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": "example.indexer",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([TO_INDEX])
    while count:
        record = consumer.poll(1.0)
        if record is not None and record.error() is None:
            print(f"indexing {(record.key() or b'').decode()}: {(record.value() or b'').decode()}")
            count -= 1
    consumer.close()


def main() -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    if TO_INDEX not in admin.list_topics(timeout=10).topics:
        admin.create_topics([NewTopic(TO_INDEX, 1)])[TO_INDEX].result()
    for text in ("d", "de", "del", "dela", "delay"):
        changed("document-7", text)
        time.sleep(0.1)  # the user is typing
    index(1)


if __name__ == "__main__":
    main()
