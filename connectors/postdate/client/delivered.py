"""Separates the headers that Postdate adds to a delivered record from those of the message."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from postdate.wire.errors import FormatError
from postdate.wire.headers import (
    ATTEMPT,
    DROPPED_3,
    DUE,
    ERROR,
    EXTRA,
    FIRST_DUE,
    FIRST_ORIGIN,
    ID,
    NEXT,
    OCCURRENCE,
    ORIGIN,
    REDELIVERED,
    is_dropped,
)
from postdate.wire.origins import parse_origin
from postdate.wire.values.texts import parse_natural

_ADDED: Final = REDELIVERED | DROPPED_3
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Delivered:
    """A delivered record as its consumer receives it."""

    origin: str
    """The request: `<request topic>/<partition>/<offset>`."""
    due: datetime
    """The requested due time, in UTC; of an occurrence, its nominal time."""
    id: str | None
    attempt: int | None
    """The number of the retry. `attempt`, `first_origin` and `first_due` are None if the message was never returned."""
    first_origin: str | None
    first_due: datetime | None
    error: str | None
    """The reason of the return, if its consumer gave one."""
    occurrence: int | None
    """The number of the occurrence of a recurring schedule, from 1. Origin and number together are unique for ever.
    None for other messages."""
    next: datetime | None
    """The nominal time of the next occurrence. None for the last occurrence and for other messages."""
    extra: str | None
    """Only for an extra delivery of a recurring schedule, which is not an occurrence: the origin of the control that
    requested it, and the number of the delivery, as `<request topic>/<partition>/<offset>/<number>`. Unique for
    ever."""
    headers: tuple[tuple[str, bytes | None], ...]
    """The headers of the message."""


def read_delivered(headers: Iterable[tuple[str, bytes | None]] | None) -> Delivered:
    """Returns the parsed headers of a delivered record.

    Raises FormatError if Postdate did not deliver the record, or if one of Postdate's headers is malformed. Cost:
    O(headers).
    """
    message: list[tuple[str, bytes | None]] = []
    added: dict[str, bytes] = {}
    for name, value in headers or ():
        if name in _ADDED or is_dropped(name):
            added[name] = value or b""
        else:
            message.append((name, value))
    if ORIGIN not in added or DUE not in added:
        raise FormatError(f"the record has no {ORIGIN} and {DUE}: Postdate did not deliver it")
    try:
        return Delivered(
            origin=_origin(added[ORIGIN]),
            due=_instant(added[DUE]),
            id=added[ID].decode() if ID in added else None,
            attempt=parse_natural(added[ATTEMPT]) if ATTEMPT in added else None,
            first_origin=_origin(added[FIRST_ORIGIN]) if FIRST_ORIGIN in added else None,
            first_due=_instant(added[FIRST_DUE]) if FIRST_DUE in added else None,
            error=added[ERROR].decode("utf-8", "replace") if ERROR in added else None,
            occurrence=parse_natural(added[OCCURRENCE]) if OCCURRENCE in added else None,
            next=_instant(added[NEXT]) if NEXT in added else None,
            extra=_extra(added[EXTRA]) if EXTRA in added else None,
            headers=tuple(message),
        )
    except (ValueError, OverflowError) as error:
        raise FormatError(f"a header of the delivered record is malformed: it {error}") from None


def _origin(value: bytes) -> str:
    parse_origin(value)
    return value.decode()


def _extra(value: bytes) -> str:
    origin, _, number = value.rpartition(b"/")
    parse_origin(origin)
    parse_natural(number)
    return value.decode()


def _instant(value: bytes) -> datetime:
    return _EPOCH + timedelta(milliseconds=parse_natural(value))
