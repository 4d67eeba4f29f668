"""The names of all headers of Postdate.

A header belongs to Postdate if its name begins with `postdate-`, whatever the case of its ASCII letters. Only the exact
lower-case names below have a meaning. Other names are refused, since a typo must not silently change a delivery; only
names that begin with `postdate-dead-` are ignored.
"""

from __future__ import annotations

from typing import Final, TypeAlias

Headers: TypeAlias = list[tuple[str, bytes | None]]
"""The headers of a record in their order, repeats and null values included."""

StrippedHeaders: TypeAlias = list[tuple[int, str, bytes | None]]
"""The headers of Postdate removed from a request: index in the record, name and value, ascending by index."""

PREFIX: Final = "postdate-"

TOPIC: Final = "postdate-topic"
AT: Final = "postdate-at"
DELAY: Final = "postdate-delay"
LEVEL: Final = "postdate-level"
KEY: Final = "postdate-key"
PARTITION: Final = "postdate-partition"
ID: Final = "postdate-id"
ACTION: Final = "postdate-action"
ORIGIN: Final = "postdate-origin"
GRACE: Final = "postdate-grace"
RETRY: Final = "postdate-retry"
WINDOW: Final = "postdate-window"
SPREAD: Final = "postdate-spread"
IF_PENDING: Final = "postdate-if-pending"
IF_ENDED: Final = "postdate-if-ended"
LATEST: Final = "postdate-latest"
SELECT_TOPIC: Final = "postdate-select-topic"
SELECT_ID: Final = "postdate-select-id"
SELECT_KEY: Final = "postdate-select-key"
SELECT_FROM: Final = "postdate-select-from"
SELECT_UNTIL: Final = "postdate-select-until"
BY: Final = "postdate-by"
CRON: Final = "postdate-cron"
EVERY: Final = "postdate-every"
ZONE: Final = "postdate-zone"
START: Final = "postdate-start"
END: Final = "postdate-end"
COUNT: Final = "postdate-count"
GAP: Final = "postdate-gap"
FOLD: Final = "postdate-fold"
MISSED: Final = "postdate-missed"
CATCH_UP: Final = "postdate-catch-up"
DUE: Final = "postdate-due"
OCCURRENCE: Final = "postdate-occurrence"
NEXT: Final = "postdate-next"
EXTRA: Final = "postdate-extra"
MOVED: Final = "postdate-moved"
ATTEMPT: Final = "postdate-attempt"
FIRST_ORIGIN: Final = "postdate-first-origin"
FIRST_DUE: Final = "postdate-first-due"
ERROR: Final = "postdate-error"
DEAD_REASON: Final = "postdate-dead-reason"
DEAD_DETAIL: Final = "postdate-dead-detail"
RECORD_KEY: Final = "postdate-record-key"
STORED: Final = "postdate-stored"

REQUEST: Final = frozenset({TOPIC, AT, DELAY, LEVEL, KEY, PARTITION, ID, ACTION, GRACE})
"""The headers of a request in `format_version` 1. A control may also have `postdate-origin`."""

SELECTOR_FIELDS: Final = {
    "target": SELECT_TOPIC,
    "id_prefix": SELECT_ID,
    "key": SELECT_KEY,
    "from": SELECT_FROM,
    "until": SELECT_UNTIL,
}
"""The headers that select the pending messages of a bulk control, by the field of the HTTP API."""

SELECTORS: Final = frozenset(SELECTOR_FIELDS.values())
"""The headers that select the pending messages of a bulk control."""

REQUEST_2: Final = REQUEST | SELECTORS | {BY, RETRY, WINDOW, SPREAD, IF_PENDING, IF_ENDED, LATEST}
"""The headers of a request from `format_version` 2 on."""

SCHEDULE: Final = frozenset({CRON, EVERY, ZONE, START, END, COUNT, GAP, FOLD, MISSED, CATCH_UP})
"""The headers that only a schedule has. A schedule also has an id, and may have a window and a grace."""

REDELIVERED: Final = frozenset({ID, ATTEMPT, FIRST_ORIGIN, FIRST_DUE, ERROR})
"""The headers that follow the origin and due time of a redelivery."""

DROPPED: Final = frozenset({ORIGIN, DUE, MOVED})
"""Headers of delivered records and of records of the store. In a request to schedule they are ignored."""

DROPPED_2: Final = frozenset({ATTEMPT, FIRST_ORIGIN, FIRST_DUE, ERROR})
"""Further ignored headers from `format_version` 2 on. In a return they have a meaning."""

DROPPED_3: Final = frozenset({OCCURRENCE, NEXT, EXTRA})
"""Further ignored headers from `format_version` 3 on."""

FORMAT_2: Final = (REQUEST_2 - REQUEST) | DROPPED_2
"""The headers that a request may have only from `format_version` 2 on."""

TIMES: Final = (AT, DELAY, LEVEL)
"""The headers that give a time; a request takes at most one."""


def is_postdate_header(name: str) -> bool:
    """Returns True if a header of this name belongs to Postdate, so that it is never delivered as a header of the
    message."""
    return name[: len(PREFIX)].lower() == PREFIX


def is_dropped(name: str) -> bool:
    """Returns True if a header of this name is ignored in a request to schedule, for every `format_version`.

    A consumer may copy such headers from a delivered record or a dead letter into a request that retries the message.
    """
    return name in DROPPED or name.startswith(f"{PREFIX}dead-")


def attempt_of(headers: Headers) -> int | None:
    """Returns the number of the attempt in the headers of an accepted return, or None if the request is not a
    return."""
    for name, value in reversed(split_redelivery(headers)[1]):
        if name == ATTEMPT:
            return int(value or b"0")
    return None


def returned_id(headers: Headers) -> bytes:
    """Returns the id of the message of an accepted return, or b"" if the message has no id. The id of a return is not
    registered."""
    return next((value or b"" for name, value in split_redelivery(headers)[1] if name == ID), b"")


def split_redelivery(headers: Headers) -> tuple[Headers, Headers]:
    """Returns the headers of the message in an accepted request, and those that `schedule_return` has added."""
    end = len(headers)
    while end and headers[end - 1][0] in REDELIVERED:
        end -= 1
    return headers[:end], headers[end:]
