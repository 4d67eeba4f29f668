"""The rules about how a request ended, or did not: expressions over the columns of `judge`'s facts.

A fate is `late` when it lies behind the fixed end of the dispatch log: it clears a record that had no fate yet, and is
held to nothing whose end was fixed before it.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from postdate.connectors.spark.verdicts import Problem
from postdate.connectors.wire.reasons import Reason


def unended_problems() -> list[Problem]:
    """Requests without a final fate."""
    is_open = F.col("is_request") & ~F.col("is_ended")
    has_records, has_letters = F.size("on_target") > 0, F.size("letters") > 0
    is_silent = is_open & ~has_records & ~has_letters & F.col("is_overdue")
    is_hidden = F.col("is_fate_hidden")
    due = F.coalesce(F.col("last_due_ms").cast("string"), F.lit("at once"))
    hidden = F.lit("its fate may be hidden by an open transaction, or has left the dispatch log")
    return [
        Problem("missing", is_silent & ~is_hidden, F.concat(F.lit("no fate; due "), due)),
        Problem(
            "contradiction", is_open & has_records & ~is_hidden, F.concat(F.lit("record without fate: "), places())
        ),
        Problem("contradiction", is_open & has_letters & ~is_hidden, F.lit("dead letter without fate")),
        Problem("unsettled", (is_silent | (is_open & (has_records | has_letters))) & is_hidden, hidden),
    ]


def ended_problems() -> list[Problem]:
    """Requests with a final fate that is not the only one, or that the records do not bear out."""
    names = F.array_join(F.transform("finals", lambda row: row.fate_name), ", ")
    finals = F.array_join(F.transform("finals", named_fate), ", ")
    final, count = F.col("final.fate_name"), F.size("on_target")
    is_ended, is_delivered = F.col("is_request") & F.col("is_ended"), F.col("is_delivered")
    has_other = F.exists("finals", lambda row: row.fate_name != "delivered")
    has_letters = F.size("letters") > 0
    return [
        Problem("duplicate", F.size("finals") > 1, F.concat(F.size("finals"), F.lit(" final fates: "), finals)),
        Problem(
            "duplicate", F.col("is_request") & (count > 1), F.concat(count, F.lit(" committed records: "), places())
        ),
        Problem("duplicate", F.size("letters") > 1, F.concat(F.size("letters"), F.lit(" dead letters"))),
        *_undelivered_problems(is_ended & is_delivered & (count == 0)),
        Problem(
            "contradiction",
            is_ended & has_other & (is_delivered | (count > 0)),
            F.concat(
                F.lit("delivered although "), names, F.when(count > 0, F.concat(F.lit(": "), places())).otherwise("")
            ),
        ),
        *_unlettered_problems(is_ended & F.col("is_dead") & ~has_letters),
        Problem(
            "contradiction", is_ended & ~F.col("is_dead") & has_letters, F.concat(F.lit("dead letter although "), final)
        ),
        _expired_problem(),
        Problem(
            "early",
            F.col("is_request") & _is_early(),
            F.concat(F.lit("committed at "), F.col("final.at_ms"), F.lit(", due "), F.col("last_due_ms")),
        ),
    ]


def answer_problems() -> list[Problem]:
    """Answers that the dispatch log does not bear out, and those that were owed and never given."""
    wrong = F.array_compact(F.transform("answers", lambda answer: answer.wrong))
    # A request that has left its topic, or lies outside the window, is no ground to judge an answer.
    return [
        Problem("false-verdict", F.col("is_request") & (F.size(wrong) > 0), F.array_join(wrong, "; ")),
        Problem("unanswered", F.size("unanswered") > 0, F.array_join("unanswered", "; ")),
    ]


def named_fate(row: Column) -> Column:
    """A fate by name, with the place of its dispatch-log record."""
    return F.concat(row.fate_name, F.lit(" ("), row.log_place, F.lit(")"))


def ended_state() -> Column:
    """The verdict of a row without problems."""
    is_unproved = F.col("final.late") & (
        (F.col("is_delivered") & (F.size("on_target") == 0)) | (F.col("is_dead") & (F.size("letters") == 0))
    )
    return F.when(is_unproved | ~F.col("is_ended"), F.lit("pending")).otherwise(F.col("final.fate_name"))


def places() -> Column:
    """Where the records of a row are: topic, partition, offset."""
    spelled = F.transform(
        "on_target", lambda record: F.concat_ws("/", record.target, record["partition"], record.offset)
    )
    return F.array_join(spelled, ", ")


def _is_early() -> Column:
    return F.exists("finals", lambda row: (row.fate_name == "delivered") & (row.at_ms < F.col("last_due_ms")))


def _expired_problem() -> Problem:
    """A dead letter `expired` needs a grace that was over by the broker's clock when its fate was committed."""
    is_expired = F.exists("letters", lambda letter: letter.reason == Reason.EXPIRED.value)
    over_ms = F.col("last_due_ms") + F.col("grace_ms")
    in_time = F.coalesce(F.col("final.at_ms") <= over_ms, F.lit(True)) | (F.col("final.first_due_ms") == 0)
    grace = F.coalesce(F.concat(F.lit("its grace ends at "), over_ms), F.lit("it has no grace"))
    return Problem(
        "contradiction",
        F.col("is_request") & F.col("is_dead") & is_expired & in_time,
        F.concat(F.lit("expired at "), F.col("final.at_ms"), F.lit(", though "), grace),
    )


def _undelivered_problems(holds: Column) -> list[Problem]:
    """A fate `delivered`, and no record on the request's own target."""
    on_time = holds & ~F.col("final.late")
    is_unread = F.col("target_capped").isNull() | F.col("target_capped")
    is_gone = ~is_unread & (F.col("target_compacted") | (F.col("final.at_ms") <= F.col("target_lost_before_ms")))
    is_gone = F.coalesce(is_gone, F.lit(False))
    without = F.concat(
        F.lit("fate delivered at "),
        F.col("final.at_ms"),
        F.lit(", no record on "),
        F.coalesce("target", F.lit("its target")),
    )
    return [
        Problem("unsettled", on_time & is_unread, F.lit("the target was not read to its end")),
        Problem("target-expired", on_time & is_gone, F.lit("the record has left its topic")),
        Problem("missing", on_time & ~is_unread & ~is_gone, without),
        Problem("contradiction", on_time & ~is_unread & ~is_gone, without),
    ]


def _unlettered_problems(holds: Column) -> list[Problem]:
    """A fate `dead`, and no dead letter."""
    on_time = holds & ~F.col("final.late")
    is_unread = F.coalesce(F.col("letters_capped"), F.lit(True))
    is_gone = F.coalesce(F.col("final.at_ms") <= F.col("letters_lost_before_ms"), F.lit(False))
    return [
        Problem("unsettled", on_time & is_unread, F.lit("the dead letters were not read to their end")),
        Problem("target-expired", on_time & ~is_unread & is_gone, F.lit("the dead letter has left its topic")),
        Problem("contradiction", on_time & ~is_unread & ~is_gone, F.lit("fate dead without a dead letter")),
    ]
