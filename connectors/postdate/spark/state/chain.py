"""Checks the chain of each dispatch log from run to run: new records must follow the last record that was read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, Self

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import PARTITION
from postdate.spark.errors import CannotRun
from postdate.spark.records.fates import chain_breaks
from postdate.spark.records.policies import PolicyRow, policy_rows, read_rows
from postdate.spark.session.small_tables import small_table

TAIL: Final = (
    "topic string, partition int, log_topic string, log_offset bigint, seq bigint, takeover bigint, writer string,"
    " is_owner boolean, log_is_whole boolean, parses boolean"
)
"""What the chain needs of the last record that was read of a dispatch log."""
_TAIL = tuple(column.split()[0] for column in TAIL.split(","))


@dataclass(frozen=True)
class Chain:
    """`breaks` at new records that will not be read again, `broken` of them; `tails`, the last record of each dispatch
    log that parses and will not be read again; and the named `policies` of the new records."""

    breaks: DataFrame
    broken: int
    tails: list[list[Any]]
    policies: tuple[PolicyRow, ...]

    @classmethod
    def of(cls, log: DataFrame, tails: Sequence[Sequence[Any]]) -> Self:
        """The chain of `log`, the new records of dispatch logs, after `tails`. Cost: one job.

        Raises CannotRun if the broker's clock did not stamp a record.
        """
        spark = log.sparkSession
        before = small_table(spark, tails, TAIL).withColumn("late", F.lit(False))
        settled = log.select(*_TAIL, "late").unionByName(before).where(~F.col("late"))
        seen = small_table(
            spark, [(tail[0], tail[1], tail[3]) for tail in tails], "topic string, partition int, log_offset bigint"
        )
        breaks = chain_breaks(settled).join(F.broadcast(seen), [*PARTITION, "log_offset"], "left_anti")
        rest = [name for name in _TAIL if name not in (*PARTITION, "log_offset")]
        unstamped = F.concat_ws("/", "log_topic", "partition", "log_offset")
        parts = (
            breaks.select(*PARTITION, F.lit(1).alias("broken")),
            settled.where("parses").select(*PARTITION, F.struct("log_offset", *rest).alias("tail")),
            log.where(~F.col("is_broker_time")).select(*PARTITION, unstamped.alias("unstamped")),
            policy_rows(log).select(*PARTITION, F.struct(*PolicyRow._fields).alias("policy")),
        )
        union = reduce(lambda some, more: some.unionByName(more, allowMissingColumns=True), parts)
        found = (
            union.groupBy(*PARTITION)
            .agg(
                F.sum("broken").alias("broken"),
                F.max("tail").alias("tail"),
                F.min("unstamped").alias("unstamped"),
                F.collect_set("policy").alias("policies"),
            )
            .orderBy(*PARTITION)
            .collect()
        )
        for row in found:
            if row["unstamped"] is not None:
                raise not_stamped(row["unstamped"])
        last = [{**row.asDict(), **row["tail"].asDict()} for row in found if row["tail"] is not None]
        policies = read_rows(policy for row in found for policy in row["policies"])
        ends = [[one[name] for name in _TAIL] for one in last]
        return cls(breaks, sum(row["broken"] or 0 for row in found), ends, policies)


def not_stamped(place: str) -> CannotRun:
    """The message if the broker's clock did not stamp the dispatch-log record at `place`."""
    return CannotRun(
        f"The dispatch-log record {place} is not stamped by the broker (LogAppendTime), so nothing can be said of "
        "early or late: run `postdate topics check`."
    )
