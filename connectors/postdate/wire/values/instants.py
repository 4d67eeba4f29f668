"""Points in time as texts: epoch milliseconds, or RFC 3339 with an offset or `Z`.

    1795258284000    2026-11-21T10:51:24Z    2026-11-21T11:51:24.5+01:00    2026-12-31T23:59:60Z

Headers accept only these forms. Options of commands and parameters of the HTTP API also accept times relative to now:

    now    10s (in ten seconds)    -2h (two hours ago)

A fraction of a millisecond rounds *up*, so that no message is early. A leap second (only at 23:59:60 UTC) is the first
second of the next day, as in POSIX time. Times without an offset are refused, since they mean a different instant on
every machine. Times before 1970 are refused, too. `T` and `Z` may be lower case, as in RFC 3339.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

from postdate.wire.limits import INTEGER_END, NOMINAL_MS_MAX, TIME_TEXT_BYTES_MAX
from postdate.wire.values.durations import ceil_fraction, parse_duration_ms
from postdate.wire.values.texts import parse_natural

_RFC3339: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = _EPOCH.toordinal()
_DAY_S: Final = 86_400


def parse_instant_ms(text: str) -> int:
    """Returns the point in time `text` in epoch milliseconds, rounded up; non-negative and below 2**63.

    Raises ValueError for any text that does not have the forms above, and for days and hours that do not exist.
    """
    if len(text) > TIME_TEXT_BYTES_MAX:
        raise ValueError("is too long to be a point in time")
    if text.isdigit():
        return parse_natural(text)
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError("is neither epoch milliseconds nor RFC 3339 with an offset or Z")
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction, sign, offset_hour, offset_minute = match.groups()[6:]
    if hour > 23 or minute > 59 or second > 60:
        raise ValueError("has an hour, minute or second that does not exist")
    # date() raises ValueError for a day that does not exist.
    epoch_s = (date(year, month, day).toordinal() - _EPOCH_DAY) * _DAY_S + hour * 3600 + minute * 60 + second
    if sign is not None:
        if int(offset_hour) > 23 or int(offset_minute) > 59:
            raise ValueError("has an offset that does not exist")
        offset_s = int(offset_hour) * 3600 + int(offset_minute) * 60
        epoch_s += offset_s if sign == "-" else -offset_s
    if second == 60 and epoch_s % _DAY_S != 0:
        raise ValueError("has a leap second where UTC has none")
    epoch_ms = epoch_s * 1000 + (ceil_fraction(fraction, 1000) if fraction is not None else 0)
    if epoch_ms < 0:
        raise ValueError("lies before 1970")
    return epoch_ms


def parse_time_ms(text: str, now_ms: int, examples: str = "now, 10s or -2h") -> int:
    """Returns the point in time `text` of an option or a query in epoch milliseconds: absolute, or relative to
    `now_ms`.

    A plain number is epoch milliseconds, so a relative time needs a unit. Raises ValueError as `parse_instant_ms` does;
    the message also contains `examples` of relative times.
    """
    if text == "now":
        return now_ms
    is_ago = text.startswith("-")
    length = text.removeprefix("-")
    if not length.isdigit():
        try:
            duration_ms = parse_duration_ms(length)
        except ValueError:
            pass
        else:
            time_ms = now_ms - duration_ms if is_ago else now_ms + duration_ms
            if not 0 <= time_ms < INTEGER_END:
                raise ValueError("lies before 1970 or too far ahead")
            return time_ms
    try:
        return parse_instant_ms(text)
    except ValueError as error:
        raise ValueError(f"{error}, and not relative to now, such as {examples}") from None


def resolve_time(text: str, now_ms: int) -> str:
    """Returns the header text for a point in time from an option or a query. An absolute time stays unchanged; a
    relative time becomes RFC 3339, or epoch ms if it lies after NOMINAL_MS_MAX. Raises ValueError as `parse_time_ms`
    does."""
    epoch_ms = parse_time_ms(text, now_ms)
    try:
        parse_instant_ms(text)
    except ValueError:
        return format_instant(epoch_ms) if epoch_ms <= NOMINAL_MS_MAX else str(epoch_ms)
    return text


def format_instant(epoch_ms: int) -> str:
    """Returns a point in time for a person: RFC 3339 in UTC with milliseconds. Requires a year of at most 9999."""
    return (_EPOCH + timedelta(milliseconds=epoch_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
