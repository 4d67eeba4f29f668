"""Order: messages of one request partition with the same target and key must leave by due time, then by request offset.

A message was overtaken if it lies after another one in its target although it was due before, and its request had been
ingested when the other left. The dispatch-log record of the other one tells how far its owner had read
(`next_request`), so a request that arrived too late for its place is not out of order. Rescheduled messages are not
checked, since their place changed while they waited. Null keys have no order. A message that left more than
ORDER_LATE_MS_MAX after it was due is not a violation: its target may have failed, and then order is not promised.

Most keys are in order, which one sort shows. Only the other keys are examined further.
"""

from __future__ import annotations

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from postdate.connectors.spark.by_origin import ORIGIN
from postdate.connectors.spark.limits import ORDER_LATE_MS_MAX, ORDER_LOOKED_BACK_MAX

_KEY = ("topic", "partition", "target", "place", "key_hash")


def overtaken(messages: DataFrame, fates: DataFrame) -> DataFrame:
    """One row for each message that was overtaken by another with its key: the origin, and `disorder`: a sentence
    `text`, and `is_late` if the message left late.

    `messages` as of `delivered_messages`, `fates` as of `fate_rows`. A message is compared with the
    ORDER_LOOKED_BACK_MAX messages before it. Cost: one shuffle and sort of all records, of some 60 bytes each.
    """
    of_key = Window.partitionBy(*_KEY).orderBy("record_offset")
    place = F.struct("due_ms", "offset")
    placed = messages.where(F.col("topic").isNotNull() & F.col("key").isNotNull() & F.col("due_ms").isNotNull())
    rows = placed.select(*ORIGIN, "target", "place", "record_offset", "due_ms", F.xxhash64("key").alias("key_hash"))
    marked = rows.select("*", (F.lag(place).over(of_key) > place).alias("is_inverted"))
    keys = marked.where("is_inverted").select(*_KEY).distinct().persist(StorageLevel.MEMORY_AND_DISK)
    if keys.isEmpty():
        keys.unpersist()
        return _none_of(messages)
    doubtful = rows.join(keys, list(_KEY), "left_semi")
    before = of_key.rowsBetween(-ORDER_LOOKED_BACK_MAX, -1)
    known = doubtful.join(_left(fates), list(ORIGIN), "left")
    compared = F.struct("due_ms", "offset", "next_request", "record_offset")
    looked_at = known.select("*", F.collect_list(compared).over(before).alias("before"))
    found = F.filter("before", _overtakes)
    one = F.try_element_at(found, F.lit(-1))
    said = F.concat(
        *(F.lit("due at "), F.col("due_ms"), F.lit(", it lies behind offset "), one.record_offset),
        *(F.lit(" of its target, which is of offset "), one.offset, F.lit(" and was due at "), one.due_ms),
    )
    is_late = F.col("left_ms") - F.col("due_ms") > ORDER_LATE_MS_MAX
    return looked_at.where((F.size(found) > 0) & ~F.coalesce("was_moved", F.lit(False))).select(
        *ORIGIN, _disorder(said, is_late)
    )


def _none_of(rows: DataFrame) -> DataFrame:
    return rows.where(F.lit(False)).select(*ORIGIN, _disorder(F.lit(""), F.lit(False)))


def _disorder(text: Column, is_late: Column) -> Column:
    return F.struct(text.alias("text"), F.coalesce(is_late, F.lit(False)).alias("is_late")).alias("disorder")


def _overtakes(other: Column) -> Column:
    is_later = (other.due_ms > F.col("due_ms")) | ((other.due_ms == F.col("due_ms")) & (other.offset > F.col("offset")))
    return is_later & (F.col("offset") < other.next_request)


def _left(fates: DataFrame) -> DataFrame:
    """By origin: when it left, how far its owner had read then, and whether it was ever rescheduled."""
    fate = F.col("fate")
    return fates.groupBy(*ORIGIN).agg(
        F.min(F.when(fate.fate_name == "delivered", fate.next_request)).alias("next_request"),
        F.min(F.when(fate.fate_name == "delivered", fate.at_ms)).alias("left_ms"),
        F.bool_or(fate.fate_name == "moved").alias("was_moved"),
    )
