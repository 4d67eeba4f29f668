"""Checks each fate that another request caused, such as `cancelled`: does such a request exist?

A `cancelled` requires a later cancel of its id or origin. A `moved` requires the reschedule that it names, with the
same due time. The control must be `applied` in the dispatch-log record of this fate, since one transaction contains a
control and its effect. A `replaced` that names no survivor requires a later request to schedule with the same id that
had not been refused by then, and that the owner had ingested; `survivors` checks a `replaced` that names a survivor.
Fates are checked only if the audit has read every request that the owner had ingested. Each condition is necessary, not
sufficient, so no valid fate is rejected.

A bulk control must select each message that it has ended or moved, at the due time in force. Its count must be the
number of fates that name it. The due time in force is in doubt if the fate of an earlier reschedule of the message may
have left the dispatch log; for a schedule, if the fate of an occurrence, trigger or backfill may have left the log. If
the due time is in doubt, the row has a sentence `doubt` instead of a `claim`.

A return may name an attempt, and its parent: an earlier delivery of the same partition. If it names both, the attempt
must be that of the parent, which is 0 if the parent is the delivery of a request that is not a return.

A request with a `latest_ms` belongs to a series, and its due time follows from the start of the series. If a fate
`replaced` names the request as the survivor, this fate has the start of the series, which the replaced request began or
continued. Without such a fate, the start is the timestamp of the request.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN, PARTITION
from postdate.spark.records.fates import OF_CONTROLS
from postdate.spark.records.recurrences import RECURRING
from postdate.spark.rules.lost_moves import is_older_than_losses, requested_due_ms, selects_at, with_lost_due_times
from postdate.spark.rules.request_histories import is_known, is_refused
from postdate.spark.rules.unread_causes import cause_of

CLAIMING = ("cancelled", "replaced", "kept", "dropped", "moved", "swept", *OF_CONTROLS)

# The columns by which a reschedule names a message, or by which a bulk control selects a message.
_SELECTABLE = ("id", "delivered_id", "target", "key_digest")
_DOUBT = ", at a due time whose fate may have left the dispatch log"


def unfounded_ends(known: DataFrame) -> DataFrame:
    """Returns one row for each `cancelled`, and each `replaced` without a survivor, whose required request is missing.

    The row has the origin, a sentence `claim`, and its `cause` as in `unread_causes`. `known` are rows of
    `history_rows`. Cost: a join of these fates with the cancels that name an origin, and a join of the unfounded fates
    with the refused requests.
    """
    end = F.col("end")
    names_survivor = (end.fate_name == "replaced") & end.control_offset.isNotNull()
    is_by_one = end.fate_name.isin("cancelled", "replaced") & end.bulk_offset.isNull() & ~names_survivor
    claiming = known.where(is_by_one & is_known(end.next_request))
    cancels = known.where((F.col("action") == "cancel") & F.col("acts_on").isNotNull() & (end.fate_name == "applied"))
    by_origin = cancels.groupBy(*PARTITION, F.col("acts_on").alias("offset"), end.log_offset.alias("at")).agg(
        F.max("offset").alias("cancel_by_origin")
    )
    is_replaced = F.coalesce(F.col("later_schedule") < end.next_request, F.lit(False))
    is_founded = F.when(
        end.fate_name == "cancelled",
        (F.col("id").isNotNull() & _later("cancel_with")) | _later("cancel_by_origin"),
    ).otherwise(F.col("id").isNotNull() & is_replaced)
    missing = F.when(
        end.fate_name == "cancelled", F.lit("cancelled, though no later request that was applied with it asks for it")
    ).otherwise(F.lit("replaced, though no later request that its owner had read asks for it"))
    return (
        claiming.withColumn("at", end.log_offset)
        .join(by_origin, [*ORIGIN, "at"], "left")
        .where(~is_founded)
        .join(_refused(known), _is_replaced_by_refused(), "left_anti")
        .select(
            *(*ORIGIN, missing.alias("claim")),
            F.when(end.fate_name == "cancelled", cause_of(end, "record", end.log_offset))
            .otherwise(cause_of(end, "message", F.lit(0)))
            .alias("cause"),
        )
    )


def _refused(known: DataFrame) -> DataFrame:
    """Returns the requests to schedule that an owner has refused: `of_topic`, `of_partition`, a struct `refused`."""
    parts = F.struct("id", "offset", F.col("end.log_offset").alias("log_offset")).alias("refused")
    refused_requests = known.where(F.col("action").isin("schedule", RECURRING) & is_refused(F.col("end")))
    return refused_requests.select(F.col("topic").alias("of_topic"), F.col("partition").alias("of_partition"), parts)


def _is_replaced_by_refused() -> Column:
    """True if the request that replaced a request was accepted at that time, and refused later by another owner."""
    end, by = F.col("end"), F.col("refused")
    is_same_id = (F.col("topic") == F.col("of_topic")) & (F.col("partition") == F.col("of_partition"))
    is_same_id = is_same_id & (F.col("id") == by["id"])
    is_later = (by.offset > F.col("offset")) & (by.offset < end.next_request) & (by.log_offset > end.log_offset)
    return is_same_id & is_later & (end.fate_name == "replaced")


def judged_series(known: DataFrame) -> DataFrame:
    """Returns one row for each request of a series whose due time does not follow from the start of the series.

    The row has the origin and a sentence. The sentence is a `doubt` if a fate with the start may have left the dispatch
    log, and otherwise a `claim`. `known` are rows of `history_rows`.
    """
    end = F.col("end")
    due_ms = F.least("due_ms", F.coalesce("series_ms", "request_ms") + F.col("latest_ms"))
    is_wrong = ~is_refused(end) & (end.first_due_ms != F.greatest(due_ms, F.lit(1)))
    text = F.concat(*(F.lit("first due "), end.first_due_ms, F.lit(" in the dispatch log, by its series "), due_ms))
    is_doubted = is_older_than_losses() & F.col("series_ms").isNull()
    doubt = F.concat(text, F.lit(", whose start may have left the dispatch log"))
    wrong = known.where(F.col("latest_ms").isNotNull() & is_known(end.next_request) & is_wrong)
    return wrong.select(*ORIGIN, F.when(~is_doubted, text).alias("claim"), F.when(is_doubted, doubt).alias("doubt"))


def judged_moves(known: DataFrame, *, has_losses: bool) -> DataFrame:
    """Returns one row for each `moved`.

    The row has the origin, the `grace` of its control, and its `cause` as in `unread_causes`. `grace` is a struct with
    the place of the fate, the offset of the control, and `grace_ms`, which is null if the control was not read. The
    struct is null if the control sets no grace. If the control does not request the move, the row has a sentence
    `claim`, or a `doubt` if the move depends on an earlier one that may be lost. `known` are rows of `history_rows`,
    and `has_losses` is True if fates of these rows may be lost. Cost: a join of the moves with the reschedules, and two
    more joins if there are losses.
    """
    moves = known.where(F.size("moves") > 0).select(
        *(*ORIGIN, *_SELECTABLE, "request_log_start", "request_end", "request_ms", "moves"),
        "fates_lost_before_ms",
        F.explode("moves").alias("move"),
    )
    is_effective = (F.col("end.fate_name") == "applied") | F.col("selected").isNotNull()
    controls = known.where((F.col("action") == "reschedule") & is_effective & ~is_refused(F.col("end"))).select(
        *(*PARTITION, "due_ms", "acts_on", "grace_ms"),
        F.col("selected").alias("by"),
        F.col("offset").alias("control"),
        F.col("id").alias("control_id"),
        F.col("end.log_offset").alias("applied_at"),
    )
    move = F.col("move")
    meant = (F.col("acts_on") == F.col("offset")) | (F.col("control_id") == F.col("id"))
    is_founded = (
        (F.col("control") > F.col("offset"))
        & (F.col("due_ms") == move.new_due_ms)
        & (F.col("applied_at") == move.log_offset)
        & F.coalesce(meant, F.lit(False))
    )
    is_founded = F.when(F.col("by").isNotNull(), _moves_in_bulk()).otherwise(is_founded)
    text = F.concat(F.lit("moved to "), move.new_due_ms, F.lit(" by offset "), move.control_offset)
    claim = F.when(
        is_known(move.next_request) & ~F.coalesce(is_founded, F.lit(False)),
        F.concat(text, F.lit(", which does not ask for it")),
    )
    has_left = claim.isNotNull() & (move.control_offset < F.col("request_log_start"))
    is_unread = (move.control_offset >= F.col("request_end")) | F.coalesce(has_left, F.lit(False))
    grace = F.struct(move.log_offset, move.place, move.control_offset, F.col("grace_ms"))
    grace = F.when(F.col("grace_ms").isNotNull() | is_unread, grace)
    judged = (
        moves.withColumn("control", move.control_offset)
        .join(controls, [*PARTITION, "control"], "left")
        .withColumns({"claim": claim, "grace": grace, "cause": cause_of(move, "control", move.control_offset)})
    )
    if not has_losses:
        return judged.select(*ORIGIN, "claim", "grace", "cause")
    last = F.try_element_at(_moves_before(), F.lit(-1))
    is_odd = F.col("claim").isNotNull() & F.col("by").isNotNull()
    odd = judged.where(is_odd & is_older_than_losses()).select(
        *(*ORIGIN, *_SELECTABLE, "control", "due_ms", "by", move.new_due_ms.alias("new_due_ms")),
        F.coalesce(last.new_due_ms, move.first_due_ms).alias("known_due_ms"),
        last.control_offset.alias("moved_by"),
    )
    by = F.col("by")

    def may_be_requested(lost: Column) -> Column:
        requested_ms = requested_due_ms(by, F.col("due_ms"), lost.due_ms)
        return selects_at(by, lost.due_ms) & F.coalesce(F.col("new_due_ms") == requested_ms, F.lit(False))

    times = with_lost_due_times(odd, known)
    doubted = times.where(F.exists("lost_due_times", may_be_requested)).select(*ORIGIN, "control")
    is_doubted, found = F.col("is_doubted").isNotNull(), doubted.withColumn("is_doubted", F.lit(True))
    return judged.join(found, [*ORIGIN, "control"], "left").select(
        *ORIGIN,
        F.when(~is_doubted, F.col("claim")).alias("claim"),
        *("grace", "cause"),
        F.when(is_doubted, F.concat(text, F.lit(_DOUBT))).alias("doubt"),
    )


def _selects_at_any_time(selected: Column) -> Column:
    """True if a selection selects the schedule, whatever the due time of the schedule is."""
    none = F.lit(None).cast("bigint")
    return selects_at(selected.withField("from_ms", none).withField("until_ms", none), none)


def _moves_before() -> Column:
    """Returns the moves of a message that precede the row's `move` in the log."""
    move = F.col("move")
    return F.filter(
        "moves", lambda other: F.struct(other.log_offset, other.place) < F.struct(move.log_offset, move.place)
    )


def _moves_in_bulk() -> Column:
    """True if the bulk control of a `moved` selects the message at the due time before the move, and requests the due
    time after it."""
    move, by = F.col("move"), F.col("by")
    last = F.try_element_at(_moves_before(), F.lit(-1))
    was_ms = F.coalesce(last.new_due_ms, move.first_due_ms)
    return (
        (F.col("control") > F.col("offset"))
        & F.coalesce(last.control_offset < F.col("control"), F.lit(True))
        & selects_at(by, was_ms)
        & (move.new_due_ms == requested_due_ms(by, F.col("due_ms"), was_ms))
    )


def judged_switches(known: DataFrame) -> DataFrame:
    """Returns one row for each fate OF_CONTROLS of a schedule that its control does not request.

    The row has the origin, a sentence `claim`, and its `cause` as in `unread_causes`. `known` are rows of
    `history_rows`. Cost: a join of these fates with their controls.
    """
    switch, by = F.col("switch"), F.col("by")
    switches = known.where(F.size("switches") > 0).select(
        *(*ORIGIN, "id", "request_end", "request_ms"), F.explode("switches").alias("switch")
    )
    controls = known.where(F.col("action").isin("pause", "resume", "trigger", "backfill")).select(
        *(*PARTITION, F.col("offset").alias("control")),
        F.struct("action", "id", "request_ms", "end", "acts_on").alias("by"),
    )
    fate = switch.fate_name
    named = {"paused": "pause", "resumed": "resume", "triggered": "trigger", "backfilled": "backfill"}
    is_requested = by.action == F.create_map(*(F.lit(name) for pair in named.items() for name in pair))[fate]
    is_meant = (by.acts_on == F.col("offset")) | (by.id == F.col("id"))
    is_applied = (by.end.fate_name == "applied") & (by.end.log_offset == switch.log_offset)
    is_founded = is_requested & is_meant & is_applied & (by.request_ms == switch.new_due_ms)
    text = F.concat(switch.fate_name, F.lit(" by offset "), switch.control_offset, F.lit(", which does not ask for it"))
    return (
        switches.withColumn("control", switch.control_offset)
        .join(controls, [*PARTITION, "control"], "left")
        .where(is_known(switch.next_request) & ~F.coalesce(is_founded, F.lit(False)))
        .select(*ORIGIN, text.alias("claim"), cause_of(switch, "control", switch.control_offset))
    )


def judged_late_switches(known: DataFrame) -> DataFrame:
    """Returns one row for each fate OF_CONTROLS of a schedule that a bulk cancel in force had selected.

    Such a schedule was no longer pending for a later control. The row has the origin and a sentence `claim`. `known`
    are rows of `history_rows`.

    A bulk cancel is in force from its first fate on. A fate is reported only if the owner that wrote this first fate
    read the control of the reported fate later: another owner may have read this control before the bulk cancel. If the
    bulk cancel has a range of due times, a fate is reported only if the log published the due time of the schedule
    before the bulk cancel began: later occurrences may have moved the schedule into the range. Cost: a join of these
    fates with the bulk cancels.
    """
    switch, begun, selected = F.col("switch"), F.col("begun"), F.col("selected")
    switches = known.where(F.col("end.bulk_offset").isNotNull() & (F.size("switches") > 0)).select(
        *(*ORIGIN, "due_since"), F.col("end.bulk_offset").alias("bulk"), F.explode("switches").alias("switch")
    )
    has_range = (selected.from_ms.isNotNull() | selected.until_ms.isNotNull()).alias("has_range")
    bulks = known.where(selected.isNotNull()).select(*PARTITION, F.col("offset").alias("bulk"), "begun", has_range)
    was_selected = ~F.col("has_range") | (F.col("due_since") < begun.log_offset)
    was_read_later = (switch.takeover == begun.takeover) & (switch.control_offset >= begun.next_request)
    text = F.concat(switch.fate_name, F.lit(" by offset "), switch.control_offset)
    claim = F.concat(text, F.lit(" while the bulk control at offset "), F.col("bulk"), F.lit(" selected it"))
    return (
        switches.join(bulks, [*PARTITION, "bulk"])
        .where(was_selected & was_read_later)
        .select(*ORIGIN, claim.alias("claim"))
    )


def judged_bulks(known: DataFrame, *, has_losses: bool) -> list[DataFrame]:
    """Returns DataFrames with one row for each message that a bulk control has cancelled without selecting it, and for
    each wrong count.

    A count is wrong if it differs from the number of fates that name the bulk control. The row has the origin and a
    sentence `claim`, or a sentence `doubt` if a lost fate may have set the due time of the message. A row of a
    cancelled message without a `doubt` also has its `cause` as in `unread_causes`. `known` and
    `has_losses` as in `judged_moves`. Cost: a join of the cancelled messages with the bulk controls, a count by
    control, and a join of the counts with the controls; three more joins if there are losses.
    """
    end, control = F.col("end"), F.col("control")
    ended = known.where(end.bulk_offset.isNotNull()).withColumn("control", end.bulk_offset)
    controls = known.where(F.col("selected").isNotNull())
    cancels = controls.where(F.col("action") == "cancel").select(
        *PARTITION, F.col("offset").alias("control"), F.col("selected").alias("by"), is_refused(end).alias("is_refused")
    )
    last = F.try_element_at("moves", F.lit(-1))
    # The due time of a schedule follows from its fates (`inputs.unfolded`).
    next_ms = F.when(F.col("action") == RECURRING, F.nullif("due_ms", F.lit(0)))
    due_ms = F.coalesce(last.new_due_ms, next_ms, end.first_due_ms)
    is_selected = (
        (control > F.col("offset"))
        & ~F.coalesce(F.col("is_refused"), F.lit(True))
        & F.coalesce(last.control_offset < control, F.lit(True))
        & selects_at(F.col("by"), due_ms)
    )
    # If the end of a schedule is late, the occurrence that set its due time may also be late, and is not judged yet.
    unselected = (
        ended.where(is_known(end.next_request) & ~(end.late & (F.col("action") == RECURRING)))
        .drop("selected")
        .join(cancels, [*PARTITION, "control"], "left")
        .where(~is_selected)
    )
    text = F.concat(F.lit("cancelled by offset "), control)
    claim = F.concat(text, F.lit(", which does not select it")).alias("claim")
    claimed = *ORIGIN, claim, cause_of(end, "control", control)
    judged = [unselected.select(*claimed)]
    if has_losses:
        is_due_later = (F.col("due_ms") == 0) | (F.col("due_ms") >= F.col("fates_lost_before_ms"))
        may_have_occurred = (F.col("action") == RECURRING) & ~F.coalesce(is_due_later, F.lit(False))
        may_select = (control > F.col("offset")) & ~F.coalesce(F.col("is_refused"), F.lit(True))
        older = unselected.where(is_older_than_losses() & may_select)
        messages = older.where(F.col("action") != RECURRING).select(
            *(*ORIGIN, *_SELECTABLE, "control", "by"),
            F.coalesce(last.new_due_ms, end.first_due_ms).alias("known_due_ms"),
            last.control_offset.alias("moved_by"),
        )
        times = with_lost_due_times(messages, known)
        may_be_selected = F.exists("lost_due_times", lambda lost: selects_at(F.col("by"), lost.due_ms))
        schedules = older.where(may_have_occurred & _selects_at_any_time(F.col("by"))).select(*ORIGIN)
        doubted = times.where(may_be_selected).select(*ORIGIN).unionByName(schedules)
        judged = [
            unselected.join(doubted, list(ORIGIN), "left_anti").select(*claimed),
            unselected.join(doubted, list(ORIGIN), "left_semi").select(
                *ORIGIN, F.concat(text, F.lit(_DOUBT)).alias("doubt")
            ),
        ]
    moved = known.where(F.size("moves") > 0).select(*PARTITION, F.explode("moves.control_offset").alias("control"))
    named = ended.select(*PARTITION, "control").unionByName(moved)
    counts = named.groupBy(*PARTITION, control.alias("offset")).agg(F.count("*").alias("found"))
    is_whole = ~end.late & ~F.col("log_capped") & (F.col("request_ms") >= F.col("fates_lost_before_ms"))
    found = F.coalesce("found", F.lit(0))
    counted = F.concat(F.lit("counts "), end["count"], F.lit(" messages, and "), found, F.lit(" fates name it"))
    miscounted = (
        controls.where((end.fate_name == "applied") & is_whole)
        .join(counts, list(ORIGIN), "left")
        .where(~end["count"].eqNullSafe(found))
        .select(*ORIGIN, counted.alias("claim"))
    )
    return [*judged, miscounted]


def judged_returns(known: DataFrame) -> DataFrame:
    """Returns one row for each return whose named attempt differs from that of its parent.

    The row has the origin and a sentence `claim`. `known` are rows of `history_rows`. A return is not judged if its
    parent is not among these rows, or if it names no attempt. A request that delivers a dead letter again names no
    attempt. Cost: a join of the returns with their parents.
    """
    parents = known.where(F.col("action") == "schedule").select(
        *PARTITION, F.col("offset").alias("acts_on"), F.coalesce("attempt", F.lit(0)).alias("of_parent")
    )
    returns = known.where(F.col("named_attempt").isNotNull() & F.col("acts_on").isNotNull()).select(
        *ORIGIN, "acts_on", "named_attempt"
    )
    text = F.concat(F.lit("a return of attempt "), F.col("named_attempt"), F.lit(" of offset "), F.col("acts_on"))
    claim = F.concat(text, F.lit(", which was delivered as attempt "), F.col("of_parent"))
    joined = returns.join(parents, [*PARTITION, "acts_on"]).where("named_attempt != of_parent")
    return joined.select(*ORIGIN, claim.alias("claim"))


def _later(column: str) -> Column:
    return F.coalesce(F.col(column) > F.col("offset"), F.lit(False))
