"""Checks whether fates `backfilled` have the times that their controls request.

A backfill requests the nominal times of its schedule from `postdate-start` to `postdate-end`. Its fate must name the
first of these times and the same end; the audit computes the first time with its own calendar. `schedules` then judges
each delivery from the first time on, and `claims` checks whether the control requests a backfill of this schedule at
all. A first time is not judged if the owner that published it had other zone rules than the audit.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN, PARTITION
from postdate.spark.records.recurrences import BACKFILL, filled_range, read_recurrence
from postdate.spark.rules.schedules.occurrences import Zones, is_zone_known, times_of
from postdate.spark.rules.schedules.schedule_events import ZoneVersions
from postdate.spark.rules.times.nominal_search import NominalSearch
from postdate.spark.rules.times.nominal_times import CronTimes
from postdate.spark.rules.times.zone_files import tz_version


def judged_backfills(known: DataFrame, zones: Zones) -> DataFrame:
    """Returns one row for each `backfilled` whose times differ from those that its control requests.

    The row has the origin and a sentence `claim`. A fate is not judged if its control was not read. `known` are rows of
    `history_rows`, `zones` as in `occurrences`. Cost: a join of these fates with their controls, and the computation of
    one nominal time for each in Python.
    """
    fate = F.col("fate")
    schedules = known.where(F.col("request_ms").isNotNull()).select(
        *(*ORIGIN, "recurrence"),
        F.explode(F.filter("switches", lambda switch: switch.fate_name == "backfilled")).alias("fate"),
    )
    # A separate step, since Spark cannot parse times in a step that explodes an array.
    filled = schedules.withColumn("schedule", F.struct(*read_recurrence(F.col("recurrence"))))
    start_ms, end_ms = filled_range(F.col("recurrence"))
    controls = known.where((F.col("action") == BACKFILL) & F.col("request_ms").isNotNull()).select(
        *(*PARTITION, F.col("offset").alias("control"), start_ms.alias("start_ms"), end_ms.alias("end_ms"))
    )
    first_ms = _first_ms(zones)(*PARTITION, "fate.log_offset", "schedule", "start_ms", "end_ms")
    is_first = F.coalesce(F.col("first_ms") == fate.filled_from_ms, F.lit(True))
    is_within = fate.filled_from_ms.between(F.col("start_ms"), F.col("end_ms"))
    is_founded = (F.col("end_ms") == fate.filled_until_ms) & is_within & is_first
    times = F.concat(fate.filled_from_ms, F.lit(" to "), fate.filled_until_ms)
    requested_times = F.concat(F.coalesce("first_ms", "start_ms"), F.lit(" to "), F.col("end_ms"))
    text = F.concat(F.lit("backfilled by offset "), fate.control_offset, F.lit(" from "), times)
    return (
        filled.withColumn("control", fate.control_offset)
        .join(controls, [*PARTITION, "control"])
        .withColumn("first_ms", first_ms)
        .where(~F.coalesce(is_founded, F.lit(False)))
        .select(*ORIGIN, F.concat(text, F.lit(", which asks for "), requested_times).alias("claim"))
    )


def _first_ms(zones: Zones) -> Callable[..., Column]:
    """Returns a Spark function that calls `first_filled_ms` with the arguments topic, partition, offset in the log,
    schedule, start and end."""
    by_place = dict(zones)

    @F.udf("bigint")
    def found(topic: str, partition: int, log_offset: int, schedule: Row, start_ms: int, end_ms: int) -> int | None:
        versions = ZoneVersions(tz_version(), *zip(*by_place.get((topic, partition), ()), strict=True))
        return first_filled_ms(schedule, versions, log_offset, start_ms, end_ms)

    return found


def first_filled_ms(
    schedule: Row, versions: ZoneVersions, log_offset: int, start_ms: int | None, end_ms: int | None
) -> int | None:
    """Returns the first nominal time of a backfill; 0 if there is none, None if the audit cannot compute it.

    `schedule` has the headers of the schedule in the form of `read_recurrence`. `log_offset` is the offset of the
    dispatch-log record that published the time.
    """
    times = times_of(schedule)
    if times is None or start_ms is None or end_ms is None or not is_zone_known(schedule, times):
        return None
    if isinstance(times, CronTimes) and times.zone != "UTC" and not versions.are_installed_at(log_offset):
        return None
    last_ms = end_ms if schedule["end_ms"] is None else min(end_ms, schedule["end_ms"])
    first = NominalSearch(times, last_ms, has_gaps=False).after(max(start_ms, schedule["start_ms"] or 0, 1) - 1)
    return 0 if first is None else first[0]
