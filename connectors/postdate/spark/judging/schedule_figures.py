"""Sums up the findings of an audit about recurring schedules, in total and for each schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN
from postdate.spark.output.lateness import FIGURES, PERCENTILES
from postdate.spark.rules.schedules.schedule_events import Figures

COUNTS: Final = Figures._fields
"""The names of the numbers of occurrences."""
PROBLEMS: Final = ("missing", "extra", "early", "repeated", "wrongly_skipped", "out_of_policy", "mismatched")
"""The names of the numbers that count violations."""


@dataclass(frozen=True)
class ScheduleFigures:
    """One schedule: the numbers of its occurrences since the first one, and the lateness of those that this run judged.

    `next_ms` is the nominal time of the next occurrence, or None if there is no next occurrence.
    """

    origin: str
    target: str | None
    fate: str | None
    next_ms: int | None
    occurrences: dict[str, int]
    lateness_ms: dict[str, int]


@dataclass(frozen=True)
class SchedulesSummary:
    """The schedules that a run has judged: their number, the numbers of occurrences that this run judged, and some of
    the schedules, those with problems first."""

    judged: int
    occurrences: dict[str, int]
    each: tuple[ScheduleFigures, ...]


def schedule_figures(judged: DataFrame, each_max: int) -> SchedulesSummary:
    """Returns the figures of the schedules among `judged` rows, and describes at most `each_max` schedules. Cost: two
    jobs."""
    rows = judged.where("occurrences is not null").withColumn("late", F.sort_array("occurrences.lateness_ms"))
    overdue = F.when(F.array_contains("verdicts", "missing"), F.col("occurrences.overdue")).otherwise(0)
    sums = rows.agg(
        F.count("*").alias("judged"),
        F.sum(overdue).alias("overdue"),
        *(F.sum(f"occurrences.added.{name}").alias(name) for name in COUNTS),
    ).collect()[0]
    is_sound = F.size("position.problems") == 0
    first = (
        rows.select(
            *(*ORIGIN, "target", "fate", "position.next_ms", "position.figures"),
            *(overdue.alias("overdue"), is_sound.alias("is_sound")),
            *(F.try_element_at("late", _rank(share)).alias(name) for name, share in (*PERCENTILES, (FIGURES[-1], 1.0))),
        )
        .orderBy("is_sound", *ORIGIN)
        .limit(each_max)
        .collect()
    )
    return SchedulesSummary(sums["judged"], _counts(sums, sums["overdue"] or 0), tuple(map(_of_row, first)))


def _rank(share: float) -> Column:
    """Returns the index of a percentile among sorted values, by nearest rank."""
    return F.greatest(F.ceil(F.size("late") * F.lit(share)), F.lit(1)).cast("int")


def _counts(figures: Row, overdue: int) -> dict[str, int]:
    """Returns the numbers of occurrences by name. Overdue occurrences count as missing."""
    counts = {name: figures[name] or 0 for name in COUNTS}
    return {**counts, "missing": counts["missing"] + overdue}


def _of_row(row: Row) -> ScheduleFigures:
    origin, late = f"{row['topic']}/{row['partition']}/{row['offset']}", {name: row[name] for name in FIGURES}
    late = {name: value for name, value in late.items() if value is not None}
    counts = _counts(row["figures"], row["overdue"])
    return ScheduleFigures(origin, row["target"], row["fate"], row["next_ms"] or None, counts, late)
