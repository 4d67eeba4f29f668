"""Goal: if the coordinator refuses an abort, the outcome is unknown and does not count as aborted.

Method: the real producer, whose library call answers as `rd_kafka_txn_handle_EndTxn` of librdkafka does for an error
that it does not know: with the flag `txn_requires_abort`, for a commit and for an abort alike.
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
    """The library's producer, of which only the ends of transactions are called."""

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
