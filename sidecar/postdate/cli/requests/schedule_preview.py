"""The preview of a schedule, computed without Kafka: its next nominal times, a description in words, and clock changes.

All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from postdate.wire.schedules.expressions import Expression, parse_expression
from postdate.wire.schedules.occurrences import Occurrence, first_occurrence, next_occurrence, skip_to
from postdate.wire.schedules.schedule import Fold, Gap, Schedule
from postdate.wire.schedules.words import describe
from postdate.wire.schedules.zones import TZ_VERSION, ClockChange, load_zone
from postdate.wire.values.durations import format_duration

_YEAR_S: Final = 366 * 86_400
_FOLDS: Final = {
    Fold.FIRST: "matching times are delivered the first time only",
    Fold.LAST: "matching times are delivered the second time only",
    Fold.BOTH: "matching times are delivered both times",
}


def next_occurrences(schedule: Schedule, after_ms: int, limit: int) -> list[Occurrence]:
    """Returns the first `limit` occurrences after the instant `after_ms`, for a request that is sent at this instant.
    Omits times in a gap."""
    occurrences: list[Occurrence] = []
    occurrence = first_occurrence(schedule, after_ms)
    if occurrence is not None:  # the start of a schedule may precede `after_ms`
        occurrence = skip_to(schedule, occurrence, after_ms + 1)
    while occurrence is not None and len(occurrences) < limit:
        if not occurrence.is_in_gap:
            occurrences.append(occurrence)
        occurrence = next_occurrence(schedule, occurrence)
    return occurrences


def preview(schedule: Schedule, occurrences: list[Occurrence], after_ms: int) -> Iterator[str]:
    """Yields the lines of a preview: the schedule in words, the local and the UTC time of each occurrence, and the
    clock changes of the year after `after_ms`."""
    yield f"{describe(schedule)}, in {schedule.zone} (tzdata {TZ_VERSION})" if schedule.cron else describe(schedule)
    if not occurrences:
        yield "no occurrence follows"
    for occurrence in occurrences:
        yield f"{occurrence.number:>6}  {_local(schedule.zone, occurrence.nominal_ms)}  {_utc(occurrence.nominal_ms)}"
    if schedule.cron:
        yield from _changes(schedule, after_ms // 1_000)


def _changes(schedule: Schedule, after_s: int) -> Iterator[str]:
    zone, expression, until_s = load_zone(schedule.zone), parse_expression(schedule.cron), after_s + _YEAR_S
    while (change := zone.next_change(after_s, until_s)) is not None:
        length = format_duration(abs(change.after_s - change.before_s) * 1_000)
        low, high = sorted((change.at_s + change.before_s, change.at_s + change.after_s))
        kind = "gap" if change.after_s > change.before_s else "fold"
        verb = "forward" if kind == "gap" else "back"
        hours = f"{_wall(low)} to {_wall(high)} {'does not exist' if kind == 'gap' else 'exists twice'}"
        effect = _effect(schedule, expression, change)
        yield f"clocks are set {verb} by {length} at {_utc(change.at_s * 1_000)}: {hours}; {effect}"
        after_s = change.at_s


def _effect(schedule: Schedule, expression: Expression, change: ClockChange) -> str:
    """Returns the effect of a clock change on a schedule."""
    low_s, high_s = sorted((change.at_s + change.before_s, change.at_s + change.after_s))
    if expression.is_elapsed:
        return "the schedule follows elapsed time"
    if expression.next_wall_s(low_s, high_s - 1) is None:
        return "the schedule has no time in it"
    if change.after_s < change.before_s:
        return _FOLDS[schedule.fold]
    skipped = schedule.gap is Gap.SKIP and expression.next_wall_s(high_s, high_s) is None
    return "matching times are skipped" if skipped else f"matching times are delivered once, at {_wall(high_s)}"


def _local(zone: str, instant_ms: int) -> str:
    """Returns the local time of an instant, with its offset."""
    offset_s = load_zone(zone).offset_s(instant_ms // 1_000)
    sign, minutes = "-" if offset_s < 0 else "+", abs(offset_s) // 60
    return f"{_naive(instant_ms + offset_s * 1_000)}{sign}{minutes // 60:02}:{minutes % 60:02}"


def _utc(instant_ms: int) -> str:
    return f"{_naive(instant_ms)}Z"


def _naive(local_ms: int) -> str:
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=local_ms)
    return time.replace(tzinfo=None).isoformat(timespec="milliseconds" if local_ms % 1_000 else "seconds")


def _wall(local_s: int) -> str:
    """Returns a wall-clock time without its date."""
    return _naive(local_s * 1_000)[11:].removesuffix(":00")
