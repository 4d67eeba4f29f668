"""Test your own service: a sidecar that really delivers, for the length of a pytest session.

`remind` is the service; the test lets it ask for a reminder, cancel another, and sees what arrives.

    pytest -q examples/python/test_your_service.py

BOOTSTRAP names a broker that runs; without it the test starts one of its own.
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
    """The service under test: reminds a customer in a while, unless they come back before that."""
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
