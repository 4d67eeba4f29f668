"""The load that requests add in each minute, hour or day, its busiest second, and its chart as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.limits import BARS_MAX, LOAD_STEPS_MAX
from postdate.spark.output.page import spelled_instant

_SECOND_MS = 1_000
_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS

_BAR = 40


@dataclass(frozen=True)
class LoadStep:
    """The load of one step, which begins at `start_ms` (epoch ms)."""

    start_ms: int
    rows: int
    size_bytes: int


@dataclass(frozen=True)
class LoadHistogram:
    """The steps of length `step_ms`, ascending; and the busiest second, None if there is no load. Only the result of
    `widened` has empty steps."""

    step_ms: int
    steps: tuple[LoadStep, ...]
    busiest: LoadStep | None

    def as_json(self) -> dict[str, Any]:
        """Returns the value of `load` in a job's JSON object."""
        busiest = vars(self.busiest) if self.busiest else None
        return {"step_ms": self.step_ms, "steps": [vars(step) for step in self.steps], "busiest_second": busiest}


NO_LOAD = LoadHistogram(_MINUTE_MS, (), None)


def load_by(due: DataFrame, step_ms: int) -> DataFrame:
    """Returns the load of each non-empty step: `start_ms`, `rows`, `size_bytes`, and the `busiest` second in it.

    `due` has the columns `due_ms`, `rows` and `size_bytes`. Cost: two aggregations, by second and by step.
    """
    both = (F.sum("rows").cast("bigint").alias("rows"), F.sum("size_bytes").cast("bigint").alias("size_bytes"))
    seconds = due.groupBy(_start(_SECOND_MS).alias("due_ms")).agg(*both)
    # Of several busiest seconds, the earliest wins: with equal loads, a later second compares as less.
    most = F.max(F.struct("rows", (-F.col("due_ms")).alias("before"), "size_bytes"))
    return seconds.groupBy(_start(step_ms).alias("start_ms")).agg(*both, most.alias("busiest"))


def gathered_load(due: DataFrame) -> LoadHistogram:
    """Returns the load of `due` by minute, or by hour or day if there are more than LOAD_STEPS_MAX steps. Cost: one job
    for each length of steps that it tries, which is nearly always one."""
    for step_ms in (_MINUTE_MS, _HOUR_MS, _DAY_MS):
        steps = load_by(due, step_ms).orderBy("start_ms").limit(LOAD_STEPS_MAX + 1).collect()
        if len(steps) <= LOAD_STEPS_MAX:
            break
    busiest = max((row["busiest"] for row in steps), default=None)
    return LoadHistogram(
        step_ms,
        tuple(LoadStep(row["start_ms"], row["rows"], row["size_bytes"]) for row in steps),
        LoadStep(-busiest["before"], busiest["rows"], busiest["size_bytes"]) if busiest is not None else None,
    )


def _start(step_ms: int) -> Column:
    return F.col("due_ms") - F.pmod(F.col("due_ms"), F.lit(step_ms).cast("bigint"))


def widened(load: LoadHistogram, steps_max: int) -> LoadHistogram:
    """Returns the same load for a chart: in at most `steps_max` steps, which include the empty steps between the first
    and the last."""
    if not load.steps:
        return load
    first_ms, last_ms = load.steps[0].start_ms, load.steps[-1].start_ms
    sizes_ms = (load.step_ms, *(n * _MINUTE_MS for n in (5, 15, 30)), *(n * _HOUR_MS for n in (1, 3, 6, 12)))
    step_ms = next(
        (size for size in sizes_ms if size >= load.step_ms and (last_ms - first_ms) // size < steps_max - 1),
        -(-(last_ms - first_ms + load.step_ms) // ((steps_max - 1) * _DAY_MS)) * _DAY_MS,
    )
    start_ms = first_ms - first_ms % step_ms
    filled: dict[int, list[LoadStep]] = {at: [] for at in range(start_ms, last_ms + 1, step_ms)}
    for step in load.steps:
        filled[step.start_ms - step.start_ms % step_ms].append(step)
    return LoadHistogram(step_ms, tuple(_sum(at, steps) for at, steps in filled.items()), load.busiest)


def _sum(at_ms: int, steps: Sequence[LoadStep]) -> LoadStep:
    return LoadStep(at_ms, sum(step.rows for step in steps), sum(step.size_bytes for step in steps))


def load_lines(load: LoadHistogram, what: str = "load added") -> list[str]:
    """Returns the lines of the chart: a heading, a bar for each of at most BARS_MAX equal steps, and the busiest
    second. Returns an empty list if there is no load."""
    drawn = widened(load, BARS_MAX)
    if not drawn.steps or load.busiest is None:
        return []
    most = max(step.rows for step in drawn.steps)
    lines = [f"{what}, in steps of {_spelled_ms(drawn.step_ms)} (UTC):"]
    lines += [_bar_line(step, most) for step in drawn.steps]
    lines.append(f"busiest second: {load.busiest.rows:,} rows at {spelled_instant(load.busiest.start_ms)}")
    return lines


def _bar_line(step: LoadStep, most: int) -> str:
    bar = "█" * max(1, round(_BAR * step.rows / most)) if step.rows else ""
    return f"  {spelled_instant(step.start_ms)[:16]} {step.rows:>12,} {bar}"


def _spelled_ms(length_ms: int) -> str:
    for size_ms, unit in ((86_400_000, "d"), (3_600_000, "h")):
        if length_ms % size_ms == 0:
            return f"{length_ms // size_ms} {unit}"
    return f"{length_ms // 60_000} min"
