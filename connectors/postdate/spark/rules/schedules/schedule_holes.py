"""Holes in the numbers of a schedule: occurrences or extra deliveries without a fate, before one that has a fate.

A hole is `unsettled` if the dispatch log may have lost fates of the schedule, and otherwise `missing`. If the log may
have lost fates, dead letters of the times in a hole may remain, so these times are kept.

Pure Python without Spark.
"""

from __future__ import annotations

from bisect import bisect_right, insort

from postdate.spark.rules.schedules.schedule_events import Bounds, Fate, Position, ScheduleRequest
from postdate.spark.rules.schedules.schedule_findings import Findings


class Holes:
    """The holes of one schedule. Fates of the schedule before `lost_before_ms` may have left the log; 0 if none has.

    `are_lost` is True if a hole is `unsettled`.
    """

    def __init__(self, request: ScheduleRequest, bounds: Bounds) -> None:
        lost_ms = bounds.fates_lost_before_ms
        self.lost_before_ms = lost_ms if request.request_ms < lost_ms else 0
        self.are_lost = False
        # For each kept hole, the first possible time, and the end (excluded) of its possible times.
        self._first_ms: list[int] = []
        self._behind_ms: list[int] = []

    def judge(
        self, fate: Fate, position: Position, times_ms: tuple[int, int], findings: Findings, *, may_be_lost: bool
    ) -> None:
        """Judges the numbers between `position` and a fate.

        Their times lie in the range `times_ms`. The start is 0 if it is unknown, and the end is excluded.
        """
        size = fate.number - position.number
        if may_be_lost:
            findings.leave("unsettled", size)
            self.are_lost = True
        else:
            last = f" to {fate.number - 1}" if size > 1 else ""
            text = f"occurrence {position.number}{last} has no fate, due from {position.next_ms}"
            findings.find("missing", "missing", text, size)
        if self.lost_before_ms and 0 < times_ms[0] < times_ms[1]:
            insort(self._first_ms, times_ms[0])
            insort(self._behind_ms, times_ms[1])
        findings.is_sound = True

    def counted(self, due_ms: int) -> int:
        """Returns the number of kept holes that contain `due_ms`."""
        return bisect_right(self._first_ms, due_ms) - bisect_right(self._behind_ms, due_ms)
