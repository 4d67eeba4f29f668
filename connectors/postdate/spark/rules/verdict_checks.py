"""Checks that every answer is true and was given once: compares verdict records with requests and fates.

An answer is in the same transaction as the fate that it reports, so both are visible or neither is. An answer is true
under these conditions, in which p is another request that the answer names (`of`):

    cancelled of p      p ended `cancelled` in the dispatch-log record in which this cancel was `applied`
    rescheduled of p    p was `moved` by this control
    paused resumed triggered backfilled of p
                        p has this fate by this control; `claims` compares the fate with the control
    replaced of p       p ended `replaced`, and this is a later request of the same id that was not refused by then
    too-late            p, or the last request that this control names, ended `delivered`, `dead` or `completed` before
                        this control was applied
    applied             this bulk control ended with this count
    not-found           nothing that the control names was pending when it was applied
    rejected            this request ended `dead` without ever being pending
    delivered dead cancelled replaced kept dropped, without p: this request to schedule has this fate; if the answer
                        names the survivor, it is that of the fate
    accepted            this request was `stored`

An answer is not reported as wrong if a record that an open transaction hides, or that retention has deleted, may
confirm it. An answer that depends on a lost fate is doubtful.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN, PARTITION
from postdate.spark.columns.expressions import memoized
from postdate.spark.records.fates import OF_CONTROLS
from postdate.spark.records.recurrences import RECURRING
from postdate.spark.rules.request_histories import CONTROLS, is_refused, position_before

_OF_RECORD: Final = ("cancelled", "rescheduled", *OF_CONTROLS)


def judged_answers(known: DataFrame) -> DataFrame:
    """Returns one row for each answer: the origin, a struct `answer`, and a sentence `doubt`.

    `answer` has the `text` of the answer with its place, and `wrong`, which describes the problem. `wrong` is null for
    an answer that is true or cannot be judged, such as an answer to a request that was not read. `doubt` is present if
    the request has ended and the fate that decides about the answer may have left the dispatch log; otherwise it is
    null.

    `known` are rows of `history_rows`. Cost: one join of the answers with the requests that the answers or the answered
    controls name, by origin or as the survivor.
    """
    meant = known.select(
        *(*PARTITION, F.col("offset").alias("meant")),
        F.struct("id", "action", "request_ms", "end", "answers_of_others", "moves").alias("of"),
    )
    given = known.where(F.size("answers") > 0).select("*", F.explode("answers").alias("checked"))
    is_own_end = (F.col("end.fate_name") == "replaced") & (F.col("checked.answer") == "replaced")
    by = F.when(is_own_end, F.col("checked.by"))
    facts = given.withColumn("meant", F.coalesce("checked.of", "acts_on", by)).join(
        meant, [*PARTITION, "meant"], "left"
    )
    return facts.select(*ORIGIN, *_judged_answer())


@memoized
def _judged_answer() -> tuple[Column, Column]:
    checked = F.col("checked")
    text = F.concat(checked.answer, F.coalesce(F.concat(F.lit(" of "), checked.of.cast("string")), F.lit("")))
    answer = F.struct(
        F.concat(text, F.lit(" ("), checked.place, F.lit(")")).alias("text"),
        F.when(F.col("action").isNotNull(), _wrong()).alias("wrong"),
    )
    text = F.concat(F.lit("answered "), checked.answer, F.lit(", by a fate that may have left the dispatch log"))
    return answer.alias("answer"), F.when(F.col("action").isNotNull() & _is_lost(), text).alias("doubt")


def is_about_another(answer: Column) -> Column:
    """True if an answer reports to a request that it has replaced another one, in addition to the answer about its own
    end."""
    return (answer.answer == "replaced") & answer.of.isNotNull()


def _wrong() -> Column:
    """Returns a sentence that describes why an answer is wrong; null if the answer is true or cannot be judged."""
    checked, of, end = F.col("checked"), F.col("of"), F.col("end")
    is_hidden = end.isNull() & (F.col("log_capped") | (F.col("request_ms") < F.col("fates_lost_before_ms")))
    # A control ends in the dispatch-log record of its effect. So if the log has its end, the effect is not lost.
    is_here = checked.answer.isin(*_OF_RECORD) & end.isNotNull() & of.request_ms.isNotNull()
    is_of_lost = of.request_ms.isNull() | (of.request_ms < F.col("fates_lost_before_ms"))
    is_of_hidden = checked.of.isNotNull() & of.end.isNull() & ~is_here & (F.col("log_capped") | is_of_lost)
    # If no request in the range that was read has the id, nothing is known about earlier requests with this id.
    is_unread = (
        (checked.answer == "too-late") & checked.of.isNull() & _last_end().isNull() & (F.col("request_start") > 0)
    )
    is_known = ~(_or_true(is_hidden) | _or_true(is_of_hidden) | _or_true(is_unread) | _is_lost())
    other_id = F.col("id").isNotNull() & ~F.col("id").eqNullSafe(checked.id) & (checked.answer != "rejected")
    answered = F.concat(F.lit("answered "), checked.answer)
    while_pending = F.when(_was_pending(), F.lit(" while what it names was pending")).otherwise(F.lit(""))
    and_of = F.concat(F.lit(", and of "), checked.of, F.lit(": "), _fate_name(of.end))
    ends = F.concat(
        F.lit(", the dispatch log says "),
        _fate_name(end),
        F.when(checked.of.isNotNull(), and_of).otherwise(while_pending),
    )
    return (
        F.when(_times() > 1, F.concat(answered, F.lit(": one of "), _times(), F.lit(" answers to the same")))
        .when(other_id, F.concat(answered, F.lit(" under another id")))
        .when(is_known & ~F.coalesce(_is_true(), F.lit(False)), F.concat(answered, ends))
    )


def _is_lost() -> Column:
    """True if a request has ended, and the fate that decides about its answer may be lost.

    The deciding fate is the request's own `stored`, or the end of the other request on which the answer depends.
    """
    checked, of, last = F.col("checked"), F.col("of"), F.col("last_schedule")
    lost_ms = F.col("fates_lost_before_ms")
    # A stored request is never kept, but an owner with other settings may refuse or drop it.
    is_stored_lost = (checked.answer == "accepted") & ~F.col("was_stored") & (F.col("end.fate_name") != "kept")
    is_stored_lost = is_stored_lost & (F.col("request_ms") < lost_ms) & F.col("action").isin("schedule", RECURRING)
    needs_end = checked.answer.isin("too-late", "not-found") | is_about_another(checked)
    here = of.end.isNull() & (of.request_ms < lost_ms) & (F.col("meant") < F.col("offset"))
    here = here & of.action.isin("schedule", RECURRING)
    by_id = last.end.isNull() & (last.request_ms < lost_ms)
    is_end_lost = needs_end & F.when(F.col("meant").isNotNull(), here).otherwise(by_id)
    return F.col("end").isNotNull() & (F.coalesce(is_stored_lost, F.lit(False)) | F.coalesce(is_end_lost, F.lit(False)))


def _times() -> Column:
    """Returns how often the same fact was answered: the acceptance of a request, the end of a request or control, or
    that a request was replaced."""
    checked = F.col("checked")
    accepted = F.size(F.filter("answers", lambda other: other.answer == "accepted"))
    replaced = F.size(F.filter("of.answers_of_others", lambda other: other == "replaced"))
    own = F.size(F.filter("answers", lambda other: (other.answer != "accepted") & ~is_about_another(other)))
    return F.when(checked.answer == "accepted", accepted).when(is_about_another(checked), replaced).otherwise(own)


def _is_true() -> Column:
    """True if the dispatch log confirms an answer; null counts as false."""
    checked, action, end, of = F.col("checked"), F.col("action"), F.col("end"), F.col("of")
    answer, is_of, is_schedule = checked.answer, checked.of.isNotNull(), action.isin("schedule", RECURRING)
    is_bulk = F.col("selected").isNotNull()
    is_applied = action.isin(*CONTROLS) & (end.fate_name == "applied") & ~is_bulk
    same_id = F.coalesce(F.col("id") == of.id, F.lit(False))
    is_unread, is_later = of.request_ms.isNull(), checked.of < F.col("offset")
    names_it = is_later & (is_unread | same_id | F.coalesce(F.col("acts_on") == checked.of, F.lit(False)))
    # A fate of format version 1 names no survivor. The survivor is then the next request of the same id.
    survivor = F.coalesce(end.control_offset, F.col("later_schedule"))
    is_by = checked["by"].isNull() | F.coalesce(checked["by"] == survivor, F.lit(True))
    was_refused_later = is_refused(of.end) & (of.end.log_offset > end.log_offset) & (checked["by"] > F.col("offset"))
    was_refused_later = was_refused_later & same_id & of.action.isin("schedule", RECURRING)
    is_by = is_by | (end.control_offset.isNull() & F.coalesce(was_refused_later, F.lit(False)))
    own_end = is_schedule & ~is_of & (end.fate_name == answer) & is_by
    cancelled = (action == "cancel") & is_applied & names_it & (of.end.fate_name == "cancelled")
    replaced = is_schedule & is_later & (is_unread | same_id) & (of.end.fate_name == "replaced")
    replaced = replaced & (~is_refused(end) | (end.log_offset > of.end.log_offset))
    has_moved = (F.size("moved") > 0) | (F.size("changed") > 0)
    has_fate = F.array_contains("changed", F.struct(answer.alias("fate_name"), checked.of.alias("offset")))
    ended = F.when(is_of, names_it & _ended_before(of.end)).otherwise(_ended_before(_last_end()))
    return (
        F.when(
            answer == "cancelled", F.when(is_of, cancelled & (of.end.log_offset == end.log_offset)).otherwise(own_end)
        )
        .when(
            answer == "rescheduled",
            (action == "reschedule") & is_applied & names_it & F.array_contains("moved", checked.of),
        )
        .when(answer.isin(*OF_CONTROLS), is_applied & names_it & has_fate)
        .when(answer == "replaced", F.when(is_of, replaced).otherwise(own_end))
        .when(answer == "too-late", is_applied & ~has_moved & ended)
        .when(answer == "not-found", is_applied & ~is_of & ~has_moved & ~_was_pending() & ~_was_undone())
        .when(answer == "applied", is_bulk & ~is_of & (end.fate_name == "applied") & (end["count"] == checked["count"]))
        .when(answer == "rejected", ~is_of & is_refused(end))
        .when(answer == "dead", own_end & ~is_refused(end))
        .when(answer == "delivered", own_end)
        .when(answer.isin("kept", "dropped"), own_end & checked["by"].isNotNull())
        .when(answer == "accepted", is_schedule & ~is_of & F.col("was_stored"))
    )


def _ended_before(end: Column) -> Column:
    """True if an end is `delivered`, `dead` or `completed`, and precedes the end of this control in the log."""
    control = F.col("end")
    is_before = F.struct(end.log_offset, end.place) < F.struct(control.log_offset, control.place)
    return end.fate_name.isin("delivered", "dead", "completed") & is_before


def _last_end() -> Column:
    """Returns the end of the last request that a control names, by its id or by its origin."""
    named_here = F.when(~is_refused(F.col("of.end")), F.col("of.end"))
    return F.when(F.col("acts_on").isNotNull(), named_here).otherwise(F.col("last_schedule.end"))


def _was_pending() -> Column:
    """True if a request that a control names had not ended when the control was applied."""
    of, control = F.col("of"), F.col("end")
    is_held = of.action.isin("schedule", RECURRING) & ~is_refused(of.end) & (F.col("meant") < F.col("offset"))
    is_held = is_held & ~F.coalesce(of.end.bulk_offset < F.col("offset"), F.lit(False))
    is_lost = of.request_ms < F.col("fates_lost_before_ms")
    in_this = (of.end.log_offset == control.log_offset) & of.end.fate_name.isin("delivered", "dead")
    here = is_held & F.coalesce((of.end.log_offset > control.log_offset) | in_this, ~is_lost)
    by_id = F.col("pending_until") > position_before(control)
    return F.coalesce(F.when(F.col("acts_on").isNotNull(), here).otherwise(by_id), F.lit(False))


def _was_undone() -> Column:
    """True if this cancel was applied in the record in which a request that it names ended `cancelled`, and no answer
    reports this end."""
    of = F.col("of")
    here = (of.end.fate_name == "cancelled") & (of.end.log_offset == F.col("end.log_offset"))
    here = here & of.end.bulk_offset.isNull() & ~F.array_contains(of.answers_of_others, "cancelled")
    undone = F.when(F.col("acts_on").isNotNull(), here).otherwise(F.col("undone_with"))
    return F.coalesce((F.col("action") == "cancel") & undone, F.lit(False))


def _fate_name(end: Column) -> Column:
    return F.coalesce(end.fate_name, F.lit("nothing"))


def _or_true(condition: Column) -> Column:
    """Returns the condition, with null as true. It is null for a partition without bounds, about which nothing is
    known."""
    return F.coalesce(condition, F.lit(True))
