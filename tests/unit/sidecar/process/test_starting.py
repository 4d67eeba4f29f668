"""Goal: a refusal ends the start of a process, even if the client library reports it late.

Method: `wait_for_kafka` runs over a stub of Kafka. Its admin client does not answer, and the first search for a
connection error finds none, as on a machine that is too busy to finish a TLS handshake during one search.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from postdate.kafka.errors import KafkaFault, NotAuthorized, Unreachable
from postdate.sidecar.errors import ConfigError
from postdate.sidecar.process import starting
from support.waiting.timeouts import WAIT_TIMEOUT_S


class _Kafka:
    """A stub of Kafka: each search for a connection error finds the next of `faults`, and the admin client's request
    fails once `gives_up` is set."""

    def __init__(self, *faults: KafkaFault | None) -> None:
        self.faults = list(faults)
        self.gives_up = threading.Event()

    def admin(self) -> SimpleNamespace:
        return SimpleNamespace(close=lambda: None)

    def connection_fault(self, over: Callable[[], bool]) -> KafkaFault | None:
        fault = self.faults.pop(0)
        if isinstance(fault, Unreachable):
            self.gives_up.set()
        return fault

    def request(self, admin: object) -> None:
        assert self.gives_up.wait(WAIT_TIMEOUT_S)
        raise Unreachable("no answer in time")


def _poller(attempts: int) -> SimpleNamespace:
    """Returns a poller that stops the process after that many waiting attempts."""

    class Poller(SimpleNamespace):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "waits_for" and value:
                self.reasons.append(value)
                self.is_stopping = len(self.reasons) == attempts

    return Poller(is_stopping=False, reasons=[], turned_at=0.0)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LISTEN_AFTER_S", "_TICK_S", "START_PAUSE_S_MIN"):
        monkeypatch.setattr(starting, name, 0.001)


def test_a_refusal_that_is_reported_late_ends_the_start() -> None:
    kafka, poller = _Kafka(None, NotAuthorized("certificate verify failed")), _poller(1)
    with pytest.raises(ConfigError, match=r"Kafka refuses this process: certificate verify failed"):
        starting.wait_for_kafka(kafka, kafka.request, poller)  # type: ignore[arg-type]
    assert poller.reasons == []
    kafka.gives_up.set()  # ends the thread of the attempt


def test_the_start_waits_for_an_unreachable_broker_with_the_known_reason() -> None:
    kafka, poller = _Kafka(None, Unreachable("connection refused")), _poller(1)
    assert starting.wait_for_kafka(kafka, kafka.request, poller) is None  # type: ignore[arg-type]
    assert poller.reasons == ["connection refused"]
