"""Goal: a delivery report without an offset is passed on as an unknown offset, which the interface writes as -1.

Method: the callback of a producer, given messages as the library reports them.
"""

from __future__ import annotations

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME

from postdate.kafka.errors import KafkaFault
from postdate.kafka.producer import _reporter


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
