"""Column expressions for the headers of recurring schedules: requests with a cron expression or an interval.

`columns.times` reads the texts of times, which have the same format in all requests. `rules.times.cron_fields` and
`rules.times.zone_files` read expressions and zones, since no column expression can compute nominal times.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from postdate.spark.columns.digests import first_value, has
from postdate.spark.columns.expressions import natural, one_of
from postdate.spark.columns.times import duration_in, durations_ms, instant_ms
from postdate.wire import headers as names

RECURRING: Final = "recurring"
"""The action of a request for a recurring schedule."""
BACKFILL: Final = "backfill"
"""The action of a request that delivers nominal times of a schedule again."""


def recurs(headers: Column) -> Column:
    """True if a request with these headers is a recurring schedule. Requires that the request names no other action."""
    return has(headers, names.CRON) | has(headers, names.EVERY)


def recurrence_of(headers: Column) -> Column:
    """Returns the headers that only schedules and backfills have; null if a request has neither a cron expression, an
    interval, a start nor an end."""
    is_one = recurs(headers) | has(headers, names.START) | has(headers, names.END)
    return F.when(is_one, F.filter(headers, lambda header: one_of(header.key, sorted(names.SCHEDULE))))


def filled_range(headers: Column) -> tuple[Column, Column]:
    """Returns the first and the last nominal time that a backfill requests, each null if it is absent or cannot be
    read."""
    start_ms, end_ms = (instant_ms(first_value(headers, name).cast("string")) for name in (names.START, names.END))
    return start_ms, end_ms


def read_recurrence(headers: Column) -> list[Column]:
    """Returns the values of the headers of a recurring schedule, each null if it is absent or cannot be read.

    The last column, `is_read`, is true if all times, durations and numbers that are present can be read. The other
    headers are returned as texts.
    """

    def text(name: str) -> Column:
        return first_value(headers, name).cast("string")

    interval = F.split(text(names.EVERY), "/", 2)
    lengths = [F.get(interval, 0), F.get(interval, 1), text(names.CATCH_UP)]
    every_ms, phase_ms, catch_up_ms = (
        duration_in(durations_ms(lengths), place, length) for place, length in enumerate(lengths)
    )
    read = {
        "every_ms": (names.EVERY, every_ms),
        "start_ms": (names.START, instant_ms(text(names.START))),
        "end_ms": (names.END, instant_ms(text(names.END))),
        "count": (names.COUNT, natural(text(names.COUNT))),
        "catch_up_ms": (names.CATCH_UP, catch_up_ms),
    }
    phase_ms = F.when(F.size(interval) > 1, phase_ms).otherwise(F.lit(0)).cast("bigint")
    is_read = phase_ms.isNotNull() | ~has(headers, names.EVERY)
    for name, value in read.values():
        is_read = is_read & (value.isNotNull() | ~has(headers, name))
    texts = (names.CRON, names.ZONE, names.GAP, names.FOLD, names.MISSED)
    return [
        *(text(name).alias(name.removeprefix(names.PREFIX)) for name in texts),
        *(value.alias(name) for name, (_, value) in read.items()),
        F.when(has(headers, names.EVERY), phase_ms).alias("phase_ms"),
        F.coalesce(is_read, F.lit(False)).alias("is_read"),
    ]
