"""Computes the upcoming load from the rings: the pending entries by horizon or by step of time, and the due entries.

Thread rule: pure functions over the rings of the owner, or over a reader's copy.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from postdate.wheel.timing_wheel.rings import Rings

HORIZONS_MS: Final = (
    ("5s", 5_000),
    ("1m", 60_000),
    ("5m", 300_000),
    ("15m", 900_000),
    ("1h", 3_600_000),
    ("4h", 14_400_000),
    ("8h", 28_800_000),
    ("24h", 86_400_000),
)
LATER: Final = "later"
OVERDUE: Final = "overdue"
ENDING: Final = "ending"
PARKED: Final = "parked"


class ForecastLoad(NamedTuple):
    """The number of entries and the bytes of their values. The bytes are an estimate, since loading an hour and
    rebuilding the wheel count a mean size for each entry."""

    entries: int
    size_bytes: int


def pending_by_horizon(rings: Rings, now_ms: int) -> dict[str, int]:
    """Returns the number of entries due between each horizon and the previous one. The numbers of overdue entries, of
    entries under due time 0 and of parked entries are separate.

    A slot counts at its beginning, so an entry may be due up to a tick (in the hour ring, up to an hour) after its
    horizon. The sum of all numbers is exactly the number of pending entries, unless the wheel is being built.
    O(slots).
    """
    geometry = rings.geometry
    result = {ENDING: rings.ending.count, OVERDUE: rings.overdue.count}
    ticks_end = rings.ticks_end
    hour = rings.cursor[0] // geometry.hour_ms
    now_tick = min(max(rings.window, now_ms // geometry.tick_ms), ticks_end)
    result[OVERDUE] += int(rings.fine.counts(rings.window, now_tick).sum())
    tick, now_hour = now_tick, now_ms // geometry.hour_ms
    if hour < now_hour:
        now_hour = min(now_hour, rings.limit_hour)
        result[OVERDUE] += int(rings.hours.counts(hour, now_hour).sum())
        hour = now_hour
    for name, horizon_ms in HORIZONS_MS:
        tick_end = max(tick, min(ticks_end, -(-(now_ms + horizon_ms) // geometry.tick_ms)))
        hour_end = max(hour, min(rings.limit_hour, -(-(now_ms + horizon_ms) // geometry.hour_ms)))
        result[name] = int(rings.fine.counts(tick, tick_end).sum() + rings.hours.counts(hour, hour_end).sum())
        tick, hour = tick_end, hour_end
    rest = rings.fine.counts(tick, ticks_end).sum() + rings.hours.counts(hour, rings.limit_hour).sum()
    result[LATER] = int(rest) + rings.beyond.count
    result[PARKED] = rings.parked.count
    return result


def load_ahead(rings: Rings, from_ms: int, step_ms: int, steps: int) -> list[int]:
    """Returns the number of entries due in each of `steps` spans of `step_ms` from `from_ms` on, without overdue
    entries.

    A slot counts at its beginning, so all entries of an hour that is not loaded yet count in one span.
    O(slots + steps).
    """
    geometry = rings.geometry
    hour, loads = rings.cursor[0] // geometry.hour_ms, []
    tick = max(rings.window, from_ms // geometry.tick_ms)
    for number in range(1, steps + 1):
        end_ms = from_ms + number * step_ms
        tick_end = max(tick, min(rings.ticks_end, -(-end_ms // geometry.tick_ms)))
        hour_end = max(hour, min(rings.limit_hour, -(-end_ms // geometry.hour_ms)))
        loads.append(int(rings.fine.counts(tick, tick_end).sum() + rings.hours.counts(hour, hour_end).sum()))
        tick, hour = tick_end, hour_end
    return loads


def due_load(rings: Rings, before_ms: int) -> ForecastLoad:
    """Returns the load of the entries that are due by the end of the tick of `before_ms`, without parked entries and
    without hours that are not loaded. Callers use it to size a transaction. O(ticks since the start of the window)."""
    geometry = rings.geometry
    end = max(rings.window, min(rings.ticks_end, before_ms // geometry.tick_ms + 1))
    count, size_bytes = rings.fine.sums_of(rings.window, end)
    return ForecastLoad(
        count + rings.ending.count + rings.overdue.count,
        size_bytes + rings.ending.size_bytes + rings.overdue.size_bytes,
    )


def next_due_ms(rings: Rings) -> int | None:
    """Returns a lower bound of the earliest due time: 0 if an entry is overdue or has due time 0 in its key, None if
    there are no entries other than parked ones.

    Amortised O(1). Valid only for rings that are not being built.
    """
    if rings.ending.count:
        return 0
    first = rings.first_message()
    return None if first is None else first[2]
