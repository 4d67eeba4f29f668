"""From judged rows to what is told of them: counts by verdict, lateness percentiles, samples of violations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
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


@dataclass(frozen=True)
class Plain:
    """Origins that were found plain and have no row: how many by verdict, and the `lateness_ms` of each message."""

    counts: Mapping[str, int]
    lateness: DataFrame


@dataclass(frozen=True)
class Counted:
    """What is known already: how many judged rows have which verdicts, and how many a lateness; breaks of the chain,
    and verdict records that are none."""

    by_verdicts: Sequence[tuple[Sequence[str], int]]
    late: int
    breaks: int
    malformed: int


def summarise(
    judged: DataFrame | None,
    breaks: DataFrame,
    malformed: DataFrame,
    samples_max: int,
    plain: Plain | None = None,
    counted: Counted | None = None,
) -> Summary:
    """Counts, percentiles over all values (nearest rank, no estimate) and up to `samples_max` samples a verdict.

    `judged` and `plain` are of different origins. `malformed` has the `place` of each verdict record that is none. What
    is `counted` is not counted again.
    """
    counts = dict.fromkeys(VERDICTS, 0) | dict(plain.counts if plain is not None else {})
    rows, lateness = sum(counts.values()), [plain.lateness] if plain is not None else []
    if judged is not None:
        for verdicts, count in counted.by_verdicts if counted is not None else _by_verdicts(judged):
            rows += count
            for verdict in verdicts:
                counts[verdict] += count
        if counted is None or counted.late:
            lateness.append(judged.where("lateness_ms is not null").select("lateness_ms"))
    counts["chain"] = counted.breaks if counted is not None else breaks.count()
    unreadable = counted.malformed if counted is not None else malformed.count()
    counts["false-verdict"] += unreadable
    samples = {}
    if judged is not None and any(counts[name] for name in VIOLATIONS) and samples_max:
        samples = _samples(judged, samples_max)
    if counts["chain"] and samples_max:
        samples["chain"] = _chain_samples(breaks, samples_max)
    if unreadable and samples_max:
        found = samples.setdefault("false-verdict", [])
        found += _malformed_samples(malformed, samples_max - len(found))
    return Summary(rows, counts, _percentiles(lateness), samples)


def _by_verdicts(judged: DataFrame) -> list[tuple[Sequence[str], int]]:
    return [
        (row["verdicts"], row["rows"]) for row in judged.groupBy("verdicts").agg(F.count("*").alias("rows")).collect()
    ]


def _percentiles(lateness: Sequence[DataFrame]) -> dict[str, int]:
    """By name, and `max`; empty where there are no values. Cost: one shuffle of as many rows as there are values."""
    if not lateness:
        return {}
    counted = reduce(DataFrame.unionByName, lateness).groupBy("lateness_ms").agg(F.count("*").alias("rows"))
    all_of_them = Window.partitionBy(F.lit(0)).orderBy("lateness_ms")
    below = F.sum("rows").over(all_of_them.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    total = F.sum("rows").over(all_of_them.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing))
    ranked = counted.select("lateness_ms", below.alias("below"), total.alias("total"))
    found = ranked.agg(
        F.max("lateness_ms").alias("max"),
        *(
            F.min(F.when(F.col("below") * 1_000 >= F.col("total") * round(share * 1_000), F.col("lateness_ms"))).alias(
                name
            )
            for name, share in PERCENTILES
        ),
    ).collect()[0]
    return {} if found["max"] is None else {name: int(found[name]) for name in (*dict(PERCENTILES), "max")}


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
