"""Rules about content: do the delivered message and the dispatch log match the request?

Expressions over the columns of `judging.judge`. The expected partition is the requested partition. If none was
requested, it is the partition that the Java partitioner chooses for a partition count that the target may have had when
the fate was committed.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from postdate.spark.columns.digests import EMPTY_HEADERS, joined_names
from postdate.spark.columns.expressions import one_of
from postdate.spark.records.fates import FINAL, OF_CONTROLS
from postdate.spark.records.recurrences import RECURRING
from postdate.spark.records.refusals import is_range_readable, is_return_sound, is_time_readable
from postdate.spark.rules.request_histories import CONTROLS
from postdate.spark.rules.verdicts import Problem
from postdate.wire import headers as names
from postdate.wire.reasons import Reason

# The names of the headers that a delivery adds; with an id, `postdate-id` follows them.
_OWN_HEADERS = f"{names.ORIGIN},{names.DUE}"

_HELD = ("delivered", "cancelled", "replaced", "kept", "dropped", "moved", "stored")
# The names in _HELD that a schedule may have. Only a schedule may be `completed` or have a fate OF_CONTROLS.
_OF_SCHEDULES = ("cancelled", "replaced", "stored")


def mismatch_problems() -> list[Problem]:
    """Returns the problems of delivered records, dead letters and fates that differ from their request, and the
    problems for the sentences `claim`, `doubt` and `expired` of other rules and for the column `lost_move`."""
    request = F.col("request")
    is_request = F.col("is_request")

    def record_differs(what: str, differs: Callable[[Column], Column]) -> Problem:
        wrong = F.filter("on_target", differs)
        where = F.array_join(F.transform(wrong, lambda r: F.concat_ws("/", r.target, r["partition"], r.offset)), ", ")
        return Problem("mismatch", is_request & (F.size(wrong) > 0), F.concat(F.lit(f"{what} differs in "), where))

    return [
        record_differs("key", lambda r: r.key_digest != request.key_digest),
        record_differs("value", lambda r: r.value_digest != request.value_digest),
        record_differs("headers", lambda r: r.headers_digest != request.headers_digest),
        record_differs("partition", _is_misplaced),
        record_differs("Postdate's own headers", _own_headers_differ),
        record_differs("the retry headers", _retry_headers_differ),
        *_dead_letter_problems(),
        *_fate_problems(),
        _chosen_problem(),
        *_claim_problems(),
    ]


def expected_headers(request_id: Column) -> Column:
    """Returns the names of the headers that a delivery adds to a message with this id, which may be null.

    A return gets more headers: `expected_return_headers`.
    """
    return F.when(request_id.isNull(), F.lit(_OWN_HEADERS)).otherwise(F.lit(f"{_OWN_HEADERS},{names.ID}"))


def expected_return_headers(request: Column, first_due_ms: Column) -> Column:
    """Returns the headers that a redelivery has after origin and due time; null if the request is not a return.

    `first_due_ms` is the first due time of the request itself.
    """
    retry = request.retry

    def header(name: str, value: Column) -> Column:
        return F.array(F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value")))

    root_due_ms = F.coalesce(retry.first_due_ms, first_due_ms)
    none = F.array().cast(EMPTY_HEADERS)
    headers = F.concat(
        F.when(request.id.isNotNull(), header(names.ID, request.id)).otherwise(none),
        header(names.ATTEMPT, retry.attempt.cast("string")),
        header(names.FIRST_ORIGIN, retry.first_origin),
        header(names.FIRST_DUE, root_due_ms.cast("string")),
        F.when(retry.has_error, header(names.ERROR, retry.error)).otherwise(none),
    )
    return F.when(retry.isNotNull(), headers)


def expected_partitions() -> Column:
    """Returns the possible partitions of the message in its target.

    Returns the requested partition if there is one. Otherwise the partition follows from the key and the partition
    count when the fate was committed. This count is at least the number of partitions that are known to have existed
    then, and at most the present number, since partitions are only ever added. Null if the key is null or the present
    number is unknown: any partition is then possible.
    """
    known = F.filter("target_known_ms", lambda known_ms: known_ms <= F.col("final.at_ms"))
    counts = F.sequence(F.greatest(F.size(known), F.lit(1)), F.col("target_partitions"))
    by_key = F.transform(counts, lambda count: (F.col("request.key_hash") % count).cast("int"))
    requested = F.col("request.partition_asked").cast("int")
    return (
        F.when(requested.isNotNull(), F.array(requested))
        .when(F.col("request.key_hash").isNull() | F.col("target_partitions").isNull(), F.lit(None))
        .otherwise(F.array_distinct(by_key))
    )


def _is_misplaced(record: Column) -> Column:
    return F.coalesce(~F.array_contains(F.col("places"), record["partition"]), F.lit(False))


def _own_headers_differ(record: Column) -> Column:
    request_id = F.col("request.id")
    behind = F.concat(F.lit(f"{_OWN_HEADERS},"), joined_names(F.col("return_headers")))
    own_headers = F.coalesce(behind, expected_headers(request_id))
    same = record.own_headers.eqNullSafe(own_headers) & record.due_ms.eqNullSafe(F.col("last_due_ms"))
    return ~(same & record.id.eqNullSafe(request_id))


def _retry_headers_differ(record: Column) -> Column:
    """True if the headers of a redelivery after origin and due time have the expected names, but not the expected
    values.

    `_own_headers_differ` reports different names.
    """
    wanted = F.col("return_headers")
    has_same_names = joined_names(record.retry).eqNullSafe(joined_names(wanted))
    return has_same_names & wanted.isNotNull() & ~record.retry.eqNullSafe(wanted)


def _dead_letter_problems() -> list[Problem]:
    """Returns the problems of dead letters that differ from the request as sent, or whose reason is unknown or does not
    apply.

    A dead letter that would be too large has no value. The dead letter of a request with unreadable headers has none of
    them.
    """
    request = F.col("request")

    def differs(dead_letter: Column) -> Column:
        same_value = (dead_letter.value_digest == request.value_digest) | dead_letter.is_without_value
        is_unreadable = dead_letter.is_without_headers & (dead_letter.reason == Reason.BAD_HEADERS.value)
        same_headers = dead_letter.headers_digest.eqNullSafe(request.own_headers_digest) | F.coalesce(
            is_unreadable, F.lit(False)
        )
        same_place = dead_letter["partition"] == F.col("partition")
        return ~((dead_letter.key_digest == request.own_key_digest) & same_value & same_headers & same_place)

    def is_unknown(dead_letter: Column) -> Column:
        return ~F.coalesce(dead_letter.reason.isin(*(reason.value for reason in Reason)), F.lit(False))

    def is_bad_time(dead_letter: Column) -> Column:
        return dead_letter.reason == Reason.BAD_TIME.value

    def refused_wrongly(dead_letter: Column) -> Column:
        is_wrong = is_time_readable(dead_letter, request) | is_return_sound(dead_letter, request)
        return F.when(is_wrong, dead_letter.reason).otherwise(dead_letter.unfounded)

    is_request, wrong = F.col("is_request"), F.array_compact(F.transform("letters", refused_wrongly))
    return [
        Problem(
            "mismatch", is_request & F.exists("letters", differs), F.lit("the dead letter differs from the request")
        ),
        Problem("false-refusal", is_request & (F.size(wrong) > 0), F.concat(F.lit("not "), F.array_join(wrong, ", "))),
        # A separate problem, since Spark cannot parse times in a function of an array element.
        Problem(
            "false-refusal",
            is_request & is_range_readable(request) & F.exists("letters", is_bad_time),
            F.lit(f"not {Reason.BAD_TIME.value}"),
        ),
        Problem("mismatch", is_request & F.exists("letters", is_unknown), F.lit("the dead letter has no known reason")),
    ]


def _fate_problems() -> list[Problem]:
    first_due_ms, action = F.col("first_due_ms"), F.col("request.action")

    def due_differs(row: Column) -> Column:
        held = one_of(row.fate_name, (*_HELD, "completed")) & ~row.first_due_ms.eqNullSafe(first_due_ms)
        dead = (row.fate_name == "dead") & (row.first_due_ms != 0) & ~row.first_due_ms.eqNullSafe(first_due_ms)
        return held | dead | ((row.fate_name == "applied") & (row.first_due_ms != 0))

    def action_differs(row: Column) -> Column:
        recurs = action == RECURRING
        held = one_of(row.fate_name, _HELD) & (action != "schedule")
        held = held & ~(recurs & one_of(row.fate_name, _OF_SCHEDULES)) | (
            one_of(row.fate_name, ("completed", *OF_CONTROLS)) & ~recurs
        )
        swept = (row.fate_name == "swept") | row["count"].isNotNull()
        is_bulk = F.col("request.selected").isNotNull()
        held = held | (swept & ~is_bulk) | ((row.fate_name == "applied") & row["count"].isNull() & is_bulk)
        return held | ((row.fate_name == "applied") & ~action.isin(*CONTROLS))

    def is_unread(row: Column) -> Column:
        return F.col("offset") >= row.next_request

    def is_behind(row: Column) -> Column:
        return (row.log_offset > F.col("final.log_offset")) & ~one_of(row.fate_name, FINAL)

    is_request, unread = F.col("is_request"), F.get(F.filter("fates", is_unread), 0)
    behind = F.get(F.filter("fates", is_behind), 0)
    text = F.array_join(F.transform(F.filter("fates", due_differs), lambda row: row.first_due_ms.cast("string")), ", ")
    requested_due = F.coalesce(first_due_ms.cast("string"), F.lit("without a due time"))
    does_not_fit = F.concat(F.lit("fate "), F.col("final.fate_name"), F.lit(" of a request to "), action)
    return [
        Problem(
            "mismatch",
            is_request & F.exists("fates", due_differs),
            F.concat(F.lit("first due "), text, F.lit(" in the dispatch log, the request is "), requested_due),
        ),
        Problem("mismatch", is_request & F.exists("fates", action_differs), does_not_fit),
        Problem(
            "contradiction",
            is_request & unread.isNotNull(),
            F.concat(
                *(F.lit("fate "), unread.fate_name, F.lit(" in "), unread.log_place),
                *(F.lit(", whose owner had read requests below "), unread.next_request, F.lit(" only")),
            ),
        ),
        Problem(
            "contradiction",
            is_request & behind.isNotNull(),
            F.concat(
                *(F.lit("fate "), behind.fate_name, F.lit(" in "), behind.log_place),
                F.lit(" after the end of its request"),
            ),
        ),
    ]


def _chosen_problem() -> Problem:
    """Returns the problem of a wrong chosen time.

    Only a message with a window has a chosen time. The chosen time lies within the window after the due time.
    """
    final, window_ms, due_ms = F.col("final"), F.col("request.window_ms"), F.col("last_due_ms")
    was_pending = (final.fate_name == "delivered") | ((final.fate_name == "dead") & (final.first_due_ms != 0))
    is_within = (final.chosen_ms >= due_ms) & (final.chosen_ms <= due_ms + window_ms)
    is_right = F.when(final.chosen_ms.isNull() & window_ms.isNull(), F.lit(True)).otherwise(is_within)
    chosen = F.coalesce(final.chosen_ms.cast("string"), F.lit("no time"))
    window = F.coalesce(F.concat(window_ms, F.lit(" ms")), F.lit("none"))
    text = F.concat(F.lit("chosen "), chosen, F.lit(", due "), due_ms, F.lit(" with the window "), window)
    return Problem("mismatch", F.col("is_request") & was_pending & ~F.coalesce(is_right, F.lit(False)), text)


def _claim_problems() -> list[Problem]:
    lost = F.col("lost_move")
    text = F.concat(F.lit("moved to "), lost.due_ms, F.lit(" by offset "), lost.control)
    return [
        Problem("contradiction", F.size("claims") > 0, F.array_join("claims", "; ")),
        Problem("unsettled", F.size("doubts") > 0, F.array_join("doubts", "; ")),
        Problem("request-expired", F.size("expired_causes") > 0, F.array_join("expired_causes", "; ")),
        Problem(
            "unsettled", lost.isNotNull(), F.concat(text, F.lit(", by a fate that may have left the dispatch log"))
        ),
    ]
