"""The figures of a case: names with units, values over all runs, and targets.

Pure; thread rule: none.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from postdate.kafka.limits import SESSION_TIMEOUT_MS
from postdate.tools.bench.limits import MEDIAN_SPREAD_MAX

Figures = Mapping[str, float]
"""One run: figure → value. The unit is the end of the name: `_per_s`, `_ms`, `_us`, `_s`, `_mb`, `_bytes`, `_share`. A
figure without such an end is a number of messages."""

Lateness = npt.NDArray[np.float64]
"""Milliseconds: one number for each message, in no particular order."""

_PERCENTILES = (("p50", 50.0), ("p99", 99.0), ("p99_9", 99.9))


@dataclass(frozen=True, slots=True)
class Threshold:
    """The target of a figure: at most or at least `bound`."""

    bound: float
    at_most: bool

    def is_met(self, value: float) -> bool:
        """True if `value`, a median, meets the target."""
        return value <= self.bound if self.at_most else value >= self.bound

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of one case over all repeats."""

    case: str
    name: str
    values: tuple[float, ...]
    target: Threshold | None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def is_met(self) -> bool | None:
        """Whether the median meets the target; None if the figure has no target."""
        return None if self.target is None else self.target.is_met(self.median)


TARGETS: Mapping[tuple[str, str], Threshold] = {
    ("intake", "of_consumption_share"): Threshold(1.0, at_most=False),
    ("through", "of_copy_share"): Threshold(0.75, at_most=False),
    ("through", "sidecar_cpu_us"): Threshold(14.0, at_most=True),
    **{
        (case, "long_transactions_share"): Threshold(0.005, at_most=True)
        for case in ("long", "through", "cancel", "drain", "burst")
    },
    ("drain", "of_copy_share"): Threshold(1.0, at_most=False),
    ("long", "of_copy_share"): Threshold(0.5, at_most=False),
    ("cancel", "of_copy_share"): Threshold(0.4, at_most=False),
    ("rebuild", "entries_per_s"): Threshold(80_000.0, at_most=False),
    ("rebuild", "repeated"): Threshold(0.0, at_most=True),
    ("rebuild", "early"): Threshold(0.0, at_most=True),
    ("hand-over", "planned_late_most_ms"): Threshold(2_000.0, at_most=True),
    ("hand-over", "crash_late_most_ms"): Threshold(SESSION_TIMEOUT_MS + 2_000.0, at_most=True),
    ("hand-over", "static_restart_late_most_ms"): Threshold(5_000.0, at_most=True),
    ("many", "arrival_p99_of_raw_share"): Threshold(1.5, at_most=True),
    ("many", "idle_core_share"): Threshold(0.015, at_most=True),
    ("bulk", "cancelled_per_s"): Threshold(50_000.0, at_most=False),
    ("bulk", "disturbed_of_undisturbed_p99_share"): Threshold(1.5, at_most=True),
    ("schedules once", "memory_mb"): Threshold(400.0, at_most=True),
    ("schedules once", "occurrences_per_s"): Threshold(20_000.0, at_most=False),
    ("schedules 1000/s", "occurrence_of_message_p99_share"): Threshold(1.2, at_most=True),
    ("bad target", "disturbed_of_undisturbed_p99_share"): Threshold(1.5, at_most=True),
    ("burst", "of_copy_share"): Threshold(0.9, at_most=False),
    ("burst", "others_late_most_ms"): Threshold(300.0, at_most=True),
    **{
        (f"steady {rate}/s", figure): Threshold(bound, at_most=True)
        for rate in (1_000, 3_000, 10_000)
        for figure, bound in (
            ("arrival_p50_of_raw_share", 1.2),
            ("arrival_p99_of_raw_share", 1.2),
            ("long_transactions_share", 0.0),
        )
    },
    ("steady 1000/s", "core_share"): Threshold(0.25, at_most=True),
    ("held", "memory_mb"): Threshold(400.0, at_most=True),
    ("held", "disk_beyond_payload_bytes"): Threshold(80.0, at_most=True),
    ("held", "idle_core_share"): Threshold(0.01, at_most=True),
    ("held", "restart_after_stop_s"): Threshold(2.0, at_most=True),
    ("held", "restart_after_kill_s"): Threshold(2.0, at_most=True),
}
"""The targets on `REFERENCE`; figures without a target are only reported."""

_MAIN = (
    "occurrences_per_s",
    "occurrence_of_message_p99_share",
    "of_copy_share",
    "of_consumption_share",
    "arrival_p99_ms",
    "entries_per_s",
    "cancelled_per_s",
)
"""The main figures. The first of them that a case has determines the number of its repeats."""


def is_precise(repeats: Sequence[Figures]) -> bool:
    """True if half the 95 % confidence interval of the median of the case's main figure is at most MEDIAN_SPREAD_MAX of
    that median. A single run is never precise; a case without a main figure always is. Source: the standard error of a
    median of normally distributed values, 1.2533 s / √n."""
    for name in _MAIN:
        if name in repeats[0]:
            values = [repeat[name] for repeat in repeats]
            if len(values) < 2:
                return False
            half = 1.96 * 1.2533 * statistics.stdev(values) / math.sqrt(len(values))
            return half <= MEDIAN_SPREAD_MAX * statistics.median(values)
    return True


REFERENCE = "two cores that broker, load and sidecar share"
"""The machine to which the targets apply."""


def gather(case: str, repeats: Sequence[Figures]) -> list[Figure]:
    """Returns the figures of a case over all repeats, in the case's order. Requires at least one repeat."""
    return [Figure(case, name, tuple(each[name] for each in repeats), TARGETS.get((case, name))) for name in repeats[0]]


def percentiles(prefix: str, late: Lateness) -> dict[str, float]:
    """Returns the percentiles of all values, and the largest value. Requires at least one value."""
    named = {f"{prefix}_{name}_ms": float(np.percentile(late, share)) for name, share in _PERCENTILES}
    return named | {f"{prefix}_most_ms": float(late.max())}
