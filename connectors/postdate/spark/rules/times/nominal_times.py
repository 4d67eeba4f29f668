"""The nominal times of a schedule as the audit computes them, for a whole range at once.

Each matching day and time of day is a wall-clock time. For every UTC offset that the zone has in the range, the audit
computes the instant of the wall-clock time with this offset. The instant counts if the zone has this offset at the
instant. So a wall-clock time has no instant in a gap, two in a fold, and one otherwise. The sidecar searches from one
instant to the next and shares no code with this module.

Pure functions with numpy. Memory: O(WALL_TIMES_MAX).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from postdate.spark.limits import WALL_TIMES_MAX
from postdate.spark.rules.times.cron_fields import CronFields, matching_days, read_cron, times_of_day
from postdate.spark.rules.times.zone_files import ClockChanges, Seconds, read_zone

Milliseconds = NDArray[np.int64]

_DAY_S: Final = 86_400
# Local time differs from UTC by less than a day, and no clock is set by more than a day.
_MARGIN_DAYS: Final = 2
_SECOND_MS: Final = 1_000


class NominalTimes(NamedTuple):
    """Ascending nominal times. `in_gap` marks the times that the schedule skips because their wall-clock time lies in a
    gap."""

    times_ms: Milliseconds
    in_gap: NDArray[np.bool_]


class CronTimes(NamedTuple):
    """The headers that determine the times of a cron schedule, as texts."""

    cron: str
    zone: str
    gap: str = "next"
    fold: str = "first"


class IntervalTimes(NamedTuple):
    """The interval and phase of a schedule at an interval, in milliseconds."""

    every_ms: int
    phase_ms: int = 0


def nominal_times(times: CronTimes | IntervalTimes, after_ms: int, until_ms: int) -> Iterator[NominalTimes]:
    """Yields the nominal times in (`after_ms`, `until_ms`] in bounded blocks, ascending.

    Requires 0 <= `after_ms`, and `until_ms` before the year 9999. Raises ValueError if a text is invalid. O(days +
    times).
    """
    if isinstance(times, IntervalTimes):
        yield from _interval_times(times, after_ms, until_ms)
        return
    fields = read_cron(times.cron)
    low_s, last_s = after_ms // _SECOND_MS, until_ms // _SECOND_MS
    block_s = max(1, WALL_TIMES_MAX // len(times_of_day(fields))) * _DAY_S
    while low_s < last_s:
        high_s = min(low_s + block_s, last_s)
        yield _cron_times(times, fields, low_s, high_s)
        low_s = high_s


def _interval_times(times: IntervalTimes, after_ms: int, until_ms: int) -> Iterator[NominalTimes]:
    first = (after_ms - times.phase_ms) // times.every_ms + 1
    end = (until_ms - times.phase_ms) // times.every_ms + 1
    while first < end:
        numbers = np.arange(first, min(first + WALL_TIMES_MAX, end), dtype=np.int64)
        yield NominalTimes(numbers * times.every_ms + times.phase_ms, np.zeros(len(numbers), dtype=np.bool_))
        first += len(numbers)


def _cron_times(times: CronTimes, fields: CronFields, after_s: int, until_s: int) -> NominalTimes:
    """Returns the nominal times in (`after_s`, `until_s`]."""
    from_day, until_day = after_s // _DAY_S - _MARGIN_DAYS, until_s // _DAY_S + _MARGIN_DAYS + 1
    days = matching_days(fields, from_day, until_day)
    walls = (days[:, None] * _DAY_S + times_of_day(fields)[None, :]).ravel()
    changes = read_zone(times.zone).changes((from_day - 1) * _DAY_S, (until_day + 1) * _DAY_S)
    first, last = _instants(walls, changes)
    exists = first <= last
    if fields.is_elapsed or times.fold == "both":
        chosen = np.concatenate([first[exists], last[exists]])
    else:
        chosen = (last if times.fold == "last" else first)[exists]
    own = _within(chosen, after_s, until_s)
    ends = np.empty(0, dtype=np.int64)
    if not fields.is_elapsed:
        ends = np.setdiff1d(_within(_gap_ends(walls[~exists], changes), after_s, until_s), own, assume_unique=True)
    times_s = np.concatenate([own, ends])
    in_gap = np.concatenate([np.zeros(len(own), dtype=np.bool_), np.full(len(ends), times.gap == "skip")])
    order = np.argsort(times_s, kind="stable")
    return NominalTimes(times_s[order] * _SECOND_MS, in_gap[order])


def _instants(walls: Seconds, changes: ClockChanges) -> tuple[Seconds, Seconds]:
    """Returns the first and the last instant of each wall-clock time. The first is above the last if the wall-clock
    time has no instant."""
    first = np.full(len(walls), np.iinfo(np.int64).max, dtype=np.int64)
    last = np.full(len(walls), np.iinfo(np.int64).min, dtype=np.int64)
    for offset_s in np.unique(changes.offsets_s):
        instants = walls - offset_s
        is_real = changes.offsets_s[np.searchsorted(changes.at_s, instants, side="right")] == offset_s
        first = np.where(is_real & (instants < first), instants, first)
        last = np.where(is_real & (instants > last), instants, last)
    return first, last


def _gap_ends(walls: Seconds, changes: ClockChanges) -> Seconds:
    """Returns the ends of the gaps that contain the wall-clock times without an instant."""
    forward = changes.offsets_s[1:] > changes.offsets_s[:-1]
    starts = (changes.at_s + changes.offsets_s[:-1])[forward]
    ends = (changes.at_s + changes.offsets_s[1:])[forward]
    index = np.searchsorted(starts, walls, side="right") - 1
    found = (index >= 0) & (walls < ends[np.maximum(index, 0)]) if len(starts) else np.zeros(len(walls), dtype=np.bool_)
    return np.unique(changes.at_s[forward][index[found]])


def _within(instants: Seconds, after_s: int, until_s: int) -> Seconds:
    return np.unique(instants[(instants > after_s) & (instants <= until_s)])
