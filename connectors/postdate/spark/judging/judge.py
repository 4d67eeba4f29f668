"""Applies the rules of the audit to origins, each of which is one row with all its facts (`inputs.folded`).

A row may have several problems, and gets the verdict of each. A row without problems gets exactly one of the verdicts
in ENDINGS.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN
from postdate.spark.columns.expressions import memoized, one_of
from postdate.spark.judging.inputs import FACTS
from postdate.spark.limits import COMMIT_MS_MAX
from postdate.spark.records.fates import FINAL
from postdate.spark.records.recurrences import RECURRING
from postdate.spark.rules.endings import (
    answer_problems,
    ended_problems,
    ended_state,
    named_fate,
    unended_problems,
)
from postdate.spark.rules.lost_moves import LOST_MOVE
from postdate.spark.rules.mismatches import expected_partitions, expected_return_headers, mismatch_problems
from postdate.spark.rules.ordering import DISORDER
from postdate.spark.rules.schedules.occurrences import occurrence_problems
from postdate.spark.rules.unread_causes import withdrawn_before
from postdate.spark.rules.verdicts import Problem
from postdate.spark.session.caching import gathered
from postdate.wire.reasons import Reason

_EXPIRED = Reason.EXPIRED.value


def judge(
    placed: DataFrame,
    causes: Sequence[DataFrame],
    kept: Sequence[str],
    *,
    overdue_before_ms: int,
    has_schedules: bool = False,
    few: bool = False,
) -> DataFrame:
    """Returns one row for each row of `placed`: the request, its outcome, `verdicts`, `details`, and the columns
    `kept`.

    `placed` are rows of `inputs.folded` with the columns of their partition and target (`audit.ranges`), all of them in
    the audited range. `causes` are the results of the rules about the effects of other origins (`origin_rows`).
    `has_schedules` is True if a row belongs to a schedule, whose occurrences were judged. Times are epoch milliseconds.
    `few` as for `gathered`. Cost: no shuffle without causes.
    """
    facts = F.col("facts")
    rows = placed.withColumns({name: facts[name] for name in FACTS if name != "answers"})
    if causes:
        union = causes[0]
        for cause in causes[1:]:
            union = union.unionByName(cause, allowMissingColumns=True)
        brought = [(one, many) for one, many in _LISTS.items() if one in union.columns]
        by_origin = gathered(union, few=few).groupBy(*ORIGIN)
        lists = by_origin.agg(*(F.collect_list(one).alias(many) for one, many in brought))
        rows = rows.join(lists, list(ORIGIN), "left")
    present = {
        _LISTS[one]: F.coalesce(F.col(_LISTS[one]), none) if _LISTS[one] in rows.columns else none
        for one, none in ((one, F.array().cast(f"array<{kind}>")) for one, kind in _OPTIONAL.items())
    }
    rows = rows.withColumns(present).withColumns({many: F.sort_array(many) for many in _LISTS.values()})
    if causes:
        remaining, left = withdrawn_before(F.col("claims"), F.col("expired_causes"), F.col("reported"))
        expired_causes = F.sort_array(F.concat("expired_causes", left))
        rows = rows.withColumns({"claims": remaining, "expired_causes": expired_causes})
    if has_schedules:  # the dead letters of occurrences were judged with them
        own = F.filter("letters", lambda dead_letter: dead_letter.single_due_ms.isNull())
        rows = rows.withColumn("letters", F.when(_recurs(), own).otherwise(F.col("letters")))
    return _judged(_facts(rows, overdue_before_ms, has_schedules), has_schedules, *kept)


_OPTIONAL = {
    "claim": "string",
    "doubt": "string",
    "expired": "string",
    "grace": "struct<log_offset:bigint,place:int,control_offset:bigint,grace_ms:bigint>",
    "lost_move": LOST_MOVE,
    "answer": "struct<text:string,wrong:string>",
    "unanswered": "string",
    "disorder": DISORDER,
}
"""The columns of the causes, and `disorder`, whose list older states do not have; each with its type."""
_LISTS = {
    **{"fate": "fates", "record": "records", "letter": "letters", "claim": "claims", "doubt": "doubts"},
    **{
        "expired": "expired_causes",
        "grace": "graces",
        "lost_move": "lost_moves",
        "answer": "answers",
        "unanswered": "unanswered",
        "disorder": "disorders",
    },
}
"""The facts of which an origin may have several, with the names of their lists. The lists are sorted, so that each
audit describes the same findings in the same words."""


def is_in_range(is_request: Column) -> Column:
    """True if this audit judges an origin.

    The audit judges each request that was read, and each origin between the start and the fixed end. It judges origins
    below the start of the topic, whose requests have expired, but no origins below a window. It does not judge origins
    from the fixed end up to the present end. The present end is queried after all other ends have been fixed, so no
    effect that was read can belong to a request at or above it. The audit judges origins at or above the present end,
    and origins in a partition that the topic does not have.
    """
    offset, start = F.col("offset"), F.col("request_start")
    is_expired = (offset < start) & (start == F.col("request_log_start"))
    is_inside = (offset >= start) & (offset < F.col("request_end"))
    is_beyond = offset >= F.col("request_present_end")
    known = F.col("request_end").isNotNull()
    return is_request | F.when(known, is_expired | is_inside | is_beyond).otherwise(F.lit(True))


def _facts(rows: DataFrame, overdue_before_ms: int, has_schedules: bool) -> DataFrame:
    """Returns the rows with the columns that the rules use."""
    first, second, third = _fact_columns(has_schedules)
    latest_ms = F.col("last_due_ms") + F.coalesce(F.col("request.window_ms"), F.lit(0))
    is_overdue = F.coalesce(latest_ms, F.col("request.request_ms")) < overdue_before_ms
    if has_schedules:
        is_overdue = F.coalesce(F.col("occurrences.overdue") > 0, is_overdue)
    return rows.withColumns(first).withColumns(second).withColumns({**third, "is_overdue": is_overdue})


@memoized
def _fact_columns(has_schedules: bool) -> tuple[dict[str, Column], dict[str, Column], dict[str, Column]]:
    """Returns the columns of three steps. The columns of one step are computed once, and the next step uses them."""
    finals = F.filter("fates", lambda row: one_of(row.fate_name, FINAL))
    moved = F.try_element_at(F.filter("fates", lambda row: row.fate_name == "moved"), F.lit(-1))
    on_target = F.when(
        F.col("request").isNotNull(), F.filter("records", lambda record: record.target == F.col("target"))
    ).otherwise(F.col("records"))
    request_ms = F.col("request.request_ms")
    # The time in a reschedule is the due time of another request: a control itself is due at once.
    first_due_ms = F.when(~F.col("request.action").isin("cancel", "reschedule"), F.col("request.due_ms"))
    # A later request of a series may be due earlier than requested; `claims` judges by how much.
    said_ms = F.nullif(F.get("fates", 0).first_due_ms, F.lit(0))
    is_limited = F.col("request.latest_ms").isNotNull() & first_due_ms.isNotNull()
    first_due_ms = F.when(is_limited, F.least(first_due_ms, said_ms)).otherwise(first_due_ms)
    # The due time of a return with an unknown policy cannot be computed, so the due time in the dispatch log counts.
    is_unknown = F.coalesce(F.col("request.retry.is_unknown"), F.lit(False))
    first_due_ms = F.coalesce(first_due_ms, F.when(is_unknown, said_ms))
    last_due_ms = F.coalesce(F.col("lost_move.due_ms"), F.col("moved.new_due_ms"), F.col("first_due_ms"))
    last_grace = F.try_element_at("graces", F.lit(-1))
    is_grace_unknown = last_grace.isNotNull() & last_grace.grace_ms.isNull()
    known_grace_ms = F.when(last_grace.isNotNull(), last_grace.grace_ms).otherwise(F.col("request.grace_ms"))
    if has_schedules:  # a schedule is due at its next nominal time, as long as it has one
        nominal_ms = [F.when(_recurs(), F.nullif(f"position.{name}", F.lit(0))) for name in ("first_ms", "next_ms")]
        first_due_ms = F.coalesce(nominal_ms[0], first_due_ms, F.when(_recurs(), said_ms))
        last_due_ms = F.coalesce(nominal_ms[1], last_due_ms)
    return (
        {
            "finals": finals,
            "moved": moved,
            "lost_move": _lost_move(
                *(on_target, F.get(finals, 0), F.coalesce(moved.new_due_ms, first_due_ms)),
                *(known_grace_ms, is_grace_unknown),
            ),
            "on_target": on_target,
            "first_due_ms": first_due_ms,
            "is_policy_unknown": is_unknown,
        },
        {
            "final": F.get("finals", 0),
            "last_due_ms": last_due_ms,
            "return_headers": expected_return_headers(F.col("request"), F.col("first_due_ms")),
            "topics": F.array_distinct(F.transform("on_target", lambda record: record.target)),
            "is_grace_unknown": is_grace_unknown,
            "grace_ms": F.when(F.col("lost_move").isNull(), known_grace_ms).otherwise(
                _grace_behind(F.col("lost_move"), known_grace_ms)
            ),
        },
        {
            "is_request": F.col("request").isNotNull(),
            "is_expired": F.col("request").isNull() & _is_below(),
            "is_ended": F.col("final").isNotNull(),
            "is_delivered": F.exists("finals", lambda row: row.fate_name == "delivered"),
            "is_dead": F.exists("finals", lambda row: row.fate_name == "dead"),
            "places": expected_partitions(),
            "known_due_ms": _known_due_ms(),
            "leaves_ms": F.coalesce(F.col("final.chosen_ms"), F.col("last_due_ms")),
            "has_lost_fates": F.coalesce(request_ms < F.col("fates_lost_before_ms"), F.lit(True)),
            "is_fate_hidden": F.coalesce(F.col("log_capped"), F.lit(False)),
        },
    )


def _lost_move(
    on_target: Column, final: Column, known_due_ms: Column, known_grace_ms: Column, is_grace_unknown: Column
) -> Column:
    """Returns the lost reschedule that explains the due time in a record.

    If there is no record, a reschedule explains any end at or after the due time that it gave. Prefers a reschedule
    that also explains the chosen time and the grace. Returns null if the request was refused, if the known due time
    and grace explain the end, or if no lost reschedule explains the end.
    """
    window_ms, is_expired = (
        F.col("request.window_ms"),
        F.exists("letters", lambda dead_letter: dead_letter.reason == _EXPIRED),
    )

    def explains(due_ms: Column) -> Column:
        has_it = F.exists(on_target, lambda record: record.due_ms == due_ms)
        return F.when(F.size(on_target) > 0, has_it).otherwise(F.coalesce(due_ms <= final.at_ms, F.lit(False)))

    def fits(due_ms: Column, grace_ms: Column) -> Column:
        over_ms = F.coalesce(final.chosen_ms, due_ms) + grace_ms
        is_within = F.coalesce(final.chosen_ms.between(due_ms, due_ms + window_ms), F.lit(True))
        in_time = F.coalesce(final.at_ms - COMMIT_MS_MAX <= over_ms, F.lit(True))
        in_time = F.when(final.fate_name == "delivered", in_time).otherwise(F.lit(True))
        has_expired = F.coalesce(final.at_ms > over_ms, is_grace_unknown, F.lit(False))
        is_buried = (final.fate_name == "dead") & is_expired
        return explains(due_ms) & is_within & F.when(is_buried, has_expired).otherwise(in_time)

    def is_possible(move: Column) -> Column:
        return fits(move.due_ms, _grace_behind(move, known_grace_ms))

    def explains_due(move: Column) -> Column:
        return explains(move.due_ms) & (move.due_ms != known_due_ms)

    best = F.coalesce(*(F.get(F.filter("lost_moves", holds), 0) for holds in (is_possible, explains_due)))
    was_pending = F.coalesce((final.fate_name != "dead") | (final.first_due_ms != 0), F.lit(True))
    is_open = (F.size("lost_moves") > 0) & was_pending
    return F.when(is_open & ~fits(known_due_ms, known_grace_ms), best)


def _grace_behind(move: Column, known_grace_ms: Column) -> Column:
    """Returns the grace of a message that a lost reschedule has moved: the grace that lost reschedules gave. It is the
    known grace if they gave none, or if a later reschedule in the log gave another."""
    last = F.try_element_at("graces", F.lit(-1))
    is_later = F.coalesce(last.control_offset > move.given_by, F.lit(False))
    return F.when(move.given_by.isNull() | is_later, known_grace_ms).otherwise(move.grace_ms)


def _known_due_ms() -> Column:
    """Returns the due time of a message: from its request and reschedules, otherwise from its record, otherwise from
    the final fate, if the dispatch log has no losses."""
    by_log = F.when(F.col("fates_lost_before_ms") < 0, F.col("final.first_due_ms"))
    return F.coalesce("last_due_ms", F.get("on_target", 0).due_ms, by_log)


def _judged(facts: DataFrame, has_schedules: bool, *kept: str) -> DataFrame:
    problems, columns = _judgement(has_schedules)
    return facts.withColumn("problems", problems).select(*columns, *kept)


@memoized
def _judgement(has_schedules: bool) -> tuple[Column, list[Column]]:
    """Returns the problems of a row, and the columns of its judgement."""
    rules = (_orphans(), unended_problems(), ended_problems(), mismatch_problems(), answer_problems())
    problems: list[Problem] = [problem for some in rules for problem in some]
    rows = F.array(
        *(F.when(p.holds, F.struct(F.lit(p.verdict).alias("verdict"), p.detail.alias("detail"))) for p in problems)
    )
    state = ended_state()
    is_lost = F.col("is_request") & (F.col("request.request_ms") < F.col("fates_lost_before_ms")) & ~F.col("is_ended")
    verdicts = F.array_distinct(F.transform("problems", lambda problem: problem.verdict))
    is_sound = F.size("problems") == 0
    lateness_ms = F.col("final.at_ms") - F.col("leaves_ms")
    columns = [
        *map(F.col, (*ORIGIN, "target", "first_due_ms", "last_due_ms")),
        F.col("request.action").alias("action"),
        F.col("request.request_ms").alias("request_ms"),
        F.col("final.fate_name").alias("fate"),
        F.when(is_sound & (F.col("final.fate_name") == "delivered"), lateness_ms).alias("lateness_ms"),
        F.col("final.at_ms").alias("ended_ms"),
        F.transform("on_target", _spelled_place).alias("records"),
        F.transform("fates", lambda row: F.concat_ws(" ", row.fate_name, row.log_place)).alias("fates"),
        F.transform("answers", lambda answer: answer.text).alias("answers"),
        F.when(is_sound, F.array(state)).otherwise(verdicts).alias("verdicts"),
        (is_lost & F.array_contains(verdicts, "unsettled")).alias("is_fate_lost"),
        F.transform(verdicts, _detail_of).alias("details"),
    ]
    found = F.array_compact(rows)
    return F.concat(found, occurrence_problems()) if has_schedules else found, columns


def _recurs() -> Column:
    return F.coalesce(F.col("request.action") == RECURRING, F.lit(False))


def _detail_of(verdict: Column) -> Column:
    """Returns the sentence for a verdict: the details of all its problems."""
    problems = F.filter("problems", lambda problem: problem.verdict == verdict)
    return F.array_join(F.transform(problems, lambda problem: problem.detail), "; ")


def _spelled_place(record: Column) -> Column:
    return F.concat_ws("/", record.target, record["partition"], record.offset)


def _is_below() -> Column:
    return F.coalesce(F.col("offset") < F.col("request_log_start"), F.lit(False))


def _orphans() -> list[Problem]:
    is_expired = F.col("is_expired")
    answers = F.array_join(F.transform("answers", lambda answer: answer.text), ", ")
    fates = F.array_join(F.transform("fates", named_fate), ", ")
    places = F.array_join(F.transform("records", _spelled_place), ", ")
    what = F.concat_ws(
        "; ",
        F.when(F.size("fates") > 0, F.concat(F.lit("fate "), fates)),
        F.when(F.size("records") > 0, F.concat(F.lit("record "), places)),
        F.when(F.size("letters") > 0, F.lit("dead letter")),
        F.when(F.col("position").isNotNull(), F.lit("occurrences")),
        F.when(F.size("answers") > 0, F.concat(F.lit("verdict "), answers)),
    )
    is_request = F.col("is_request")
    return [
        Problem("orphan", ~is_request & ~is_expired, F.concat(F.lit("no such request: "), what)),
        Problem("request-expired", ~is_request & is_expired, F.lit("the request has left its topic")),
    ]
