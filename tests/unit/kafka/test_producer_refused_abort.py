"""Goal: if the coordinator refuses an abort, the outcome is unknown and does not count as aborted.

Method: the real producer. Its library call answers as `rd_kafka_txn_handle_EndTxn` of librdkafka does for an unknown
error: with the flag `txn_requires_abort`, for both a commit and an abort.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException

from postdate.kafka.errors import AbortRequired, KafkaFault, UnknownOutcome
from postdate.kafka.producer import ConfluentTransactionalProducer
from postdate.kafka.settings import KafkaSettings

REFUSED = KafkaError(KafkaError.UNKNOWN, "EndTxn failed: UNKNOWN_SERVER_ERROR", txn_requires_abort=True)


class _Refusing:
    """A stand-in for the library's producer with only the calls that end a transaction."""

    def commit_transaction(self, _timeout_s: float) -> None:
        raise KafkaException(REFUSED)

    abort_transaction = commit_transaction


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Iterator[ConfluentTransactionalProducer]:
    made = ConfluentTransactionalProducer(KafkaSettings("127.0.0.1:1"), "postdate/requests/0")
    with monkeypatch.context() as patched:
        patched.setattr(made, "_producer", _Refusing())
        yield made
    made.destroy()


@pytest.mark.parametrize(("end", "expected"), [("commit", AbortRequired), ("abort", UnknownOutcome)])
def test_a_refused_commit_must_be_aborted_and_a_refused_abort_is_unknown(
    producer: ConfluentTransactionalProducer, end: str, expected: type[KafkaFault]
) -> None:
    with pytest.raises(expected, match="UNKNOWN_SERVER_ERROR"):
        getattr(producer, end)()
