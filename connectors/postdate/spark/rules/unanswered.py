"""Fates without a required answer. The mode of the request topic, `control` or `all`, decides which answers are
required.

    control   every control that was applied or refused, every request that was replaced, kept or dropped
    all       these, and every other request to schedule that has ended, except a schedule that is `completed`

Fates older than the content of the verdicts topic are not checked, nor are fates whose answer an open transaction may
hide.
"""

from __future__ import annotations

from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN
from postdate.spark.records.recurrences import RECURRING
from postdate.spark.rules.request_histories import is_refused
from postdate.spark.rules.verdict_checks import is_about_another

Mode = Literal["none", "control", "all"]
MODES: tuple[Mode, ...] = ("none", "control", "all")


def unanswered_ends(known: DataFrame, mode: Mode) -> DataFrame:
    """Returns one row for each request that lacks an answer that `mode` requires.

    The row has the origin, and a sentence `unanswered`. `known` are rows of `history_rows`. Requires that `mode` is not
    `none`.
    """
    end = F.col("end")
    was_visible = ~end.late & ~F.col("answers_capped") & (end.at_ms > F.col("answers_lost_before_ms"))
    has_own = F.exists("answers", lambda given: (given.answer != "accepted") & ~is_about_another(given))
    lacks_own = _is_owed(mode) & ~has_own
    lacks_of = (end.fate_name == "replaced") & ~F.array_contains("answers_of_others", "replaced")
    missing = F.concat_ws(
        "; ",
        F.when(lacks_own, F.concat(F.lit("fate "), end.fate_name, F.lit(" was not answered"))),
        F.when(lacks_of, F.lit("that it was replaced was not answered")),
    )
    owing = known.where(F.col("action").isNotNull() & was_visible & (lacks_own | lacks_of))
    return owing.select(*ORIGIN, missing.alias("unanswered"))


def _is_owed(mode: Mode) -> Column:
    """True if the request itself must be answered once it has this end."""
    end, is_message = F.col("end"), F.col("action").isin("schedule", RECURRING)
    is_control = end.fate_name.isin("applied", "kept", "dropped") | (is_refused(end) & ~is_message)
    # A schedule gets no answer when it completes.
    return is_control | (is_message & (end.fate_name != "completed")) if mode == "all" else is_control
