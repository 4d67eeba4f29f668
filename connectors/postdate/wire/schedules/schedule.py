"""One schedule, as its headers describe it.

`read_schedule` checks everything that depends only on the headers, so a schedule that it returns has a known zone and a
valid expression. Pure and deterministic, except that the known zones are those of the installed `tzdata`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TypeVar

import msgspec

from postdate.wire.headers import (
    CATCH_UP,
    COUNT,
    CRON,
    END,
    EVERY,
    FOLD,
    GAP,
    GRACE,
    ID,
    MISSED,
    START,
    WINDOW,
    ZONE,
)
from postdate.wire.limits import (
    CRON_LENGTH_MAX,
    DUE_MS_MIN,
    EVERY_MS_MAX,
    EVERY_MS_MIN,
    NOMINAL_MS_MAX,
    TIME_TEXT_BYTES_MAX,
    WINDOW_MS_MAX,
)
from postdate.wire.schedules.expressions import parse_expression
from postdate.wire.schedules.zones import UTC, load_zone
from postdate.wire.values.durations import format_duration, parse_duration_ms
from postdate.wire.values.instants import parse_instant_ms
from postdate.wire.values.texts import parse_natural, quote, time_text


class Gap(StrEnum):
    """The policy for wall-clock times that do not exist, because clocks are set forward over them."""

    NEXT = "next"
    """Such times are one occurrence, at the first instant after the gap."""
    SKIP = "skip"
    """That occurrence is skipped."""


class Fold(StrEnum):
    """The policy for wall-clock times that exist twice, because clocks are set back over them: the schedule occurs at
    the first instant of such a time, at the last one, or at both."""

    FIRST = "first"
    LAST = "last"
    BOTH = "both"


class Missed(StrEnum):
    """The policy for overdue occurrences: it determines those that are delivered."""

    ALL = "all"
    LAST = "last"
    """The newest occurrence."""
    NONE = "none"
    """Occurrences at most 60 s late."""


class Schedule(msgspec.Struct, frozen=True, gc=False):
    """One schedule, with either `cron` or `every_ms`. An absent text is "", an absent number -1."""

    cron: str = ""
    every_ms: int = -1
    """Nominal times are the multiples of `every_ms` since the epoch, plus `phase_ms`."""
    phase_ms: int = 0
    zone: str = UTC
    start_ms: int = -1
    """The first possible nominal time. With -1, nominal times must be after the timestamp of the request."""
    end_ms: int = -1
    """The last possible nominal time."""
    count: int = -1
    """The number of the last occurrence. Skipped occurrences count, too."""
    window_ms: int = 0
    grace_ms: int = -1
    gap: Gap = Gap.NEXT
    fold: Fold = Fold.FIRST
    missed: Missed = Missed.ALL
    catch_up_ms: int = -1
    """Occurrences that are late by more than this are skipped."""

    @property
    def delivers_all(self) -> bool:
        """True if every occurrence leaves at its nominal time, however late, unless a pause skips it."""
        return (
            not self.window_ms
            and self.missed is Missed.ALL
            and self.catch_up_ms < 0
            and self.grace_ms < 0
            and self.gap is not Gap.SKIP
        )

    @property
    def last_ms(self) -> int:
        """The time after which no nominal time lies."""
        return NOMINAL_MS_MAX if self.end_ms < 0 else min(self.end_ms, NOMINAL_MS_MAX)


def read_schedule(found: Mapping[str, bytes | None]) -> Schedule:
    """Returns the schedule that the headers of a request describe. Requires CRON or EVERY among them.

    `found`: the headers of Postdate by name; headers that do not belong to a schedule are ignored. Raises ValueError,
    with the header and the reason, if the headers describe no valid schedule. Cost: 5 us if the expression was seen
    lately.
    """
    if CRON in found and EVERY in found:
        raise ValueError(f"only one of {CRON} and {EVERY} may be given")
    if ID not in found:
        raise ValueError(f"a schedule needs {ID}, by which it is replaced, paused and cancelled")
    if EVERY in found:
        for name in (ZONE, GAP, FOLD):
            if name in found:
                raise ValueError(
                    f"{EVERY} takes no {name}: its times count from the epoch; for times of a zone use {CRON}"
                )
        every_ms, phase_ms = _read(EVERY, found, _interval)
        schedule = Schedule(every_ms=every_ms, phase_ms=phase_ms)
    else:
        schedule = Schedule(
            cron=_read(CRON, found, _cron),
            zone=_read(ZONE, found, _zone) if ZONE in found else UTC,
            gap=_read(GAP, found, _gap) if GAP in found else Gap.NEXT,
            fold=_read(FOLD, found, _fold) if FOLD in found else Fold.FIRST,
        )
    schedule = msgspec.structs.replace(
        schedule,
        start_ms=_read(START, found, _instant) if START in found else -1,
        end_ms=_read(END, found, _instant) if END in found else -1,
        count=_read(COUNT, found, _count) if COUNT in found else -1,
        window_ms=_read(WINDOW, found, _window) if WINDOW in found else 0,
        grace_ms=_read(GRACE, found, _duration) if GRACE in found else -1,
        missed=_read(MISSED, found, _missed) if MISSED in found else Missed.ALL,
        catch_up_ms=_read(CATCH_UP, found, _duration) if CATCH_UP in found else -1,
    )
    if 0 <= schedule.end_ms < schedule.start_ms:
        raise ValueError(f"{END} {quote(found[END])} lies before {START} {quote(found[START])}")
    return schedule


def read_times(found: Mapping[str, bytes | None]) -> tuple[int, int]:
    """Returns the first and the last nominal time in the headers of a backfill. Requires START and END.

    Raises ValueError, with the header and the reason, if they are invalid.
    """
    start_ms, end_ms = _read(START, found, _instant), _read(END, found, _instant)
    if end_ms < start_ms:
        raise ValueError(f"{END} {quote(found[END])} lies before {START} {quote(found[START])}")
    return start_ms, end_ms


_Value = TypeVar("_Value")
_Choice = TypeVar("_Choice", bound=StrEnum)


def _read(name: str, found: Mapping[str, bytes | None], parse: Callable[[bytes | None], _Value]) -> _Value:
    try:
        return parse(found[name])
    except ValueError as error:
        raise ValueError(f"{name} {quote(found[name])} {error}") from None


def _text(value: bytes | None, length_max: int) -> str:
    if not value or len(value) > length_max or not value.isascii():
        raise ValueError(f"is empty, not ASCII, or longer than {length_max} bytes")
    return value.decode("ascii")


def _cron(value: bytes | None) -> str:
    text = _text(value, CRON_LENGTH_MAX)
    parse_expression(text)
    return text


def _zone(value: bytes | None) -> str:
    name = _text(value, TIME_TEXT_BYTES_MAX)
    load_zone(name)
    return name


def _interval(value: bytes | None) -> tuple[int, int]:
    interval, slash, phase = time_text(value).partition("/")
    every_ms = parse_duration_ms(interval)
    phase_ms = parse_duration_ms(phase) if slash else 0
    if not EVERY_MS_MIN <= every_ms <= EVERY_MS_MAX:
        raise ValueError(f"is not from {format_duration(EVERY_MS_MIN)} to {format_duration(EVERY_MS_MAX)}")
    if phase_ms >= every_ms:
        raise ValueError("has a phase that is not shorter than the interval")
    return every_ms, phase_ms


def _instant(value: bytes | None) -> int:
    instant_ms = parse_instant_ms(time_text(value))
    if instant_ms > NOMINAL_MS_MAX:
        raise ValueError("lies after the year 9997")
    return max(instant_ms, DUE_MS_MIN)


def _count(value: bytes | None) -> int:
    count = parse_natural(time_text(value))
    if count < 1:
        raise ValueError("is 0; a schedule has at least one occurrence")
    return count


def _window(value: bytes | None) -> int:
    window_ms = parse_duration_ms(time_text(value))
    if not 0 < window_ms <= WINDOW_MS_MAX:
        raise ValueError(f"is 0, or longer than {format_duration(WINDOW_MS_MAX)}")
    return window_ms


def _duration(value: bytes | None) -> int:
    return parse_duration_ms(time_text(value))


def _gap(value: bytes | None) -> Gap:
    return _choice(Gap, value)


def _fold(value: bytes | None) -> Fold:
    return _choice(Fold, value)


def _missed(value: bytes | None) -> Missed:
    return _choice(Missed, value)


def _choice(choices: type[_Choice], value: bytes | None) -> _Choice:
    for choice in choices:
        if value == choice.value.encode():
            return choice
    raise ValueError(f"is not one of {', '.join(choices)}")
