"""Nightly report: every night at 02:30 by the clock of Berlin, also when clocks are set back in October.

Shows a recurring schedule: `postdate-cron` in a `postdate-zone`, and the headers of each occurrence. The nights
around the last Sunday of October are in the past. Postdate delivers such missed occurrences at once, in order, each
once. The clock shows 02:30 twice in the night to Sunday: by default, the first time counts.

    python examples/python/nightly.py

BOOTSTRAP and REQUESTS name the broker and the request topic (localhost:9092, postdate.requests).
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import cast
from zoneinfo import ZoneInfo

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

BOOTSTRAP = os.environ.get("BOOTSTRAP", "localhost:9092")
REQUESTS = os.environ.get("REQUESTS", "postdate.requests")
REPORTS = "example.nightly-reports"
ZONE = ZoneInfo("Europe/Berlin")
NIGHTS = 4


def last_sunday_of_october(before: datetime) -> datetime:
    """Returns midnight in Berlin of a last Sunday of October: the latest that is over NIGHTS days before `before`."""
    for year in (before.year, before.year - 1):
        november = datetime(year, 11, 1, tzinfo=ZONE)
        sunday = november - timedelta(days=november.isoweekday())
        if sunday + timedelta(days=NIGHTS) < before:
            break
    return sunday


def local_time(epoch_ms: bytes) -> str:
    return datetime.fromtimestamp(int(epoch_ms) / 1000, ZONE).isoformat()


def main() -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    if REPORTS not in admin.list_topics(timeout=10).topics:
        admin.create_topics([NewTopic(REPORTS, 1)])[REPORTS].result()
    saturday = last_sunday_of_october(datetime.now(UTC)) - timedelta(days=1)
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "partitioner": "murmur2_random"})
    producer.produce(
        REQUESTS,
        key="nightly-report",
        value="all is well",
        headers={
            "postdate-topic": REPORTS,
            "postdate-id": "nightly-report",
            "postdate-cron": "30 2 * * *",
            "postdate-zone": "Europe/Berlin",
            # Without a start, the first night would be the next one; without a count, the schedule would not end.
            "postdate-start": saturday.isoformat(),
            "postdate-count": str(NIGHTS),
        },
    )
    producer.flush()
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": "example.reporter",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([REPORTS])
    for _ in range(NIGHTS):
        record = None
        while record is None or record.error() is not None:
            record = consumer.poll(1.0)
        headers = cast(dict[str, bytes], dict(record.headers() or []))
        number, due = headers["postdate-occurrence"].decode(), local_time(headers["postdate-due"])
        following = local_time(headers["postdate-next"]) if "postdate-next" in headers else "none"
        print(f"night {number}, {due}: {(record.value() or b'').decode()}; next: {following}")
    consumer.close()


if __name__ == "__main__":
    main()
