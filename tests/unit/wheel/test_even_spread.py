"""Goal: an even spread chooses the emptiest tick that the fine ring knows, within the window and after the present.
Each choice takes account of the earlier choices of its batch.

Method: rings with ticks of 100 ms and hours of ten seconds, filled by writes to a real timer index. The reference
counts entries per tick in a dict and searches it by brute force.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import entry_key, split_key
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.changes import EntryChanges
from postdate.wheel.timer_log.identity import Identity
from postdate.wheel.timing_wheel.even_spread import EvenSpread, known_before_ms, span_ms

TICK_MS, HOUR_MS = 100, 10_000
BASE_MS = 1_000_000_000_000  # the beginning of an hour, and of a tick
SPAN_MS = HOUR_MS // 2


@pytest.fixture
def index(tmp_path: Path) -> Iterator[TimerIndex]:
    options = IndexOptions(tick_ms=TICK_MS, hour_ms=HOUR_MS, hour_slots=100)
    opened = TimerIndex.open(tmp_path / "index", Identity("cluster", "r", "l", 0), options, BASE_MS)
    opened.load_step(BASE_MS)
    yield opened
    opened.close()


def put(index: TimerIndex, *dues_ms: int) -> None:
    """Writes one entry for each due time."""
    changes, first = EntryChanges(), index.count
    for number, due_ms in enumerate(dues_ms):
        changes.insert(entry_key(due_ms, first + number), b"entry")
    index.write(changes)


def emptiest(counts: Counter[int], due_ms: int, last_ms: int, drawn_ms: int, now_ms: int) -> int:
    """Returns the tick that docs/protocol.md defines."""
    ticks = eligible(due_ms, last_ms, now_ms)
    lowest = min(counts[tick] for tick in ticks)
    lowest_ticks = [tick for tick in ticks if counts[tick] == lowest]
    return next((tick for tick in lowest_ticks if tick >= drawn_ms // TICK_MS), lowest_ticks[0])


def eligible(due_ms: int, last_ms: int, now_ms: int) -> list[int]:
    """Returns the ticks of a window that begin after the present. If the window has whole ticks, returns only these."""
    ticks = range(due_ms // TICK_MS, last_ms // TICK_MS + 1)
    whole = [tick for tick in ticks if due_ms <= tick * TICK_MS and (tick + 1) * TICK_MS <= last_ms + 1]
    return [tick for tick in whole or ticks if tick * TICK_MS > now_ms]


def test_the_one_empty_tick_of_a_window_is_chosen(index: TimerIndex) -> None:
    due_ms = BASE_MS + 2_000
    put(index, *(due_ms + tick * TICK_MS + 7 for tick in range(20) if tick != 13))
    chosen_ms = index.even_spread(BASE_MS, EntryChanges()).choose(due_ms, due_ms + 1_999, due_ms + 350)
    assert chosen_ms is not None
    assert chosen_ms // TICK_MS == due_ms // TICK_MS + 13


def test_an_empty_window_keeps_the_draw(index: TimerIndex) -> None:
    spread = index.even_spread(BASE_MS, EntryChanges())
    assert spread.choose(BASE_MS + 1_000, BASE_MS + 3_000, BASE_MS + 2_345) == BASE_MS + 2_345


def test_messages_of_one_batch_fill_a_window_level_by_level(index: TimerIndex) -> None:
    due_ms, random, spread = BASE_MS + 1_000, Random(1), index.even_spread(BASE_MS, EntryChanges())
    put(index, *(due_ms + n for n in range(0, 1_000, 10)))  # ten in each tick of the first second
    counts: Counter[int] = Counter()
    for number in range(1, 601):
        chosen_ms = spread.choose(due_ms, due_ms + 2_999, due_ms + random.randrange(3_000))
        assert chosen_ms is not None
        spread.count(chosen_ms, 1)
        counts[chosen_ms // TICK_MS - due_ms // TICK_MS] += 1
        if number == 200:
            assert counts == Counter(dict.fromkeys(range(10, 30), 10))
    levels = {counts[tick] + (10 if tick < 10 else 0) for tick in range(30)}
    assert levels == {23, 24}


@pytest.mark.parametrize("seed", range(40))
def test_every_choice_is_the_emptiest_tick_of_a_brute_force_search(index: TimerIndex, seed: int) -> None:
    random = Random(seed)
    now_ms = BASE_MS + random.randrange(3_000)
    put(index, *(BASE_MS + random.randrange(8_000) for _ in range(random.randrange(400))))
    index.advance(now_ms)
    counts = Counter(split_key(key)[0] // TICK_MS for key in index.timer_log.scan_keys(b"", None, 1_000))
    spread = index.even_spread(now_ms, EntryChanges())
    windows = [(BASE_MS + random.randrange(6_000), random.choice([1, 99, 1_000, 3_000])) for _ in range(3)]
    for _ in range(300):
        due_ms, window_ms = random.choice(windows)
        drawn_ms, is_counted = due_ms + random.randrange(window_ms + 1), False
        if drawn_ms > now_ms and random.random() < 0.3:
            is_counted = True
            spread.count(drawn_ms, 1)
            counts[drawn_ms // TICK_MS] += 1
        chosen_ms = spread.choose(due_ms, due_ms + window_ms, drawn_ms, is_counted)
        assert chosen_ms is not None
        assert due_ms <= chosen_ms <= due_ms + window_ms
        ticks = eligible(due_ms, due_ms + window_ms, now_ms)
        if is_counted:
            spread.count(drawn_ms, -1)
            counts[drawn_ms // TICK_MS] -= 1
        if not ticks or (is_counted and drawn_ms // TICK_MS not in ticks):
            assert chosen_ms == drawn_ms
        else:
            assert chosen_ms // TICK_MS == emptiest(counts, due_ms, due_ms + window_ms, drawn_ms, now_ms)
        other_ms = BASE_MS + random.randrange(8_000)
        for put_ms in (chosen_ms, other_ms):
            spread.count(put_ms, 1)
            counts[put_ms // TICK_MS] += 1


def test_a_window_that_the_ring_does_not_know_is_left(index: TimerIndex) -> None:
    known_ms = BASE_MS + 2 * HOUR_MS
    spread = index.even_spread(BASE_MS, EntryChanges())
    assert spread.choose(known_ms - 1_000, known_ms - 1, known_ms - 500) == known_ms - 500
    assert spread.choose(known_ms - 1_000, known_ms + TICK_MS - 1, known_ms - 500) is None


def test_a_long_window_is_searched_around_the_draw_only(index: TimerIndex) -> None:
    due_ms = BASE_MS + 1_000
    put(index, *(due_ms + SPAN_MS + tick * TICK_MS for tick in range(50) if tick != 30))
    chosen_ms = index.even_spread(BASE_MS, EntryChanges()).choose(due_ms, due_ms + 10 * HOUR_MS, due_ms + SPAN_MS + 10)
    assert chosen_ms is not None
    assert chosen_ms // TICK_MS == (due_ms + SPAN_MS) // TICK_MS + 30


def test_every_time_before_the_known_time_can_be_chosen(index: TimerIndex) -> None:
    rings = index._wheel.rings
    known_ms = known_before_ms(rings)
    assert known_ms >= BASE_MS + HOUR_MS - SPAN_MS - TICK_MS
    assert span_ms(rings.geometry) == SPAN_MS
    for drawn_ms in range(known_ms - 3 * TICK_MS, known_ms):
        for due_ms in (drawn_ms, drawn_ms - 1, drawn_ms - SPAN_MS + 1, BASE_MS):
            assert EvenSpread(rings, BASE_MS, ()).choose(due_ms, due_ms + 100 * HOUR_MS, drawn_ms) is not None


def test_nothing_is_known_while_the_wheel_is_being_built(index: TimerIndex) -> None:
    put(index, BASE_MS + 1_000)
    index._wheel.rebuild(BASE_MS)
    assert index._wheel.rings.building
    assert index.even_spread(BASE_MS, EntryChanges()).choose(BASE_MS + 1_000, BASE_MS + 2_000, BASE_MS + 1_500) is None
    assert index.deferred(10) == []


def test_deferred_choices_are_found_once_the_ring_knows_them_and_survive_a_restart(tmp_path: Path) -> None:
    options = IndexOptions(tick_ms=TICK_MS, hour_ms=HOUR_MS, hour_slots=100)

    def opened(now_ms: int) -> TimerIndex:
        index = TimerIndex.open(tmp_path, Identity("cluster", "r", "l", 0), options, now_ms)
        while index.load_step(now_ms):
            pass
        return index

    index = opened(BASE_MS)
    keys = [entry_key(BASE_MS + hour * HOUR_MS, hour) for hour in (1, 3, 5, 7)]
    assert index.deferred(10) == []
    changes = EntryChanges()
    for key in keys:
        changes.insert(key, b"entry")
        changes.deferred[key] = b""
    index.write(changes)
    assert index.deferred(10) == keys[:1]
    index.close()
    index = opened(BASE_MS + 4 * HOUR_MS)
    assert index.deferred(10) == keys[:3]
    assert index.deferred(2) == keys[:2]
    changes = EntryChanges()
    changes.deferred |= dict.fromkeys(keys[:3])
    index.write(changes)
    assert index.deferred(10) == []
    changes = EntryChanges()
    changes.deferred[keys[1]] = b""
    index.write(changes)
    assert index.deferred(10) == keys[1:2]
    index.close()
