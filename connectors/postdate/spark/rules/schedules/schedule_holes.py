"""Holes in the numbers of a schedule: occurrences, or extra deliveries, between two fates of which the log has none.

A hole is `missing`, unless the dispatch log may have lost fates of the schedule; then it is `unsettled`. Dead letters
of the times in such a hole may remain, so these times are kept.

Pure Python. Nothing of Spark is imported.
"""

from __future__ import annotations

from postdate.spark.rules.schedules.schedule_events import Asked, Bounds, Fate, Position
from postdate.spark.rules.schedules.schedule_findings import Findings


class Holes:
    """`lost_before_ms`: fates of the schedule before this time may have left the log; 0 if none has."""

    def __init__(self, asked: Asked, bounds: Bounds) -> None:
        lost_ms = bounds.fates_lost_before_ms
        self.lost_before_ms = lost_ms if asked.request_ms < lost_ms else 0
        self._lost_ms: list[tuple[int, int]] = []  # the first time without a fate in the log, and the next with one

    def judge(self, fate: Fate, at: Position, due_ms: int, findings: Findings, *, may_be_lost: bool) -> None:
        """Judge the numbers between the position `at` and a fate. `due_ms`: the time of the fate's first number, 0: it
        is unknown."""
        size = fate.number - at.number
        if may_be_lost:
            findings.leave("unsettled", size)
        else:
            last = f" to {fate.number - 1}" if size > 1 else ""
            said = f"occurrence {at.number}{last} has no fate, due from {at.next_ms}"
            findings.find("missing", "missing", said, size)
        if at.next_ms and self.lost_before_ms:
            self._lost_ms.append((at.next_ms, due_ms))
        findings.is_sound = True

    def counted(self, due_ms: int) -> int:
        """Return how many `unsettled` holes contain `due_ms`."""
        return sum(first <= due_ms < behind for first, behind in self._lost_ms)
