"""Withdraws claims about fates whose cause, another request, left the topic between two runs of an audit with a state.

No run has read such a cause. So `claims` finds no request that asks for the fate, and would report a contradiction. But
a request stays in its topic until it has ended or its message is stored. So the dispatch log has a fate of the cause: a
control is `applied` in the record of its effect, a bulk control in that or a later one. Without it, the claim remains.
"""

from __future__ import annotations

from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN, PARTITION


def cause_of(fate: Column, kind: Literal["control", "record", "message"], value: Column) -> Column:
    """The column `cause` of a claim about `fate`. By `kind`, the fate follows from the control at the offset `value`,
    from a control that was applied in the dispatch-log record `value`, or from a message that the fate does not name:
    then `value` is 0."""
    return F.struct(
        F.lit(kind).alias("kind"), value.cast("bigint").alias("value"), fate.log_offset, fate.next_request
    ).alias("cause")


def may_be_unread() -> tuple[Column, Column]:
    """Two aggregates of `history_rows`: whether a request has left its topic unread, and whether a state has kept a
    request that has left its topic. There are claims with an unread cause only if both are true."""
    was_read = F.col("request_ms").isNotNull() & (F.col("offset") < F.col("request_log_start"))
    return F.bool_or(is_unread()), F.bool_or(was_read)


def is_unread() -> Column:
    """Whether a row of `history_rows` is that of a request that has left its topic before any run has read it."""
    return F.coalesce(F.col("action").isNull() & (F.col("offset") < F.col("request_log_start")), F.lit(False))


def left_claims(judged: DataFrame, known: DataFrame) -> DataFrame:
    """The rows of a rule in `claims`, without their `cause`. If no run has read the cause of a row, its sentence
    `claim` becomes `expired`.

    `known` as in `history_rows`. Cost: a join of the claims with the unread requests.
    """
    end, offset = F.col("end"), F.col("offset")
    is_applied = F.coalesce(end.fate_name == "applied", F.lit(False))
    at = F.when(is_applied & end["count"].isNull(), end.log_offset)  # a bulk control is applied behind its effects

    def key(kind: str, value: Column) -> Column:
        return F.struct(F.lit(kind).alias("kind"), value.cast("bigint").alias("value"))

    keys = F.array(
        F.when(is_applied, key("control", offset)),
        F.when(at.isNotNull(), key("record", at)),
        F.when(~is_applied & (end.isNotNull() | F.col("was_stored")), key("message", F.lit(0))),
    )
    unread = known.where(is_unread()).select(
        *PARTITION, F.explode(F.array_compact(keys)).alias("key"), F.struct(offset, at.alias("at")).alias("unread")
    )
    by, cause = F.col("unread"), F.col("cause")
    is_meant = (by.offset > offset) & (by.offset < cause.next_request)
    is_meant = is_meant & F.coalesce(by.at == cause.log_offset, F.lit(True))
    key_of = F.struct(cause.kind.alias("kind"), cause.value.alias("value")).alias("key")
    claimed = judged.where("claim is not null").select(*(*ORIGIN, "claim", "cause"), key_of)
    found = (
        claimed.join(unread, [*PARTITION, "key"])
        .where(is_meant)
        .select(*ORIGIN, "claim", F.lit(True).alias("is_left"))
        .distinct()
    )
    is_left, said = F.col("is_left").isNotNull(), F.concat("claim", F.lit(", and its cause has left the topic unread"))
    return (
        judged.join(found, [*ORIGIN, "claim"], "left")
        .withColumn("expired", F.when(is_left, said))
        .withColumn("claim", F.when(~is_left, F.col("claim")))
        .drop("is_left", "cause")
    )
