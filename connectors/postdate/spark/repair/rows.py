"""Decides which missing requests can be sent again, and why others cannot: DataFrame to DataFrame.

A request may be repaired only if nothing can deliver its message any more. There are two cases. In the first, its fate
is `delivered`, and its record is missing. In the second, it has no fate, and its shard no longer holds it: its offset
is below the low-water mark, and it is not on the store topic. If a sidecar still holds a request or has not read it
yet, a sidecar will deliver the message when it runs, and a repair would duplicate it. So the job checks these reasons
against a request, in this order, with the current records of the topics and not those at the time of the audit:

control       a control such as a cancel: its intent cannot be determined any more
schedule      a recurring schedule: a repair would request the whole schedule again, not its missing occurrences
ended         it has ended since the audit
on-target     its record is on its target now
unknown       the dispatch log no longer has the fates of that time: the request may have ended
stored        it is on the store topic, from which its shard loads it
request-gone  its record has left the request topic
record-gone   it may have been delivered: its target has lost or hides records of that time, was created again, or has
              no record with the broker's time
held          its shard still holds it: is a sidecar running, is the shard halted?
acted-on      a later request has its id, or a control names it: a person must decide whether it is still wanted
unreadable    it names no target or no time
return        it is a return: a repaired message begins without attempts
expired       its grace is over: it would become a dead letter
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN, PARTITION
from postdate.spark.columns.digests import first_value
from postdate.spark.columns.expressions import natural
from postdate.spark.columns.murmur2 import positive_murmur2
from postdate.spark.records.fates import FINAL
from postdate.spark.records.recurrences import RECURRING
from postdate.spark.rules.endings import of_places
from postdate.spark.rules.mismatches import expected_partitions
from postdate.spark.rules.request_histories import CONTROLS
from postdate.wire.headers import SPREAD

ID_PREFIX: Final = "repair/"
"""The prefix of the id of a repaired request; partition and offset of the origin follow. An id is unique within one
request topic, so it need not contain the topic's name. Without the name, it is always short enough."""

ENDED: Final = "ended"

PARTITION_PROGRESS = "partition int, low_water bigint, fates_lost_before_ms bigint, request_log_start bigint"
"""The columns of a table with one row for each partition of the request topic: its low-water mark (`low_waters`), the
time before which fates may be lost, and the start offset."""
PROVABLE = "target string, target_partitions int, target_known_ms array<bigint>, target_provable_from_ms array<bigint>"
"""The columns of a table with one row for each target that exists. The arrays have one value for each partition: the
earliest time at which the partition is known to exist, and the time from which it still has every delivered record."""


def missing_rows(judged: DataFrame, requests: str) -> DataFrame:
    """Returns the missing origins of a request topic among the judged rows of a state, with the `action`, `request_ms`,
    `last_due_ms` and `fate` that the audit found."""
    rows = judged.where(F.array_contains("verdicts", "missing") & (F.col("topic") == requests))
    return rows.select(*ORIGIN, "action", "request_ms", "last_due_ms", "fate")


def low_waters(log: DataFrame) -> DataFrame:
    """Returns for each `partition` the `low_water` of its last dispatch-log record that parses and is not `late`.
    `log` has the rows of `log_rows`."""
    last = F.max_by("low_water", "log_offset")
    return log.where(F.col("parses") & ~F.col("late")).groupBy("partition").agg(last.alias("low_water"))


def stored_offsets(records: DataFrame) -> DataFrame:
    """Returns the partition and the offset of each request that a store topic still has."""
    written = records.select(
        "partition",
        natural(F.col("key").cast("string")).alias("request"),
        F.struct("offset", F.col("value").isNotNull().alias("is_there")).alias("record"),
    )
    last = written.groupBy("partition", F.col("request").alias("offset")).agg(F.max("record").alias("record"))
    return last.where("record.is_there").select("partition", "offset")


def acted_on(missing: DataFrame, requests: DataFrame) -> DataFrame:
    """Returns the origins of `missing` for which there is a later request with the same id, or a control that names the
    origin. The column `by` has the last offset of such a request.

    `requests` has the rows of `understood_rows` from the first missing request on. Cost: two joins with few rows.
    """
    ids = missing.join(requests.select(*ORIGIN, "id"), list(ORIGIN)).where("id is not null")
    # A return may have an id, but controls do not find it by the id, and it does not act on other requests.
    is_return = F.col("retry").isNotNull()
    later = requests.where(~is_return).select(*PARTITION, "id", F.col("offset").alias("by"))
    by_id = ids.select(*ORIGIN, "id").join(later, [*PARTITION, "id"]).where(F.col("by") > F.col("offset"))
    naming = requests.where(F.col("acts_on").isNotNull() & ~is_return).select(
        *PARTITION, F.col("acts_on").alias("offset"), F.col("offset").alias("by")
    )
    by_origin = missing.select(*ORIGIN).join(naming, list(ORIGIN))
    return by_id.select(*ORIGIN, "by").unionByName(by_origin).groupBy(*ORIGIN).agg(F.max("by").alias("by"))


@dataclass(frozen=True)
class RepairEvidence:
    """The current records and bounds of the topics that matter for the missing requests.

    The tables are the results of `understood_rows` (`requests`), `fate_rows` (`fates`), `stored_offsets` (`stored`) and
    `delivered_rows` (`delivered`). `partitions` has the columns PARTITION_PROGRESS, and `targets` has the columns
    PROVABLE.
    """

    requests: DataFrame
    fates: DataFrame
    stored: DataFrame
    partitions: DataFrame
    delivered: DataFrame
    targets: DataFrame


def repair_rows(missing: DataFrame, evidence: RepairEvidence, now_ms: int) -> DataFrame:
    """Returns one row for each missing origin: the message and its due time, and a `reason` and a `detail` if the
    request cannot be repaired.

    `missing` has the rows of `missing_rows`. Cost: joins of the few missing requests with requests, fates and records
    by origin.
    """
    requests = evidence.requests
    here = requests.join(missing.select(*ORIGIN), list(ORIGIN), "left_semi").select(
        *(*ORIGIN, "target", "key", "value", "data", "partition_asked", "grace_ms", "window_ms"),
        F.when(F.col("window_ms").isNotNull(), first_value(F.col("headers"), SPREAD).cast("string")).alias("spread"),
        F.struct("partition_asked", positive_murmur2(F.col("key")).alias("key_hash")).alias("request"),
        F.lit(True).alias("is_there"),
        F.col("retry").isNotNull().alias("is_return"),
    )
    of_missing = evidence.fates.join(missing.select(*ORIGIN), list(ORIGIN), "left_semi")
    ends = of_missing.groupBy(*ORIGIN).agg(
        F.max(F.when(F.col("fate.fate_name").isin(*FINAL), F.col("fate.fate_name"))).alias("end"),
        F.struct(F.max(F.when(F.col("fate.fate_name") == "delivered", F.col("fate.at_ms"))).alias("at_ms")).alias(
            "final"
        ),
    )
    place = F.concat_ws("/", "record.target", "record.partition", "record.offset")
    lying = evidence.delivered.select(*ORIGIN, F.col("record.target").alias("target"), place.alias("lies_at"))
    lies = lying.groupBy(*ORIGIN, "target").agg(F.min("lies_at").alias("lies_at"))
    known = (
        missing.join(here, list(ORIGIN), "left")
        .join(ends, list(ORIGIN), "left")
        .join(acted_on(missing, requests), list(ORIGIN), "left")
        .join(F.broadcast(evidence.partitions), "partition", "left")
        .join(evidence.stored.withColumn("is_stored", F.lit(True)), ["partition", "offset"], "left")
        .join(lies, [*ORIGIN, "target"], "left")
        .join(F.broadcast(evidence.targets), "target", "left")
    )
    known = known.withColumn("places", expected_partitions())
    problem = F.coalesce(*(F.when(holds, _reason(name, why)) for name, holds, why in _reasons(now_ms)))
    id = F.concat(F.lit(ID_PREFIX), F.col("partition"), F.lit("/"), F.col("offset"))
    return known.withColumn("problem", problem).select(
        *(*ORIGIN, "last_due_ms"),
        *("target", "key", "value", F.col("data").alias("headers"), id.alias("id")),
        *("partition_asked", "grace_ms", "window_ms", "spread"),
        *(F.col("problem.reason").alias("reason"), F.col("problem.detail").alias("detail")),
    )


def requests_of(repairable: DataFrame) -> DataFrame:
    """Returns the rows without a reason as a table for `bulk.schedule`. The rows keep their due times and windows, so
    each grace ends at the same time as before."""
    return repairable.where("reason is null").select(
        *("id", "target", "key", "value", "headers"),
        F.col("last_due_ms").alias("at"),
        F.col("grace_ms").alias("grace"),
        F.col("window_ms").alias("window"),
        "spread",
        F.col("partition_asked").alias("partition"),
    )


def _reason(name: str, detail: Column) -> Column:
    return F.struct(F.lit(name).alias("reason"), detail.alias("detail"))


def _reasons(now_ms: int) -> list[tuple[str, Column, Column]]:
    """Returns the name, the condition and the detail of each reason, in the order of the checks."""
    is_lost_record = F.coalesce(F.col("fate") == "delivered", F.lit(False))
    is_below = F.coalesce(F.col("offset") < F.col("low_water"), F.lit(False))
    mark = F.coalesce(F.concat(F.lit(" (below "), F.col("low_water"), F.lit(" nothing is held)")), F.lit(""))
    over = F.col("last_due_ms") + F.coalesce("window_ms", F.lit(0)) + F.col("grace_ms")
    provable_from_ms = of_places("target_provable_from_ms", F.array_max)
    return [
        ("control", F.col("action").isin(*CONTROLS), F.concat(F.lit("it is a "), F.col("action"))),
        (
            "schedule",
            F.col("action") == RECURRING,
            F.lit("it is a schedule: send a request for each missing occurrence by hand, with its nominal time"),
        ),
        (
            ENDED,
            F.col("end").isNotNull() & ~(is_lost_record & (F.col("end") == "delivered")),
            F.concat(F.lit("it has ended since: "), F.col("end")),
        ),
        ("on-target", F.col("lies_at").isNotNull(), F.concat(F.lit("its record is "), F.col("lies_at"))),
        (
            "unknown",
            ~is_lost_record & (F.col("request_ms") < F.col("fates_lost_before_ms")),
            F.lit(
                "the dispatch log no longer has the fates of that time, so it is unknown whether the request has ended"
            ),
        ),
        (
            "stored",
            F.coalesce("is_stored", F.lit(False)),
            F.lit("the store topic has it: its shard loads it from there"),
        ),
        (
            "request-gone",
            F.col("is_there").isNull(),
            F.concat(F.lit("its record has left the topic, which begins at "), F.col("request_log_start")),
        ),
        (
            "record-gone",
            is_lost_record & ~F.coalesce(F.col("final.at_ms") >= provable_from_ms, F.lit(False)),
            F.lit(
                "its target has lost or hides records of that time, was created again, or has no record with the "
                "broker's time: it may have been delivered"
            ),
        ),
        (
            "held",
            ~is_lost_record & ~is_below,
            F.concat(
                F.lit("its shard may still deliver it"), mark, F.lit(": is a sidecar running, is the shard halted?")
            ),
        ),
        (
            "acted-on",
            ~is_lost_record & F.col("by").isNotNull(),
            F.concat(F.lit("the request at offset "), F.col("by"), F.lit(" acts on it: is it still wanted?")),
        ),
        (
            "unreadable",
            F.col("target").isNull() | F.col("last_due_ms").isNull(),
            F.lit("it names no target or no time that can be read"),
        ),
        (
            "return",
            F.coalesce("is_return", F.lit(False)),
            F.lit("it is a return, and a repaired message begins without attempts: return its parent again"),
        ),
        ("expired", over < now_ms, F.concat(F.lit("its grace ended at "), over)),
    ]
