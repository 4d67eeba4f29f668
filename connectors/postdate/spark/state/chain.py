"""Checks the chain of each dispatch log from run to run: new records must follow the last record that was read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import itemgetter
from typing import Any, Final, Self

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import PARTITION
from postdate.spark.errors import CannotRun
from postdate.spark.records.fates import chain_breaks, has_occurrences
from postdate.spark.records.policies import PolicyRow, policy_rows, read_rows
from postdate.spark.session.caching import gathered
from postdate.spark.session.small_tables import small_table

TAIL: Final = (
    "topic string, partition int, log_topic string, log_offset bigint, seq bigint, takeover bigint, writer string,"
    " is_owner boolean, log_is_whole boolean, parses boolean"
)
"""The columns of the last record of a dispatch log that the check of the next run needs."""
_TAIL = tuple(column.split()[0] for column in TAIL.split(","))


@dataclass(frozen=True)
class Chain:
    """The chains of the dispatch logs in one run.

    `breaks` are the breaks at new records that no later run reads again, and `broken` is their number. `tails` has, for
    each partition of a dispatch log, the last record that parses and that no later run reads again. `policies` are the
    named policies of the new records. `zones` are the versions of the time zone rules by topic and partition, each with
    the first offset of the log at which an owner had it. `recurs` is True if a new record has an occurrence of a
    schedule.
    """

    breaks: DataFrame
    broken: int
    tails: list[list[Any]]
    policies: tuple[PolicyRow, ...]
    zones: dict[tuple[str, int], tuple[tuple[int, str], ...]]
    recurs: bool

    @classmethod
    def of(cls, log: DataFrame, tails: Sequence[Sequence[Any]], *, few: bool = False) -> Self:
        """Returns the chain of `log`, the new records of dispatch logs, after `tails`. Cost: one job.

        `few` as for `gathered`. Raises CannotRun if the broker's clock did not stamp a record.
        """
        spark = log.sparkSession
        before = small_table(spark, tails, TAIL).withColumn("late", F.lit(False))
        settled = log.select(*_TAIL, "late").unionByName(before).where(~F.col("late"))
        seen = small_table(
            spark, [(tail[0], tail[1], tail[3]) for tail in tails], "topic string, partition int, log_offset bigint"
        )
        breaks = chain_breaks(gathered(settled, few=few))
        breaks = breaks.join(F.broadcast(seen), [*PARTITION, "log_offset"], "left_anti")
        rest = [name for name in _TAIL if name not in (*PARTITION, "log_offset")]
        zone = F.when(F.col("zone_version").isNotNull(), F.struct("log_offset", "zone_version")).alias("zone")
        unstamped = F.concat_ws("/", "log_topic", "partition", "log_offset")
        parts = (
            breaks.select(*PARTITION, F.lit(1).alias("broken")),
            settled.where("parses").select(*PARTITION, F.struct("log_offset", *rest).alias("tail")),
            log.where(~F.col("is_broker_time")).select(*PARTITION, unstamped.alias("unstamped")),
            policy_rows(log).select(*PARTITION, F.struct(*PolicyRow._fields, "takeover").alias("policy")),
            log.where(F.col("zone_version").isNotNull() | has_occurrences()).select(
                *PARTITION, zone, has_occurrences().alias("recurs")
            ),
        )
        union = reduce(lambda some, more: some.unionByName(more, allowMissingColumns=True), parts)
        rows = (
            gathered(union, few=few)
            .groupBy(*PARTITION)
            .agg(
                F.sum("broken").alias("broken"),
                F.max("tail").alias("tail"),
                F.min("unstamped").alias("unstamped"),
                F.collect_set("policy").alias("policies"),
                F.collect_set("zone").alias("zones"),
                F.bool_or("recurs").alias("recurs"),
            )
            .collect()
        )
        # Sorted here, since a sort in Spark would compute all rows once more, to sample them.
        rows.sort(key=itemgetter(*PARTITION))
        for row in rows:
            if row["unstamped"] is not None:
                raise not_stamped(row["unstamped"])
        last = [{**row.asDict(), **row["tail"].asDict()} for row in rows if row["tail"] is not None]
        policies = read_rows(policy for row in rows for policy in row["policies"])
        ends = [[row[name] for name in _TAIL] for row in last]
        zones = {(row["topic"], row["partition"]): _changes(row["zones"]) for row in rows if row["zones"]}
        broken = sum(row["broken"] or 0 for row in rows)
        return cls(breaks, broken, ends, policies, zones, any(row["recurs"] for row in rows))


def known_zones(
    before: Mapping[str, str], new: Mapping[tuple[str, int], tuple[tuple[int, str], ...]]
) -> dict[tuple[str, int], tuple[tuple[int, str], ...]]:
    """Returns `new`, the `zones` of a chain, preceded by the versions in a state: `before`, by `topic/partition`."""
    known = dict(new)
    for place, version in before.items():
        topic, _, number = place.rpartition("/")
        known[topic, int(number)] = ((0, version), *known.get((topic, int(number)), ()))
    return known


def _changes(zones: Iterable[Sequence[Any]]) -> tuple[tuple[int, str], ...]:
    """Returns the offsets at which the version changes, each with the new version."""
    changes: list[tuple[int, str]] = []
    for log_offset, version in sorted(map(tuple, zones)):
        if not changes or changes[-1][1] != version:
            changes.append((log_offset, version))
    return tuple(changes)


def not_stamped(place: str) -> CannotRun:
    """Returns the error for a dispatch-log record at `place` that the broker's clock did not stamp."""
    return CannotRun(
        f"The dispatch-log record {place} is not stamped by the broker (LogAppendTime), so early and late "
        "cannot be judged: run `postdate topics check`."
    )
