"""The texts of named policies, from the dispatch log.

A row `[first request, name, text]` defines the name for the requests of a partition from that offset on, until the next
row of the same name; an empty text removes the name. Each dispatch-log record repeats the rows that requests at or
above its low-water mark need. So for each request, the owner used the last row of the name whose offset is not above
that of the request, whichever record contains this row. If two rows have the same name and offset, the row of the later
owner counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from postdate.spark.columns.expressions import natural
from postdate.spark.errors import CannotRun
from postdate.spark.limits import POLICIES_MAX
from postdate.spark.records.returns import policy_name
from postdate.spark.session.small_tables import small_table

_TABLE: Final = "policy_topic string, policy_partition int, first bigint, next bigint, policy_name string, text string"

_ROW_FIELDS: Final = 6


class PolicyRow(NamedTuple):
    """The text of a policy for the requests of a partition from offset `first` on."""

    topic: str
    partition: int
    name: str
    first: int
    text: str


def policy_rows(log: DataFrame) -> DataFrame:
    """Returns the policy rows in the rows of `log_rows`, including repetitions: the columns of PolicyRow, and
    `takeover`, the number of the owner."""
    row = F.col("row")
    rows = log.where("parses").select("topic", "partition", F.explode("policies").alias("row"), "takeover")
    return rows.select(
        *("topic", "partition", F.get(row, 1).alias("name"), natural(F.get(row, 0)).alias("first")),
        *(F.get(row, 2).alias("text"), "takeover"),
    )


def read_rows(rows: Iterable[Row | Sequence[Any]]) -> tuple[PolicyRow, ...]:
    """Returns the sorted rows, one for each partition, name and first request.

    Of several such rows, the one with the highest `takeover` (as in `policy_rows`) counts, and of equal ones the last.
    A row without `takeover` ranks lowest. Requires that rows of earlier runs come first. Raises CannotRun if more than
    POLICIES_MAX rows remain.
    """
    last: dict[tuple[Any, ...], tuple[int, str]] = {}
    for *key, text, takeover in ((*row, -1)[:_ROW_FIELDS] for row in rows):
        if takeover >= last.get(tuple(key), (-1, ""))[0]:
            last[tuple(key)] = takeover, text
    kept = sorted(PolicyRow._make((*key, text)) for key, (_, text) in last.items())
    if len(kept) > POLICIES_MAX:
        raise CannotRun(
            f"The dispatch log names policies more than {POLICIES_MAX} times: audit a window, or one topic."
        )
    return tuple(kept)


def recorded_policies(spark: SparkSession, log: DataFrame, known: Iterable[PolicyRow] = ()) -> DataFrame | None:
    """Returns the policies that are `known` or in `log`, as `with_policy_texts` needs them; None if there are none.

    Raises CannotRun as `read_rows`. Cost: one job.
    """
    later = F.max_by("text", "takeover").alias("text")
    found = policy_rows(log).groupBy(*PolicyRow._fields[:-1]).agg(later).limit(POLICIES_MAX + 1).collect()
    return policy_table(spark, read_rows([*known, *found]))


def needed(rows: Iterable[PolicyRow], next_offsets: Mapping[tuple[str, int], int]) -> tuple[PolicyRow, ...]:
    """Returns the rows that requests need from the offsets `next_offsets` of their partitions on."""
    kept: list[PolicyRow] = []
    for (topic, partition, _), some in groupby(sorted(rows), key=lambda row: row[:3]):
        of_name, start = [*some], next_offsets.get((topic, partition), 0)
        kept += [
            row
            for row, later in zip(of_name, [*of_name[1:], None], strict=True)
            if later is None or later.first > start
        ]
    return tuple(kept)


def policy_table(spark: SparkSession, rows: Iterable[PolicyRow]) -> DataFrame | None:
    """Returns the rows of `read_rows` as `with_policy_texts` needs them; None if there are none."""
    table: list[tuple[Any, ...]] = []
    for (topic, partition, name), some in groupby(sorted(rows), key=lambda row: row[:3]):
        of_name = [*some]
        ends = [*(row.first for row in of_name[1:]), None]
        table += [(topic, partition, row.first, end, name, row.text) for row, end in zip(of_name, ends, strict=True)]
    return small_table(spark, table, _TABLE) if table else None


def with_policy_texts(rows: DataFrame, policies: DataFrame) -> DataFrame:
    """Returns `rows` with `policy_text`: the text of the policy that a return names; null if the policy is unknown, or
    if the row is not a return with a named policy. Broadcasts `policies`."""
    is_named = F.col("requested_name") == F.col("policy_name")
    is_here = (F.col("topic") == F.col("policy_topic")) & (F.col("partition") == F.col("policy_partition"))
    is_in_force = (F.col("offset") >= F.col("first")) & _is_before(F.col("next"))
    marked = rows.withColumn("requested_name", policy_name(F.col("return_texts")))
    joined = marked.join(F.broadcast(policies), is_named & is_here & is_in_force, "left")
    return joined.select(*rows.columns, F.col("text").alias("policy_text"))


def _is_before(end: Column) -> Column:
    return F.coalesce(F.col("offset") < end, F.lit(True))
