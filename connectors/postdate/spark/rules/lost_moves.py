"""Due times that a message may have because of reschedules whose fates `moved` have left the dispatch log.

A reschedule of one message is `applied` in the record of its `moved`. So if the log has one of the two fates, it has
the other. A bulk reschedule is `applied` after its moves. Reschedules take effect in the order of their offsets. So the
possible due times follow from the first due time: each lost reschedule may have changed each due time that was possible
before it.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN, PARTITION
from postdate.spark.columns.expressions import one_of
from postdate.spark.limits import COMMIT_MS_MAX, LOST_DUE_TIMES_MAX
from postdate.spark.records.selections import selects
from postdate.spark.rules.request_histories import is_refused
from postdate.wire.reasons import Reason

LOST_MOVE: Final = "struct<due_ms:bigint,grace_ms:bigint,control:bigint,given_by:bigint>"
"""A possible due time, and how lost reschedules led to it. `control` is the offset of the last of these reschedules.
`grace_ms` is the grace that they set, and `given_by` is the offset of the reschedule that set it. Fields are null if
there is no such reschedule."""
_NEVER: Final = 2**63 - 1


def is_older_than_losses() -> Column:
    """True if fates of the request in a row of `history_rows` may have left the dispatch log."""
    return F.coalesce(F.col("request_ms") < F.col("fates_lost_before_ms"), F.lit(False))


def may_be_moved() -> Column:
    """True if a row of `judging.placed` is a message that is older than the losses of the log, and whose end the log
    does not explain.

    The log does not explain the end if the message was delivered for a due time other than the last one in the log,
    ended before that due time or outside of its window or grace, or expired before its grace was over. The grace is
    that of the request. But if the log has a reschedule of the message, which may have changed the grace, the log
    explains no delivery more than COMMIT_MS_MAX after the due time, and no expiry.
    """
    request, fates = F.col("facts.request"), F.col("facts.fates")
    due_ms = _known_due_ms()
    has_other = F.exists("facts.records", lambda record: (record.target == request.target) & (record.due_ms != due_ms))
    ended = F.filter(fates, lambda fate: one_of(fate.fate_name, ("delivered", "dead")))
    is_expired = F.exists("facts.letters", lambda dead_letter: dead_letter.reason == Reason.EXPIRED.value)
    is_moved = last_move().isNotNull()

    def is_inconsistent_end(fate: Column) -> Column:
        leaves_ms = F.coalesce(fate.chosen_ms, due_ms)
        is_outside = ~fate.chosen_ms.between(due_ms, due_ms + request.window_ms)
        is_late = fate.at_ms - leaves_ms - COMMIT_MS_MAX > F.when(is_moved, 0).otherwise(request.grace_ms)
        in_grace = is_moved | F.coalesce(fate.at_ms <= leaves_ms + request.grace_ms, F.lit(True))
        is_wrong = F.when(fate.fate_name == "delivered", is_late).otherwise(is_expired & in_grace)
        return reduce(Column.__or__, (F.coalesce(condition, F.lit(False)) for condition in (is_outside, is_wrong)))

    is_early = F.exists(ended, lambda fate: fate.at_ms < due_ms)
    is_older = request.request_ms < F.col("fates_lost_before_ms")
    is_odd = has_other | is_early | F.exists(ended, is_inconsistent_end)
    return F.coalesce((request.action == "schedule") & is_older & is_odd, F.lit(False))


def lost_moves(placed: DataFrame, known: DataFrame) -> DataFrame:
    """Returns one row for each due time and grace that lost reschedules may have set for a row that `may_be_moved`.

    The row has the origin, and `lost_move` as LOST_MOVE. `known` are rows of `history_rows`.
    """
    request = F.col("facts.request")
    messages = placed.where(may_be_moved()).select(
        *(*ORIGIN, "target", request.key_digest.alias("key_digest"), _known_due_ms().alias("known_due_ms")),
        last_move().control_offset.alias("moved_by"),
        F.when(request.retry.isNull(), F.col("id")).alias("id"),  # both ids as in `history_rows`
        F.col("id").alias("delivered_id"),
        F.lit(_NEVER).alias("control"),
    )
    lost_times = with_lost_due_times(messages, known, with_graces=True).select(
        *ORIGIN, F.explode("lost_due_times").alias("lost_move")
    )
    return lost_times.where("lost_move.control is not null")


def with_lost_due_times(messages: DataFrame, known: DataFrame, *, with_graces: bool = False) -> DataFrame:
    """Returns the rows of `messages` that a lost reschedule names, or whose partition has a lost bulk reschedule, with
    the column `lost_due_times`.

    `lost_due_times` is an array of at most LOST_DUE_TIMES_MAX values LOST_MOVE: `known_due_ms`, and each due time that
    a lost reschedule between the offsets `moved_by` and `control` may have set. With `with_graces`, reschedules before
    `moved_by` also count: one of them may have set the grace, and later reschedules without a grace keep it.

    Columns of `messages`: origin, `id`, `delivered_id`, `target`, `key_digest`, `known_due_ms`, `moved_by`, `control`,
    and any others. `moved_by` is the offset of the reschedule that set `known_due_ms`; null if this is the first due
    time. `known` are rows of `history_rows`. Cost: a join of the messages with the lost reschedules that name them, and
    with the lost bulk reschedules of their partition.
    """
    may_have_moved = F.col("end").isNull() | (F.col("selected").isNotNull() & ~is_refused(F.col("end")))
    names = ("offset", "due_ms", "grace_ms", "acts_on", "id", "selected")
    lost = known.where((F.col("action") == "reschedule") & is_older_than_losses() & may_have_moved).select(
        *PARTITION, F.struct(*names).alias("lost")
    )
    lost_control = F.col("lost")
    named = messages.withColumn("name", _exploded(F.lit("*"), F.col("offset"), F.col("id")))
    naming = lost.withColumn(
        "name", _exploded(F.when(lost_control.selected.isNotNull(), "*"), lost_control.acts_on, lost_control.id)
    )
    first_offset = F.col("offset") if with_graces else F.coalesce("moved_by", "offset")
    is_between = (lost_control.offset > first_offset) & (lost_control.offset < F.col("control"))
    meant = named.join(naming, [*PARTITION, "name"]).where(is_between)
    lists = F.sort_array(F.array_distinct(F.collect_list("lost")))
    with_lost = meant.groupBy(*messages.columns).agg(lists.alias("lost"))
    none = F.lit(None).cast("bigint")
    unchanged = (none.alias(name) for name in ("grace_ms", "control", "given_by"))
    first = F.array(F.struct(F.col("known_due_ms").alias("due_ms"), *unchanged))
    times = F.aggregate("lost", first.cast(f"array<{LOST_MOVE}>"), _with_moves)
    return with_lost.withColumn("lost_due_times", times).drop("lost")


def _exploded(bulk: Column, offset: Column, id_: Column) -> Column:
    """Returns a column that explodes into the names by which a reschedule may select a message: `bulk`, the offset and
    the id, except nulls."""
    return F.explode(F.array_compact(F.array(bulk, F.concat(F.lit("#"), offset.cast("string")), F.hex(id_))))


def requested_due_ms(selected: Column, due_ms: Column, was_ms: Column) -> Column:
    """Returns the due time that a reschedule requests for a message that was due at `was_ms`.

    `selected` is the selection of a bulk reschedule, otherwise null. `due_ms` is the requested due time if the
    reschedule does not move messages by a duration.
    """
    return F.when(selected.by_ms.isNotNull(), F.greatest(was_ms + selected.by_ms, F.lit(1))).otherwise(due_ms)


def selects_at(selected: Column, due_ms: Column) -> Column:
    """True if a selection selects the message of a row at this due time, by `target`, `delivered_id` and
    `key_digest`."""
    return selects(selected, F.col("target"), F.col("delivered_id"), F.col("key_digest"), due_ms)


def _with_moves(times: Column, control: Column) -> Column:
    """Returns the possible due times and graces after a lost reschedule. A reschedule before `moved_by` changes only
    the grace."""
    selected = control.selected
    moved = F.filter(times, lambda time: selected.isNull() | selects_at(selected, time.due_ms))
    is_before = F.coalesce(control.offset < F.col("moved_by"), F.lit(False))
    behind = F.transform(
        moved,
        lambda time: F.struct(
            F.when(is_before, time.due_ms)
            .otherwise(requested_due_ms(selected, control.due_ms, time.due_ms))
            .alias("due_ms"),
            F.coalesce(control.grace_ms, time.grace_ms).alias("grace_ms"),
            control.offset.alias("control"),
            F.when(control.grace_ms.isNotNull(), control.offset).otherwise(time.given_by).alias("given_by"),
        ),
    )

    def is_known(time: Column) -> Column:
        return F.exists(times, lambda other: (other.due_ms == time.due_ms) & other.given_by.eqNullSafe(time.given_by))

    new = F.filter(F.array_distinct(behind), lambda time: ~is_known(time))
    return F.slice(F.concat(times, new), 1, LOST_DUE_TIMES_MAX)


def _known_due_ms() -> Column:
    """Returns the due time of a row of `judging.placed`: from its last `moved`, otherwise the first due time in a fate,
    otherwise from its request."""
    first_due_ms = F.nullif(F.get("facts.fates", 0).first_due_ms, F.lit(0))
    return F.coalesce(last_move().new_due_ms, first_due_ms, F.col("facts.request.due_ms"))


def last_move() -> Column:
    """Returns the `moved` of a row of `judging.placed` that comes last in the log; null if there is none.

    The list of fates has no order: fates from a state may come after new fates.
    """
    return F.array_max(F.filter("facts.fates", lambda fate: fate.fate_name == "moved"))
