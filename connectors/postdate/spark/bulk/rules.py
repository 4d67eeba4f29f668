"""Checks rows before anything is sent, with the reasons of dead letters.

These column expressions are the rules by which the sidecar would refuse the request later. Two more rules concern the
whole table: two rows must not share an id (`bad-id`), since it is undefined which of them would be delivered; and each
row needs an id if there is an id column (`missing-id`). A row gets every reason that applies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.bulk.records import delivered_size_bytes, request_headers, request_size_bytes
from postdate.spark.columns.digests import is_postdate_header
from postdate.spark.columns.times import duration_text
from postdate.spark.limits import QUOTED_CHARACTERS_MAX
from postdate.wire.headers import DUE, ID, MOVED, ORIGIN, PREFIX
from postdate.wire.limits import ID_BYTES_MAX, PARTITION_END, TOPIC_NAME_LENGTH_MAX, WINDOW_MS_MAX
from postdate.wire.reasons import Reason
from postdate.wire.values.durations import format_duration

TARGETS = "target string, is_permitted boolean, target_partitions int, target_bytes_max bigint"
"""The columns of a table with one row for each valid topic name among the targets of the input. `is_permitted` is
True if the rules permit the target. `target_partitions` is null if the topic does not exist."""

_TOPIC_NAME = rf"\A[a-zA-Z0-9._-]{{1,{TOPIC_NAME_LENGTH_MAX}}}\z"
_REPEATED = "repeated_id"


@dataclass(frozen=True)
class BulkContext:
    """The parameters of the rules. Delays and the horizon count from `now_ms`."""

    requests: str
    request_bytes_max: int
    horizon_ms: int
    now_ms: int
    with_ids: bool
    with_unknown_targets: bool


@dataclass(frozen=True)
class RowRule:
    """One rule: a row that violates it gets the reason and the detail, a sentence."""

    reason: Reason
    is_violated: Column
    detail: Column


def named_targets(parsed: DataFrame) -> DataFrame:
    """Returns the distinct targets in `parsed` that are valid topic names."""
    return parsed.where(_could_be_topic()).select("target").distinct()


def repeated_ids(parsed: DataFrame) -> DataFrame:
    """Returns the ids that several rows share, with the number of rows. Cost: a shuffle of the ids only."""
    counted = parsed.where(F.col("id").isNotNull()).groupBy("id").agg(F.count("*").alias(_REPEATED))
    return counted.where(F.col(_REPEATED) > 1)


def checked_rows(parsed: DataFrame, targets: DataFrame, repeated: DataFrame | None, context: BulkContext) -> DataFrame:
    """Returns one row for each row of `parsed`, with `reasons` and `details`, which are empty for a valid row.

    The other columns are `row`, `target`, `key`, `value`, `id` and `due_ms` from `parsed`, and `request_headers` and
    `size_bytes` of the request. `targets` has the columns of `TARGETS`, `repeated` those of `repeated_ids`; `repeated`
    is None if no id is repeated.
    """
    known = parsed.join(F.broadcast(targets), "target", "left")
    if repeated is None:
        known = known.withColumn(_REPEATED, F.lit(None).cast("bigint"))
    else:
        known = known.join(repeated, "id", "left")
    known = known.withColumn("headers", _without_postdates_own(F.col("headers"))).withColumn(
        "request_headers", request_headers()
    )
    sized = known.select(
        "*", request_size_bytes().alias("size_bytes"), delivered_size_bytes(context.requests).alias("delivered_bytes")
    )
    problems = F.array_compact(
        F.array(
            *(
                F.when(
                    rule.is_violated, F.struct(F.lit(rule.reason.value).alias("reason"), rule.detail.alias("detail"))
                )
                for rule in _rules(context)
            )
        )
    )
    judged = sized.select(
        "row", "target", "key", "value", "id", "due_ms", "request_headers", "size_bytes", problems.alias("problems")
    )
    return judged.select(
        *(name for name in judged.columns if name != "problems"),
        F.transform("problems", lambda problem: problem.reason).alias("reasons"),
        F.transform("problems", lambda problem: problem.detail).alias("details"),
    )


def _rules(context: BulkContext) -> Sequence[RowRule]:
    return (
        *_target_rules(context),
        *_time_rules(context),
        *_id_rules(context),
        *_header_rules(),
        *_size_rules(context),
    )


def _could_be_topic() -> Column:
    return F.coalesce(F.col("target").rlike(_TOPIC_NAME) & ~F.col("target").isin(".", ".."), F.lit(False))


def _target_rules(context: BulkContext) -> list[RowRule]:
    target, partition, count = F.col("target"), F.col("partition"), F.col("target_partitions")
    is_topic, is_permitted = _could_be_topic(), F.coalesce("is_permitted", F.lit(False))
    is_unknown = is_topic & is_permitted & count.isNull() & F.lit(not context.with_unknown_targets)
    no_partition = F.col("has_partition") & partition.isNull() | (partition >= PARTITION_END)
    beyond = (partition < PARTITION_END) & (partition >= count)
    forbidden = F.concat(F.lit(f"the rules of {context.requests} do not allow "), target, F.lit(" as a target"))
    return [
        RowRule(Reason.MISSING_TARGET, target.isNull(), F.lit("it names no target")),
        RowRule(Reason.BAD_TARGET, target.isNotNull() & ~is_topic, F.lit("the target is not a topic name")),
        RowRule(Reason.FORBIDDEN_TARGET, is_topic & ~is_permitted, forbidden),
        RowRule(Reason.UNKNOWN_TARGET, is_unknown, F.concat(F.lit("there is no topic "), target)),
        RowRule(Reason.BAD_PARTITION, no_partition, F.concat(_quoted("partition"), F.lit(" is not a partition"))),
        RowRule(
            Reason.BAD_PARTITION,
            beyond,
            F.concat(target, F.lit(" has "), count, F.lit(" partitions, not "), partition),
        ),
    ]


def _time_rules(context: BulkContext) -> list[RowRule]:
    has_at, has_delay = F.col("has_at"), F.col("has_delay")
    ahead_ms = F.coalesce(F.col("delay_ms"), F.col("at_ms") - F.lit(context.now_ms).cast("bigint"))
    bad = [
        RowRule(
            Reason.BAD_TIME,
            F.col(f"has_{name}") & F.col(f"{name}_ms").isNull(),
            F.concat(_quoted(name), F.lit(f" is not {what}")),
        )
        for name, what in (("at", "a point in time"), ("delay", "a duration"), ("grace", "a duration"))
    ]
    latest_ms = ahead_ms + F.coalesce("window_ms", F.lit(0))
    horizon = format_duration(context.horizon_ms)
    beyond = F.concat(F.lit("due in up to "), duration_text(latest_ms), F.lit(f"; the horizon is {horizon}"))
    return [
        RowRule(Reason.MISSING_TIME, ~has_at & ~has_delay, F.lit("it has neither a point in time nor a delay")),
        RowRule(Reason.CONFLICTING_TIME, has_at & has_delay, F.lit("it has both a point in time and a delay")),
        *bad,
        *_window_rules(),
        RowRule(Reason.BEYOND_HORIZON, (latest_ms > context.horizon_ms) & ~(has_at & has_delay), beyond),
    ]


def _window_rules() -> list[RowRule]:
    window_ms, spread, has_window = F.col("window_ms"), F.col("spread"), F.col("has_window")
    is_bad = has_window & ~F.coalesce((window_ms > 0) & (window_ms <= WINDOW_MS_MAX), F.lit(False))
    not_even = F.concat(F.lit("the spread '"), F.substring(spread, 1, QUOTED_CHARACTERS_MAX), F.lit("' is not even"))
    return [
        RowRule(
            Reason.BAD_WINDOW,
            is_bad,
            F.concat(_quoted("window"), F.lit(f" is no duration from 1ms to {format_duration(WINDOW_MS_MAX)}")),
        ),
        RowRule(Reason.BAD_SPREAD, spread.isNotNull() & (spread != "even"), not_even),
        RowRule(Reason.BAD_SPREAD, spread.isNotNull() & ~has_window, F.lit("a spread needs a window")),
    ]


def _id_rules(context: BulkContext) -> list[RowRule]:
    id, times = F.col("id"), F.col(_REPEATED)
    is_short = (F.octet_length(id) >= 1) & (F.octet_length(id) <= ID_BYTES_MAX)
    # A conversion to text and back changes bytes that are not UTF-8.
    is_text = F.encode(F.decode(id, "UTF-8"), "UTF-8") == id
    shared = F.concat(times, F.lit(" rows have this id, and which of them would be delivered is not defined"))
    return [
        RowRule(Reason.MISSING_ID, F.lit(context.with_ids) & id.isNull(), F.lit("the column of ids has none here")),
        RowRule(Reason.BAD_ID, ~is_short, F.lit(f"an id has 1 to {ID_BYTES_MAX} bytes")),
        RowRule(Reason.BAD_ID, ~is_text, F.lit("the id is not UTF-8")),
        RowRule(Reason.BAD_ID, times.isNotNull() & is_short, shared),
    ]


def _header_rules() -> list[RowRule]:
    headers = F.col("headers")
    ours = F.filter(headers, is_postdate_header)
    named = F.array_join(F.transform(ours, lambda header: header.key), ", ")
    is_cut = F.exists(headers, lambda header: header.key.isNull() | header.key.contains("\0"))
    return [
        RowRule(Reason.BAD_HEADERS, F.col("has_headers") & headers.isNull(), F.lit("the headers cannot be read")),
        RowRule(
            Reason.BAD_HEADERS, is_cut, F.lit("a header has no name, or one with a NUL, where clients would cut it")
        ),
        RowRule(
            Reason.UNKNOWN_HEADER,
            F.size(ours) > 0,
            F.concat(F.lit("Postdate's headers must be given as columns: "), named),
        ),
    ]


def _size_rules(context: BulkContext) -> list[RowRule]:
    size, delivered = F.col("size_bytes"), F.col("delivered_bytes")
    bytes_max, target_max = context.request_bytes_max, F.col("target_bytes_max")
    of_request = F.concat(F.lit("as a request "), size, F.lit(f" bytes; {context.requests} takes {bytes_max}"))
    of_target = F.concat(
        F.lit("delivered "), delivered, F.lit(" bytes; "), F.col("target"), F.lit(" takes "), target_max
    )
    return [
        RowRule(Reason.TOO_LARGE, size > bytes_max, of_request),
        RowRule(Reason.TOO_LARGE, (size <= bytes_max) & (delivered > target_max), of_target),
    ]


def _quoted(name: str) -> Column:
    """Returns the name and the quoted value of a field."""
    return F.concat(F.lit(f"{name} '"), F.coalesce(F.col(f"{name}_text"), F.lit("")), F.lit("'"))


def _without_postdates_own(headers: Column) -> Column:
    """Returns the headers without those that Postdate adds to delivered records and dead letters, since the input may
    be a table of such records."""
    added = (ORIGIN, DUE, MOVED, ID)
    return F.filter(
        headers,
        lambda header: F.coalesce(~header.key.isin(*added) & ~header.key.startswith(f"{PREFIX}dead-"), F.lit(True)),
    )
