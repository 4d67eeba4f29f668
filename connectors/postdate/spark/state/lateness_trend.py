"""The trend of the lateness: its figures for each day, from the rows of a state."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from postdate.spark.judging.summary import lateness_columns, lateness_of


@dataclass(frozen=True)
class TrendDay:
    """One UTC day: the number of messages due on this day that were `delivered`, and the figures of their lateness,
    which are empty if no message was delivered."""

    day: date
    delivered: int = 0
    lateness_ms: dict[str, int] = field(default_factory=dict)


def lateness_trend(origins: DataFrame, last: date, days: int) -> tuple[TrendDay, ...]:
    """Returns one entry for each day from the first to the last day with a delivery, in order.

    The function considers the `days` days that end with `last`. Percentiles are exact. Cost: reads two columns of the
    rows of these days; each task has a hash table of the distinct values for each day.
    """
    first = last - timedelta(days=days - 1)
    delivered = origins.where(F.col("due_day").between(first, last) & (F.col("fate") == "delivered"))
    rows = delivered.groupBy("due_day").agg(F.count("*").alias("delivered"), *lateness_columns()).collect()
    by_day = {row["due_day"]: TrendDay(row["due_day"], row["delivered"], lateness_of(row)) for row in rows}
    if not by_day:
        return ()
    between = (max(by_day) - min(by_day)).days + 1
    return tuple(by_day.get(day, TrendDay(day)) for day in (min(by_day) + timedelta(days=n) for n in range(between)))
