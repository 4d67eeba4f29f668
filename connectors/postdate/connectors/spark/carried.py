"""From judged rows to what the next audit is given: which are closed, which are judged again, which were told before.

A row is closed when nothing that may still be written can change its verdict: it has ended without a violation, every
end that was fixed for it is a true one (no open transaction hides anything, nothing that settled a doubt is to be read
again), and the requests were read at least as far as its owner had read when it ended. What breaks a rule stays open
until its request leaves the topic: a message that is missing today may be delivered tomorrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.connectors.spark.by_origin import ORIGIN, PARTITION
from postdate.connectors.spark.claims import CLAIMING
from postdate.connectors.spark.recall import context_origins, last_of_each, rows_at, straggling
from postdate.connectors.spark.sides import merged, without_late
from postdate.connectors.spark.verdicts import ENDINGS, VIOLATIONS

PART, CLOSED, OPEN = "part", "closed", "open"
"""In which part of a table of judged rows a row is, and which there are."""
_FOR_GOOD = (*(name for name in ENDINGS if name != "pending"), "request-expired", "target-expired")


@dataclass(frozen=True)
class Gathered:
    """What is to be judged now: `rows` as `folded`, of which an origin may have several; `told` the verdicts that were
    told of it before, `reopened` the closed rows among it, `context` the origins of which nothing is to be said; each
    None where there are none. `has_claims`, `has_answers`: whether there is any fate that names a cause, any answer.
    """

    rows: DataFrame
    told: DataFrame | None
    reopened: DataFrame | None
    context: DataFrame | None
    has_claims: bool
    has_answers: bool


def gathered(fresh: DataFrame, opened: DataFrame | None, closed: DataFrame | None, partitions: DataFrame) -> Gathered:
    """What is new, what is open, and of what is closed whatever is needed to judge these.

    `fresh` are the new rows as `folded`, `opened` and `closed` tables of a state. Up to three small jobs.
    """
    rows, told, reopened, context = fresh, None, None, None
    columns = fresh.columns
    carried = opened
    if closed is not None:
        hit = straggling(fresh, opened, partitions).persist()
        if not hit.isEmpty():
            reopened = rows_at(closed, hit).persist()
            carried = reopened if carried is None else carried.unionByName(reopened)
    if carried is not None:
        rows = rows.unionByName(carried.select(*columns))
        told = carried.select(*ORIGIN, F.col("verdicts").alias("told"))
    flags = rows.agg(
        F.bool_or(F.col("id").isNotNull() | (F.size("links") > 0)).alias("has_kin"),
        F.bool_or(F.exists("facts.fates", lambda fate: fate.fate_name.isin(*CLAIMING))).alias("has_claims"),
        F.bool_or(F.size("facts.answers") > 0).alias("has_answers"),
    ).collect()[0]
    if closed is not None and flags["has_kin"]:
        origins = context_origins(closed, rows).persist()
        if not origins.isEmpty():
            context = origins
            rows = rows.unionByName(rows_at(closed, origins).select(*columns))
    return Gathered(rows, told, reopened, context, bool(flags["has_claims"]), bool(flags["has_answers"]))


def state_rows(now: Gathered, judged: DataFrame, partitions: DataFrame, targets: DataFrame, run: int) -> DataFrame:
    """One row for each origin that is judged or lies ahead, with its `part`, `is_told`, and all a state keeps.

    Ahead is what was read before the request that it names; nothing was said of it. `is_told`: it breaks a rule, and
    just that was told by an earlier run.
    """
    rows = merged(now.rows)
    if now.context is not None:
        rows = rows.join(now.context, list(ORIGIN), "left_anti")
    places = partitions.select(
        *PARTITION, "request_log_start", "request_end", "log_capped", "letters_capped", "answers_capped"
    )
    capped = targets.select("target", "target_capped")
    found = (
        rows.join(judged, list(ORIGIN), "left")
        .join(F.broadcast(places), list(PARTITION), "left")
        .join(F.broadcast(capped), "target", "left")
    )
    if now.told is None:
        found = found.withColumn("told", F.lit(None).cast("array<string>"))
    else:
        found = found.join(now.told, list(ORIGIN), "left")
    judgement = [name for name in judged.columns if name not in ORIGIN]
    return found.select(
        *(*ORIGIN, "id", "links", *judgement),
        without_late(F.col("facts")).alias("facts"),
        F.lit(run).alias("run"),
        F.when(_is_closed(), CLOSED).otherwise(OPEN).alias(PART),
        F.coalesce(_breaks_a_rule() & (F.col("verdicts") == F.col("told")), F.lit(False)).alias("is_told"),
    )


def _breaks_a_rule() -> Column:
    """Whether a row's verdicts hold a violation; null where it was not judged."""
    return F.exists("verdicts", lambda verdict: verdict.isin(*VIOLATIONS))


def union_of_runs(tables: list[DataFrame]) -> DataFrame:
    """The last verdict on each origin: what one audit of everything would say. `tables`: the closed ones and the open.

    Cost: a sort of all rows that are remembered.
    """
    judged = reduce(DataFrame.unionByName, tables).where(F.col("verdicts").isNotNull())
    return last_of_each(judged).drop("facts", "links", "id", "is_told")


def _is_closed() -> Column:
    hidden = [F.col(f"{name}_capped") for name in ("log", "letters", "answers", "target")]
    is_hidden = reduce(Column.__or__, (F.coalesce(one, F.lit(False)) for one in hidden))
    fates = F.col("facts.fates")
    has_late = F.exists(fates, lambda fate: fate.late)
    was_read = F.forall(fates, lambda fate: F.coalesce(fate.next_request <= F.col("request_end"), F.lit(True)))
    is_settled = ~has_late & ~is_hidden & was_read
    is_for_good = F.forall("verdicts", lambda verdict: verdict.isin(*_FOR_GOOD))
    has_left = (F.col("offset") < F.col("request_log_start")) & ~F.array_contains("verdicts", "pending")
    return F.col("verdicts").isNotNull() & is_settled & (is_for_good | has_left)
