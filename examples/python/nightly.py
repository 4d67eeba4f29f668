"""Nightly job: a report every night at 04:00 by the clock of Berlin, summer and winter.

Shows `postdate-at` with an RFC 3339 time, and a chain: whoever receives tonight's message schedules tomorrow's, in one
transaction with its own consumed offset, so no night is missed and none comes twice. The id names the night, so that
starting the chain again replaces its link instead of making a second chain.

    python examples/python/nightly.py            # waits for 04:00; or, to see it at once:
    python examples/python/nightly.py "$(TZ=Europe/Berlin date -d '3 seconds' +%T)"

BOOTSTRAP and REQUESTS name the broker and the request topic (localhost:9092, postdate.requests).
"""

from __future__ import annotations

import os
import sys
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

BOOTSTRAP = os.environ.get("BOOTSTRAP", "localhost:9092")
REQUESTS = os.environ.get("REQUESTS", "postdate.requests")
REPORTS = "example.nightly-reports"
ZONE = ZoneInfo("Europe/Berlin")


def next_night(at: time, after: datetime) -> datetime:
    """The first moment after `after` at which the clock of ZONE shows `at`."""
    tonight = datetime.combine(after.astimezone(ZONE).date(), at, ZONE)
    return tonight if tonight > after else datetime.combine(tonight.date() + timedelta(days=1), at, ZONE)


def schedule(producer: Producer, night: datetime) -> None:
    """To be called inside a transaction."""
    name = f"report-{night.date()}"
    producer.produce(
        REQUESTS,
        key=name,
        value=night.isoformat(),
        headers={"postdate-topic": REPORTS, "postdate-at": night.isoformat(), "postdate-id": name},
    )
    print(f"scheduled: {night.isoformat()}")


def main() -> None:
    at = time.fromisoformat(sys.argv[1] if len(sys.argv) > 1 else "04:00")
    tonight = next_night(at, datetime.now(ZONE))
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    if REPORTS not in admin.list_topics(timeout=10).topics:
        admin.create_topics([NewTopic(REPORTS, 1)])[REPORTS].result()
    producer = Producer(
        {"bootstrap.servers": BOOTSTRAP, "transactional.id": "example.reporter", "partitioner": "murmur2_random"}
    )
    producer.init_transactions()
    producer.begin_transaction()
    schedule(producer, tonight)
    producer.commit_transaction()
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": "example.reporter",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([REPORTS])
    record = None
    while record is None or record.error() is not None:  # a real job goes on for ever; this one shows one night
        record = consumer.poll(1.0)
    night = datetime.fromisoformat((record.value() or b"").decode())
    print(f"report of {night.isoformat()}: all is well")
    producer.begin_transaction()
    schedule(producer, next_night(at, night))
    producer.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata())
    producer.commit_transaction()
    consumer.close()


if __name__ == "__main__":
    main()
