"""From the client's messages to the seam's records: the hot path of everything that is read.

Pure functions over one batch; each costs O(messages), about 1 µs a message with three headers, most of it the
library's accessors, so none is called twice. `headers()` *must* not be called twice where it fails: the second call
returns a broken list.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, KafkaError

from postdate.connectors.kafka.seam import Partition, Record

#: A partition and what went wrong there; -1 and an empty topic where the error names none.
MessageError = tuple[str, int, KafkaError]


def group_records(messages: Iterable[Any]) -> tuple[dict[Partition, list[Record]], list[MessageError]]:
    """The records of a batch by partition, each list in the order of arrival, and the error events among them.

    `messages` are confluent_kafka Messages: untyped here, since their accessors promise less than a record has.
    """
    grouped: dict[Partition, list[Record]] = {}
    errors: list[MessageError] = []
    topic, index = "", -1
    records: list[Record] = []
    for message in messages:
        error = message.error()
        if error is not None:
            errors.append((message.topic() or "", _index(message), error))
            continue
        if message.partition() != index or message.topic() != topic:
            topic, index = message.topic(), message.partition()
            records = grouped.setdefault(Partition(topic, index), [])
        records.append(to_record(message))
    return grouped, errors


def to_record(message: Any) -> Record:
    """One message, which is no error event, as a record."""
    kind, timestamp_ms = message.timestamp()
    try:
        headers = message.headers()
        if headers is None:
            headers = []
    except SystemError:  # a header name that is not UTF-8
        headers = None
    return Record(
        message.offset(),
        -1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        kind == TIMESTAMP_LOG_APPEND_TIME,
        message.key(),
        message.value(),
        headers,
    )


def _index(message: Any) -> int:
    partition = message.partition()
    return -1 if partition is None else int(partition)
