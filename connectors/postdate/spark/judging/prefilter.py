"""The prefilter: finds plain origins, so that the rules must judge only the others.

An origin is plain if it ended like nearly all do. Either it is `delivered`: one request, one fate, one record, nothing
else, and everything that can be compared is equal. Or it is `pending`: a request that nothing has touched and that is
not overdue. No rule of `endings`, `mismatches`, `claims` and `answers` applies to either. So every origin is first
aggregated to a few numbers, by compiled code and without lists. The others are read again and judged by the rules,
which work on lists.

For each message 128 bits are compared, from the SHA-256 digests of its key, value and headers and from all headers that
Postdate adds. Times are epoch milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN, PARTITION
from postdate.spark.columns.expressions import where_computed
from postdate.spark.judging.inputs import AuditInputs
from postdate.spark.judging.judge import is_in_range
from postdate.spark.rules.endings import is_past_grace
from postdate.spark.rules.mismatches import expected_headers, has_own_rules

_HALVES = ("one_half", "other_half")
_COUNTS = ("requests", "fates", "records", "others")
_NUMBERS = ("request_ms", "due_ms", "at_ms", "log_offset", "place", "record_offset", "grace_ms")


def asked_rows(requests: DataFrame) -> DataFrame:
    """The columns of each request that the prefilter needs, rows as of `request_rows`: small, so that they can be
    cached."""
    return requests.select(
        *(*ORIGIN, "request_ms", "target", "due_ms", "grace_ms", "window_ms", "acts_on", "partition_asked"),
        "key_hash",
        ((F.col("action") != "schedule") | has_own_rules()).alias("is_odd"),
        F.xxhash64("id").alias("id_hash"),
        F.col("id").isNotNull().alias("has_id"),
        *_message(F.col, expected_headers(F.col("id")), F.col("target")),
    )


def prefiltered(
    asked: DataFrame,
    inputs: AuditInputs,
    partitions: DataFrame,
    targets: DataFrame,
    *,
    overdue_before_ms: int,
    owes_all: bool,
) -> DataFrame:
    """One row for each origin in the audited range: its counts, some of its values, and `plain`, its verdict, null if
    the rules must judge it.

    `asked` are the rows of `asked_rows` for the requests of `inputs`, which are not read here. `owes_all`: every
    delivered request must be answered, so none of them is plain. Cost: one shuffle of all rows, of some 100 bytes each.
    """
    sound = inputs.answers.where(~F.col("malformed"))
    parts = (
        _requests(asked, targets),
        _fates(inputs.fates),
        _records(inputs.delivered),
        *(rows.select(*ORIGIN, F.lit(1).alias("others")) for rows in (inputs.letters, sound, *inputs.overtaken)),
    )
    union = reduce(lambda some, more: some.unionByName(more, allowMissingColumns=True), parts)
    # Shuffled first, so that nothing is folded before: nearly every row is of another origin.
    together = (
        union.repartition(*ORIGIN)
        .groupBy(*ORIGIN)
        .agg(
            *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _COUNTS),
            *(F.max(name).alias(name) for name in (*_NUMBERS, "target_number", "place_asked", "id_hash", "acts_on")),
            *(F.bit_xor(name).alias(name) for name in _HALVES),
            F.bit_xor("due_ms").alias("due_differs"),
        )
    )
    placed = together.join(F.broadcast(partitions), list(PARTITION), "left")
    return placed.where(is_in_range(F.col("requests") > 0)).select(
        *(*ORIGIN, *_COUNTS, *_NUMBERS, "target_number", "id_hash", "acts_on"),
        _plain(overdue_before_ms, owes_all).alias("plain"),
    )


def plain_rows(marks: DataFrame, partitions: DataFrame, targets: DataFrame) -> DataFrame:
    """The plain rows of `prefiltered`, in the form of `judge`."""
    plain = marks.where("plain is not null")
    named = plain.join(F.broadcast(_numbered(targets)), "target_number", "left").join(
        F.broadcast(partitions.select(*PARTITION, "log_topic")), list(PARTITION), "left"
    )
    is_delivered = F.col("plain") == "delivered"
    log_place = F.concat_ws("/", "log_topic", "partition", "log_offset")
    record = F.concat_ws("/", "target", "place", "record_offset")
    none = F.array().cast("array<string>")
    return named.select(
        *(*ORIGIN, "target"),
        F.col("due_ms").alias("first_due_ms"),
        F.col("due_ms").alias("last_due_ms"),
        F.lit("schedule").alias("action"),
        "request_ms",
        F.when(is_delivered, F.lit("delivered")).alias("fate"),
        (F.col("at_ms") - F.col("due_ms")).alias("lateness_ms"),
        F.col("at_ms").alias("ended_ms"),
        F.when(is_delivered, F.array(record)).otherwise(none).alias("records"),
        F.when(is_delivered, F.array(F.concat(F.lit("delivered "), log_place))).otherwise(none).alias("fates"),
        none.alias("answers"),
        F.array("plain").alias("verdicts"),
        F.lit(False).alias("is_fate_lost"),
        none.alias("details"),
    )


def related_origins(marks: DataFrame, asked: DataFrame, fates: DataFrame, answers: DataFrame) -> DataFrame:
    """The origins that are needed to judge those that are not plain: these, those with the same id, those that they,
    their fates or their answers name, and those whose fates or answers name any of these, also outside the audited
    range.

    Cost: a scan of the small columns of `marks` and `asked`, and of `fates` and `answers`.
    """
    rest = marks.where("plain is null")
    ids = rest.where("id_hash is not null").select(*PARTITION, "id_hash").distinct()
    control = F.coalesce("fate.control_offset", "fate.bulk_offset")
    near = (
        rest.select(*ORIGIN)
        .unionByName(
            where_computed(asked, F.col("has_id")).join(ids, [*PARTITION, "id_hash"], "left_semi").select(*ORIGIN)
        )
        .unionByName(rest.where("acts_on is not null").select(*PARTITION, F.col("acts_on").alias("offset")))
        .unionByName(answers.where("of is not null").select(*PARTITION, F.col("of").alias("offset")))
        .unionByName(fates.where(control.isNotNull()).select(*PARTITION, control.alias("offset")))
        .distinct()
    )
    naming = fates.where(control.isNotNull()).select(*ORIGIN, control.alias("named"))
    naming = naming.unionByName(answers.where("of is not null").select(*ORIGIN, F.col("of").alias("named")))
    named = near.select(*PARTITION, F.col("offset").alias("named"))
    return near.unionByName(naming.join(named, [*PARTITION, "named"], "left_semi").select(*ORIGIN)).distinct()


def _plain(overdue_before_ms: int, owes_all: bool) -> Column:
    is_alone = (F.col("requests") == 1) & (F.col("others") == 0)
    is_same = reduce(Column.__and__, (F.col(name) == 0 for name in (*_HALVES, "due_differs")))
    # A message without a key may lie anywhere.
    is_in_place = F.coalesce(F.col("place_asked") == F.col("place"), F.lit(True))
    is_in_time = F.coalesce(~is_past_grace(F.col("at_ms"), F.col("due_ms")), F.lit(True))
    is_delivered = (
        is_alone
        & (F.col("fates") == 1)
        & (F.col("records") == 1)
        & is_same
        & is_in_place
        & is_in_time
        & (F.col("at_ms") >= F.col("due_ms"))
    )
    is_untouched = is_alone & (F.col("fates") == 0) & (F.col("records") == 0)
    is_ahead = F.col("due_ms") >= overdue_before_ms
    delivered = F.when(is_delivered & F.lit(not owes_all), F.lit("delivered"))
    return delivered.when(is_untouched & is_ahead, F.lit("pending"))


def _requests(asked: DataFrame, targets: DataFrame) -> DataFrame:
    numbered = asked.join(F.broadcast(_numbered(targets)), "target", "left")
    # The rules judge controls, returns, windows, series, and requests that name no time or no target that exists.
    is_other = F.col("is_odd") | F.col("due_ms").isNull() | F.col("target_partitions").isNull()
    by_key = F.col("key_hash") % F.col("target_partitions")
    return numbered.select(
        *(*ORIGIN, "request_ms", "due_ms", "grace_ms", "acts_on", "target_number", *_HALVES),
        F.lit(1).alias("requests"),
        F.when(is_other, 1).otherwise(0).alias("others"),
        F.coalesce("partition_asked", by_key).cast("bigint").alias("place_asked"),
        F.when(F.col("has_id"), F.col("id_hash")).alias("id_hash"),
    )


def _fates(fates: DataFrame) -> DataFrame:
    fate = F.col("fate")
    is_plain = (fate.fate_name == "delivered") & ~fate.late & fate.chosen_ms.isNull()
    return fates.select(
        *ORIGIN,
        F.lit(1).alias("fates"),
        F.when(is_plain, 0).otherwise(1).alias("others"),
        fate.first_due_ms.alias("due_ms"),
        fate.at_ms.alias("at_ms"),
        fate.log_offset.alias("log_offset"),
    )


def _records(delivered: DataFrame) -> DataFrame:
    record = F.col("record")
    return delivered.select(
        *ORIGIN,
        F.lit(1).alias("records"),
        record["partition"].cast("bigint").alias("place"),
        record.offset.alias("record_offset"),
        *_message(record.getField, record.own_headers, record.target),
    )


def _message(column: Callable[[str], Column], own_headers: Column, target: Column) -> list[Column]:
    """128 bits of a message, as two numbers: equal for equal messages, different for others."""
    id_ = column("id")
    digests = [column(name) for name in ("key_digest", "value_digest", "headers_digest")]
    fields = [id_.isNotNull(), id_, column("due_ms"), own_headers, target]
    spelled = ([*digests, *fields], [*fields, *digests])
    return [F.xxhash64(*columns).alias(name) for name, columns in zip(_HALVES, spelled, strict=True)]


def _numbered(targets: DataFrame) -> DataFrame:
    """The targets by name, each with a number that represents it."""
    return targets.select("target", "target_partitions", F.xxhash64("target").alias("target_number"))
