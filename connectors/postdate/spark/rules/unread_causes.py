"""Withdraws violations that `claims` cannot prove, because a request left its topic between two runs of an audit.

The unread request may be the cause of a fate. `claims` then finds no request that requires this fate, and would report
a contradiction. But a request stays in its topic until it has ended or its message is stored. So the dispatch log has a
fate of the unread request: a control is `applied` in the record of its effect, and a bulk control in that record or a
later one. If there is no such fate, the claim remains.
"""

from __future__ import annotations

from typing import Final, Literal

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN, PARTITION

_LEFT: Final = ", and its cause has left the topic unread"


def cause_of(fate: Column, kind: Literal["control", "record", "message"], value: Column) -> Column:
    """Returns the column `cause` of a claim about `fate`.

    `kind` states which request the fate needs. `control`: the control at the offset `value`. `record`: a control that
    was applied in the dispatch-log record `value`. `message`: a message that the fate does not name; `value` is 0.
    """
    return F.struct(
        F.lit(kind).alias("kind"), value.cast("bigint").alias("value"), fate.log_offset, fate.place, fate.next_request
    ).alias("cause")


def may_be_unread() -> tuple[Column, Column]:
    """Returns two aggregates of `history_rows`.

    The first is true if a request has left its topic unread. The second is true if a state has kept a request that has
    left its topic. A claim can have an unread cause only if both are true.
    """
    was_read = F.col("request_ms").isNotNull() & (F.col("offset") < F.col("request_log_start"))
    return F.bool_or(is_unread()), F.bool_or(was_read)


def is_unread() -> Column:
    """True if a row of `history_rows` belongs to a request that left its topic before any run had read it."""
    return F.coalesce(F.col("action").isNull() & (F.col("offset") < F.col("request_log_start")), F.lit(False))


def left_claims(judged: DataFrame, known: DataFrame) -> DataFrame:
    """Returns the rows of a rule in `claims` without their `cause`.

    If no run has read the cause of a claim, the sentence `claim` becomes the sentence `expired`. A cause explains at
    most one claim about a message: the first one in the log. `known` are rows of `history_rows`. Cost: one sort of the
    claims and unread requests, and one of the claims, and no join.
    """
    end, offset = F.col("end"), F.col("offset")
    is_applied = F.coalesce(end.fate_name == "applied", F.lit(False))
    at = F.when(is_applied & end["count"].isNull(), end.log_offset)  # a bulk control is applied after its effects

    def key(kind: Column, value: Column) -> Column:
        return F.struct(kind.alias("kind"), value.cast("bigint").alias("value"))

    keys = F.array(
        F.when(is_applied, key(F.lit("control"), offset)),
        F.when(at.isNotNull(), key(F.lit("record"), at)),
        F.when(~is_applied & (end.isNotNull() | F.col("was_stored")), key(F.lit("message"), F.lit(0))),
    )
    unread = known.where(is_unread()).select(
        *PARTITION,
        F.explode(F.array_compact(keys)).alias("key"),
        F.struct(offset, at.alias("at")).alias("unread"),
        offset.alias("until"),
    )
    cause, claim = F.col("cause"), F.col("claim")
    # Rows without a claim have separate keys, so that no group is large.
    key_of = F.when(claim.isNotNull(), key(cause.kind, cause.value)).otherwise(key(F.lit("none"), offset))
    together = judged.withColumns({"key": key_of, "until": cause.next_request}).unionByName(
        unread, allowMissingColumns=True
    )
    before = Window.partitionBy(*PARTITION, "key").orderBy("until").rangeBetween(Window.unboundedPreceding, -1)
    of_one = Window.partitionBy(*ORIGIN, "key").orderBy(cause.log_offset, cause.place)
    last = F.max("unread").over(before)
    is_meant = (F.col("last").offset > offset) & F.coalesce(F.col("last").at == cause.log_offset, F.lit(True))
    is_left = F.coalesce(is_meant, F.lit(False)) & (F.col("number") == 1)
    return (
        together.withColumn("last", last)
        .where(F.col("unread").isNull())
        .withColumn("number", F.row_number().over(of_one))
        .withColumn("expired", F.when(is_left, F.concat(claim, F.lit(_LEFT))))
        .withColumn("claim", F.when(~is_left, claim))
        .drop("unread", "cause", "key", "until", "last", "number")
    )


def withdrawn_before(claims: Column, expired: Column, reported: Column) -> tuple[Column, Column]:
    """Splits the sentences `claims` into the remaining claims, and those that an earlier run withdrew as
    `request-expired`.

    `reported` are the verdicts and details of the earlier run. A run that judges a message again may not have the row
    of the unread request, since only a record of the dispatch log may connect the two. A cause explains one claim. So
    only the first of equal sentences is withdrawn, and none if this run has already withdrawn the same sentence
    (`expired`).
    """
    place = F.array_position(reported.verdicts, "request-expired").cast("int")
    detail = F.get(reported.details, place - 1)

    def is_left(claim: Column) -> Column:
        sentence = F.concat(claim, F.lit(_LEFT))
        return F.coalesce(F.contains(detail, sentence), F.lit(False)) & ~F.array_contains(expired, sentence)

    left = F.array_distinct(F.transform(F.filter(claims, is_left), lambda claim: F.concat(claim, F.lit(_LEFT))))
    remaining = F.filter(claims, lambda claim, at: ~is_left(claim) | (F.array_position(claims, claim) != at + 1))
    return remaining, left
