"""Reads, parses and filters the dead letters of a request topic.

A dead letter has the key, value and headers of its request, and three further headers at the end: reason, detail and
origin. A value that would make the dead letter too large is left out, if necessary with the headers. The end offsets
are read once at the start, so that reading ends even if new dead letters arrive.

Thread rule: functions over their arguments, callable from any thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from postdate.kafka.interface import Admin, Isolation, Kafka, Partition, Record
from postdate.sidecar.cluster.limits import COMMAND_TIMEOUT_S
from postdate.sidecar.dead_letters.limits import DEAD_LETTERS_READ_MAX, DEAD_LETTERS_READ_TIMEOUT_S
from postdate.sidecar.errors import TransientError
from postdate.wire.errors import RequestRefused
from postdate.wire.headers import DEAD_DETAIL, DEAD_REASON, ID, KEY, ORIGIN, TOPIC, Headers
from postdate.wire.origins import parse_origin
from postdate.wire.requests.parser import parse_request
from postdate.wire.requests.rules import RequestRules
from postdate.wire.topics import OwnTopics

Spans: TypeAlias = dict[Partition, tuple[int, int]]
"""The offsets [first, end) to read of each partition."""

Progress: TypeAlias = Callable[[Partition, int], AbstractContextManager[Callable[[int], None]]]
"""Reports the progress of reading a number of offsets of a partition. The reader calls the function of the context
after each batch, with the number of offsets passed so far. Reading ends if that function raises."""

log = logging.getLogger(__name__)

_ADDED_HEADERS = (DEAD_REASON, DEAD_DETAIL, ORIGIN)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter."""

    offset: int
    """The offset of the dead letter; its partition is that of `origin`."""
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    """The headers of the dead letter without the added ones: usually those of the request as it was sent."""
    reason: str
    detail: str
    origin: bytes
    target: str
    """The target topic that the request names; empty if it names none, or if the headers cannot be parsed."""
    id: str | None
    """The id of the request; None if it has none."""
    value_size_bytes: int | None

    def last(self, name: str) -> bytes | None:
        """Returns the last value of a header of the request; None if it is absent or null."""
        return _last(self.headers, name)

    @property
    def message_key(self) -> bytes | None:
        """The key of the message: `postdate-key` if the request has it, otherwise the record key. The record key may be
        an id."""
        return next((value for name, value in reversed(self.headers) if name == KEY), self.key)

    @property
    def request(self) -> tuple[int, int]:
        """Partition and offset of the request."""
        _, partition, offset = parse_origin(self.origin)
        return partition, offset


@dataclass(frozen=True, slots=True)
class DeadLetterFilters:
    """Selects dead letters; an empty set and None select all. Times are compared with the timestamps of dead letters,
    epoch ms; `until_ms` is exclusive."""

    reasons: frozenset[str] = frozenset()
    targets: frozenset[str] = frozenset()
    origins: frozenset[bytes] = frozenset()
    since_ms: int | None = None
    until_ms: int | None = None

    def match(self, dead_letter: DeadLetter) -> bool:
        """True if the filters select the dead letter."""
        return (
            (not self.reasons or dead_letter.reason in self.reasons)
            and (not self.targets or dead_letter.target in self.targets)
            and (not self.origins or dead_letter.origin in self.origins)
            and (self.since_ms is None or dead_letter.timestamp_ms >= self.since_ms)
            and (self.until_ms is None or dead_letter.timestamp_ms < self.until_ms)
        )


def parse_dead_letter(rules: RequestRules, partition: int, record: Record) -> DeadLetter:
    """Returns the dead letter in a record. Raises ValueError if Postdate did not write the record."""
    headers = record.headers or []
    added = headers[-len(_ADDED_HEADERS) :]
    if tuple(name for name, _ in added) != _ADDED_HEADERS:
        raise ValueError("does not end with the headers of a dead letter")
    reason, detail, origin = (value or b"" for _, value in added)
    topic, origin_partition, _ = parse_origin(origin)
    if (topic, origin_partition) != (rules.topic, partition):
        raise ValueError(f"has an origin of {topic}, partition {origin_partition}")
    sent = headers[: -len(_ADDED_HEADERS)]
    return DeadLetter(
        record.offset,
        record.timestamp_ms,
        record.key,
        record.value,
        sent,
        reason.decode("utf-8", "replace"),
        detail.decode("utf-8", "replace"),
        origin,
        _target(rules, partition, record, sent),
        _decoded(_last(sent, ID)),
        None if record.value is None else len(record.value),
    )


def _target(rules: RequestRules, partition: int, record: Record, sent: Headers) -> str:
    """Returns the target of the request, even if only a header of a dialect names it; empty if there is none, or if the
    request cannot be parsed."""
    named = _decoded(_last(sent, TOPIC))
    if named is not None or not rules.dialects:
        return named or ""
    try:
        request = parse_request(rules, partition, record.timestamp_ms, record.key, sent, record.value is None)
    except RequestRefused:
        return ""
    return request.target


def _last(headers: Headers, name: str) -> bytes | None:
    return next((value for header, value in reversed(headers) if header == name), None)


def _decoded(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def spans_of(admin: Admin, requests: str, partitions: int, filters: DeadLetterFilters) -> Spans:
    """Returns the offsets to read, for each dead-letter partition that may contain matching dead letters."""
    topic = OwnTopics.of(requests).dead_letters
    indexes = {parse_origin(origin)[1] for origin in filters.origins} or set(range(partitions))
    parts = [Partition(topic, index) for index in sorted(indexes) if index < partitions]
    starts, ends = admin.start_offsets(parts), admin.end_offsets(parts, Isolation.READ_COMMITTED)
    if filters.since_ms is not None:
        for part in parts:
            first_later = admin.offset_for_time(part, filters.since_ms)
            starts[part] = ends[part] if first_later is None else max(starts[part], first_later)
    return {part: (starts[part], ends[part]) for part in parts if starts[part] < ends[part]}


@contextmanager
def no_progress(_part: Partition, _count: int) -> Iterator[Callable[[int], None]]:
    """Reports no progress."""
    yield lambda _: None


def read_dead_letters(
    kafka: Kafka,
    rules: RequestRules,
    spans: Spans,
    filters: DeadLetterFilters,
    progress: Progress = no_progress,
    warn: Callable[[str], None] = log.warning,
) -> Generator[DeadLetter]:
    """Yields the matching dead letters in order of partition and offset. Skips a record that is not a dead letter, with
    a warning. Raises as `read_committed`."""
    for part, (start, end) in spans.items():
        with closing(read_committed(kafka, part, start, end, progress)) as records:
            for record in records:
                try:
                    dead_letter = parse_dead_letter(rules, part.index, record)
                except ValueError as error:
                    warn(f"{part.topic}/{part.index}/{record.offset} is not a dead letter of Postdate: it {error}")
                    continue
                if filters.match(dead_letter):
                    yield dead_letter


def read_committed(
    kafka: Kafka, part: Partition, start: int, end: int, progress: Progress = no_progress
) -> Generator[Record]:
    """Yields the committed records of a partition in [start, end). Raises TransientError if the reader makes no
    progress for COMMAND_TIMEOUT_S, and KafkaFault, such as OffsetOutOfRange for deleted offsets."""
    if start >= end:
        return
    reader = kafka.log_reader(part, start, Isolation.READ_COMMITTED)
    deadline = time.monotonic() + COMMAND_TIMEOUT_S
    try:
        with progress(part, end - start) as advanced_to:
            while (position := reader.position()) < end:
                for record in reader.read(DEAD_LETTERS_READ_MAX, DEAD_LETTERS_READ_TIMEOUT_S):
                    if record.offset < end:
                        yield record
                if reader.position() > position:
                    deadline = time.monotonic() + COMMAND_TIMEOUT_S
                    advanced_to(min(reader.position(), end) - start)
                elif time.monotonic() >= deadline:
                    raise TransientError(
                        f"{part.topic}/{part.index} returns no records from offset {position} on; check that its leader"
                        " is reachable"
                    )
    finally:
        reader.close()
