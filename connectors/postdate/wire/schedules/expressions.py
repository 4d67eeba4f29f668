"""Cron expressions, and the wall-clock times that match them.

    minute hour day-of-month month day-of-week              30 9 * * MON-FRI
    second minute hour day-of-month month day-of-week       0 30 9 L * *
    @hourly @daily @midnight @weekly @monthly @yearly @annually

    *   */15   10-50/20   5/15   MON,WED-FRI   JAN   7 (Sunday, like 0)
    L and LW     in day-of-month: the last day of the month, and the last day that is a Monday to Friday
    5L and 5#3   in day-of-week: the last and the third Friday of the month; FRI#3 is the same as 5#3

The two day fields restrict the day as in Vixie cron: if neither begins with `*`, a day matches if either field matches;
otherwise both must match. CronSim reads the fields and matches days. The search for a time does not use CronSim and
works on integers: CronSim's iterator steps through datetimes, and follows the rules of Debian's cron for clock changes,
without a choice of policies.

Wall-clock times are seconds since 1970-01-01T00:00 of the local calendar. Pure functions, except that an expression
remembers the matching days of months.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterable
from datetime import date, datetime
from functools import lru_cache
from typing import Final

from cronsim import CronSim, CronSimError

from postdate.wire.limits import CRON_LENGTH_MAX, EXPRESSIONS_REMEMBERED_MAX

_DAY_S: Final = 86_400
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()

_MACROS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

_NAMES: Final = ("second", "minute", "hour", "day of month", "month", "day of week")
_ENDS: Final = (60, 60, 24, 32, 13, 8)
_MONTHS: Final = "JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC"
_WEEKDAYS: Final = "SUN|MON|TUE|WED|THU|FRI|SAT"


def _term(value: str, special: str) -> re.Pattern[str]:
    return re.compile(rf"(?:\*|(?P<low>{value})(?:-(?P<high>{value}))?)(?:/(?P<step>[0-9]{{1,2}}))?{special}")


_PLAIN: Final = _term("[0-9]{1,2}", "")
_DAY_OF_MONTH: Final = _term("[0-9]{1,2}", "|LW?")
_MONTH: Final = _term(f"(?:[0-9]{{1,2}}|{_MONTHS})", "")
_DAY_OF_WEEK: Final = _term(f"(?:[0-7]|{_WEEKDAYS})", f"|[0-7]L|(?:[0-7]|{_WEEKDAYS})#[1-5]")
_TERMS: Final = (_PLAIN, _PLAIN, _PLAIN, _DAY_OF_MONTH, _MONTH, _DAY_OF_WEEK)


_ONLY_STEP: Final = re.compile(r"\*/(?P<step>[0-9]+)")

# CronSim's words for a step of seconds, and for a step of minutes.
_NTH: Final = (
    re.compile(r"^Every \S+ second of every minute\b"),
    re.compile(r"^Every \S+ minute\b(?: of every hour\b)?"),
)


class Expression:
    """One cron expression. `fields`: its six fields, upper case. `is_elapsed`: True if minute or hour begins with `*`.

    A schedule with an `is_elapsed` expression follows elapsed time: it occurs at every instant whose wall-clock time
    matches.
    """

    def __init__(self, fields: tuple[str, ...]) -> None:
        self.fields = fields
        self.is_elapsed = fields[1].startswith("*") or fields[2].startswith("*")
        self._cron = CronSim(" ".join(fields), datetime(2000, 1, 1))
        self._seconds = _mask(self._cron.seconds)
        self._minutes = _mask(self._cron.minutes)
        self._hours = _mask(self._cron.hours)
        self._first_minute_s = _lowest(self._minutes) * 60 + _lowest(self._seconds)
        self._first_s = _lowest(self._hours) * 3_600 + self._first_minute_s
        self._days_of_months: dict[tuple[int, int], int] = {}  # by first weekday and length: at most 28

    def next_wall_s(self, wall_s: int, until_s: int) -> int | None:
        """Returns the first matching time from `wall_s` to `until_s`, both included, or None if there is none.

        Cost: O(months between), 1 us if the day of `wall_s` matches.
        """
        day, time_s = divmod(wall_s, _DAY_S)
        start = date.fromordinal(day + _EPOCH_DAY)
        year, month = start.year, start.month
        days = self._days(year, month) >> start.day
        if days & 1:
            found_s = self._next_time_s(time_s)
            if found_s is not None:
                found_s += day * _DAY_S
                return found_s if found_s <= until_s else None
        # Bit n of `days` is now the n-th day after `first`.
        first, days = day + 1, days >> 1
        while not days:
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
            first = date(year, month, 1).toordinal() - _EPOCH_DAY
            if first * _DAY_S > until_s:
                return None
            days = self._days(year, month) >> 1
        found_s = (first + _lowest(days)) * _DAY_S + self._first_s
        return found_s if found_s <= until_s else None

    def count(self, from_s: int, until_s: int) -> int:
        """Returns the number of matching times in [`from_s`, `until_s`). Cost: O(months between), 1 us each."""
        return self._count_before(until_s) - self._count_before(from_s) + self._count_days(from_s, until_s)

    def _count_days(self, from_s: int, until_s: int) -> int:
        """Returns the number of matching times from the start of the day of `from_s` to the start of the day of
        `until_s`."""
        start, end = (date.fromordinal(wall_s // _DAY_S + _EPOCH_DAY) for wall_s in (from_s, until_s))
        year, month, days = start.year, start.month, 0
        skipped = start.day
        while (year, month) < (end.year, end.month):
            days += (self._days(year, month) >> skipped).bit_count()
            year, month, skipped = (year, month + 1, 0) if month < 12 else (year + 1, 1, 0)
        days += (_lower(self._days(year, month), end.day) >> skipped).bit_count()
        return days * self._hours.bit_count() * self._minutes.bit_count() * self._seconds.bit_count()

    def _count_before(self, wall_s: int) -> int:
        """Returns the number of matching times before `wall_s` on its day."""
        day, time_s = divmod(wall_s, _DAY_S)
        start = date.fromordinal(day + _EPOCH_DAY)
        if not self._days(start.year, start.month) >> start.day & 1:
            return 0
        hour, rest_s = divmod(time_s, 3_600)
        minute, second = divmod(rest_s, 60)
        count = _lower(self._hours, hour).bit_count() * self._minutes.bit_count() * self._seconds.bit_count()
        if self._hours >> hour & 1:
            count += _lower(self._minutes, minute).bit_count() * self._seconds.bit_count()
            if self._minutes >> minute & 1:
                count += _lower(self._seconds, second).bit_count()
        return count

    def _next_time_s(self, time_s: int) -> int | None:
        """Returns the first matching time of day at or after `time_s`, or None if there is none."""
        hour, rest_s = divmod(time_s, 3_600)
        minute, second = divmod(rest_s, 60)
        if self._hours >> hour & 1:
            if self._minutes >> minute & 1:
                seconds = self._seconds >> second
                if seconds:
                    return time_s + _lowest(seconds)
            minutes = self._minutes >> (minute + 1)
            if minutes:
                return hour * 3_600 + (minute + 1 + _lowest(minutes)) * 60 + _lowest(self._seconds)
        hours = self._hours >> (hour + 1)
        return (hour + 1 + _lowest(hours)) * 3_600 + self._first_minute_s if hours else None

    def _days(self, year: int, month: int) -> int:
        """Returns the matching days of a month: bit n is day n. In a month of the expression, they depend only on the
        first weekday and the length of the month."""
        if month not in self._cron.months:
            return 0
        shape = monthrange(year, month)
        days = self._days_of_months.get(shape)
        if days is None:
            days = _mask(day for day in range(1, shape[1] + 1) if self._cron.match_day(date(year, month, day)))
            self._days_of_months[shape] = days
        return days

    def explain(self) -> str:
        """Returns the expression in English words. If the field of seconds or minutes is `*/N` and N divides 60, the
        text names an interval, such as every 10 seconds."""
        text = self._cron.explain()
        for field, unit, pattern in zip(self.fields, ("seconds", "minutes"), _NTH, strict=False):
            match = _ONLY_STEP.fullmatch(field)
            if match is not None and 60 % int(match["step"]) == 0:
                text = pattern.sub(f"Every {match['step']} {unit}", text)
        return text


@lru_cache(maxsize=EXPRESSIONS_REMEMBERED_MAX)
def parse_expression(text: str) -> Expression:
    """Returns the expression in a text. Raises ValueError, with the remedy, if the text is not a supported expression.
    Cost: 50 us, or O(1) for a text seen lately.

    Accepts some expressions that no day matches, such as the first day of a month if it is also the third Friday.
    """
    if len(text) > CRON_LENGTH_MAX or not text.isascii():
        raise ValueError("is too long or not ASCII")
    if text.startswith("@"):
        text = _macro(text)
    fields = text.upper().split(" ")
    if len(fields) not in (5, 6):
        raise ValueError(
            f"has {len(fields)} fields separated by single spaces; give 5, or 6 with seconds first, "
            "such as '30 9 * * MON-FRI'"
        )
    if len(fields) == 5:
        fields.insert(0, "0")
    try:
        return Expression(tuple(map(_checked, _NAMES, _ENDS, _TERMS, fields)))
    except CronSimError as error:
        raise ValueError(
            f"is refused ({error}); give ascending ranges, values of the field, and days that exist"
        ) from None


def _macro(text: str) -> str:
    name = text.lower()
    if name == "@reboot":
        raise ValueError("is @reboot, which has no time; give a cron expression or postdate-every")
    if name.startswith("@every"):
        raise ValueError("is @every; give postdate-every instead, such as 15m")
    if name not in _MACROS:
        raise ValueError(f"is not one of {', '.join(_MACROS)}")
    return _MACROS[name]


def _checked(name: str, end: int, term: re.Pattern[str], field: str) -> str:
    """Returns a field in the form that CronSim reads. Raises ValueError if a term is invalid, or a step is 0 or
    too long."""
    if "?" in field:
        raise ValueError(f"has ? as {name}, which is Quartz's; write * instead")
    parts = field.split(",")
    for index, part in enumerate(parts):
        match = term.fullmatch(part)
        if match is None:
            raise ValueError(f"has {part[:20]!r} as {name}; give *, a number, a name, a range or a step, such as */15")
        step = match["step"]
        if step is not None and not 0 < int(step) < end:
            raise ValueError(f"has a step of {step} as {name}; give 1 to {end - 1}; for intervals use postdate-every")
        if step is not None and match["high"] is not None and _number(match["low"]) == _number(match["high"]):
            # CronSim treats `5-5/2` as `5/2`, which continues to the end of the field.
            parts[index] = match["low"]
    return ",".join(parts)


def _number(value: str) -> int:
    """Returns the value of a number or a name."""
    for names, first in ((_MONTHS, 1), (_WEEKDAYS, 0)):
        if value in names.split("|"):
            return names.split("|").index(value) + first
    return int(value)


def _mask(values: Iterable[int]) -> int:
    mask = 0
    for value in values:
        mask |= 1 << value
    return mask


def _lower(mask: int, bit: int) -> int:
    """Returns `mask` with only the bits below the position `bit`."""
    return mask & ((1 << bit) - 1)


def _lowest(mask: int) -> int:
    """Returns the position of the lowest bit. Requires at least one bit."""
    return (mask & -mask).bit_length() - 1
