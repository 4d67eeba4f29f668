"""From judged rows to what is told of them: counts by verdict, lateness percentiles, samples of violations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from postdate.connectors.spark.verdicts import VERDICTS, VIOLATIONS

PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999))
"""Names as in the output, and the share of values that are not larger."""


@dataclass(frozen=True)
class Sample:
    """One violation: the origin (or the place of a dispatch-log record) and what is wrong, for a person."""

    origin: str
    details: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Summary:
    """What an audit found. `lateness_ms` is empty where nothing was delivered."""

    rows: int
    counts: dict[str, int]
    lateness_ms: dict[str, int]
    samples: dict[str, list[Sample]]

    @property
    def violations(self) -> int:
        """How often a rule was broken; an origin that breaks two counts twice."""
        return sum(self.counts[verdict] for verdict in VIOLATIONS)


def summarise(judged: DataFrame, breaks: DataFrame, malformed: DataFrame, samples_max: int) -> Summary:
    """Counts, percentiles over all values (nearest rank, no estimate) and up to `samples_max` samples a verdict.

    `malformed` has the `place` of each verdict record that is none.
    """
    exact = (F.expr(f"percentile_disc({share}) WITHIN GROUP (ORDER BY lateness_ms)") for _, share in PERCENTILES)
    names = [name for name, _ in PERCENTILES]
    totals = judged.agg(
        F.count("*").alias("rows"),
        F.count("lateness_ms").alias("count"),
        F.max("lateness_ms").alias("max"),
        *(column.alias(name) for column, name in zip(exact, names, strict=True)),
    ).collect()[0]
    counts = dict.fromkeys(VERDICTS, 0)
    for row in judged.select(F.explode("verdicts").alias("verdict")).groupBy("verdict").count().collect():
        counts[row["verdict"]] = row["count"]
    counts["chain"] = breaks.count()
    unreadable = malformed.count()
    counts["false-verdict"] += unreadable
    lateness = {name: int(totals[name]) for name in (*names, "max")} if totals["count"] else {}
    samples = _samples(judged, samples_max) if any(counts[name] for name in VIOLATIONS) and samples_max else {}
    if counts["chain"] and samples_max:
        samples["chain"] = _chain_samples(breaks, samples_max)
    if unreadable and samples_max:
        found = samples.setdefault("false-verdict", [])
        found += _malformed_samples(malformed, samples_max - len(found))
    return Summary(totals["rows"], counts, lateness, samples)


def _samples(judged: DataFrame, samples_max: int) -> dict[str, list[Sample]]:
    named = judged.select("*", F.explode("verdicts").alias("verdict")).where(F.col("verdict").isin(*VIOLATIONS))
    by_origin = Window.partitionBy("verdict").orderBy("topic", "partition", "offset")
    first = named.withColumn("place", F.row_number().over(by_origin)).where(F.col("place") <= samples_max)
    found: dict[str, list[Sample]] = {}
    for row in first.orderBy("verdict", "place").collect():
        origin = f"{row['topic']}/{row['partition']}/{row['offset']}"
        shown = ("target", "action", "fate", "first_due_ms", "last_due_ms", "ended_ms", "records", "fates", "answers")
        sample = Sample(origin, tuple(row["details"]), {name: row[name] for name in shown})
        found.setdefault(row["verdict"], []).append(sample)
    return found


def _chain_samples(breaks: DataFrame, samples_max: int) -> list[Sample]:
    rows = breaks.orderBy("topic", "partition", "log_offset").limit(samples_max).collect()
    return [Sample(f"{row['log_topic']}/{row['partition']}/{row['log_offset']}", (row["problem"],)) for row in rows]


def _malformed_samples(malformed: DataFrame, samples_max: int) -> list[Sample]:
    rows = malformed.orderBy("place").limit(samples_max).collect()
    return [Sample(row["place"], ("is no verdict of a request of this partition",)) for row in rows]
