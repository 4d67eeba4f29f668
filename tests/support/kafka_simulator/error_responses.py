"""The errors of the simulated cluster: librdkafka's errors and their flags.

So the simulated clients translate them with the same `classification` as the real clients.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

#: Errors after which a request may be repeated unchanged.
_RETRIABLE = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
    }
)
#: Errors that end a producer.
_FATAL = frozenset({KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError._FENCED})


def refusal(code: int, why: str) -> KafkaException:
    """Returns an error with the flags that the library would set."""
    return KafkaException(KafkaError(code, why, code in _FATAL, code in _RETRIABLE))


def no_answer() -> KafkaException:
    """Returns the error of a broken connection: the outcome of the request is unknown."""
    return refusal(KafkaError._TRANSPORT, "the connection broke")


def abort_required(why: str) -> KafkaException:
    """Returns the error after which the library requires an abort, because the transaction could not be ended."""
    return KafkaException(KafkaError(KafkaError.UNKNOWN, why, False, False, True))


def code_of(error: KafkaException) -> int:
    """Returns the code of an error."""
    code: int = error.args[0].code()
    return code
