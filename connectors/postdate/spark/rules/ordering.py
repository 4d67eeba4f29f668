"""Order: messages of one request partition with the same target and key must leave by due time, then by request offset.

A message was overtaken if it lies behind another message in its target, although it comes first in this order and its
request had been ingested when the other message left. The dispatch-log record of the other message shows how far its
owner had read (`next_request`), so a request that arrived too late for its place is not out of order. The chosen time
of a message with a window counts as its due time. Rescheduled messages are not checked, since their place changed while
they waited. A record without a fate `delivered` is not checked either: it breaks another rule. Messages with a null key
have no order. A message that left more than ORDER_LATE_MS_MAX after it was due breaks no rule: its target may have
failed, and then order is not promised.

Only the first record of a request in a partition of the request's target is its message. All other records are
duplicates, or copies that a consumer made, and are left out.

1. Sort all records by key, with only a few numbers of each record. The records of most keys are in order, including
   duplicates and copies. The other keys are doubtful.
2. Take the records of doubtful keys, join them with their requests and fates, and compare their messages.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN
from postdate.spark.columns.digests import NO_DIGEST
from postdate.spark.columns.expressions import where_computed
from postdate.spark.limits import ORDER_LATE_MS_MAX, ORDER_LOOKED_BACK_MAX
from postdate.spark.session.caching import gathered, materialised
from postdate.spark.session.small_tables import small_table

DISORDER = "struct<text:string,is_late:boolean>"
"""The type of the column `disorder` in the result of `overtaken`."""
_SEQUENCE = ("topic", "partition", "record.target", "record.partition", "record.key_digest")


def overtaken(
    records: DataFrame, fates: DataFrame, requests: DataFrame, starts: DataFrame | None = None, *, few: bool = True
) -> DataFrame:
    """Returns one row for each message that another message with its key overtook.

    The row has the origin and `disorder`: a sentence `text`, and `is_late`, which is true if the message left late.
    `records` are rows of `record_rows`, and `fates` are rows of `fate_rows`. `requests` have origin and target; a
    message whose request is not among them is not checked. A message is compared with the ORDER_LOOKED_BACK_MAX
    messages before it. If there are `starts` (`target`, `place`, `start`), only messages from these offsets on are
    checked, but they are also compared with earlier messages. `few` is True if there are few records (`materialised`).

    Cost: several jobs, and one shuffle and sort of all records, of 32 bytes each.
    """
    record = F.col("record")
    is_whole = ~F.col("is_garbled") & (record.key_digest != NO_DIGEST) & record.due_ms.isNotNull()
    placed = where_computed(records, is_whole).select(
        *ORIGIN,
        *(record.target.alias("target"), record["partition"].alias("place"), record.offset.alias("record_offset")),
        *(record.due_ms.alias("due_ms"), F.xxhash64(*_SEQUENCE).alias("sequence")),
    )
    inverted = materialised(_inverted(gathered(placed, few=few)), few=few)
    if inverted.isEmpty():
        return small_table(records.sparkSession, [], f"topic string, partition int, offset bigint, disorder {DISORDER}")
    doubtful = materialised(placed.join(inverted, "sequence", "left_semi"), few=few)
    overtaken_messages = _compared(_own(doubtful, requests), fates)
    if starts is not None:
        overtaken_messages = overtaken_messages.join(F.broadcast(starts), ["target", "place"]).where(
            "record_offset >= start"
        )
    return materialised(overtaken_messages.select(*ORIGIN, "disorder"), few=few)


def _inverted(rows: DataFrame) -> DataFrame:
    """Returns the hashes of the sequences in which a record comes directly after a record that it should precede. Two
    sequences may have the same hash by chance."""
    order = Window.partitionBy("sequence").orderBy("record_offset")
    place = F.struct("due_ms", "offset")
    marked = rows.select("sequence", (F.lag(place).over(order) > place).alias("is_inverted"))
    return marked.where("is_inverted").select("sequence").distinct()


def _own(doubtful: DataFrame, requests: DataFrame) -> DataFrame:
    """Returns the first record of each request in each partition of the request's target."""
    origins = doubtful.select(*ORIGIN).distinct()
    targets = requests.select(*ORIGIN, F.col("target").alias("own_target")).join(origins, list(ORIGIN), "left_semi")
    on_target = doubtful.join(targets, list(ORIGIN)).where("target = own_target")
    copies = Window.partitionBy(*ORIGIN, "place")
    first = on_target.withColumn("first_offset", F.min("record_offset").over(copies))
    return first.where("record_offset = first_offset").drop("own_target", "first_offset")


def _compared(own: DataFrame, fates: DataFrame) -> DataFrame:
    """Returns the records of `own` that were overtaken, with `disorder`."""
    sequence = Window.partitionBy("topic", "partition", "target", "place", "sequence").orderBy("record_offset")
    before = sequence.rowsBetween(-ORDER_LOOKED_BACK_MAX, -1)
    left = _left(fates.join(own.select(*ORIGIN), list(ORIGIN), "left_semi"))
    known = own.join(left, list(ORIGIN), "left").withColumn("due_ms", F.coalesce("chosen_ms", "due_ms"))
    compared = F.struct("due_ms", "offset", "next_request", "record_offset")
    looked_at = known.select("*", F.collect_list(compared).over(before).alias("before"))
    overtakers = F.filter("before", _overtakes)
    overtaker = F.try_element_at(overtakers, F.lit(-1))
    text = F.concat(
        *(F.lit("due at "), F.col("due_ms"), F.lit(", it lies behind offset "), overtaker.record_offset),
        *(F.lit(" of its target, which is of offset "), overtaker.offset, F.lit(" and was due at "), overtaker.due_ms),
    )
    is_late = F.col("left_ms") - F.col("due_ms") > ORDER_LATE_MS_MAX
    disorder = F.struct(text.alias("text"), is_late.alias("is_late")).alias("disorder")
    is_delivered = F.col("left_ms").isNotNull() & ~F.col("was_moved")
    return looked_at.where((F.size(overtakers) > 0) & is_delivered).select("*", disorder)


def _overtakes(other: Column) -> Column:
    is_later = (other.due_ms > F.col("due_ms")) | ((other.due_ms == F.col("due_ms")) & (other.offset > F.col("offset")))
    return is_later & (F.col("offset") < other.next_request)


def _left(fates: DataFrame) -> DataFrame:
    """Returns for each origin the time when the message left, how far its owner had read by then, its chosen time, and
    whether the message was ever rescheduled."""
    fate = F.col("fate")
    return fates.groupBy(*ORIGIN).agg(
        F.min(F.when(fate.fate_name == "delivered", fate.next_request)).alias("next_request"),
        F.min(F.when(fate.fate_name == "delivered", fate.at_ms)).alias("left_ms"),
        F.min(fate.chosen_ms).alias("chosen_ms"),
        F.bool_or(fate.fate_name == "moved").alias("was_moved"),
    )
