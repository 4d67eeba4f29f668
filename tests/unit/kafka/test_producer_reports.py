"""Goal: a delivery report without an offset is passed on as an unknown offset, which the interface writes as -1, and an
error of a producer is logged as text.

Method: the callbacks of a producer, given messages and errors as the library reports them.
"""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError

from postdate.kafka.errors import KafkaFault
from postdate.kafka.producer import ConfluentPlainProducer, _reporter
from postdate.kafka.settings import KafkaSettings


class _Message:
    def __init__(self, offset: int | None, timestamp: tuple[int, int]) -> None:
        self._offset, self._timestamp = offset, timestamp

    def offset(self) -> int | None:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return self._timestamp


@pytest.mark.parametrize(
    ("message", "reported"),
    [
        (_Message(7, (TIMESTAMP_LOG_APPEND_TIME, 1_000)), (None, 7, 1_000)),
        (_Message(None, (TIMESTAMP_CREATE_TIME, 1_000)), (None, -1, -1)),
    ],
)
def test_an_unknown_offset_is_reported_as_such(message: _Message, reported: tuple[KafkaFault | None, int, int]) -> None:
    seen: list[tuple[KafkaFault | None, int, int]] = []
    _reporter(lambda fault, offset, timestamp_ms: seen.append((fault, offset, timestamp_ms)))(None, message)
    assert seen == [reported]


@pytest.mark.parametrize(
    ("error", "logger"),
    [
        (KafkaError(KafkaError._TRANSPORT, "broker 1 is away"), "postdate.kafka.client"),
        (KafkaError(KafkaError._TRANSPORT, "broker 1 is away", fatal=True), "postdate.kafka.producer"),
    ],
)
def test_an_error_of_a_producer_is_logged_as_text(
    error: KafkaError, logger: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A fatal error goes to a logger whose lines all appear. Of the client library's repeated lines, only the number
    does."""
    caplog.set_level(logging.INFO)
    producer = ConfluentPlainProducer(KafkaSettings("127.0.0.1:1"))
    producer._on_error(error)
    producer.destroy()
    assert (logger, logging.INFO, "the producer reports: broker 1 is away (_TRANSPORT)") in caplog.record_tuples
