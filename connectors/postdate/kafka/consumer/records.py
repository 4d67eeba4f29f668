"""Converts the client's messages to the interface's records: the hot path of reading.

Pure functions over one batch; O(messages). A message with three headers costs about 2 us without the garbage collector,
of which the library's `headers()` takes 1.2. So no accessor is called twice, except if the partition changes.
`headers()` *must* not be called again after it has failed: the second call returns a broken list. The loop calls no
helper function, since a call for each message would add a tenth to this time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError

from postdate.kafka.interface import Partition, Record

#: A partition and its error; -1 and an empty topic if the error names none.
MessageError = tuple[str, int, KafkaError]


def group_records(messages: Iterable[Any]) -> tuple[dict[Partition, list[Record]], list[MessageError]]:
    """Returns the records of a batch by partition, each list in the order of arrival, and the error events of the
    batch.

    `messages` are Messages of confluent_kafka. They have no type here, since the library's types promise less than a
    record has.
    """
    grouped: dict[Partition, list[Record]] = {}
    errors: list[MessageError] = []
    topic, index = "", -1
    add = list[Record]().append
    for message in messages:
        error = message.error()
        if error is not None:
            errors.append((message.topic() or "", _index(message), error))
            continue
        if message.partition() != index or message.topic() != topic:
            topic, index = message.topic(), message.partition()
            add = grouped.setdefault(Partition(topic, index), []).append
        kind, timestamp_ms = message.timestamp()
        try:
            headers = message.headers()
            if headers is None:
                headers = []
        except SystemError:  # a header name that is not UTF-8
            headers = None
        add(
            Record(
                message.offset(),
                timestamp_ms if kind else -1,  # TIMESTAMP_NOT_AVAILABLE is 0
                kind == TIMESTAMP_LOG_APPEND_TIME,
                message.key(),
                message.value(),
                headers,
            )
        )
    return grouped, errors


def _index(message: Any) -> int:
    partition = message.partition()
    return -1 if partition is None else int(partition)
