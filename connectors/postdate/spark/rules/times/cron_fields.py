"""Cron expressions as the audit reads them: sets of values, and the matching days and times of day.

The sidecar reads the same language with CronSim; this module shares no code with it. numpy matches a range of days at
once. Pure functions.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from postdate.spark.limits import CRON_LENGTH_MAX

Numbers = NDArray[np.int64]

_MACROS: Final = {
    "hourly": "0 0 * * * *",
    "daily": "0 0 0 * * *",
    "midnight": "0 0 0 * * *",
    "weekly": "0 0 0 * * SUN",
    "monthly": "0 0 0 1 * *",
    "yearly": "0 0 0 1 JAN *",
    "annually": "0 0 0 1 JAN *",
}
_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_EXPRESSIONS_MAX: Final = 4_096

# The epoch was a Thursday, day 4 of a week that begins with Sunday.
_EPOCH_WEEKDAY: Final = 4


class _Field(NamedTuple):
    first: int
    last: int
    names: tuple[str, ...] = ()
    """The names of `first` and the values after it."""
    digits_max: int = 2


_FIELDS: Final = (
    *(
        _Field(0, 59),
        _Field(0, 59),
        _Field(0, 23),
        _Field(1, 31),
        _Field(1, 12, _MONTHS),
        _Field(0, 7, _WEEKDAYS, digits_max=1),
    ),
)


class CronFields(NamedTuple):
    """The values of an expression. Weekdays count from 0, Sunday."""

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    has_last_day: bool
    has_last_workday: bool
    months: frozenset[int]
    weekdays: frozenset[int]
    nth_weekdays: frozenset[tuple[int, int]]
    """Pairs of a weekday and its number in the month, or 0 for the last one of the month."""
    needs_both_days: bool
    """True if a day must match both day fields. Otherwise one field is enough."""
    is_elapsed: bool
    """True if the field for minutes or the field for hours begins with a star."""


@lru_cache(maxsize=_EXPRESSIONS_MAX)
def read_cron(text: str) -> CronFields:
    """Returns the values of an expression. Raises ValueError on a text that the sidecar refuses."""
    if len(text) > CRON_LENGTH_MAX or not text.isascii():
        raise ValueError("a cron expression is too long or not ASCII")
    if text.startswith("@"):
        if text[1:].lower() not in _MACROS:
            raise ValueError(f"{text!r} is no macro")
        text = _MACROS[text[1:].lower()]
    parts = text.upper().split(" ")
    if len(parts) == 5:
        parts = ["0", *parts]
    if len(parts) != 6:
        raise ValueError(f"{text!r} has neither 5 nor 6 fields")
    seconds, minutes, hours, days, months, weekdays = (part.split(",") for part in parts)
    fields = CronFields(
        seconds=_values(seconds, _FIELDS[0]),
        minutes=_values(minutes, _FIELDS[1]),
        hours=_values(hours, _FIELDS[2]),
        days=_values([term for term in days if term not in ("L", "LW")], _FIELDS[3]),
        has_last_day="L" in days,
        has_last_workday="LW" in days,
        months=_values(months, _FIELDS[4]),
        weekdays=frozenset(
            value % 7 for value in _values([each for each in weekdays if not _is_nth(each)], _FIELDS[5])
        ),
        nth_weekdays=frozenset(_nth(term) for term in weekdays if _is_nth(term)),
        needs_both_days=parts[3][:1] == "*" or parts[5][:1] == "*",
        is_elapsed=parts[1][:1] == "*" or parts[2][:1] == "*",
    )
    if fields.needs_both_days and not _has_a_day(fields):
        raise ValueError(f"{text!r} names a day that its months do not have")
    return fields


def matching_days(fields: CronFields, from_day: int, until_day: int) -> Numbers:
    """Returns the matching days in [`from_day`, `until_day`), as days since 1970-01-01. O(days)."""
    days = np.arange(from_day, until_day, dtype=np.int64)
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    number = (dates - months).astype(np.int64) + 1
    length = ((months + 1).astype("datetime64[D]") - months.astype("datetime64[D]")).astype(np.int64)
    weekday = (days + _EPOCH_WEEKDAY) % 7
    by_number = np.isin(number, list(fields.days))
    if fields.has_last_day:
        by_number |= number == length
    if fields.has_last_workday:
        last = (weekday + length - number) % 7
        back = np.where(last == 6, 1, np.where(last == 0, 2, 0))
        by_number |= number == length - back
    by_weekday = np.isin(weekday, list(fields.weekdays))
    for wanted, nth in fields.nth_weekdays:
        of_month = (number > length - 7) if nth == 0 else ((number - 1) // 7 + 1 == nth)
        by_weekday |= (weekday == wanted) & of_month
    matches = by_number & by_weekday if fields.needs_both_days else by_number | by_weekday
    in_month = np.isin(months.astype(np.int64) % 12 + 1, list(fields.months))
    return days[matches & in_month]


def times_of_day(fields: CronFields) -> Numbers:
    """Returns the matching times of day in seconds, ascending."""
    seconds, minutes, hours = (
        np.array(sorted(values), dtype=np.int64) for values in (fields.seconds, fields.minutes, fields.hours)
    )
    in_hour = (minutes[:, None] * 60 + seconds[None, :]).ravel()
    return (hours[:, None] * 3_600 + in_hour[None, :]).ravel()


def _has_a_day(fields: CronFields) -> bool:
    """True if one of `months` may have one of the days in the field for days of the month."""
    longest = max(29 if month == 2 else 30 if month in (4, 6, 9, 11) else 31 for month in fields.months)
    return fields.has_last_day or fields.has_last_workday or min(fields.days) <= longest


def _values(terms: list[str], field: _Field) -> frozenset[int]:
    """Returns the values of a list of terms; empty for an empty list."""
    values: set[int] = set()
    for term in terms:
        span, slash, step_text = term.partition("/")
        low, dash, high = span.partition("-")
        step = _number(step_text, 2) if slash else 1
        if span == "*":
            first, last = field.first, field.last
        else:
            first = _value(low, field)
            last = _value(high, field) if dash else field.last if slash else first
        if first > last or not 0 < step <= field.last:
            raise ValueError(f"{term!r} is not a term of a field")
        values.update(range(first, last + 1, step))
    return frozenset(values)


def _value(text: str, field: _Field) -> int:
    value = field.first + field.names.index(text) if text in field.names else _number(text, field.digits_max)
    if not field.first <= value <= field.last:
        raise ValueError(f"{text!r} is not a value of a field")
    return value


def _number(text: str, digits_max: int) -> int:
    if not text.isdigit() or len(text) > digits_max:
        raise ValueError(f"{text!r} is not a number of a field")
    return int(text)


def _is_nth(term: str) -> bool:
    return "#" in term or (term[-1:] == "L" and len(term) == 2)


def _nth(term: str) -> tuple[int, int]:
    if "#" not in term:
        return _value(term[0], _FIELDS[5]) % 7, 0
    weekday, _, number = term.partition("#")
    if number not in ("1", "2", "3", "4", "5"):
        raise ValueError(f"{term!r} is not a weekday of a month")
    return _value(weekday, _FIELDS[5]) % 7, int(number)
