"""Tests a service with a real sidecar, which runs for the duration of a pytest session.

`remind` is the service. The test lets it schedule one reminder and cancel another, and checks which one arrives.

    pytest -q examples/python/test_your_service.py

BOOTSTRAP names a running broker; without it, the test starts one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta

import pytest
from confluent_kafka import Producer

from postdate.client import RequestTopic
from postdate.testing import LocalPostdate

REMINDERS = "example.tested-reminders"


def remind(producer: Producer, requests: RequestTopic, customer: str, text: str) -> None:
    """Schedules a reminder for a customer, unless the customer comes back earlier. This is the service under test."""
    soon = timedelta(milliseconds=500)
    producer.produce(**requests.schedule(REMINDERS, text, key=customer, delay=soon, id=f"reminder-{customer}"))


@pytest.fixture(scope="session")
def postdate() -> Iterator[LocalPostdate]:
    with LocalPostdate(os.environ.get("BOOTSTRAP")) as running:
        running.create_topic(REMINDERS)
        yield running


def test_who_does_not_come_back_is_reminded(postdate: LocalPostdate) -> None:
    producer = Producer({"bootstrap.servers": postdate.bootstrap_servers, "enable.idempotence": True})
    remind(producer, postdate.requests, "alice", "your voucher ends today")
    remind(producer, postdate.requests, "bob", "your voucher ends today")
    producer.produce(**postdate.requests.cancel(id="reminder-alice"))
    producer.flush()

    (reminder,) = postdate.delivered(REMINDERS, 1)

    assert (reminder.key, reminder.value) == (b"bob", b"your voucher ends today")
    assert reminder.timestamp_ms >= reminder.due_ms
