"""Applies `schedules` to all recurring schedules of an audit: turns rows of schedules, fates and records into positions
and findings.

Nominal times need calendars and zone files, which no column expression can read without the JVM's own database of
zones. So the rows of schedules, and no others, pass through Python workers, which need Postdate, numpy and tzdata. The
events of a schedule are sorted by their numbers and judged in one pass, so memory does not limit its number of
occurrences.

A state keeps the `position` of a schedule; `occurrences` has the findings of one run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import groupby
from typing import Any, Final, Self

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from postdate.spark.columns.by_origin import ORIGIN, PARTITION
from postdate.spark.columns.expressions import one_of
from postdate.spark.records.deliveries import OCCURRENCE_RECORD, occurrence_records
from postdate.spark.records.fates import EXTENDING, FINAL, OCCURRENCE_FATE, SWITCHES, occurrence_fates
from postdate.spark.records.recurrences import BACKFILL, RECURRING, read_recurrence
from postdate.spark.rules.schedules.schedule_events import (
    Bounds,
    DeadOccurrence,
    DeliveredOccurrence,
    End,
    Event,
    ExtraPosition,
    Fate,
    Figures,
    Judgement,
    Position,
    RowFacts,
    ScheduleRequest,
    Switch,
    Trigger,
    ZoneVersions,
)
from postdate.spark.rules.schedules.schedules import judge_schedule
from postdate.spark.rules.times.cron_fields import read_cron
from postdate.spark.rules.times.nominal_times import CronTimes, IntervalTimes
from postdate.spark.rules.times.zone_files import read_zone, tz_version

Zones = Mapping[tuple[str, int], tuple[tuple[int, str], ...]]
"""The versions of the zone rules by topic and partition of the requests. Each version is preceded by the dispatch-log
offset at which it came into force; these offsets ascend."""

_FIGURES: Final = f"struct<{','.join(f'{name}:bigint' for name in Figures._fields)}>"
_WAITING_FATE: Final = OCCURRENCE_FATE.removesuffix(">") + ",is_sound:boolean,first_ms:bigint>"
POSITION: Final = (
    "struct<first_ms:bigint,next_number:bigint,next_ms:bigint,log_offset:bigint,place:int,"
    f"figures:{_FIGURES},problems:array<struct<verdict:string,detail:string>>,"
    f"reasons:array<struct<reason:string,occurrences:bigint>>,waiting_fates:array<{_WAITING_FATE}>,"
    f"waiting_records:array<{OCCURRENCE_RECORD}>,"
    "extras:array<struct<control:bigint,number:bigint,next_ms:bigint,log_offset:bigint,place:int>>>"
)
"""The type of the column `position`, which holds a `schedule_events.Position`."""
OCCURRENCES: Final = (
    f"struct<added:{_FIGURES},lateness_ms:array<bigint>,overdue:bigint,"
    "letters:array<struct<partition:int,offset:bigint>>>"
)
"""The type of the column `occurrences`, which holds a `schedule_events.Judgement` without its position, and with the
places of dead letters instead of the dead letters."""
_RESULT: Final = f"topic string, partition int, offset bigint, position {POSITION}, occurrences {OCCURRENCES}"

_LOST_CONTROL: Final = "struct<offset:bigint,action:string,at_ms:bigint>"

_BOUNDS: Final = (
    *("fates_lost_before_ms", "letters_lost_before_ms", "letters_capped_from_ms"),
    *("target_began_ms", "target_recreated_ms"),
)
_BOUNDS_OF_PARTITIONS: Final = ("target_lost_before_ms", "target_capped_from_ms", "target_known_ms")
EXTENDS: Final = ("trigger", BACKFILL)
"""The actions of controls whose fates are EXTENDING."""
OF_SCHEDULES: Final = ("pause", "resume", *EXTENDS)
"""The actions of controls whose fates are OF_CONTROLS."""
# `times_of` returns this zone for a schedule whose zone the audit does not know.
_OTHER_ZONE: Final = "Etc/UTC"


@dataclass(frozen=True)
class Events:
    """The occurrences that an audit reads: their fates and records, and the versions of the zone rules."""

    fates: DataFrame
    records: DataFrame
    zones: Zones = field(default_factory=dict)
    lost_controls: DataFrame | None = None
    """The lost controls of earlier runs, with the columns of `lost_controls()`; None if there are none."""

    @classmethod
    def of(cls, log: DataFrame, messages: DataFrame, zones: Zones) -> Self:
        """Returns the fates and records of occurrences. `log` has rows of `log_rows`, `messages` rows of
        `delivered_messages`."""
        return cls(occurrence_fates(log), occurrence_records(messages), zones)

    def origins(self) -> DataFrame:
        """Returns one row for each schedule with a fate or a record: its origin, and a `position` that has only a
        nominal time, in `next_ms`.

        A state finds its row of the schedule by this time.
        """
        due_ms = F.coalesce(F.nullif("fate.nominal_ms", F.lit(0)), F.nullif("fate.next_ms", F.lit(0)))
        named = self.fates.select(*ORIGIN, due_ms.alias("due_ms")).unionByName(
            self.records.select(*ORIGIN, F.col("record.due_ms").alias("due_ms"))
        )
        first = named.groupBy(*ORIGIN).agg(F.min("due_ms").alias("next_ms"))
        return first.select(*ORIGIN, _found_at(F.col("next_ms")).alias("position"))


def is_of_schedule() -> Column:
    """True if a row of `inputs.folded` belongs to a schedule, or to an origin with occurrences."""
    return F.col("position").isNotNull() | F.coalesce(F.col("facts.request.action") == RECURRING, F.lit(False))


def may_have_lost_fate() -> Column:
    """True if a row of `judging.placed` is a control OF_SCHEDULES whose fate may have left the dispatch log.

    The fate of the schedule and the fate `applied` of the control are in one record. So if the log has one of them, the
    other is not lost.
    """
    is_older = F.col("facts.request.request_ms") < F.col("fates_lost_before_ms")
    return F.coalesce(one_of(F.col("facts.request.action"), OF_SCHEDULES) & is_older & ~_has_ended(), F.lit(False))


def _has_ended() -> Column:
    return F.exists("facts.fates", lambda fate: one_of(fate.fate_name, FINAL))


def lost_controls(rows: DataFrame) -> DataFrame:
    """Returns the columns of lost controls for `rows`, the rows of such controls OF_SCHEDULES.

    The columns are topic and partition, the offset `control` of the control, the `id` or the offset `acts_on` of its
    schedule, and a struct `lost` for the judge.
    """
    request = F.col("facts.request")
    lost = F.struct("offset", request.action.alias("action"), request.request_ms.alias("at_ms")).alias("lost")
    return rows.select(*PARTITION, F.col("offset").alias("control"), "id", request.acts_on.alias("acts_on"), lost)


def _with_lost_controls(schedules: DataFrame, lost: DataFrame | None) -> DataFrame:
    """Returns rows of schedules with the column `lost_controls`: the lost controls that name the schedule, in the order
    of their offsets."""
    if lost is None:
        return schedules.withColumn("lost_controls", F.lit(None).cast(f"array<{_LOST_CONTROL}>"))
    own = F.array(F.hex("id"), F.concat(F.lit("#"), F.col("offset").cast("string")))
    names = schedules.select(*ORIGIN, F.explode(F.array_compact(own)).alias("name"))
    named = F.coalesce(F.concat(F.lit("#"), F.col("acts_on").cast("string")), F.hex("id"))
    meant = names.join(lost.select(*PARTITION, "control", "lost", named.alias("name")), [*PARTITION, "name"])
    controls = F.sort_array(F.collect_set("lost")).alias("lost_controls")
    lost_by_schedule = meant.where("control > offset").groupBy(*ORIGIN).agg(controls)
    return schedules.join(lost_by_schedule, list(ORIGIN), "left")


def with_occurrences(
    placed: DataFrame, events: Events | None, overdue_before_ms: int, *, has_lost_controls: bool
) -> DataFrame:
    """Returns the rows of `judging.placed` with the new `position` and the `occurrences` of schedules.

    Both columns are null for other rows. `plain` becomes null for rows with a new position. `events` is None if there
    are no events. `has_lost_controls` is True if `may_have_lost_fate` is true for any row.

    Cost: one job, since the conversion to an RDD computes the shuffle; one shuffle and sort of the events, 20 us of
    Python for each, and a join; two more joins if controls are lost.
    """
    lost = [lost_controls(placed.where(may_have_lost_fate()))] if has_lost_controls else []
    if events is not None and events.lost_controls is not None:
        ended = placed.where(_has_ended()).select(*PARTITION, F.col("offset").alias("control"))
        lost.append(events.lost_controls.join(ended, [*PARTITION, "control"], "left_anti"))
    schedules = placed.where(is_of_schedule())
    schedules = _with_lost_controls(schedules, reduce(DataFrame.unionByName, lost) if lost else None).select(
        *ORIGIN,
        *(F.lit(-1).cast("bigint").alias(name) for name in ("control", "number")),
        *(F.lit(0).alias("kind"), _schedule().alias("schedule")),
    )
    rows = schedules.withColumns(
        {"fate": F.lit(None).cast(OCCURRENCE_FATE), "record": F.lit(None).cast(OCCURRENCE_RECORD)}
    )
    if events is not None:
        for kind, rows_of_kind in ((1, events.fates), (2, events.records)):
            name = "fate" if kind == 1 else "record"
            place = (F.col(f"{name}.{column}").alias(column) for column in ("control", "number"))
            numbered = rows_of_kind.select(*ORIGIN, *place, F.lit(kind).alias("kind"), name)
            rows = rows.unionByName(numbered, allowMissingColumns=True)
    order = ("control", "number", "kind", "fate.log_offset", "fate.place")
    ordered = rows.repartition(*ORIGIN).sortWithinPartitions(*ORIGIN, *order)
    judge = partial(_judged_rows, zones=dict(events.zones) if events is not None else {}, before_ms=overdue_before_ms)
    judged = placed.sparkSession.createDataFrame(ordered.rdd.mapPartitions(judge), _RESULT, verifySchema=False)
    joined = placed.drop("position", "occurrences").join(judged, list(ORIGIN), "left")
    return joined.withColumn("plain", F.when(F.col("position").isNull(), F.col("plain")))


def _found_at(next_ms: Column) -> Column:
    """Returns a position with a nominal time and no other values."""
    kind = DataType.fromDDL(POSITION)
    assert isinstance(kind, StructType), "a position has fields"
    values = (
        (next_ms if column.name == "next_ms" else F.lit(None)).cast(column.dataType).alias(column.name)
        for column in kind
    )
    return F.struct(*values)


def occurrence_problems() -> Column:
    """Returns the problems of a row's `position`, in the form of `problems` in `judging.judge`."""
    unverified = F.transform(
        F.coalesce("position.reasons", F.array().cast("array<struct<reason:string,occurrences:bigint>>")),
        lambda reason: F.struct(
            reason.reason.alias("verdict"), F.concat(F.lit("occurrences: "), reason.occurrences).alias("detail")
        ),
    )
    none = F.array().cast("array<struct<verdict:string,detail:string>>")
    return F.concat(F.coalesce("position.problems", none), unverified)


def without_judged_dead_letters(facts: Column) -> Column:
    """Returns the facts of a schedule without those dead letters of occurrences that no later run needs."""
    waiting = F.col("occurrences.letters")

    def is_kept(dead_letter: Column) -> Column:
        place = F.struct(*(dead_letter[name].alias(name) for name in ("partition", "offset")))
        return dead_letter.single_due_ms.isNull() | waiting.isNull() | F.array_contains(waiting, place)

    return facts.withField("letters", F.filter(facts.letters, is_kept))


def _schedule() -> Column:
    """Returns a struct with all values of a row that the judge needs besides the events."""
    request, facts = F.col("facts.request"), F.col("facts")
    # Occurrences after the fixed end of the log are not judged, so an end or a control there must not require any.
    fates = F.filter(facts.fates, lambda fate: ~fate.late)
    stored = F.filter(fates, lambda fate: fate.fate_name == "stored")
    finals = F.filter(fates, lambda fate: one_of(fate.fate_name, FINAL))
    switches = F.filter(fates, lambda fate: one_of(fate.fate_name, SWITCHES))
    triggers = F.filter(fates, lambda fate: one_of(fate.fate_name, EXTENDING))
    singles = F.filter(facts.letters, lambda dead_letter: dead_letter.single_due_ms.isNotNull())

    def is_same(dead_letter: Column) -> Column:
        same_value = (dead_letter.value_digest == request.value_digest) | dead_letter.is_without_value
        return (dead_letter.key_digest == request.own_key_digest) & same_value

    bounds = ("log_capped", "target_partitions", "target_capped", "target_compacted", "request_end", "is_judged")
    return F.struct(
        *(
            request[name].alias(name)
            for name in (
                *("action", "request_ms", "target", "id", "window_ms", "grace_ms", "partition_asked", "key_hash"),
                *("key_digest", "value_digest", "headers_digest"),
            )
        ),
        *read_recurrence(request.recurrence),
        F.array_min(F.transform(stored, lambda fate: F.struct(fate.log_offset, fate.first_due_ms))).alias("stored"),
        F.array_min(
            F.transform(finals, lambda fate: F.struct(fate.log_offset, fate.place, fate.fate_name, fate.first_due_ms))
        ).alias("end"),
        F.transform(
            switches,
            lambda fate: F.struct(
                *(fate.control_offset, fate.new_due_ms, fate.fate_name == "paused", fate.log_offset, fate.place)
            ),
        ).alias("switches"),
        F.transform(
            triggers,
            lambda fate: F.struct(
                *(fate.control_offset, fate.new_due_ms, fate.log_offset, fate.place),
                *(fate.filled_from_ms, fate.filled_until_ms),
            ),
        ).alias("triggers"),
        F.transform(
            singles,
            lambda dead_letter: F.struct(
                dead_letter.single_due_ms, is_same(dead_letter), dead_letter["partition"], dead_letter["offset"]
            ),
        ).alias("letters"),
        *(*bounds, *_BOUNDS, *_BOUNDS_OF_PARTITIONS, "position", "lost_controls"),
    )


def _judged_rows(rows: Iterable[Row], zones: Zones, before_ms: int) -> Iterator[tuple[Any, ...]]:
    """Yields the result for each schedule among sorted rows. Ignores the events of other origins."""
    for origin, some in groupby(rows, key=lambda row: row[:3]):
        row = next(some)["schedule"]
        if row is not None:
            events = (_event(one) for one in some)
            yield (*origin, *_columns_of(_judged(origin, row, events, zones.get(origin[:2], ()), before_ms)))


def _judged(
    origin: tuple[str, int, int],
    row: Row,
    events: Iterable[Event],
    zones: Iterable[tuple[int, str]],
    before_ms: int,
) -> Judgement | None:
    """Returns the judgement of one schedule; None if there is nothing to judge."""
    known, times = _known(row["position"]), times_of(row)
    if not row["is_judged"]:
        # A request behind the fixed end of this audit is read by the next one.
        is_ahead = row["request_end"] is not None and origin[2] >= row["request_end"]
        return _kept(known, events) if is_ahead else None
    if row["action"] is None:
        return _wrong(Position())
    if row["action"] != RECURRING:
        return _wrong(known, "has occurrences, though it is no schedule")
    end = None
    if row["end"] is not None:
        log_offset, place, name, first_due_ms = row["end"]
        end = End(name, first_due_ms, log_offset, place)
    if times is None or (end is not None and end.is_refusal and not _was_accepted_before(row, end)):
        was_accepted = known.log_offset >= 0 or bool(known.problems) or any(True for _ in events)
        why = "its times cannot be read" if times is None else "it was refused"
        return _wrong(known, f"has occurrences, though {why}") if was_accepted else None
    # For a zone that the audit does not know, no version of the rules is installed.
    versions = ZoneVersions(tz_version() if is_zone_known(row, times) else "", *zip(*zones, strict=True))
    stored = None if row["stored"] is None else (row["stored"][1], row["stored"][0])
    dead_letters = [DeadOccurrence(*dead_letter) for dead_letter in row["letters"] or ()]
    switches, triggers = row["switches"] or (), row["triggers"] or ()
    facts = RowFacts(
        *(
            dead_letters,
            stored,
            end,
            [Switch(*switch) for switch in switches],
            [Trigger(*trigger) for trigger in triggers],
        ),
        *_split_lost_controls(row["lost_controls"] or ()),
    )
    request, bounds = _request_of(origin, row, times), _bounds(row, before_ms)
    return judge_schedule(request, known, events, facts, versions, bounds)


def _was_accepted_before(row: Row, end: End) -> bool:
    """True if another owner accepted a schedule before its refusal, or may have accepted it in a lost fate."""
    was_stored = row["stored"] is not None and row["stored"][0] < end.log_offset
    return bool(was_stored or (row["fates_lost_before_ms"] or -1) > row["request_ms"])


def _split_lost_controls(controls: Iterable[Row]) -> tuple[list[int], list[Switch]]:
    """Splits the controls of a schedule whose fates may be lost: returns the offsets of triggers and backfills, and the
    pauses and resumes."""
    extending, switches = [], []
    for offset, action, at_ms in controls:
        if action in EXTENDS:
            extending.append(offset)
        else:
            switches.append(Switch(offset, at_ms, action == "pause", -1, -1))
    return extending, switches


def _request_of(origin: tuple[str, int, int], row: Row, times: CronTimes | IntervalTimes) -> ScheduleRequest:
    return ScheduleRequest(
        "/".join(map(str, origin)),
        times=times,
        count_max=row["count"],
        missed=row["missed"] or "all",
        id=_bytes(row["id"]),
        requested_partition=row["partition_asked"],
        digests=tuple(_bytes(row[name]) for name in ("key_digest", "value_digest", "headers_digest")),
        **{name: row[name] for name in ("request_ms", "start_ms", "end_ms", "window_ms", "grace_ms", "catch_up_ms")},
        **{name: row[name] for name in ("target", "key_hash")},
    )


def times_of(row: Row) -> CronTimes | IntervalTimes | None:
    """Returns the nominal times of a schedule; None if they cannot be read. A zone that the audit does not know is
    replaced by _OTHER_ZONE (`is_zone_known`)."""
    if not row["is_read"]:
        return None
    if row["cron"] is None:
        return IntervalTimes(row["every_ms"], row["phase_ms"]) if row["every_ms"] else None
    times = CronTimes(row["cron"], row["zone"] or "UTC", row["gap"] or "next", row["fold"] or "first")
    try:
        read_cron(times.cron)
    except ValueError:
        return None
    try:
        read_zone(times.zone)
    except ValueError:
        return times._replace(zone=_OTHER_ZONE)
    return times


def is_zone_known(row: Row, times: CronTimes | IntervalTimes) -> bool:
    """True if the audit knows the zone of a schedule. `times` are the result of `times_of`."""
    return not isinstance(times, CronTimes) or times.zone == (row["zone"] or "UTC")


def _bounds(row: Row, before_ms: int) -> Bounds:
    known: dict[str, Any] = {name: -1 if row[name] is None else row[name] for name in _BOUNDS}
    of_partitions: dict[str, Any] = {name: row[name] or () for name in _BOUNDS_OF_PARTITIONS}
    return Bounds(
        overdue_before_ms=before_ms,
        log_capped=bool(row["log_capped"]),
        is_target_read=row["target_capped"] is not None,
        target_partitions=row["target_partitions"],
        target_compacted=bool(row["target_compacted"]),
        **known,
        **of_partitions,
    )


def _event(row: Row) -> Event:
    return Fate(*row["fate"]) if row["fate"] is not None else _delivered(row["record"])


def _delivered(record: Row) -> DeliveredOccurrence:
    values = {**record.asDict(), "id": _bytes(record["id"]), "digests": tuple(map(_bytes, record["digests"]))}
    return DeliveredOccurrence(**values)


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def _known(position: Row | None) -> Position:
    if position is None or position["next_number"] is None:
        return Position()
    first_ms, number, next_ms, log_offset, place, figures, problems, reasons, fates, records, extras = position
    return Position(
        first_ms,
        number,
        next_ms,
        log_offset,
        place,
        Figures(*figures),
        tuple((verdict, detail) for verdict, detail in problems),
        tuple((reason, count) for reason, count in reasons),
        tuple(Fate(*fate) for fate in fates),
        tuple(map(_delivered, records)),
        tuple(ExtraPosition(*extra) for extra in extras or ()),
    )


def _kept(known: Position, events: Iterable[Event]) -> Judgement:
    """Returns a judgement whose position keeps these events for the next audit and judges none of them.

    Late fates are not kept, since the next audit reads them again.
    """
    all_events = [*known.waiting_fates, *known.waiting_records, *events]
    fates = tuple(event for event in all_events if isinstance(event, Fate) and not event.late)
    records = tuple(event for event in all_events if isinstance(event, DeliveredOccurrence))
    return Judgement(known._replace(waiting_fates=fates, waiting_records=records), Figures(), [], 0)


def _wrong(known: Position, detail: str | None = None) -> Judgement:
    """Returns a judgement without occurrences. The `detail` is reported as a contradiction; None reports nothing."""
    problems = () if detail is None else (("contradiction", detail),)
    return Judgement(known._replace(problems=problems), Figures(), [], 0)


def _columns_of(judgement: Judgement | None) -> tuple[Any, Any]:
    """Returns the values of `position` and `occurrences` of a row."""
    if judgement is None:
        return None, None
    dead_letters = (
        None
        if judgement.dead_letters is None
        else [(dead_letter.partition, dead_letter.offset) for dead_letter in judgement.dead_letters]
    )
    return tuple(judgement.position), (tuple(judgement.added), judgement.lateness_ms, judgement.overdue, dead_letters)
