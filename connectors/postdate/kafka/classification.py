"""Maps the errors of confluent_kafka to the tree of `errors`, by what the caller does next.

For `classify`, a code of `FENCED_CODES` always means `Fenced`. For any other error, it checks the flags in this order:
fatal, "the transaction must be aborted", retriable. If no flag is set, the code decides. `classify_delivery` has other
rules. Callable from any thread; only `result_of` waits.
"""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from enum import Enum
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from postdate.kafka.errors import (
    AbortRequired,
    FatalClient,
    Fenced,
    KafkaFault,
    NameInUse,
    NotAuthorized,
    OffsetOutOfRange,
    OtherProtocol,
    RecordRejected,
    Retriable,
    SettingRefused,
    Unreachable,
)

#: A newer client has our transactional id, or the name of our static member.
FENCED_CODES = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.FENCED_INSTANCE_ID,
    }
)

#: The brokers do not know the request: they are too old for it, or a feature is switched off.
UNSUPPORTED_CODES = frozenset({KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION})

#: Only an operator can correct these.
AUTHORIZATION_CODES = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)

#: The log does not contain this position.
OUT_OF_RANGE_CODES = frozenset(
    {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION}
)

#: The record or its target is at fault, not the producer. `is_final` recognizes the codes with which every further
#: attempt fails.
RECORD_CODES = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.POLICY_VIOLATION,
        KafkaError._MSG_TIMED_OUT,
    }
)

#: The client dropped the record before the broker decided on it, because another error failed the transaction.
PURGED_CODES = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})

#: A commit fails with this error if records failed in the client; *measured*: only the delivery reports of these
#: records have the reason. If the broker refused records, the commit fails with the broker's reason.
LOST_RECORD_CODES = frozenset({KafkaError._INCONSISTENT})

#: No broker answers. If a producer reports one of these errors during a transaction, `settle` returns False afterwards.
TRANSPORT_CODES = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN})

#: Other transient errors.
PASSING_CODES = frozenset(
    {
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
    }
)

#: The cluster refuses a requested change, or the client library refuses a property or an argument.
REFUSED_CODES = frozenset(
    {
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_REQUEST,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError._INVALID_ARG,
    }
)


#: The right that an operator must grant. The library's texts do not name it.
_MISSING = {
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ": no ACL allows Write on this transactional id",
    KafkaError.GROUP_AUTHORIZATION_FAILED: ": no ACL allows Read on the consumer group",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: ": no ACL allows this on the topic; postdate topics check names it",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: ": no ACL allows this on the cluster",
}


class Blame(Enum):
    """The cause of a refused record: its target topic (the first three), or the record itself."""

    UNKNOWN_TARGET = "unknown-target"
    UNAUTHORIZED = "unauthorized"
    UNAVAILABLE = "unavailable"
    TOO_LARGE = "too-large"
    REFUSED = "refused"


_BLAME = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: Blame.UNKNOWN_TARGET,
    KafkaError._UNKNOWN_TOPIC: Blame.UNKNOWN_TARGET,
    KafkaError.TOPIC_EXCEPTION: Blame.UNKNOWN_TARGET,
    KafkaError._UNKNOWN_PARTITION: Blame.UNAVAILABLE,
    KafkaError._MSG_TIMED_OUT: Blame.UNAVAILABLE,
    KafkaError.MSG_SIZE_TOO_LARGE: Blame.TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE: Blame.TOO_LARGE,
}


def blame(fault: KafkaFault) -> Blame:
    """Returns the cause of a rejected record, or REFUSED if the code of the fault names no other cause."""
    if fault.code in AUTHORIZATION_CODES:
        return Blame.UNAUTHORIZED
    return _BLAME.get(fault.code, Blame.REFUSED)


#: A record that was refused with one of these codes is refused at every attempt until an operator changes the topic:
#: the record fails a broker's validation (a schema, the key of a compacted topic), or is too large. The refusal of a
#: timestamp is not final, since it depends on the brokers' clocks. A checksum error, a policy violation and an
#: unsupported message format are not final, since they may depend on the broker.
_FINAL_CODES = frozenset(
    {KafkaError.INVALID_RECORD, KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE},
)


def is_final(fault: KafkaFault) -> bool:
    """True if a record that was sent alone would be refused again until an operator changes the topic."""
    return fault.code in _FINAL_CODES


def error_of(raised: KafkaException | KafkaError) -> KafkaError:
    """Returns the KafkaError inside an exception of the client, or the error unchanged."""
    if isinstance(raised, KafkaError):
        return raised
    inner = raised.args[0] if raised.args else None
    return inner if isinstance(inner, KafkaError) else KafkaError(KafkaError._FAIL, str(raised))


def is_fatal(raised: KafkaException | KafkaError) -> bool:
    """True if the client that raised this is unusable from now on."""
    error = error_of(raised)
    return error.fatal() or error.code() == KafkaError._FATAL


def has_reason(raised: KafkaException | KafkaError, codes: frozenset[int]) -> bool:
    """True if the error has one of these codes. A consumer gets a fatal error as an event with the code _FATAL; only
    the text of the event names the reason."""
    error = error_of(raised)
    if error.code() != KafkaError._FATAL:
        return error.code() in codes
    return any(KafkaError(code).str() in error.str() for code in codes)


def classify(raised: KafkaException | KafkaError, doing: str, otherwise: type[KafkaFault] = FatalClient) -> KafkaFault:
    """Returns the fault for this error, which occurred while `doing` something ("commit the transaction").

    `otherwise` is the class for an error that has no flag and no known code. The default is fatal; a caller that knows
    that the client is still usable passes another class.
    """
    error = error_of(raised)
    kind = _kind(error, otherwise)
    return kind(f"Could not {doing}: {error.str()} ({error.name()}){_MISSING.get(error.code(), '')}", error.code())


def classify_delivery(error: KafkaError, topic: str | None) -> KafkaFault:
    """Returns the fault for a delivery report: RecordRejected if this record is at fault, AbortRequired if the record
    failed with its transaction, Fenced or FatalClient if the producer is unusable."""
    code = error.code()
    missing = f": no ACL allows Write on topic {topic}" if code == KafkaError.TOPIC_AUTHORIZATION_FAILED else ""
    message = f"A record for {topic} was not delivered: {error.str()} ({error.name()}){missing}"
    if error.fatal():
        return (Fenced if code in FENCED_CODES else FatalClient)(message, code)
    if code in RECORD_CODES or code in AUTHORIZATION_CODES:
        return RecordRejected(message, code)
    return AbortRequired(message, code)


def _kind(error: KafkaError, otherwise: type[KafkaFault]) -> type[KafkaFault]:
    code = error.code()
    if code in FENCED_CODES:
        return Fenced
    if is_fatal(error):
        return next((kind for codes, kind in _FATAL_REASONS if has_reason(error, codes)), FatalClient)
    if error.txn_requires_abort():
        return RecordRejected if code in RECORD_CODES or code in LOST_RECORD_CODES else AbortRequired
    if error.retriable():
        return Retriable
    for codes, kind in _BY_CODE:
        if code in codes:
            return kind
    return otherwise


_FATAL_REASONS: tuple[tuple[frozenset[int], type[KafkaFault]], ...] = (
    (frozenset({KafkaError.FENCED_INSTANCE_ID}), Fenced),
    (frozenset({KafkaError.UNRELEASED_INSTANCE_ID}), NameInUse),
    (frozenset({KafkaError.GROUP_ID_NOT_FOUND}), OtherProtocol),
    (AUTHORIZATION_CODES, NotAuthorized),
)

_BY_CODE: tuple[tuple[frozenset[int], type[KafkaFault]], ...] = (
    (AUTHORIZATION_CODES, NotAuthorized),
    (OUT_OF_RANGE_CODES, OffsetOutOfRange),
    (TRANSPORT_CODES, Unreachable),
    (PASSING_CODES, Retriable),
    (RECORD_CODES, RecordRejected),
    (REFUSED_CODES, SettingRefused),
)


def result_of(future: Future[Any], doing: str, timeout_s: float, absent: int | None = None) -> Any:
    """Returns the result of a future of the library, or None if it fails with the code `absent`. Raises any other error
    as a fault, and Unreachable after `timeout_s`. `Any`: the library has no types."""
    try:
        return future.result(timeout_s)
    except FutureTimeout as error:
        raise Unreachable(f"Could not {doing}: no answer in time") from error
    except KafkaException as error:
        if absent is not None and error_of(error).code() == absent:
            return None
        raise classify(error, doing, otherwise=Unreachable) from error
