"""Handwritten records of Postdate's topics: tests write the events, and the rows have the form of Spark's Kafka source.

Tests choose the offsets, except those of dispatch-log records, which are consecutive. Times are epoch milliseconds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

REQUESTS = "postdate.requests"
LOG = "postdate.requests.dispatch-log"
LETTERS = "postdate.requests.dead-letters"
VERDICTS = "postdate.requests.verdicts"
TARGET = "orders"

Headers = list[tuple[str, bytes | None]]
Row = tuple[str, int, int, datetime, int, bytes | None, bytes | None, Headers | None]


def kafka_row(
    topic: str,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers | None,
    *,
    partition: int = 0,
    log_append: bool = True,
) -> Row:
    """Returns one record with the columns of Spark's Kafka source."""
    stamped = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return topic, partition, offset, stamped, int(log_append), key, value, headers


def log_value(seq: int, fates: list[Any], /, **changes: Any) -> bytes:
    """Returns the JSON of a dispatch-log record, built without the code under test."""
    record = {"v": 1, "seq": seq, "takeover": 1, "instance": "a", "group": "postdate", "at": 1}
    record |= {"next_request": 10_000, "low_water": 0, "kind": "fates" if fates else "beat", "fates": fates}
    return json.dumps(record | changes).encode()


@dataclass
class RandomHistory:
    """Five topics of one partition each, filled by hand. Only `side_by_side` makes a history of several partitions."""

    start_ms: int
    requests: list[Row] = field(default_factory=list)
    log: list[Row] = field(default_factory=list)
    delivered: list[Row] = field(default_factory=list)
    dead_letters: list[Row] = field(default_factory=list)
    answers: list[Row] = field(default_factory=list)
    partitions: int = 1

    def ask(
        self,
        offset: int,
        *control: tuple[str, bytes | None],
        key: bytes | None = b"k",
        value: bytes | None = b"v",
        headers: Headers | None = None,
        at_ms: int | None = None,
        partition: int = 0,
    ) -> None:
        """Adds a request at `at_ms`, by default at the start. Without `control`, its target is `orders`, and it is due
        a second later."""
        own_headers = list(control) or [("postdate-topic", TARGET.encode()), ("postdate-delay", b"1s")]
        stamped = self.start_ms if at_ms is None else at_ms
        sent = [*(headers or []), *own_headers]
        self.requests.append(kafka_row(REQUESTS, offset, stamped, key, value, sent, partition=partition))

    def commit(self, *fates: list[Any], at_ms: int | None = None, **changes: Any) -> None:
        """Adds the next dispatch-log record, by default two seconds after the start."""
        stamped = self.start_ms + 2_000 if at_ms is None else at_ms
        value = log_value(len(self.log) + 1, list(fates), **changes)
        self.log.append(kafka_row(LOG, len(self.log), stamped, None, value, []))

    def deliver(
        self,
        origin: int,
        *,
        topic: str = TARGET,
        partition: int = 0,
        key: bytes | None = b"k",
        value: bytes | None = b"v",
        headers: Headers | None = None,
        due_ms: int | None = None,
        id: bytes | None = None,
        behind: Headers | None = None,
    ) -> None:
        """Adds a record on a target as Postdate writes it. `behind` are the further headers of a redelivery."""
        due = str(self.start_ms + 1_000 if due_ms is None else due_ms).encode()
        own: Headers = [("postdate-origin", f"{REQUESTS}/0/{origin}".encode()), ("postdate-due", due)]
        own += [("postdate-id", id)] if id is not None else []
        place = len(self.delivered)
        row = kafka_row(
            topic, place, self.start_ms, key, value, [*(headers or []), *own, *(behind or [])], partition=partition
        )
        self.delivered.append(row)

    def bury(
        self,
        origin: int,
        *original: tuple[str, bytes | None],
        key: bytes | None = b"k",
        value: bytes | None = b"v",
        reason: bytes = b"unknown-target",
        detail: bytes = b"why",
        partition: int = 0,
    ) -> None:
        """Adds a dead letter of a request whose headers were `original`, by default those of `ask`."""
        request_headers = list(original) or [("postdate-topic", TARGET.encode()), ("postdate-delay", b"1s")]
        own: Headers = [
            ("postdate-dead-reason", reason),
            ("postdate-dead-detail", detail),
            ("postdate-origin", f"{REQUESTS}/0/{origin}".encode()),
        ]
        place = len(self.dead_letters)
        row = kafka_row(LETTERS, place, self.start_ms, key, value, [*request_headers, *own], partition=partition)
        self.dead_letters.append(row)

    def answer(self, origin: int, word: str, of: int | None = None, id: str | None = None, /, **changes: Any) -> None:
        """Adds a verdict record as Postdate writes it. `changes` alter its value, `key` and `partition` its place."""
        key, partition = changes.pop("key", id), changes.pop("partition", 0)
        verdict = {"v": 1, "origin": f"{REQUESTS}/0/{origin}", "id": id, "verdict": word}
        verdict |= {"of": None if of is None else f"{REQUESTS}/0/{of}", "at": 1}
        value = json.dumps(verdict | changes).encode()
        place, sent_key = len(self.answers), None if key is None else key.encode()
        self.answers.append(kafka_row(VERDICTS, place, self.start_ms, sent_key, value, [], partition=partition))


@dataclass
class SideBySide:
    """Several histories as one, `together`: each becomes a partition, numbered in the given order.

    One plan judges all histories, since planning takes longer than judging. They may grow between two audits.
    """

    histories: Sequence[RandomHistory]
    together: RandomHistory = field(init=False)

    def __post_init__(self) -> None:
        self.together = RandomHistory(self.histories[0].start_ms, partitions=len(self.histories))
        self._taken: Counter[tuple[int, str]] = Counter()

    def grown(self) -> RandomHistory:
        """Appends the rows that the histories got since the last call, and returns the joined history."""
        for number, history in enumerate(self.histories):
            for side in ("requests", "log", "delivered", "dead_letters", "answers"):
                rows: list[Row] = getattr(history, side)[self._taken[number, side] :]
                getattr(self.together, side).extend(_moved(row, number, is_own=side != "delivered") for row in rows)
                self._taken[number, side] += len(rows)
        return self.together


def side_by_side(histories: Sequence[RandomHistory]) -> RandomHistory:
    """Returns these histories as one, as SideBySide does."""
    return SideBySide(histories).grown()


def _moved(row: Row, number: int, *, is_own: bool) -> Row:
    """Returns the record for requests of another partition.

    `is_own` is True if the record lies in that partition of a topic of Postdate.
    """
    topic, partition, offset, stamped, kind, key, value, headers = row
    assert not (is_own and partition), "there it would lie among those of another history"

    def origin(text: bytes | None) -> bytes | None:
        return text and text.replace(f"{REQUESTS}/0/".encode(), f"{REQUESTS}/{number}/".encode())

    sent = None if headers is None else [(name, origin(text)) for name, text in headers]
    return topic, number if is_own else partition, offset, stamped, kind, key, origin(value), sent
