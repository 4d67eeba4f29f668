"""One row for each request with all its facts: its content, end and answers, and the effects of other requests on it.

Requests of one partition with the same id are *related*. A request can be changed only by a related request, a control
that names its origin, or a bulk control. Cost: one shuffle by origin, one by id, and a join with the broadcast
partitions. All requests of one id are sorted in one task.

topic partition offset   the origin
action id acts_on …      of the request; all null if the request was not read. The id of a return is null
delivered_id             the id of the delivered message, also for a return
latest_ms keeps drops    of the request
series_ms                the start of its series, if a fate `replaced` names it as the survivor; otherwise null
named_attempt attempt    of a return, as in `records.returns`
target key_digest selected   as in `records.requests`
end                      its first final fate; null if it has none
moves                    fates that moved it
switches                 its fates `paused`, `resumed`, `triggered` and `backfilled`
begun                    its first fate `swept`, if it is a bulk control
recurrence               of a schedule and a backfill, as in `records.requests`
due_since                as in `judging.inputs.unfolded`; null if `requests` has no such column
moved                    offsets of the requests that it moved, if it is a control
changed                  if it is a control, the fates OF_CONTROLS that name it: structs of the fate's name and the
                         offset of the schedule
was_stored               whether it has a fate `stored`
answers                  the answers to it
answers_of_others        the answers to other requests that name it
later_schedule           the next related request to schedule that was not refused, kept or dropped
cancel_with              the last related cancel that was applied in the dispatch-log record of its end
pending_until            the last position (`_position`) at which an earlier related request to schedule was pending
last_schedule            the last earlier related request to schedule that was accepted: offset, `end` and `request_ms`
undone_with              whether a related request was cancelled in the record of its end, and no answer reports this
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN, PARTITION
from postdate.spark.columns.expressions import memoized, one_of
from postdate.spark.records.fates import FINAL, OF_CONTROLS
from postdate.spark.records.recurrences import BACKFILL, RECURRING
from postdate.spark.session.caching import gathered

CONTROLS: Final = ("cancel", "reschedule", "pause", "resume", "trigger", BACKFILL)
_PLACES: Final = (
    *("request_log_start", "request_start", "request_end", "log_capped", "fates_lost_before_ms"),
    *("answers_capped", "answers_lost_before_ms"),
)
_NEVER: Final = 2**63 - 1


def history_rows(
    requests: DataFrame, fates: DataFrame, answers: DataFrame, partitions: DataFrame, *, few: bool = False
) -> DataFrame:
    """Returns the rows described above. There is one for each origin of a request, a fate or a sound answer, and for
    each origin that is named by a sound answer, by a fate `moved` or in OF_CONTROLS, or by a fate with the start of a
    series.

    A row also has the columns _PLACES of its partition. `few` as for `gathered`.
    """
    folded = _folded(requests, fates, answers.where(~F.col("malformed")), few)
    placed = folded.join(F.broadcast(partitions.select(*PARTITION, *_PLACES)), list(PARTITION), "left")
    return _with_related(placed)


def is_refused(end: Column) -> Column:
    """True if an end is that of a refused request, which was never pending: `dead`, without a first due time."""
    return F.coalesce((end.fate_name == "dead") & (end.first_due_ms == 0), F.lit(False))


def was_accepted(end: Column) -> Column:
    """True if a request to schedule with this end, which may be null, was ever pending."""
    return ~is_refused(end) & F.coalesce(~end.fate_name.isin("kept", "dropped"), F.lit(True))


def was_accepted_at(end: Column, log_offset: Column) -> Column:
    """True if a request to schedule with this end, which may be null, counted as accepted in this dispatch-log record.

    An owner with other settings may refuse or drop it in a later record.
    """
    is_other = is_refused(end) | (end.fate_name == "dropped")
    return was_accepted(end) | F.coalesce(is_other & (end.log_offset > log_offset), F.lit(False))


def is_known(next_request: Column) -> Column:
    """True if the audit has read the request itself, and everything that the owner had ingested when it wrote the
    fate."""
    return F.col("request_ms").isNotNull() & (next_request <= F.col("request_end"))


def position_before(end: Column) -> Column:
    """Returns the position of a control with this end, as in `_position`. Requests that a control ended in the same
    dispatch-log record have the same position."""
    return end.log_offset * 2


def _position(end: Column) -> Column:
    """Returns the position until which a request with this end was pending.

    Within one dispatch-log record, controls take effect before messages are delivered or become dead letters.
    """
    return end.log_offset * 2 + F.when(end.fate_name.isin("delivered", "dead"), F.lit(1)).otherwise(F.lit(0))


def _folded(requests: DataFrame, fates: DataFrame, answers: DataFrame, few: bool) -> DataFrame:
    of_requests, of_fates, of_moves, of_changes, of_series, of_answers, of_named, folds, columns = _folding()
    inputs = (
        fates.select(*of_fates),
        fates.where(F.col("fate.fate_name") == "moved").select(*of_moves),
        fates.where(one_of(F.col("fate.fate_name"), OF_CONTROLS)).select(*of_changes),
        fates.where(F.col("fate.series_ms").isNotNull()).select(*of_series),
        answers.select(*of_answers),
        answers.where("of is not null").select(*of_named),
    )
    if "due_since" not in requests.columns:
        requests = requests.withColumn("due_since", F.lit(None).cast("bigint"))
    union = requests.select(*of_requests)
    for rows in inputs:
        union = union.unionByName(rows, allowMissingColumns=True)
    return gathered(union, few=few).groupBy(*ORIGIN).agg(*folds).select(*columns)


@memoized
def _folding() -> tuple[list[Column], ...]:
    """Returns the columns, their aggregates and the result columns.

    The columns are, in this order, those of requests, fates, moves, changes of schedules, continued series, answers,
    and answers that name another request.
    """
    # A return may have an id, but no request can name the return by this id.
    id_ = F.when(F.col("retry").isNull(), F.col("id")).alias("id")
    attempts = (F.col("retry.said").alias("named_attempt"), F.col("retry.attempt").alias("attempt"))
    request_columns = (
        *("acts_on", "due_ms", "grace_ms", "request_ms", "target", "key_digest", "selected"),
        *("latest_ms", "keeps", "drops", "recurrence", "due_since"),
    )
    request = F.struct("action", id_, F.col("id").alias("delivered_id"), *request_columns, *attempts)
    parts = ("log_offset", "place", "fate_name", "first_due_ms", "new_due_ms", "control_offset", "at_ms")
    more = ("next_request", "late", "bulk_offset", "count", "series_ms", "filled_from_ms", "filled_until_ms")
    fate = F.struct(*(F.col(f"fate.{name}") for name in (*parts, *more, "takeover")))
    control, offset = F.col("fate.control_offset"), F.col("offset")
    answer = F.struct("answer", "id", "of", "place", "count", "by")
    origin, partition = [*map(F.col, ORIGIN)], [*map(F.col, PARTITION)]
    folds = [
        F.first("request", ignorenulls=True).alias("request"),
        F.sort_array(F.collect_list("fate")).alias("fates"),
        F.collect_set("moves").alias("moved"),
        F.collect_set("changes").alias("changed"),
        F.max("series").alias("series_ms"),
        F.sort_array(F.collect_list("answer")).alias("answers"),
        F.collect_list("answers_of_others").alias("answers_of_others"),
    ]
    columns = [
        *origin,
        *(
            F.col(f"request.{name}")
            for name in ("action", "id", "delivered_id", *request_columns, "named_attempt", "attempt")
        ),
        *map(F.col, ("moved", "changed", "series_ms", "answers", "answers_of_others")),
        F.get(F.filter("fates", lambda row: one_of(row.fate_name, FINAL)), 0).alias("end"),
        F.filter("fates", lambda row: row.fate_name == "moved").alias("moves"),
        F.filter("fates", lambda row: one_of(row.fate_name, OF_CONTROLS)).alias("switches"),
        F.get(F.filter("fates", lambda row: row.fate_name == "swept"), 0).alias("begun"),
        F.exists("fates", lambda row: row.fate_name == "stored").alias("was_stored"),
    ]
    return (
        [*origin, request.alias("request")],
        [*origin, fate.alias("fate")],
        [*partition, control.alias("offset"), offset.alias("moves")],
        [*partition, control.alias("offset"), F.struct(F.col("fate.fate_name"), offset).alias("changes")],
        [*partition, control.alias("offset"), F.col("fate.series_ms").alias("series")],
        [*origin, answer.alias("answer")],
        [*partition, F.col("of").alias("offset"), F.col("answer").alias("answers_of_others")],
        folds,
        columns,
    )


def _with_related(placed: DataFrame) -> DataFrame:
    """Adds the columns that depend on related requests. A request without an id has no related requests."""
    named, related = _related_columns()
    return placed.select("*", *named).select(*placed.columns, *related)


@memoized
def _related_columns() -> tuple[list[Column], list[Column]]:
    id_group = F.coalesce(F.hex("id"), F.concat(F.lit("#"), F.col("offset").cast("string")))
    end, offset = F.col("end"), F.col("offset")
    of_id = Window.partitionBy(*PARTITION, "id_group")
    earlier = of_id.orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    later = of_id.orderBy("offset").rowsBetween(1, Window.unboundedFollowing)
    in_record = Window.partitionBy(*PARTITION, "id_group", "end_offset")
    schedules = F.col("action").isin("schedule", RECURRING)
    is_schedule = schedules & was_accepted(end)
    is_lost = F.col("request_ms") < F.col("fates_lost_before_ms")
    # A request that a bulk control ends is not pending for any later request.
    until = F.coalesce(
        F.when(end.bulk_offset.isNotNull(), F.lit(-1)).otherwise(_position(end)),
        F.when(is_lost, F.lit(-1)).otherwise(F.lit(_NEVER)),
    )
    undone = (
        (end.fate_name == "cancelled") & end.bulk_offset.isNull() & ~F.array_contains("answers_of_others", "cancelled")
    )
    cancel = (F.col("action") == "cancel") & (end.fate_name == "applied")
    named = [id_group.alias("id_group"), end.log_offset.alias("end_offset")]
    return named, [
        F.first(F.when(is_schedule, offset), ignorenulls=True).over(later).alias("later_schedule"),
        F.max(F.when(cancel, offset)).over(in_record).alias("cancel_with"),
        F.coalesce(F.max(undone).over(in_record), F.lit(False)).alias("undone_with"),
        F.max(F.when(is_schedule, until)).over(earlier).alias("pending_until"),
        F.last(F.when(is_schedule, F.struct(offset, end, "request_ms")), ignorenulls=True)
        .over(earlier)
        .alias("last_schedule"),
    ]
