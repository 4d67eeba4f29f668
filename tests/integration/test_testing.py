"""Goal: `postdate.testing` gives users' tests a sidecar that delivers, on an existing broker or a new one, and its
errors explain why a message is missing.

Method: one test uses the context manager on the broker of the session. Another runs pytest as a user would, with the
fixtures and without a broker. test_examples.py runs the documented example.
"""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer

from postdate.testing import LocalPostdate, NotDelivered
from support.brokers.broker import RunningBroker, unique_name
from support.deployments.sidecars import environment
from support.waiting.timeouts import WAIT_TIMEOUT_S

_USERS_TEST = """
from datetime import timedelta
from confluent_kafka import Producer
pytest_plugins = ["postdate.testing.fixtures"]

def test_mine(postdate):
    postdate.create_topic("mine")
    producer = Producer({"bootstrap.servers": postdate.bootstrap_servers})
    producer.produce(**postdate.requests.schedule("mine", b"now", delay=timedelta(0)))
    producer.flush()
    assert [message.value for message in postdate.delivered("mine", 1)] == [b"now"]
"""


def test_delivered_returns_due_messages_and_fails_if_some_are_missing(broker: RunningBroker) -> None:
    target, forbidden = unique_name("target"), unique_name("forbidden")
    with LocalPostdate(broker.bootstrap_servers, partitions=2, allow=[target]) as postdate:
        postdate.create_topic(target, partitions=3)
        producer = Producer({"bootstrap.servers": postdate.bootstrap_servers})
        half = timedelta(milliseconds=500)
        headers = [("trace", b"1"), ("empty", None)]
        request = postdate.requests.schedule(target, b"v", key=b"k", headers=headers, delay=half, id="i")
        producer.produce(**request)
        producer.produce(**postdate.requests.schedule(forbidden, b"never", delay=half))
        producer.produce(target, b"of another producer")
        assert producer.flush(WAIT_TIMEOUT_S) == 0
        (message,) = postdate.delivered(target, 1)
        (dead_letter,) = postdate.dead_letters(1)
        with pytest.raises(NotDelivered, match=rf"(?s){target} has 1 of 2 records after 0 s.\n.*takeover 1 complete"):
            postdate.delivered(target, 2, timeout_s=0.0)
    assert (message.key, message.value, message.id) == (b"k", b"v", b"i")
    assert message.headers == headers
    assert message.origin.startswith(f"{postdate.requests.name}/")
    assert 0 < message.due_ms <= message.timestamp_ms
    assert dead_letter.value == b"never"


def test_a_sidecar_that_cannot_start_gives_the_reason(broker: RunningBroker) -> None:
    with (
        pytest.raises(NotDelivered, match="unknown-option"),
        LocalPostdate(broker.bootstrap_servers, options=["--unknown-option"]),
    ):
        pass


def test_a_user_needs_the_fixture_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("")
    (tmp_path / "test_mine.py").write_text(_USERS_TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
