"""An answer of the client library that comes by a future, waited for and turned into a value or a fault."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from confluent_kafka import KafkaException

from postdate.kafka.classification import classify, error_of
from postdate.kafka.errors import Unreachable


def result_of(future: Future[Any], doing: str, timeout_s: float, absent: int | None = None) -> Any:
    """The answer, None where the error is `absent`; else the error as a fault, Unreachable where nothing comes in
    time. `Any`: the library types none."""
    try:
        return future.result(timeout_s)
    except FutureTimeout as error:
        raise Unreachable(f"Could not {doing}: no answer in time") from error
    except KafkaException as error:
        if absent is not None and error_of(error).code() == absent:
            return None
        raise classify(error, doing, otherwise=Unreachable) from error
