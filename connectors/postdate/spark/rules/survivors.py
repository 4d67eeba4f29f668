"""Checks that a fate that names a survivor follows from the survivor's request and end.

- The survivor of a `replaced` must be a later request of the same id, which the owner had ingested. It must not have
  `postdate-if-pending: keep`. If both requests have `postdate-latest`, the fate must have the start of the series.
- The survivor of a `kept` must be an earlier request of the same id that had not ended in an earlier dispatch-log
  record. The kept request must have `postdate-if-pending: keep`.
- The survivor of a `dropped` must be an earlier request of the same id that was delivered in an earlier dispatch-log
  record. That record must precede the timestamp of the dropped request by at most the longest window, and both requests
  must have `postdate-if-ended`. The audit does not know the window of the request topic, so it does not report a
  request that was accepted although it could have been dropped.

An owner with other settings may refuse or drop the survivor of a `replaced` or `kept` in a later record.

If the survivor's delivery, or the start of a series, may have left the dispatch log, the row has a sentence `doubt`. If
the survivor's request has left the topic, the row has a sentence `expired`. Neither row has a `claim`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN, PARTITION
from postdate.spark.records.recurrences import RECURRING
from postdate.spark.rules.lost_moves import is_older_than_losses
from postdate.spark.rules.request_histories import is_known, was_accepted_at

# The largest `ended_window_ms`.
_WINDOW_MS_MAX: Final = 86_400_000


def judged_survivors(known: DataFrame) -> DataFrame:
    """Returns one row for each `replaced` or `kept` with a survivor that is wrong or expired, or in a series whose
    start may be lost.

    The row has the origin, and a sentence `claim`, `expired` or `doubt`. `known` are rows of `history_rows`. Cost: a
    join of these fates with the requests that they name.
    """
    end, by = F.col("end"), F.col("by")
    ended = known.where(end.fate_name.isin("replaced", "kept") & end.control_offset.isNotNull())
    is_kept = end.fate_name == "kept"
    is_same_id = by.action.isin("schedule", RECURRING) & (by.id == F.col("id"))
    is_same_id = is_same_id & was_accepted_at(by.end, end.log_offset)
    was_there = by.end.log_offset.isNull() | (by.end.log_offset >= end.log_offset)
    continues = F.col("latest_ms").isNotNull() & by.latest_ms.isNotNull()
    start_ms = F.when(continues, F.least(F.coalesce("series_ms", "request_ms"), by.request_ms))
    is_replaced = is_same_id & ~F.coalesce(by.keeps, F.lit(False)) & (end.control_offset < end.next_request)
    is_founded = F.when(is_kept, is_same_id & F.col("keeps") & was_there).otherwise(
        is_replaced & end.series_ms.eqNullSafe(start_ms)
    )
    is_older = is_older_than_losses() & F.col("series_ms").isNull() & (end.series_ms < start_ms)
    since = F.coalesce(F.concat(F.lit(" in a series from "), end.series_ms), F.lit(""))
    return _judged(ended, known, is_founded, ~is_kept & is_replaced & is_older, since)


def judged_drops(known: DataFrame) -> DataFrame:
    """Returns one row for each `dropped` that does not follow from the survivor and its delivery, or whose survivor has
    an unknown delivery.

    The row has the origin, and a sentence `claim`, `doubt` or `expired`. `known` are rows of `history_rows`. Cost: a
    join of these fates with the requests that they name.
    """
    end, by = F.col("end"), F.col("by")
    # These columns are null in rows from a state that was written before they existed.
    asks_for_it = F.coalesce("drops", F.lit(True)) & F.coalesce(by.drops, F.lit(True))
    is_same_id = (by.action == "schedule") & (by.id == F.col("id"))
    was_delivered = (by.end.fate_name == "delivered") & (by.end.log_offset < end.log_offset)
    is_within = F.col("request_ms") <= by.end.at_ms + _WINDOW_MS_MAX
    lost_ms = F.col("fates_lost_before_ms")
    may_be_lost = by.end.isNull() & (by.request_ms < lost_ms) & (F.col("request_ms") < lost_ms + _WINDOW_MS_MAX)
    is_requested = asks_for_it & is_same_id
    return _judged(
        known.where(end.fate_name == "dropped"),
        known,
        is_requested & was_delivered & is_within,
        is_requested & may_be_lost,
        F.lit(""),
    )


def _judged(ended: DataFrame, known: DataFrame, is_founded: Column, may_be_lost: Column, since: Column) -> DataFrame:
    """Returns the origins and sentences for the rows of `ended` whose end does not follow from the survivor.

    The conditions refer to the survivor's request as `by`. `since` follows the survivor's offset in each sentence.
    """
    end, survivor, by = F.col("end"), F.col("survivor"), F.col("by")
    named = ended.where(F.col("request_ms").isNotNull()).withColumn("survivor", end.control_offset)
    parts = ("action", "id", "end", "latest_ms", "keeps", "drops", "request_ms")
    requests = known.select(
        *(*PARTITION, F.col("offset").alias("survivor"), (end.isNotNull() | F.col("was_stored")).alias("has_fate")),
        F.when(F.col("request_ms").isNotNull(), F.struct(*parts)).alias("by"),
    )
    wrong = (
        named.join(requests, [*PARTITION, "survivor"], "left")
        # A survivor before the window of the audit was not read.
        .where(by.isNotNull() | (survivor < F.col("request_log_start")) | (survivor >= F.col("request_start")))
        .where(is_known(end.next_request) & ~F.coalesce(is_founded, F.lit(False)))
    )
    # The survivor of a `replaced` comes after the replaced request, and leaves the topic only once the log has one of
    # its fates.
    may_have_fate = F.coalesce("has_fate", F.lit(False)) | (F.col("request_ms") < F.col("fates_lost_before_ms"))
    may_be_unread = (end.fate_name != "replaced") | F.coalesce(may_have_fate, F.lit(False))
    is_expired = by.isNull() & (survivor < F.col("request_log_start")) & may_be_unread
    is_lost = F.coalesce(may_be_lost, F.lit(False))
    text = F.concat(end.fate_name, F.lit(" by the request at offset "), survivor, since)
    return wrong.select(
        *ORIGIN,
        F.when(
            ~(is_expired | is_lost), F.concat(text, F.lit(", which does not follow from the requests and the log"))
        ).alias("claim"),
        F.when(is_lost, F.concat(text, F.lit(", which may follow from a fate that has left the dispatch log"))).alias(
            "doubt"
        ),
        F.when(is_expired, F.concat(text, F.lit(", which has left its topic"))).alias("expired"),
    )
