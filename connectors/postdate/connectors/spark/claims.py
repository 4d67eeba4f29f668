"""Fates that name a cause: is there a request that asks for it?

A `cancelled` needs a later cancel of that id or origin, a `replaced` a later schedule of the same id, a `moved` the
reschedule that it names with that due time. Judged only where every request that the owner had ingested lies in the
range that was read; a necessary condition, so nothing true is refused.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

CLAIMING = ("cancelled", "replaced", "moved")
_ORIGIN = ["topic", "partition", "offset"]
_PARTITION = ["topic", "partition"]


def unfounded_claims(fates: DataFrame, requests: DataFrame, partitions: DataFrame) -> DataFrame:
    """One row for each fate without the request that it needs: the origin, and a sentence `claim`.

    Cost: joins of the fates of these three kinds with the requests; leave it out where there are none.
    """
    known = (
        fates.where(F.col("fate.fate_name").isin(*CLAIMING))
        .join(F.broadcast(partitions.select(*_PARTITION, "request_end")), _PARTITION)
        .where(F.col("fate.next_request") <= F.col("request_end"))
        .join(requests.select(*_ORIGIN, "id"), _ORIGIN)
    )
    return _unfounded_ends(known, requests).unionByName(_unfounded_moves(known, requests))


def _unfounded_ends(known: DataFrame, requests: DataFrame) -> DataFrame:
    is_cancel, is_schedule = F.col("action") == "cancel", F.col("action") == "schedule"
    by_id = (
        requests.where(F.col("id").isNotNull())
        .groupBy(*_PARTITION, "id")
        .agg(
            F.max(F.when(is_cancel, F.col("offset"))).alias("cancel_by_id"),
            F.max(F.when(is_schedule, F.col("offset"))).alias("schedule_by_id"),
        )
    )
    by_origin = (
        requests.where(is_cancel & F.col("acts_on").isNotNull())
        .groupBy(*_PARTITION, F.col("acts_on").alias("offset"))
        .agg(F.max("offset").alias("cancel_by_origin"))
    )
    name = F.col("fate.fate_name")
    cancelled = _later("cancel_by_id") | _later("cancel_by_origin")
    is_founded = F.when(name == "cancelled", cancelled).when(name == "replaced", _later("schedule_by_id"))
    claim = F.concat(name, F.lit(", though no later request asks for it"))
    return (
        known.where(name != "moved")
        .join(by_id, [*_PARTITION, "id"], "left")
        .join(by_origin, _ORIGIN, "left")
        .where(~is_founded)
        .select(*_ORIGIN, claim.alias("claim"))
    )


def _later(column: str) -> Column:
    return F.coalesce(F.col(column) > F.col("offset"), F.lit(False))


def _unfounded_moves(known: DataFrame, requests: DataFrame) -> DataFrame:
    controls = requests.where(F.col("action") == "reschedule").select(
        *_PARTITION,
        F.col("offset").alias("control_offset"),
        F.col("due_ms").alias("control_due_ms"),
        F.col("acts_on").alias("control_acts_on"),
        F.col("id").alias("control_id"),
    )
    meant = (F.col("control_acts_on") == F.col("offset")) | (F.col("control_id") == F.col("id"))
    is_founded = (
        (F.col("control_offset") > F.col("offset"))
        & (F.col("control_due_ms") == F.col("fate.new_due_ms"))
        & F.coalesce(meant, F.lit(False))
    )
    claim = F.concat(
        F.lit("moved to "),
        F.col("fate.new_due_ms"),
        F.lit(" by offset "),
        F.col("control_offset"),
        F.lit(", which does not ask for it"),
    )
    return (
        known.where(F.col("fate.fate_name") == "moved")
        .withColumn("control_offset", F.col("fate.control_offset"))
        .join(controls, [*_PARTITION, "control_offset"], "left")
        .where(~F.coalesce(is_founded, F.lit(False)))
        .select(*_ORIGIN, claim.alias("claim"))
    )
