"""Goal: each error of the client library is mapped to the class that determines the caller's reaction.

Method: errors made by hand: one for each rule, and errors to which two rules apply.
"""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from postdate.kafka.classification import classify, classify_delivery
from postdate.kafka.errors import (
    AbortRequired,
    FatalClient,
    Fenced,
    KafkaFault,
    NotAuthorized,
    OffsetOutOfRange,
    RecordRejected,
    Retriable,
    SettingRefused,
    Unreachable,
)

E = KafkaError


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (E(E._FENCED, fatal=True), Fenced),
        (E(E.PRODUCER_FENCED), Fenced),
        (E(E.INVALID_PRODUCER_EPOCH, txn_requires_abort=True), Fenced),
        (E(E._STATE, fatal=True, retriable=True, txn_requires_abort=True), FatalClient),
        (E(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, fatal=True), NotAuthorized),
        (E(E._TIMED_OUT, txn_requires_abort=True, retriable=True), AbortRequired),
        (E(E.TOPIC_AUTHORIZATION_FAILED, txn_requires_abort=True), AbortRequired),
        (E(E._INCONSISTENT, txn_requires_abort=True), RecordRejected),
        (E(E.INVALID_RECORD, txn_requires_abort=True), RecordRejected),
        (E(E.COORDINATOR_NOT_AVAILABLE, retriable=True), Retriable),
        (E(E._TIMED_OUT, retriable=True), Retriable),
        (E(E._TIMED_OUT), Unreachable),
        (E(E._ALL_BROKERS_DOWN), Unreachable),
        (E(E.NOT_COORDINATOR), Retriable),
        (E(E.GROUP_AUTHORIZATION_FAILED), NotAuthorized),
        (E(E._AUTO_OFFSET_RESET), OffsetOutOfRange),
        (E(E.UNKNOWN_TOPIC_OR_PART), RecordRejected),
        (E(E.INVALID_REPLICATION_FACTOR), SettingRefused),
        (E(E._STATE), FatalClient),
    ],
)
def test_the_class_follows_flags_then_code(error: KafkaError, kind: type[KafkaFault]) -> None:
    for raised in (error, KafkaException(error)):
        fault = classify(raised, "try it")
        assert type(fault) is kind
        assert fault.code == error.code()
        assert fault.retriable == issubclass(kind, Unreachable)
        assert "try it" in str(fault)


def test_the_caller_chooses_the_class_of_unknown_errors() -> None:
    assert type(classify(E(E._STATE), "x", otherwise=AbortRequired)) is AbortRequired
    assert type(classify(E(E._STATE, fatal=True), "x", otherwise=AbortRequired)) is FatalClient


def test_an_exception_without_an_error_is_still_classified() -> None:
    assert type(classify(KafkaException("odd"), "x")) is FatalClient


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (E(E.MSG_SIZE_TOO_LARGE), RecordRejected),
        (E(E._UNKNOWN_TOPIC), RecordRejected),
        (E(E.TOPIC_AUTHORIZATION_FAILED), RecordRejected),
        (E(E._MSG_TIMED_OUT), RecordRejected),
        (E(E._PURGE_QUEUE), AbortRequired),
        (E(E._PURGE_INFLIGHT), AbortRequired),
        (E(E._FENCED, fatal=True), Fenced),
        (E(E._INCONSISTENT, fatal=True), FatalClient),
    ],
)
def test_a_delivery_report_distinguishes_the_record_from_its_transaction(
    error: KafkaError, kind: type[KafkaFault]
) -> None:
    assert type(classify_delivery(error, "target")) is kind
