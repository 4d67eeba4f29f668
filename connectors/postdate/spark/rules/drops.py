"""Checks fates `dropped`: was the message that such a fate names delivered before?

A request may be dropped only if it has `postdate-if-ended` and the fate names an earlier request of its id that has the
header too. The delivery of that one must be in an earlier dispatch-log record, whose time is at most the longest window
before the timestamp of the dropped request. The audit does not know the window of the request topic, so it does not
report a request that was accepted though it could have been dropped.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN, PARTITION

# The largest `ended_window_ms`.
_WINDOW_MS_MAX: Final = 86_400_000


def judged_drops(known: DataFrame) -> DataFrame:
    """One row for each `dropped` that does not follow from the requests and the log: the origin, and a sentence
    `claim`.

    `known` as in `history_rows`; a delivery that was not read is not judged. Cost: a join of these ends with requests.
    """
    end, by = F.col("end"), F.col("by")
    dropped = known.where((end.fate_name == "dropped") & F.col("request_ms").isNotNull()).select(
        *(*ORIGIN, "id", "end", "request_ms", "request_end", "drops"), end.control_offset.alias("survivor")
    )
    survivors = known.where(F.col("request_ms").isNotNull()).select(
        *(*PARTITION, F.col("offset").alias("survivor")), F.struct("action", "id", "end", "drops").alias("by")
    )
    # A state from before this column does not know the header.
    asks_for_it = F.coalesce("drops", F.lit(True)) & F.coalesce(by.drops, F.lit(True))
    is_same_id = (by.action == "schedule") & (by.id == F.col("id"))
    was_delivered = (by.end.fate_name == "delivered") & (by.end.log_offset < end.log_offset)
    is_within = F.col("request_ms") <= by.end.at_ms + _WINDOW_MS_MAX
    is_founded = asks_for_it & is_same_id & was_delivered & is_within
    claim = F.concat(
        F.lit("dropped by offset "), F.col("survivor"), F.lit(", which does not follow from the requests and the log")
    )
    return (
        dropped.join(survivors, [*PARTITION, "survivor"])
        .where((end.next_request <= F.col("request_end")) & ~F.coalesce(is_founded, F.lit(False)))
        .select(*ORIGIN, claim.alias("claim"))
    )
