"""Converts a future of the client library into a value or a fault."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from confluent_kafka import KafkaException

from postdate.kafka.classification import classify, error_of
from postdate.kafka.errors import Unreachable


def result_of(future: Future[Any], doing: str, timeout_s: float, absent: int | None = None) -> Any:
    """Wait for the result; None if it fails with the code `absent`. Raises any other error as a fault, and Unreachable
    after `timeout_s`. `Any`: the library has no types."""
    try:
        return future.result(timeout_s)
    except FutureTimeout as error:
        raise Unreachable(f"Could not {doing}: no answer in time") from error
    except KafkaException as error:
        if absent is not None and error_of(error).code() == absent:
            return None
        raise classify(error, doing, otherwise=Unreachable) from error
