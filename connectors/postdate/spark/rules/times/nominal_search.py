"""Finds the next nominal time of a schedule, and computes all nominal times of a range (a *stretch*) at once for this.

Pure Python with numpy. Memory: the nominal times of one stretch.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from postdate.spark.limits import NOMINAL_MS_MAX, NOMINAL_SEARCH_MS_MAX
from postdate.spark.rules.times.cron_fields import read_cron, times_of_day
from postdate.spark.rules.times.nominal_times import CronTimes, IntervalTimes, nominal_times

_DAY_MS: Final = 86_400_000
# The wanted number of nominal times in a stretch, and the bounds of the days that a stretch spans.
_TIMES_WANTED: Final = 8_192
_DAYS_MIN: Final = 1
_DAYS_MAX: Final = 400


class NominalSearch:
    """The nominal times of one schedule. Searches should go forwards: a search before the present stretch computes
    another stretch."""

    def __init__(self, times: CronTimes | IntervalTimes, last_ms: int | None, *, has_gaps: bool) -> None:
        """No nominal time is later than `last_ms`. Without `has_gaps`, times that the schedule skips are left out.

        Raises ValueError if `times` cannot be read.
        """
        self._times = times
        self._last_ms = NOMINAL_MS_MAX if last_ms is None else min(last_ms, NOMINAL_MS_MAX)
        self._low_ms = self._high_ms = 0
        self._has_gaps = has_gaps
        self._found = np.empty(0, dtype=np.int64)
        self._in_gap = np.empty(0, dtype=np.bool_)
        self._stretch_ms = _stretch_ms(times)

    def after(self, ms: int) -> tuple[int, bool] | None:
        """Returns the first nominal time after `ms`, and whether the schedule skips it because it lies in a gap.

        Returns None if there is none up to the end of the schedule, or none within 50 years. Cost: a binary search, and
        the computation of each new stretch.
        """
        if not self._low_ms <= ms < self._high_ms:
            self._compute(ms)
        until_ms = min(self._last_ms, ms + NOMINAL_SEARCH_MS_MAX)
        while True:
            index = int(np.searchsorted(self._found, ms, side="right"))
            if index < len(self._found):
                found_ms = int(self._found[index])
                return (found_ms, bool(self._in_gap[index])) if found_ms <= until_ms else None
            if self._high_ms >= until_ms:
                return None
            self._compute(self._high_ms)

    def _compute(self, low_ms: int) -> None:
        """Computes the nominal times of the stretch after `low_ms`."""
        self._low_ms, self._high_ms = low_ms, low_ms + self._stretch_ms
        blocks = [*nominal_times(self._times, low_ms, min(self._high_ms, NOMINAL_MS_MAX))]
        self._found = np.concatenate([self._found[:0], *(block.times_ms for block in blocks)])
        self._in_gap = np.concatenate([self._in_gap[:0], *(block.in_gap for block in blocks)])
        if not self._has_gaps:
            self._found, self._in_gap = self._found[~self._in_gap], self._in_gap[~self._in_gap]


def _stretch_ms(times: CronTimes | IntervalTimes) -> int:
    if isinstance(times, IntervalTimes):
        return times.every_ms * _TIMES_WANTED
    a_day = len(times_of_day(read_cron(times.cron)))
    return min(max(_TIMES_WANTED // a_day, _DAYS_MIN), _DAYS_MAX) * _DAY_MS
