"""Computes the upcoming load from the rings: pending entries by horizon, by step of time, and due now.

Thread rule: pure functions over rings, the owner's or a reader's copy.
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
    """Entries and the bytes of their values. The bytes are a hint, exact for entries added since the last load."""

    entries: int
    size_bytes: int


def pending_by_horizon(rings: Rings, now_ms: int) -> dict[str, int]:
    """Returns the number of entries due within each horizon and after the previous one, and the overdue, control and
    parked entries separately.

    A slot counts at its beginning, so an entry may be due up to a tick (in the hour ring an hour) after its horizon.
    Cancels and reschedules keep the counts exact; their sum is the number of pending entries. O(slots).
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

    A slot counts at its beginning, so an hour that is not loaded yet falls into one span. O(slots + steps).
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
    """Returns the load due before a time, including the whole present tick, to size a transaction. O(ticks since the
    window)."""
    geometry = rings.geometry
    end = max(rings.window, min(rings.ticks_end, before_ms // geometry.tick_ms + 1))
    count, size_bytes = rings.fine.sums_of(rings.window, end)
    return ForecastLoad(
        count + rings.ending.count + rings.overdue.count,
        size_bytes + rings.ending.size_bytes + rings.overdue.size_bytes,
    )


def next_due_ms(rings: Rings) -> int | None:
    """Returns a lower bound of the earliest due time: 0 if an entry is overdue or a control waits, None if nothing is
    pending.

    Amortised O(1). Valid only for rings that are not being built.
    """
    if rings.ending.count:
        return 0
    first = rings.first_message()
    return None if first is None else first[2]
