"""The chart data of an audit: the lateness; and accepted, delivered and pending messages over time.

Aggregates DataFrames to small tables, of at most `PICTURE_STEPS` rows each. Cost: three queries over the judged rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from postdate.spark.limits import PICTURE_STEPS

LATENESS_EDGES_MS: Final = (
    *(0, 1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000, 3_600_000),
)
"""The lower edges of the steps of the histogram. The last step has no upper edge."""
_STEPS_MS: Final = (1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 10_800_000, 43_200_000, 86_400_000)


@dataclass(frozen=True)
class TimeStep:
    """One time step: the numbers of schedule requests that were accepted, delivered and ended in it, and the number of
    those that were pending at its end."""

    start_ms: int
    accepted: int
    delivered: int
    ended: int
    pending: int


@dataclass(frozen=True)
class AuditPicture:
    """The chart data of an audit. `lateness` has the number of messages for each step of `LATENESS_EDGES_MS`. `moments`
    are time steps of the length `step_ms`, in ascending order."""

    lateness: tuple[int, ...]
    step_ms: int
    moments: tuple[TimeStep, ...]


def audit_picture(judged: DataFrame) -> AuditPicture:
    """Returns the chart data of judged rows."""
    edges = F.array(*(F.lit(edge).cast("bigint") for edge in LATENESS_EDGES_MS))
    step = F.size(F.filter(edges, lambda edge: edge <= F.col("lateness_ms"))) - 1
    counted = judged.where("lateness_ms >= 0").groupBy(step.alias("step")).count().collect()
    lateness = {row["step"]: row["count"] for row in counted}
    step_ms, moments = _moments(judged)
    return AuditPicture(tuple(lateness.get(number, 0) for number in range(len(LATENESS_EDGES_MS))), step_ms, moments)


def _moments(judged: DataFrame) -> tuple[int, tuple[TimeStep, ...]]:
    requests = judged.where((F.col("action") == "schedule") & F.col("request_ms").isNotNull())
    accepted = requests.select(F.col("request_ms").alias("at_ms"), F.lit(1).alias("accepted"))
    ended = requests.where("ended_ms is not null").select(
        F.col("ended_ms").alias("at_ms"),
        F.lit(1).alias("ended"),
        F.when(F.col("fate") == "delivered", 1).otherwise(0).alias("delivered"),
    )
    changes = accepted.unionByName(ended, allowMissingColumns=True)
    ends = changes.agg(F.min("at_ms").alias("first"), F.max("at_ms").alias("last")).collect()[0]
    if ends["first"] is None:
        return _STEPS_MS[0], ()
    span_ms = ends["last"] - ends["first"]
    step_ms = next((size for size in _STEPS_MS if span_ms // size < PICTURE_STEPS - 1), 0)
    step_ms = step_ms or -(-span_ms // ((PICTURE_STEPS - 1) * _STEPS_MS[-1])) * _STEPS_MS[-1]
    start = F.col("at_ms") - F.pmod("at_ms", F.lit(step_ms).cast("bigint"))
    totals = (F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("accepted", "delivered", "ended"))
    rows = {row["start"]: row for row in changes.groupBy(start.alias("start")).agg(*totals).collect()}
    moments, pending = [], 0
    for start_ms in range(min(rows), max(rows) + 1, step_ms):
        row = rows.get(start_ms)
        accepted_now, delivered_now, ended_now = (row["accepted"], row["delivered"], row["ended"]) if row else (0, 0, 0)
        pending += accepted_now - ended_now
        moments.append(TimeStep(start_ms, accepted_now, delivered_now, ended_now, pending))
    return step_ms, tuple(moments)
