"""Summarises judged rows: counts by verdict, lateness percentiles, samples of violations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import itemgetter
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from postdate.spark.judging.schedule_figures import SchedulesSummary, schedule_figures
from postdate.spark.limits import LOCAL_ROWS_MAX
from postdate.spark.output.lateness import FIGURES, PERCENTILES
from postdate.spark.rules.verdicts import INFORMATION, VERDICTS, VIOLATIONS
from postdate.spark.session.caching import gathered


@dataclass(frozen=True)
class Sample:
    """One violation: its origin or the place of its record, sentences about the problem, and `facts` about the
    origin."""

    origin: str
    details: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcomes:
    """The numbers of origins that are verified, that break a rule (`violated`), that could not be verified
    (`reasons`), and that are pending."""

    verified: int = 0
    violated: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    pending: int = 0

    @property
    def not_verifiable(self) -> int:
        return sum(self.reasons.values())

    @property
    def verified_share(self) -> float | None:
        """The share of verified origins among those that are not pending, 0 to 1; None without such origins."""
        total = self.verified + self.violated + self.not_verifiable
        return self.verified / total if total else None

    def with_unread(self, unread: Mapping[str, int]) -> Outcomes:
        """Returns these outcomes with the numbers of unread requests, by reason, added."""
        return replace(self, reasons=dict(Counter(self.reasons) + Counter(unread)))


@dataclass(frozen=True)
class Summary:
    """The findings of an audit. `lateness_ms` is empty if no lateness is known. `schedules` is None if no schedule was
    judged."""

    rows: int
    counts: dict[str, int]
    lateness_ms: dict[str, int]
    samples: dict[str, list[Sample]]
    outcomes: Outcomes = Outcomes()
    schedules: SchedulesSummary | None = None

    @property
    def violations(self) -> int:
        """The number of violations. An origin counts once for each of its different violations."""
        return sum(self.counts[verdict] for verdict in VIOLATIONS)


@dataclass(frozen=True)
class Plain:
    """Plain origins without a row: their number by verdict, and the `lateness_ms` of each delivered message."""

    counts: Mapping[str, int]
    lateness: DataFrame


@dataclass(frozen=True)
class VerdictGroup:
    """A number of judged `rows` with the same verdicts: `late` of them have a lateness, and `schedules` of them are
    schedules."""

    verdicts: Sequence[str]
    rows: int
    late: int
    schedules: int = 0


COUNTED: Final = {"rows": "*", "late": "lateness_ms", "schedules": "occurrences"}
"""The names of the numbers in a VerdictGroup, each with the column whose values it counts."""


@dataclass(frozen=True)
class UnreadableRecords:
    """The records that cannot be read. `verdicts` has the `place` of each malformed verdict record. `others` has the
    rows of `unreadable_dead_letters` and `unreadable_records`."""

    verdicts: DataFrame
    others: DataFrame


@dataclass(frozen=True)
class Counted:
    """Counts that are known already: judged rows by their verdicts, breaks of the chain, and malformed verdict
    records."""

    groups: Sequence[VerdictGroup]
    breaks: int
    malformed: int


def summarise(
    judged: DataFrame | None,
    breaks: DataFrame,
    unreadable: UnreadableRecords,
    samples_max: int,
    plain: Plain | None,
    counted: Counted,
) -> Summary:
    """Returns the counts, the exact percentiles over all values (nearest rank), and up to `samples_max` samples per
    verdict.

    `judged` and `plain` have different origins.
    """
    counts = dict.fromkeys(VERDICTS, 0) | dict(plain.counts if plain is not None else {})
    rows, lateness = sum(counts.values()), [plain.lateness] if plain is not None else []
    outcomes = Counter({_VERIFIED: rows - counts[_PENDING], _PENDING: counts[_PENDING]})
    for group in counted.groups:
        rows += group.rows
        outcomes[_outcome(group.verdicts)] += group.rows
        for verdict in group.verdicts:
            counts[verdict] += group.rows
    if judged is not None and any(group.late for group in counted.groups):
        lateness.append(judged.where("lateness_ms is not null").select("lateness_ms"))
    schedules = None
    if judged is not None and any(group.schedules for group in counted.groups):
        schedules = schedule_figures(judged, samples_max)
        if schedules.occurrences["occurred"]:
            lateness.append(judged.select(F.explode("occurrences.lateness_ms").alias("lateness_ms")))
    samples = {}
    if judged is not None and any(counts[name] for name in VIOLATIONS) and samples_max:
        samples = _samples(judged, samples_max)
    counts["chain"], counts["unreadable"] = counted.breaks, unreadable.others.count()
    counts["false-verdict"] += counted.malformed
    if counts["chain"] and samples_max:
        samples["chain"] = _chain_samples(breaks, samples_max)
    if counts["unreadable"] and samples_max:
        samples["unreadable"] = _placed_samples(unreadable.others, samples_max)
    if counted.malformed and samples_max:
        false_verdicts = samples.setdefault("false-verdict", [])
        false_verdicts += _malformed_samples(unreadable.verdicts, samples_max - len(false_verdicts))
    verified, violated, pending = (outcomes.pop(name, 0) for name in (_VERIFIED, _VIOLATED, _PENDING))
    sums = Outcomes(verified, violated, dict(outcomes), pending)
    return Summary(rows, counts, _percentiles(lateness, few=rows <= LOCAL_ROWS_MAX), samples, sums, schedules)


def by_verdicts(judged: DataFrame | None, *, few: bool = False) -> list[VerdictGroup]:
    """Returns the numbers of judged rows by their verdicts; `few` as for `gathered`. Cost: one job."""
    if judged is None:
        return []
    by_verdict = gathered(judged, few=few).groupBy("verdicts")
    groups = by_verdict.agg(*(F.count(what).alias(name) for name, what in COUNTED.items()))
    return [VerdictGroup(row["verdicts"], *(row[name] for name in COUNTED)) for row in groups.collect()]


_VERIFIED, _VIOLATED, _PENDING = "verified", "violated", "pending"


def _outcome(verdicts: Sequence[str]) -> str:
    """Returns the outcome of a row with these verdicts: verified, violated, pending, or the reason why it could not be
    verified."""
    if any(verdict in VIOLATIONS for verdict in verdicts):
        return _VIOLATED
    return next((outcome for outcome in (*INFORMATION, _PENDING) if outcome in verdicts), _VERIFIED)


def _percentiles(lateness: Sequence[DataFrame], *, few: bool) -> dict[str, int]:
    """Returns the percentiles and the maximum by name; empty if there are no values.

    Cost: a hash table of the distinct values in each task.
    """
    if not lateness:
        return {}
    values = gathered(reduce(DataFrame.unionByName, lateness), few=few)
    return lateness_of(values.agg(*lateness_columns()).collect()[0])


def lateness_columns() -> tuple[Column, Column]:
    """Returns aggregates of `lateness_ms` for `lateness_of`: the exact percentiles (nearest rank), and the maximum."""
    shares = ", ".join(f"{share}D" for _, share in PERCENTILES)
    ranked = F.expr(f"percentile_disc(array({shares})) WITHIN GROUP (ORDER BY lateness_ms)")
    return ranked.alias("ranked"), F.max("lateness_ms").alias("max")


def lateness_of(row: Row) -> dict[str, int]:
    """Returns the figures of lateness by name, from a row with `lateness_columns`; empty if there was no value."""
    if row["max"] is None:
        return {}
    return dict(zip(FIGURES, map(int, (*row["ranked"], row["max"])), strict=True))


def _samples(judged: DataFrame, samples_max: int) -> dict[str, list[Sample]]:
    named = judged.select("*", F.explode("verdicts").alias("verdict")).where(F.col("verdict").isin(*VIOLATIONS))
    by_origin = Window.partitionBy("verdict").orderBy("topic", "partition", "offset")
    first = named.withColumn("place", F.row_number().over(by_origin)).where(F.col("place") <= samples_max)
    samples: dict[str, list[Sample]] = {}
    for row in sorted(first.collect(), key=itemgetter("verdict", "place")):
        origin = f"{row['topic']}/{row['partition']}/{row['offset']}"
        shown = ("target", "action", "fate", "first_due_ms", "last_due_ms", "ended_ms", "records", "fates", "answers")
        sample = Sample(origin, tuple(row["details"]), {name: row[name] for name in shown})
        samples.setdefault(row["verdict"], []).append(sample)
    return samples


def _chain_samples(breaks: DataFrame, samples_max: int) -> list[Sample]:
    rows = breaks.orderBy("topic", "partition", "log_offset").limit(samples_max).collect()
    return [Sample(f"{row['log_topic']}/{row['partition']}/{row['log_offset']}", (row["problem"],)) for row in rows]


def _placed_samples(unreadable: DataFrame, samples_max: int) -> list[Sample]:
    return [Sample(row["place"], (row["problem"],)) for row in unreadable.orderBy("place").limit(samples_max).collect()]


def _malformed_samples(malformed: DataFrame, samples_max: int) -> list[Sample]:
    rows = malformed.orderBy("place").limit(samples_max).collect()
    return [Sample(row["place"], ("is no verdict of a request of this partition",)) for row in rows]
