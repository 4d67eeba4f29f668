"""What a case measured: named figures with their unit, over its repeats, and the target each is held against.

Pure; thread rule: none.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from postdate.kafka.limits import SESSION_TIMEOUT_MS

Figures = Mapping[str, float]
"""One repeat: figure -> value. The unit is the end of the name: `_per_s`, `_ms`, `_s`, `_mb`, `_bytes`, `_share`."""

Lateness = npt.NDArray[np.float64]
"""ms, one number a message, in no order."""

_PERCENTILES = (("p50", 50.0), ("p99", 99.0), ("p99_9", 99.9))


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure should be: at most or at least `bound`."""

    bound: float
    at_most: bool

    def is_met(self, value: float) -> bool:
        """Whether a median keeps it."""
        return value <= self.bound if self.at_most else value >= self.bound

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of one case over all repeats."""

    case: str
    name: str
    values: tuple[float, ...]
    target: Target | None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def is_met(self) -> bool | None:
        """None where nothing is asked of it."""
        return None if self.target is None else self.target.is_met(self.median)


TARGETS: Mapping[tuple[str, str], Target] = {
    ("intake", "of_consumption_share"): Target(0.7, at_most=False),
    ("through", "of_copy_share"): Target(0.75, at_most=False),
    ("drain", "of_copy_share"): Target(1.0, at_most=False),
    ("long", "of_copy_share"): Target(0.5, at_most=False),
    ("cancel", "of_copy_share"): Target(0.5, at_most=False),
    ("rebuild", "entries_per_s"): Target(60_000.0, at_most=False),
    ("rebuild", "repeated"): Target(0.0, at_most=True),
    ("rebuild", "early"): Target(0.0, at_most=True),
    ("hand-over", "planned_late_most_ms"): Target(2_000.0, at_most=True),
    ("hand-over", "crash_late_most_ms"): Target(SESSION_TIMEOUT_MS + 2_000.0, at_most=True),
    ("hand-over", "static_restart_late_most_ms"): Target(5_000.0, at_most=True),
    ("many", "arrival_p99_ms"): Target(50.0, at_most=True),
    ("many", "idle_core_share"): Target(0.02, at_most=True),
    ("bad target", "disturbed_of_undisturbed_p99_share"): Target(1.5, at_most=True),
    ("burst", "of_copy_share"): Target(0.8, at_most=False),
    ("burst", "others_late_most_ms"): Target(1_000.0, at_most=True),
    ("steady 1000/s", "arrival_p50_ms"): Target(8.0, at_most=True),
    ("steady 1000/s", "arrival_p99_ms"): Target(20.0, at_most=True),
    ("steady 1000/s", "arrival_p99_9_ms"): Target(60.0, at_most=True),
    ("steady 10000/s", "arrival_p50_ms"): Target(8.0, at_most=True),
    ("steady 10000/s", "arrival_p99_ms"): Target(20.0, at_most=True),
    ("steady 10000/s", "arrival_p99_9_ms"): Target(60.0, at_most=True),
    ("held", "memory_mb"): Target(400.0, at_most=True),
    ("held", "disk_beyond_payload_bytes"): Target(80.0, at_most=True),
    ("held", "idle_core_share"): Target(0.01, at_most=True),
    ("held", "restart_after_stop_s"): Target(2.0, at_most=True),
    ("held", "restart_after_kill_s"): Target(5.0, at_most=True),
}
"""What is asked for on `REFERENCE`; the rest is reported only."""

REFERENCE = "two cores that broker, load and sidecar share"
"""The machine for which the targets are meant."""


def gather(case: str, repeats: Sequence[Figures]) -> list[Figure]:
    """The figures of a case, in the order in which it gave them. Requires at least one repeat."""
    return [Figure(case, name, tuple(each[name] for each in repeats), TARGETS.get((case, name))) for name in repeats[0]]


def percentiles(prefix: str, late: Lateness) -> dict[str, float]:
    """The percentiles over all values, with the largest. Requires at least one."""
    named = {f"{prefix}_{name}_ms": float(np.percentile(late, share)) for name, share in _PERCENTILES}
    return named | {f"{prefix}_most_ms": float(late.max())}
