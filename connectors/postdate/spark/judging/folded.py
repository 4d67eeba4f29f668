"""Judges rows that each contain everything known of an origin, as an audit's state stores them (`inputs.folded`).

The prefilter needs aggregates to find plain origins; here one expression over the row decides. The rules need a shuffle
only for the effects of other requests. So a step of a continuous audit consists of a few small plans:

1. `placed`: add to each row the columns of its partition and target, and whether it is `plain` (as in `prefilter`).
2. `found_of`: count the rows that are not plain, and find which rules have anything to check. One job.
3. `judged_folded`: keep plain rows as they are, judge the others by the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN, PARTITION
from postdate.spark.columns.expressions import one_of, remembered
from postdate.spark.judging.inputs import unfolded
from postdate.spark.judging.judge import is_in_range, judge_placed
from postdate.spark.judging.stages import JudgingParameters, caused
from postdate.spark.limits import AROUND_ROWS_MAX, COMMIT_MS_MAX
from postdate.spark.rules.claims import CLAIMING
from postdate.spark.rules.mismatches import expected_headers

_KEY: Final = (*PARTITION, "key")

JUDGEMENT = {
    **{"target": "string", "first_due_ms": "bigint", "last_due_ms": "bigint", "action": "string"},
    **{"request_ms": "bigint", "fate": "string", "lateness_ms": "bigint", "ended_ms": "bigint"},
    **{"records": "array<string>", "fates": "array<string>", "answers": "array<string>", "verdicts": "array<string>"},
    **{"is_fate_lost": "boolean", "details": "array<string>"},
}
"""What a row is judged to be: the columns of `judge`."""


@dataclass(frozen=True)
class Found:
    """The result of `found_of`: `rows` in total, `left` of them for the rules.

    `has_related`: whether any has an id or names another; `has_claims`: a fate that names a cause, a return that
    names an attempt, or a request that may continue a series; `has_answers`: an answer; `has_bare`: a request that must
    be read again.
    """

    rows: int
    left: int
    has_related: bool
    has_claims: bool
    has_answers: bool
    has_bare: bool


def is_bare() -> Column:
    """Whether the request of a row must be read again.

    Either the facts contain a second record, or a dead letter, but no digests of the request: a state does not store
    those of a plain, delivered message. Or it is a return whose policy was unknown when it was read.
    """
    is_without = F.col("facts.request").isNotNull() & F.col("facts.request.value_digest").isNull()
    has_others = (F.size("facts.records") > 1) | (F.size("facts.letters") > 0)
    return (is_without & has_others) | F.coalesce(F.col("facts.request.retry.is_unknown"), F.lit(False))


def placed(rows: DataFrame, how: JudgingParameters) -> DataFrame:
    """`rows` with the columns of `how.partitions` and `how.targets`; `is_judged`, whether the origin lies in the
    audited range; and `plain`, its verdict, null if the rules must judge it."""
    beside = rows.join(F.broadcast(how.partitions), list(PARTITION), "left")
    beside = beside.withColumn("target", F.col("facts.request.target")).join(F.broadcast(how.targets), "target", "left")
    is_request = F.col("facts.request").isNotNull()
    return beside.withColumns(
        {"is_judged": is_in_range(is_request), "plain": _plain(how.snapshot_ms - how.slack_ms, how.owes_all)}
    )


def found_of(beside: DataFrame) -> Found:
    """Counts rows as of `placed`. Cost: one job."""
    found = beside.agg(
        F.count("*").alias("rows"),
        F.count_if(F.col("is_judged") & F.col("plain").isNull()).alias("left"),
        F.bool_or(F.col("id").isNotNull() | (F.size("links") > 0)).alias("has_related"),
        F.bool_or(
            F.exists("facts.fates", lambda fate: one_of(fate.fate_name, CLAIMING))
            | F.col("facts.request.retry.said").isNotNull()
            | F.col("facts.request.latest_ms").isNotNull()
        ).alias("has_claims"),
        F.bool_or(F.size("facts.answers") > 0).alias("has_answers"),
        F.bool_or(is_bare()).alias("has_bare"),
    ).collect()[0]
    return Found(found["rows"], found["left"], *(bool(found[name]) for name in list(Found.__annotations__)[2:]))


def judged_folded(
    beside: DataFrame, found: Found, stored: DataFrame | None, how: JudgingParameters, kept: Sequence[str]
) -> tuple[DataFrame, list[DataFrame]]:
    """The rows of `placed` with the columns of `judge` (null for rows that are not judged) and the columns `kept`; and
    the DataFrames that were cached for that.

    `stored` are all rows of a state.
    """
    is_left = F.col("is_judged") & F.col("plain").isNull()
    plain = beside.where(~is_left) if found.left else beside
    rows, cached = plain.select(*ORIGIN, *_plain_judgement(), *kept), list[DataFrame]()
    if not found.left:
        return rows, cached
    left, causes = beside.where(is_left), list[DataFrame]()
    if how.needs_histories:
        around = _around(beside, left, found, how)
        if stored is not None and found.has_related:
            around = around.unionByName(context_rows(stored, around).select(*around.columns))
        inputs = unfolded(around)
        known = caused(inputs, how)
        causes += known.causes
        cached += known.cached
    judged = judge_placed(left, causes, kept, overdue_before_ms=how.snapshot_ms - how.slack_ms)
    return rows.unionByName(judged), cached


def _around(beside: DataFrame, left: DataFrame, found: Found, how: JudgingParameters) -> DataFrame:
    """The rows in which causes are searched."""
    rows = beside.select(*ORIGIN, "id", "links", "facts")
    if found.rows <= AROUND_ROWS_MAX or found.left > how.separate_rows_max:
        return rows
    return rows.join(related_origins(rows, left.select(*rows.columns)), list(ORIGIN), "left_semi")


def _plain(overdue_before_ms: int, owes_all: bool) -> Column:
    request, fate, record = F.col("facts.request"), F.get("facts.fates", 0), F.get("facts.records", 0)
    fates, records = F.size("facts.fates"), F.size("facts.records")
    others = F.size("facts.letters") + F.size("facts.answers")
    # Null in rows of a state that is older than this column.
    is_in_order = F.coalesce(F.size("facts.disorders") <= 0, F.lit(True))
    is_alone = (
        request.isNotNull()
        & (others == 0)
        & is_in_order
        & (request.action == "schedule")
        & request.retry.isNull()
        & request.due_ms.isNotNull()
        & F.col("target_partitions").isNotNull()
    )
    place = F.coalesce(request.partition_asked, request.key_hash % F.col("target_partitions"))
    is_same = (
        (record.target == request.target)
        & (record.key_digest == request.key_digest)
        & (record.value_digest == request.value_digest)
        & (record.headers_digest == request.headers_digest)
        & F.coalesce(record["partition"] == place, F.lit(True))
        & (record.due_ms == request.due_ms)
        & record.id.eqNullSafe(request.id)
        & (record.own_headers == expected_headers(request.id))
    )
    is_ended = (
        (fate.fate_name == "delivered")
        & ~fate.late
        & fate.chosen_ms.isNull()
        & request.window_ms.isNull()
        & request.latest_ms.isNull()
        & (fate.first_due_ms == request.due_ms)
        & (fate.at_ms >= request.due_ms)
        & F.coalesce(fate.at_ms - request.due_ms - COMMIT_MS_MAX <= request.grace_ms, F.lit(True))
    )
    is_delivered = is_alone & (fates == 1) & (records == 1) & is_ended & is_same & F.lit(not owes_all)
    is_pending = is_alone & (fates == 0) & (records == 0) & (request.due_ms >= overdue_before_ms)
    return F.when(is_delivered, "delivered").when(is_pending, "pending")


@remembered
def _plain_judgement() -> list[Column]:
    """The columns of `judge` for a plain row; null for others."""
    request, fate, record = F.col("facts.request"), F.get("facts.fates", 0), F.get("facts.records", 0)
    is_delivered, none = F.col("plain") == "delivered", F.array()
    spelled = F.concat_ws("/", record.target, record["partition"], record.offset)
    given = {
        "target": F.col("target"),
        "first_due_ms": request.due_ms,
        "last_due_ms": request.due_ms,
        "action": F.lit("schedule"),
        "request_ms": request.request_ms,
        "fate": F.when(is_delivered, F.lit("delivered")),
        "lateness_ms": fate.at_ms - request.due_ms,
        "ended_ms": fate.at_ms,
        "records": F.when(is_delivered, F.array(spelled)).otherwise(none),
        "fates": F.when(is_delivered, F.array(F.concat(F.lit("delivered "), fate.log_place))).otherwise(none),
        "answers": none,
        "verdicts": F.array("plain"),
        "is_fate_lost": F.lit(False),
        "details": none,
    }
    is_plain = F.col("plain").isNotNull()
    return [F.when(is_plain, given[name]).cast(kind).alias(name) for name, kind in JUDGEMENT.items()]


def context_rows(stored: DataFrame, around: DataFrame) -> DataFrame:
    """The rows of `stored` that are needed to judge the rows `around`, and are not among them."""
    origins = related_origins(stored, around).join(around.select(*ORIGIN), list(ORIGIN), "left_anti")
    return stored.join(origins, list(ORIGIN), "left_semi")


def related_origins(some: DataFrame, judged: DataFrame) -> DataFrame:
    """The origins in `some` that are needed to judge the rows `judged`, including these; hash collisions may add a few
    more.

    Related are rows with the same id in a partition, and rows of which one names the other. Cost: one join of the
    origins, ids and links of `some` with those of `judged`; no other column of `some` is read.
    """
    offset, links, has_links = F.col("offset"), F.col("links"), F.size("links") > 0
    of_id = F.when(F.col("id").isNotNull(), _key("id", F.col("id")))
    # Only what has begun to end can have been named by a closed row.
    is_ending = (F.size("facts.fates") > 0) | (F.size("facts.answers") > 0)
    wanted = judged.select(
        *PARTITION,
        _keys(
            [of_id, _key("at", offset), F.when(is_ending, _key("names", offset))],
            F.when(has_links, F.transform(links, lambda link: _key("at", link))),
        ),
    ).distinct()
    names = F.when(has_links, F.transform(links, lambda link: _key("names", link)))
    found = some.select(*ORIGIN, _keys([of_id, _key("at", offset)], names))
    return found.join(wanted, list(_KEY), "left_semi").select(*ORIGIN).distinct()


def _key(kind: str, value: Column) -> Column:
    """A hash of a value by which an origin is found; different values collide only by chance."""
    return F.xxhash64(F.lit(kind), value)


def _keys(some: list[Column], more: Column) -> Column:
    none = F.array().cast("array<bigint>")
    return F.explode(F.array_compact(F.concat(F.array(*some), F.coalesce(more, none)))).alias("key")
