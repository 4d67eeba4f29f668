"""From judged rows to what the next audit is given: which are closed, which are judged again, which were told before.

A row is closed when nothing that may still be written can change its verdict: it has ended without a violation, every
end that was fixed for it is a true one (no open transaction hides anything, nothing that settled a doubt is to be read
again), and the requests were read at least as far as its owner had read when it ended. What breaks a rule stays open
until its request leaves the topic: a message that is missing today may be delivered tomorrow.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.connectors.spark.by_origin import ORIGIN
from postdate.connectors.spark.expressions import remembered
from postdate.connectors.spark.recall import last_of_each
from postdate.connectors.spark.sides import without_late
from postdate.connectors.spark.verdicts import ENDINGS, VIOLATIONS

PART, CLOSED, OPEN = "part", "closed", "open"
"""In which part of a table of judged rows a row is, and which there are."""
_FOR_GOOD = (*(name for name in ENDINGS if name != "pending"), "request-expired", "target-expired")


STATE_COLUMNS: Final = (
    *("request_end", "request_log_start", "log_capped", "letters_capped", "answers_capped", "target_capped"),
    *("id", "links", "facts", "told"),
)
"""What `state_rows` asks of rows besides how they were judged."""


def state_rows(judged: DataFrame, run: int) -> DataFrame:
    """The rows of a state, with their `part` and `is_told`, of rows that are judged or lie ahead, with `STATE_COLUMNS`.

    Ahead is what was read before the request that it names; nothing was said of it. `is_told`: it breaks a rule, and
    just that was told by an earlier run.
    """
    judgement = [name for name in judged.columns if name not in (*ORIGIN, *STATE_COLUMNS)]
    return judged.select(
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


@remembered
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
