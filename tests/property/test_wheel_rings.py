"""Goal: the rings count every entry in exactly one place, after any additions, removals, advances of time and rebuilds.

Method: random operations on tiny rings (tick 1, four ticks; hours of two ms, four hours) that wrap every few
milliseconds, against a heap. After each operation, all zones are compared with a count by brute force, and the first
message with the top of the heap. Batches have sizes below and above the size from which columns are used.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postdate.wheel.keys import entry_key
from postdate.wheel.timer_log import write_delta
from postdate.wheel.timer_log.write_delta import Column, column, key_column
from postdate.wheel.timing_wheel.forecast import due_load, next_due_ms, pending_by_horizon
from postdate.wheel.timing_wheel.layout import NO_DUE, Geometry
from postdate.wheel.timing_wheel.rings import Rings, WheelLevel
from support.shards.timer_indexes import TINY, HeapTimer

GEOMETRIES = (Geometry.of(TINY), Geometry(3, 8, 3, 9), Geometry(1, 9, 2, 4))


def empty_rings(geometry: Geometry, now_ms: int, building: bool = False) -> Rings:
    rings = Rings(geometry, memoryview(bytearray(geometry.file_size_bytes)))
    rings.reset(now_ms, building)
    return rings


def as_column(keys: list[tuple[int, int]], sizes: list[int]) -> Column:
    return column([entry_key(*key) for key in keys], sizes)


def check(rings: Rings, model: HeapTimer, counted: set[tuple[int, int]]) -> None:
    zones: Counter[tuple[WheelLevel, int]] = Counter(rings.zone_of(*key) for key in counted)
    geometry = rings.geometry
    assert not rings.wrong
    for count, zone in (
        (rings.ending, WheelLevel.ENDING),
        (rings.overdue, WheelLevel.OVERDUE),
        (rings.beyond, WheelLevel.BEYOND),
    ):
        assert count.count == zones[zone, 0]
        assert count.size_bytes == 0 or count.count
    for tick in range(rings.window, rings.ticks_end):
        assert rings.fine.slot_totals(tick)[0] == zones[WheelLevel.FINE, tick]
    for hour in range(rings.cursor[0] // geometry.hour_ms, rings.limit_hour):
        assert rings.hours.slot_totals(hour)[0] == zones[WheelLevel.HOUR, hour]
    assert rings.total.count == len(counted) == sum(zones.values())
    assert rings.fine.sums()[0] + rings.hours.sums()[0] == sum(
        n for (zone, _), n in zones.items() if zone in (WheelLevel.FINE, WheelLevel.HOUR)
    )
    assert rings.building or rings.is_sound()
    if not rings.building:
        check_first(rings, model)


def check_first(rings: Rings, model: HeapTimer) -> None:
    messages = sorted(key for key in model.held if key[0])
    first = rings.first_message()
    if not messages:
        assert first is None
        return
    assert first is not None
    assert first[:2] == rings.zone_of(*messages[0])
    assert first[2] <= messages[0][0]
    top = model.first()
    hint = next_due_ms(rings)
    assert top is not None
    assert hint is not None
    assert hint <= top[0]


@settings(max_examples=150)
@given(data=st.data(), geometry=st.sampled_from(GEOMETRIES), short_max=st.sampled_from((0, 32)))
def test_counts_agree_with_a_heap(data: st.DataObject, geometry: Geometry, short_max: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_delta, "SHORT_COLUMN_MAX", short_max)  # both ways of counting a small column
        run_operations(data, geometry)


def run_operations(data: st.DataObject, geometry: Geometry) -> None:
    now = data.draw(st.integers(0, 50), label="start")
    rings, model, offset = empty_rings(geometry, now), HeapTimer(), 0
    rebuilt: tuple[int, int] | None = None  # the key up to which a rebuild has counted; None without a rebuild
    for _ in range(data.draw(st.integers(1, 25), label="steps")):
        step = data.draw(st.sampled_from(("add", "add", "remove", "advance", "load", "rebuild")), label="step")
        if step == "add":
            dues = data.draw(st.lists(st.one_of(st.just(0), st.integers(0, now + 40)), min_size=1, max_size=8))
            keys = [(due, offset + at) for at, due in enumerate(dues)]
            offset += len(keys)
            sizes = [due % 7 for due in dues]
            rings.count_column(as_column(keys, sizes), 1)
            for key, size in zip(keys, sizes, strict=True):
                model.put(*key, size)
        elif step == "remove" and model.held:
            keys = data.draw(st.lists(st.sampled_from(sorted(model.held)), min_size=1, max_size=8, unique=True))
            rings.count_column(as_column(keys, [model.remove(*key) for key in keys]), -1)
        elif step == "advance":
            now += data.draw(st.one_of(st.integers(0, 3), st.integers(0, 30)), label="ms")
            rings.advance(now)
            assert rings.window <= max(now, 0) // geometry.tick_ms or rings.window <= rings.cursor[0]
        elif step == "load":
            load(rings, model, data.draw(st.integers(1, 3), label="piece"))
        elif step == "rebuild" and rebuilt is None:
            rings.reset(now, building=True)
            rebuilt = (0, 0)
        if rebuilt is not None and data.draw(st.booleans(), label="build"):
            build(rings, model, 2)
            rebuilt = rings.built if rings.building else None
        if rings.wrong:  # allowed only if the ring has reached entries beyond its horizon
            assert any(key[0] // geometry.hour_ms >= geometry.hour_slots for key in model.held)
            rings.reset(now, building=True)
            rebuilt = (0, 0)
        check(rings, model, {key for key in model.held if not rings.building or key < rings.built})
    while rings.building:
        build(rings, model, 3)
    check(rings, model, set(model.held))
    check_questions(rings, model, now)


def load(rings: Rings, model: HeapTimer, keys_max: int) -> int:
    piece = rings.next_load()
    if piece is None:
        return 0
    cursor, end_ms = piece
    keys = [key for key in sorted(model.held) if cursor <= key and key[0] < end_ms][:keys_max]
    rings.load(key_column([entry_key(*key) for key in keys], 0), end_ms, is_last=len(keys) < keys_max)
    return len(keys)


def build(rings: Rings, model: HeapTimer, keys_max: int) -> None:
    keys = [key for key in sorted(model.held) if key >= rings.built][:keys_max]
    rings.build(key_column([entry_key(*key) for key in keys], 5), is_last=len(keys) < keys_max)


def check_questions(rings: Rings, model: HeapTimer, now: int) -> None:
    rings.parked.change(3, 30)
    assert sum(pending_by_horizon(rings, now).values()) == len(model.held) + 3
    due = due_load(rings, now)
    assert due.entries >= sum(1 for key in model.held if key[0] <= now and rings.zone_of(*key)[0] <= WheelLevel.FINE)


def test_the_worked_example_of_the_module_holds() -> None:
    rings = empty_rings(Geometry(1, 4, 4, 2), now_ms=5)
    rings.count_column(as_column([(5, 0), (6, 1), (6, 2)], [10, 10, 10]), 1)
    assert [rings.fine.slot_totals(tick)[0] for tick in (5, 6, 7)] == [1, 2, 0]
    rings.advance(6)
    assert rings.overdue.count == 1
    assert rings.fine.slot_totals(5) == (0, 0)
    while (piece := rings.next_load()) is not None:
        rings.load(key_column([], 0), piece[1], is_last=True)
    rings.count_column(as_column([(9, 3)], [10]), 1)
    assert (rings.fine.slot_totals(9)[0] or rings.hours.slot_totals(4)[0]) == 1
    assert rings.fine.slot_totals(5) == (0, 0), "slot 1 belongs to 9 now"


def test_impossible_changes_are_clamped_and_reported() -> None:
    rings = empty_rings(Geometry(1, 4, 4, 2), now_ms=5)
    rings.count_column(as_column([(6, 0)], [10]), 1)
    rings.count_column(as_column([(6, 0), (6, 1)], [10, 10]), -1)
    assert rings.wrong
    assert rings.fine.slot_totals(6) == (0, 0)
    assert rings.fine.min_due(6) == NO_DUE


def test_a_day_off_is_passed_hour_by_hour_and_not_entry_by_entry() -> None:
    rings = empty_rings(Geometry.of(TINY), now_ms=0)
    rings.count_column(as_column([(due, due) for due in range(1, 11)], [1] * 10), 1)
    rings.advance(10)
    assert rings.overdue.count == 9
    assert rings.next_load() is None or rings.total.count == 10
    rings.advance(1_000_000_000_000)
    assert rings.overdue.count == 10
    assert rings.total.count == 10


@pytest.mark.parametrize("seed", range(4))
def test_long_runs_load_most_of_what_they_count(seed: int) -> None:
    """Short examples seldom reach hours that fill, are loaded piece by piece and emptied, turn after turn."""
    rng = random.Random(seed)
    geometry = GEOMETRIES[seed % len(GEOMETRIES)]
    now = rng.randrange(1_000)
    rings, model, offset, loaded = empty_rings(geometry, now), HeapTimer(), 0, 0
    for _ in range(300):
        keys = [(now + rng.randrange(geometry.hour_ms * 4), offset + at) for at in range(rng.choice((0, 1, 5, 50)))]
        offset += len(keys)
        if keys:
            rings.count_column(as_column(keys, [3] * len(keys)), 1)
        for key in keys:
            model.put(*key, 3)
        due = model.due(now)
        gone = due + rng.sample(sorted(set(model.held) - set(due)), min(rng.randrange(4), len(model.held) - len(due)))
        if gone:
            rings.count_column(as_column(gone, [model.remove(*key) for key in gone]), -1)
        now += rng.choice((0, 1, 1, 2, geometry.hour_ms))
        rings.advance(now)
        for _ in range(rng.randrange(4)):
            loaded += load(rings, model, rng.choice((1, 10, 100)))
        if rings.wrong:  # the horizon has reached entries beyond it: the owner rebuilds
            assert rings.beyond.count
            rings.reset(now, building=False)
            held = sorted(model.held)
            rings.count_column(as_column(held, [3] * len(held)), 1)
        check(rings, model, set(model.held))
    assert loaded > 300, "the run proves nothing about loading"
