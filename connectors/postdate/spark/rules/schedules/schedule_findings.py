"""The findings of the judge of a recurring schedule: figures, problems, lateness, reasons for unverified occurrences.

The occurrences and the extra deliveries of each control have separate findings. `include` adds those of a control to
those of the occurrences.

Pure Python without Spark.
"""

from __future__ import annotations

from postdate.spark.limits import SCHEDULE_PROBLEMS_MAX
from postdate.spark.rules.schedules.schedule_events import Figures


class Findings:
    """The findings about one series of numbers. The judge sets `is_sound` to True before it judges a fate, and each
    finding sets it to False. `problems` are pairs of verdict and sentence."""

    def __init__(self, problems: tuple[tuple[str, str], ...] = (), reasons: tuple[tuple[str, int], ...] = ()) -> None:
        self.counts = dict.fromkeys(Figures._fields, 0)
        self.problems = [*problems]
        self.reasons = dict(reasons)
        self.lateness_ms: list[int] = []
        self.is_sound = True

    def count(self, figure: str, size: int = 1) -> None:
        self.counts[figure] += size

    def find(self, figure: str | None, verdict: str, text: str, size: int = 1) -> None:
        """Records a problem, and adds `size` to the figure `figure`, unless `problems` has the problem already."""
        self.is_sound = False
        problem = verdict, text
        if problem in self.problems:
            return
        if figure is not None:
            self.count(figure, size)
        if len(self.problems) < SCHEDULE_PROBLEMS_MAX:
            self.problems.append(problem)

    def leave(self, reason: str, size: int) -> None:
        """Records that `size` occurrences cannot be verified for this reason."""
        self.is_sound = False
        self.count("unverifiable", size)
        self.reasons[reason] = self.reasons.get(reason, 0) + size

    def include(self, other: Findings, whose: str) -> None:
        """Adds the findings about a part of the schedule. `whose` becomes the prefix of each sentence."""
        for verdict, text in other.problems:
            self.find(None, verdict, f"{whose}: {text}")
        for figure, count in other.counts.items():
            self.count(figure, count)
        for reason, count in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + count
        self.lateness_ms += other.lateness_ms
