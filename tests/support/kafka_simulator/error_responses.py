"""What the simulated cluster answers instead of a result: the client library's own errors, with its flags.

So the simulation's clients translate them with the same `classification` as the real ones do.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

#: A request that may be repeated as it is.
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
#: Ends the life of a producer.
_FATAL = frozenset({KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError._FENCED})


def refusal(code: int, why: str) -> KafkaException:
    """An error with the flags that the library would give it."""
    return KafkaException(KafkaError(code, why, code in _FATAL, code in _RETRIABLE))


def no_answer() -> KafkaException:
    """The connection broke: the request was carried out or not."""
    return refusal(KafkaError._TRANSPORT, "the connection broke")


def abort_required(why: str) -> KafkaException:
    """The end of a transaction failed: the library has it aborted."""
    return KafkaException(KafkaError(KafkaError.UNKNOWN, why, False, False, True))


def code_of(error: KafkaException) -> int:
    """The number of an answer."""
    code: int = error.args[0].code()
    return code
