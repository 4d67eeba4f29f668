"""The occurrences of a schedule in order, each with its number and nominal time.

Each nominal time follows from the previous nominal time, never from the present time. Nominal times ascend strictly, so
the number of an occurrence determines its nominal time and vice versa, under all policies for gaps and missed
occurrences.

Clock changes, for a schedule whose minute and hour begin with a number:

    gap    the matching wall-clock times that do not exist are one occurrence, at the first instant after the gap. If
           that instant matches as well, both are the same occurrence. Otherwise `postdate-gap: skip` skips it.
    fold   a wall-clock time that exists twice is an occurrence at its first instant, at its last one, or at both

A schedule whose minute or hour begins with `*` follows elapsed time: each instant whose wall-clock time matches is an
occurrence. All other wall-clock times exist once. The seconds field does not matter for this rule.

Pure functions, except that they remember times. No search goes further than 50 years: `0 0 29 2 MON#5` needs 40, and
the search for an expression that no day matches must end.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from postdate.wire.limits import DUE_MS_MIN, INTEGER_END, NOMINALS_REMEMBERED_MAX, SEARCH_S_MAX
from postdate.wire.schedules.expressions import Expression, parse_expression
from postdate.wire.schedules.schedule import Fold, Gap, Schedule
from postdate.wire.schedules.zones import ClockChange, Zone, load_zone

_SECOND_MS: Final = 1_000

# The largest possible difference between two offsets of a zone: from -12 to +14 hours.
_FOLD_S_MAX: Final = 26 * 3_600


class SkipReason(StrEnum):
    """Why an occurrence is not delivered."""

    GAP = "gap"
    MISSED = "missed"
    GRACE = "grace"
    PAUSED = "paused"


class Occurrence(NamedTuple):
    """One occurrence. It is also a position in the schedule, from which the later occurrences follow."""

    number: int
    """From 1. Skipped occurrences have numbers, too."""
    nominal_ms: int
    is_in_gap: bool = False
    """True if the occurrence stands for wall-clock times in a gap, and the schedule skips such occurrences."""


def first_occurrence(schedule: Schedule, timestamp_ms: int) -> Occurrence | None:
    """Returns occurrence 1 of a request with this timestamp, or None if there is no occurrence up to the end of the
    schedule, or within 50 years."""
    after_ms = timestamp_ms if schedule.start_ms < 0 else schedule.start_ms - 1
    return _occurrence(schedule, 1, after_ms)


def next_occurrence(schedule: Schedule, position: Occurrence) -> Occurrence | None:
    """Returns the next occurrence after `position`, or None if `position` was the last one. Cost: 2 us if the next time
    of the same expression and zone was computed lately; otherwise 5 us, and 50 us for each new month."""
    return _occurrence(schedule, position.number + 1, position.nominal_ms)


def skip_to(schedule: Schedule, position: Occurrence, from_ms: int) -> Occurrence | None:
    """Returns the first occurrence, from `position` on, at or after `from_ms`, or None if there is none. Cost: that of
    `count_nominal`."""
    if position.nominal_ms >= from_ms:
        return position
    # An occurrence in a gap has a number even if the schedule skips it.
    with_gaps = msgspec.structs.replace(schedule, gap=Gap.NEXT)
    count_max = schedule.count if schedule.count >= 0 else INTEGER_END
    steps = 1 + count_nominal(with_gaps, position.nominal_ms + 1, from_ms - 1, count_max)
    return _occurrence(schedule, position.number + steps, from_ms - 1)


def following(schedule: Schedule, position: Occurrence | None, limit: int) -> list[Occurrence]:
    """Returns `position` and the occurrences after it, at most `limit` in all. Returns [] if `position` is None."""
    occurrences: list[Occurrence] = []
    while position is not None and len(occurrences) < limit:
        occurrences.append(position)
        position = next_occurrence(schedule, position)
    return occurrences


def next_after(schedule: Schedule, after_ms: int) -> tuple[int, bool] | None:
    """Returns the first nominal time after an instant, and True if the schedule skips it because it lies in a gap.

    Ignores start and count, and for an interval also the end. Returns None if a cron expression has no such time up to
    the end of the schedule, or within 50 years.
    """
    after_ms = max(after_ms, DUE_MS_MIN - 1)
    if schedule.every_ms > 0:
        every_ms, phase_ms = schedule.every_ms, schedule.phase_ms
        return ((after_ms - phase_ms) // every_ms + 1) * every_ms + phase_ms, False
    after_s = after_ms // _SECOND_MS
    until_s = min(after_s + SEARCH_S_MAX, schedule.last_ms // _SECOND_MS)
    nominal = _next_of_cron(schedule.cron, schedule.zone, schedule.fold, after_s, until_s)
    return None if nominal is None else (nominal[0] * _SECOND_MS, nominal[1] and schedule.gap is Gap.SKIP)


def count_nominal(schedule: Schedule, first_ms: int, last_ms: int, count_max: int) -> int:
    """Returns the number of nominal times from one instant to another, both included, without those in gaps that the
    schedule skips. If there are more than `count_max`, the result may be any number above `count_max`.

    Ignores start and count. Cost: O(months and clock changes between), about 1 us each, for any number of times.
    """
    last_ms = min(last_ms, schedule.last_ms)
    if schedule.every_ms > 0:
        every_ms, phase_ms = schedule.every_ms, schedule.phase_ms
        return (last_ms - phase_ms) // every_ms - (first_ms - 1 - phase_ms) // every_ms
    expression, zone = parse_expression(schedule.cron), load_zone(schedule.zone)
    at_s, until_s, count = (first_ms - 1) // _SECOND_MS + 1, last_ms // _SECOND_MS + 1, 0
    while at_s < until_s and count <= count_max:
        start_s, end_s, offset_s = zone.span(at_s)
        from_s, behind_s = at_s, min(end_s, until_s)
        if not expression.is_elapsed:
            before_s, after_s = zone.offset_s(start_s - 1), zone.offset_s(end_s)
            if at_s == start_s and before_s < offset_s and schedule.gap is Gap.NEXT:
                is_in_gap = expression.count(at_s + before_s, at_s + offset_s) > 0
                count += is_in_gap and not expression.count(at_s + offset_s, at_s + offset_s + 1)
            if schedule.fold is Fold.FIRST:
                from_s = max(from_s, start_s + before_s - offset_s)
            elif schedule.fold is Fold.LAST:
                behind_s = min(behind_s, end_s + after_s - offset_s)
        count += expression.count(from_s + offset_s, behind_s + offset_s) if from_s < behind_s else 0
        at_s = min(end_s, until_s)
    return count


def _occurrence(schedule: Schedule, number: int, after_ms: int) -> Occurrence | None:
    if 0 <= schedule.count < number or after_ms >= schedule.last_ms:
        return None
    nominal = next_after(schedule, after_ms)
    if nominal is None or nominal[0] > schedule.last_ms:
        return None
    return Occurrence(number, *nominal)


@lru_cache(maxsize=NOMINALS_REMEMBERED_MAX)
def _next_of_cron(cron: str, zone_name: str, fold: Fold, after_s: int, until_s: int) -> tuple[int, bool] | None:
    """Returns the first nominal time in (`after_s`, `until_s`], and True if only a gap makes it an occurrence."""
    expression, zone = parse_expression(cron), load_zone(zone_name)
    if expression.is_elapsed:
        instant_s = _next_elapsed(expression, zone, after_s, until_s)
        return None if instant_s is None else (instant_s, False)
    while True:
        nominal = _next_fixed(expression, zone, after_s, until_s)
        passed_s = None if nominal is None or nominal[1] else _passed_by_fold(zone, fold, nominal[0])
        if passed_s is None:
            return nominal
        after_s = passed_s


def _next_elapsed(expression: Expression, zone: Zone, after_s: int, until_s: int) -> int | None:
    """Returns the first instant in (`after_s`, `until_s`] whose wall-clock time matches."""
    while after_s < until_s:
        _, end_s, offset_s = zone.span(after_s + 1)
        wall_s = expression.next_wall_s(after_s + 1 + offset_s, until_s + offset_s)
        found_s = until_s if wall_s is None else wall_s - offset_s
        change = zone.next_change(after_s + 1, found_s) if found_s >= end_s else None
        if change is None:
            return None if wall_s is None else found_s
        after_s = change.at_s - 1
    return None


def _next_fixed(expression: Expression, zone: Zone, after_s: int, until_s: int) -> tuple[int, bool] | None:
    """Returns the first instant in (`after_s`, `until_s`] whose wall-clock time matches, or which ends a gap with
    matching times, and True if only the gap makes it an occurrence. Both instants of a time in a fold count."""
    while after_s < until_s:
        _, end_s, offset_s = zone.span(after_s)
        wall_s = expression.next_wall_s(after_s + 1 + offset_s, until_s + offset_s)
        found_s = until_s if wall_s is None else wall_s - offset_s
        change = zone.next_change(after_s, found_s) if found_s >= end_s else None
        if change is None:
            return None if wall_s is None else (found_s, False)
        at_s, before_s, new_s = change
        if expression.next_wall_s(at_s + new_s, at_s + new_s) is not None:
            return at_s, False
        if before_s < new_s and expression.next_wall_s(at_s + before_s, at_s + new_s - 1) is not None:
            return at_s, True
        after_s = at_s
    return None


def _passed_by_fold(zone: Zone, fold: Fold, instant_s: int) -> int | None:
    """Returns None if an instant is an occurrence under this policy. Otherwise returns the last instant of the same
    half of the fold: no occurrence lies between the two instants."""
    if fold is Fold.BOTH:
        return None
    change = _fold_around(zone, instant_s)
    if change is None or (instant_s < change.at_s) == (fold is Fold.FIRST):
        return None
    return change.at_s - 1 if instant_s < change.at_s else change.at_s + change.before_s - change.after_s - 1


def _fold_around(zone: Zone, instant_s: int) -> ClockChange | None:
    """Returns the clock change that makes the wall-clock time of an instant exist twice, or None if it exists once."""
    span = zone.span(instant_s)
    if span.start_s + _FOLD_S_MAX <= instant_s < span.end_s - _FOLD_S_MAX:
        return None
    change = zone.next_change(instant_s - _FOLD_S_MAX, instant_s + _FOLD_S_MAX)
    while change is not None:
        fold_s = change.before_s - change.after_s
        if change.at_s - fold_s <= instant_s < change.at_s + fold_s:
            return change
        change = zone.next_change(change.at_s, instant_s + _FOLD_S_MAX)
    return None
