"""Rules about the end of a request, or its missing end: column expressions over the columns of `judging.judge`.

A fate is `late` if its record is at or after the fixed end of the dispatch log. A late fate explains a record that no
other fate explains, but it is not compared with topics whose end was fixed before it was written.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from postdate.spark.columns.expressions import one_of
from postdate.spark.limits import BURIED_EARLY_MS_MAX, COMMIT_MS_MAX
from postdate.spark.rules.verdicts import Problem
from postdate.wire.reasons import Reason

_TRIED = tuple(
    reason.value
    for reason in (Reason.UNKNOWN_TARGET, Reason.UNAUTHORIZED, Reason.TARGET_UNAVAILABLE, Reason.RECORD_REFUSED)
)
"""The reasons of the dead letters that a sidecar writes after it has tried to deliver a message."""


def unended_problems() -> list[Problem]:
    """Returns the problems of requests without a final fate."""
    is_open = F.col("is_request") & ~F.col("is_ended")
    has_records, has_dead_letters = F.size("on_target") > 0, F.size("letters") > 0
    is_known = ~F.col("is_policy_unknown")
    is_silent = is_open & ~has_records & ~has_dead_letters & F.col("is_overdue") & is_known
    is_lost, is_hidden = F.col("has_lost_fates"), F.col("has_lost_fates") | F.col("is_fate_hidden")
    due = F.coalesce(F.col("last_due_ms").cast("string"), F.lit("at once"))
    is_odd = is_silent | (is_open & (has_records | has_dead_letters))
    return [
        Problem("missing", is_silent & ~is_hidden, F.concat(F.lit("no fate; due "), due)),
        Problem(
            "contradiction", is_open & has_records & ~is_hidden, F.concat(F.lit("record without fate: "), places())
        ),
        Problem("contradiction", is_open & has_dead_letters & ~is_hidden, F.lit("dead letter without fate")),
        Problem("unsettled", is_odd & is_lost, F.lit("its fate may have left the dispatch log")),
        Problem("capped", is_odd & ~is_lost & is_hidden, F.lit("an open transaction may hide its fate")),
        _unknown_policy_problem(),
    ]


def _unknown_policy_problem() -> Problem:
    """Returns the problem of a return whose due time the audit cannot compute. A refused return has no such problem,
    since its policy need not exist. A pending return has it only if it is overdue."""
    is_refused = F.coalesce((F.col("final.fate_name") == "dead") & (F.col("final.first_due_ms") == 0), F.lit(False))
    is_pending = ~F.col("is_ended") & ~F.col("is_overdue")
    return Problem(
        "policy-unknown",
        F.col("is_request") & F.col("is_policy_unknown") & ~is_refused & ~is_pending,
        F.concat(F.lit("the dispatch log does not contain the policy "), F.col("request.retry.name")),
    )


def ended_problems() -> list[Problem]:
    """Returns the problems of requests with several final fates, records or dead letters, or with a final fate that
    contradicts the records, the dead letters, the due time or the grace."""
    names = F.array_join(F.transform("finals", lambda row: row.fate_name), ", ")
    finals = F.array_join(F.transform("finals", named_fate), ", ")
    final, count = F.col("final.fate_name"), F.size("on_target")
    is_ended, is_delivered = F.col("is_request") & F.col("is_ended"), F.col("is_delivered")
    has_other = F.exists("finals", lambda row: row.fate_name != "delivered")
    has_dead_letters = F.size("letters") > 0
    return [
        Problem("duplicate", F.size("finals") > 1, F.concat(F.size("finals"), F.lit(" final fates: "), finals)),
        Problem("duplicate", _is_repeated(), F.concat(count, F.lit(" committed records: "), places())),
        Problem("duplicate", F.size("letters") > 1, F.concat(F.size("letters"), F.lit(" dead letters"))),
        *_undelivered_problems(is_ended & is_delivered & (count == 0)),
        Problem(
            "contradiction",
            is_ended & has_other & (is_delivered | (count > 0)),
            F.concat(
                F.lit("delivered although "), names, F.when(count > 0, F.concat(F.lit(": "), places())).otherwise("")
            ),
        ),
        *_problems_without_dead_letter(is_ended & F.col("is_dead") & ~has_dead_letters),
        Problem(
            "contradiction",
            is_ended & ~F.col("is_dead") & has_dead_letters,
            F.concat(F.lit("dead letter although "), final),
        ),
        _expired_problem(),
        Problem(
            "past-grace",
            F.col("is_request")
            & F.coalesce(is_past_grace(F.col("final.at_ms"), F.col("leaves_ms")), F.lit(False))
            & F.col("is_delivered"),
            F.concat(
                *(F.lit("committed at "), F.col("final.at_ms"), F.lit(", due "), F.col("leaves_ms")),
                *(F.lit(" with a grace of "), F.col("grace_ms"), F.lit(" ms")),
            ),
        ),
        Problem(
            "early",
            _is_buried_early(),
            F.concat(*(F.lit("dead at "), F.col("final.at_ms"), F.lit(", due "), F.col("leaves_ms"))),
        ),
        Problem(
            "early",
            _is_early(),
            F.concat(F.lit("committed at "), F.col("final.at_ms"), F.lit(", due "), _leaves_ms(F.col("final"))),
        ),
    ]


def is_past_grace(at_ms: Column, due_ms: Column) -> Column:
    """True if a commit at `at_ms` is later than the due time plus `grace_ms` plus COMMIT_MS_MAX; null if there is no
    grace."""
    return at_ms - due_ms - COMMIT_MS_MAX > F.col("grace_ms")


def answer_problems() -> list[Problem]:
    """Returns the problems of answers that contradict the dispatch log, of messages out of order, and of missing
    answers."""
    wrong = F.array_compact(F.transform("answers", lambda answer: answer.wrong))
    # An answer cannot be judged if its request has left the topic or lies outside the window.
    return [
        Problem("false-verdict", F.col("is_request") & (F.size(wrong) > 0), F.array_join(wrong, "; ")),
        *_order_problems(),
        Problem("unanswered", F.size("unanswered") > 0, F.array_join("unanswered", "; ")),
    ]


def _order_problems() -> list[Problem]:
    """Returns the problems of messages that another message of their key and target overtook.

    Being overtaken is a violation unless the message left late. A message that a lost reschedule has moved is not
    judged, since rescheduled messages have no place in the order.
    """
    late, on_time = (
        F.filter("disorders", lambda disorder: disorder.is_late),
        F.filter("disorders", lambda disorder: ~disorder.is_late),
    )

    def texts(disorders: Column) -> Column:
        return F.array_join(F.transform(disorders, lambda disorder: disorder.text), "; ")

    return [
        Problem("order", F.col("lost_move").isNull() & (F.size(on_time) > 0), texts(on_time)),
        Problem("overtaken", F.col("lost_move").isNull() & (F.size(late) > 0), texts(late)),
    ]


def named_fate(row: Column) -> Column:
    """Returns the name of a fate, followed by the place of its dispatch-log record."""
    return F.concat(row.fate_name, F.lit(" ("), row.log_place, F.lit(")"))


def ended_state() -> Column:
    """Returns the verdict of a row without problems."""
    is_unproved = F.col("final.late") & (
        (F.col("is_delivered") & (F.size("on_target") == 0)) | (F.col("is_dead") & (F.size("letters") == 0))
    )
    return F.when(is_unproved | ~F.col("is_ended"), F.lit("pending")).otherwise(F.col("final.fate_name"))


def places() -> Column:
    """Returns the places of a row's records: topic, partition, offset."""
    spelled = F.transform(
        "on_target", lambda record: F.concat_ws("/", record.target, record["partition"], record.offset)
    )
    return F.array_join(spelled, ", ")


def _is_early() -> Column:
    is_early = F.exists("finals", lambda row: (row.fate_name == "delivered") & (row.at_ms < _leaves_ms(row)))
    return is_early & (F.col("is_request") | F.col("is_expired"))


def _is_buried_early() -> Column:
    """True if a message became a dead letter more than BURIED_EARLY_MS_MAX before it was due, although the reason shows
    that the sidecar tried to deliver it.

    Only a message that is too large for STORE may become a dead letter before it is due.
    """
    was_tried = F.exists("letters", lambda dead_letter: one_of(dead_letter.reason, _TRIED))
    was_pending = (F.col("final.fate_name") == "dead") & (F.col("final.first_due_ms") != 0)
    is_early = F.col("final.at_ms") < F.col("leaves_ms") - BURIED_EARLY_MS_MAX
    return F.col("is_request") & was_tried & F.coalesce(was_pending & is_early, F.lit(False))


def _leaves_ms(row: Column) -> Column:
    """Returns the due time, or the chosen time of a fate if the chosen time is later."""
    return F.greatest(F.col("known_due_ms"), row.chosen_ms)


def _is_repeated() -> Column:
    """True if a request has more than one committed record.

    The target of an expired request is unknown. Such a request is repeated only if two records are on the same topic.
    """
    count = F.size("on_target")
    return (count > 1) & (F.col("is_request") | (F.col("is_expired") & (F.size("topics") < count)))


def _expired_problem() -> Problem:
    """Returns the problem of a dead letter `expired` whose grace was not over when its fate was committed.

    The timestamp of the dispatch-log record decides, which is by the broker's clock. If a reschedule that the audit has
    not read may have changed the grace, there is no problem.
    """
    is_expired = F.exists("letters", lambda dead_letter: dead_letter.reason == Reason.EXPIRED.value)
    over_ms = F.col("leaves_ms") + F.col("grace_ms")
    in_time = F.coalesce(F.col("final.at_ms") <= over_ms, F.lit(True)) | (F.col("final.first_due_ms") == 0)
    grace = F.coalesce(F.concat(F.lit("its grace ends at "), over_ms), F.lit("it has no grace"))
    return Problem(
        "contradiction",
        F.col("is_request") & F.col("is_dead") & is_expired & in_time & ~F.col("is_grace_unknown"),
        F.concat(F.lit("expired at "), F.col("final.at_ms"), F.lit(", though "), grace),
    )


def _undelivered_problems(holds: Column) -> list[Problem]:
    """Returns the problems of a fate `delivered` without a record on the request's own target."""
    on_time, at_ms = holds & ~F.col("final.late"), F.col("final.at_ms")
    made_ms = at_ms - COMMIT_MS_MAX  # the earliest time of the record, which precedes its fate in the same transaction
    reason = (
        F.when(F.col("target_capped").isNull(), "not-selected")
        .when(
            F.col("target_compacted") | (made_ms <= of_places("target_lost_before_ms", F.array_max)), "target-expired"
        )
        .when(at_ms < F.col("target_recreated_ms"), "target-recreated")
        .when(at_ms < F.col("target_began_ms"), "target-younger")
        .when(at_ms >= of_places("target_capped_from_ms", F.array_min), "capped")
        .otherwise("")
    )
    without = F.concat(F.lit("fate delivered at "), at_ms, F.lit(", no record on "), _named_target())
    return [
        Problem("not-selected", on_time & (reason == "not-selected"), F.lit("its target was not read")),
        Problem("target-expired", on_time & (reason == "target-expired"), F.lit("the record has left its topic")),
        Problem("target-recreated", on_time & (reason == "target-recreated"), F.lit("the target was created again")),
        Problem("target-younger", on_time & (reason == "target-younger"), F.lit("the target may be younger")),
        Problem("capped", on_time & (reason == "capped"), F.lit("the record may lie behind an open transaction")),
        Problem("missing", on_time & (reason == ""), without),
        Problem("contradiction", on_time & (reason == ""), without),
    ]


def of_places(name: str, loosest: Callable[[Column], Column]) -> Column:
    """Returns the loosest of the values that the array `name` has for the partitions in the column `places`.

    `places` are the possible partitions of the message. If no value is known for them, all partitions count.
    """
    values = F.col(name)
    of_some = F.transform("places", lambda place: F.get(values, place))
    return F.coalesce(loosest(F.array_compact(of_some)), loosest(values))


def _named_target() -> Column:
    return F.coalesce("target", F.lit("its target"))


def _problems_without_dead_letter(holds: Column) -> list[Problem]:
    """Returns the problems of a fate `dead` without a dead letter."""
    on_time, at_ms = holds & ~F.col("final.late"), F.col("final.at_ms")
    is_gone = F.coalesce(at_ms - COMMIT_MS_MAX <= F.col("letters_lost_before_ms"), F.lit(False))
    is_hidden = ~is_gone & F.coalesce(at_ms >= F.col("letters_capped_from_ms"), F.lit(True))
    return [
        Problem("capped", on_time & is_hidden, F.lit("the dead letter may lie behind an open transaction")),
        Problem("target-expired", on_time & is_gone, F.lit("the dead letter has left its topic")),
        Problem("contradiction", on_time & ~is_hidden & ~is_gone, F.lit("fate dead without a dead letter")),
    ]
