"""Postdate for the tests of your service: a real sidecar on a real Kafka.

    from postdate.testing import LocalPostdate

    with LocalPostdate() as postdate:                      # starts a broker; or LocalPostdate("localhost:9092")
        producer.produce(**postdate.requests.schedule("reminders", b"pay!", delay=timedelta(seconds=1)))
        (message,) = postdate.delivered("reminders", 1)

With pytest: `pytest_plugins = ["postdate.testing.fixtures"]`, and use the fixture `postdate`. In a container:
`postdate.testing.container`, which needs testcontainers. docs/client.md describes the rest.
"""

from __future__ import annotations

from postdate.testing.local_postdate import LocalPostdate
from postdate.testing.observing import DeliveredRecord, NotDelivered

__all__ = ["DeliveredRecord", "LocalPostdate", "NotDelivered"]
