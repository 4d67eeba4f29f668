"""A fault must have happened before the rig expects its consequences, whatever the broker answers first."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from confluent_kafka import KafkaError, KafkaException

from support.faults import intruding_clients
from support.faults.intruding_clients import take_id


class _Broker:
    """Answers the init requests of all producers with these errors, in this order; then each succeeds."""

    def __init__(self, *errors: KafkaError) -> None:
        self.errors = list(errors)
        self.producers = 0
        self.taken = False

    def producer(self, settings: Mapping[str, str]) -> _Producer:
        assert settings["transactional.id"] == "the-id"
        self.producers += 1
        return _Producer(self)


class _Producer:
    """A producer that is unusable after a fatal error, as the library's is."""

    def __init__(self, broker: _Broker) -> None:
        self._broker = broker
        self._fatal: KafkaError | None = None

    def init_transactions(self, _timeout_s: float) -> None:
        error = self._fatal or next(iter(self._broker.errors), None)
        if error is None:
            self._broker.taken = True
            return
        if self._fatal is None:
            del self._broker.errors[0]
        if error.fatal():
            self._fatal = error
        raise KafkaException(error)


def _take(monkeypatch: pytest.MonkeyPatch, *errors: KafkaError) -> _Broker:
    broker = _Broker(*errors)
    monkeypatch.setattr(intruding_clients, "Producer", broker.producer)
    take_id("broker:9092", "the-id")
    return broker


def test_the_same_producer_waits_for_the_end_of_the_owner_s_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = _take(monkeypatch, *[KafkaError(KafkaError.CONCURRENT_TRANSACTIONS, "wait", False, True)] * 3)
    assert broker.taken
    assert broker.producers == 1


def test_a_fenced_producer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = _take(monkeypatch, KafkaError(KafkaError._FENCED, "fenced", True))
    assert broker.taken
    assert broker.producers == 2


def test_any_other_error_fails_the_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KafkaException, match="not allowed"):
        _take(monkeypatch, KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "not allowed", True))
