"""Goal: a timer index returns exactly the entries that it holds, in order, and all its answers agree with brute force.

Method: a state machine over a real RocksDB with tiny rings; the model is a heap and a few dicts. At any step the index
is closed cleanly, closed uncleanly, reopened under another boot or gets a damaged wheel, without a visible effect.
Range tombstones delete spans from three keys on, so that short examples reach both ways of deleting.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from postdate.wheel.entry import Entry, Kind, encode_entry
from postdate.wheel.keys import entry_key, parked_key, split_key
from postdate.wheel.limits import RANGE_OFFSETS
from postdate.wheel.timer_log import changes as changes_module
from postdate.wheel.timer_log.changes import EntryChanges
from postdate.wheel.timer_log.timer_log import NO_FIRST_DUE
from postdate.wheel.timing_wheel.wheel_view import WheelView
from support.shards.fake_platform import FakePlatform
from support.shards.timer_indexes import NOW_MS, HeapTimer, counted_twice, finish_wheel, open_index

DUES = st.one_of(st.just(0), st.integers(1, 30))


def body(length: int, stored: bool) -> bytes:
    """Returns an encoded entry of the given length."""
    value = bytes(length)
    return encode_entry(Entry(Kind.DELIVER, stored, first_due=0, due=0, target="", key=None, value=value, headers=[]))


class IndexAgainstHeap(RuleBasedStateMachine):
    """The model maps (due, offset) to the size of each entry, and `parked` does the same for parked entries. `stored`
    has the offsets of stored entries."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(changes_module, "SPAN_KEYS_MIN", 3)
        self.directory = Path(tempfile.mkdtemp(prefix="postdate-index-"))
        self.platform = FakePlatform()
        self.index = open_index(self.directory, platform=self.platform)
        self.model = HeapTimer()
        self.parked: dict[tuple[int, int], int] = {}
        self.stored: set[int] = set()
        self.firsts: dict[int, int] = {}
        self.now = NOW_MS
        self.next = 0

    def teardown(self) -> None:
        self.index.close(clean=False)
        shutil.rmtree(self.directory)
        self.patch.undo()

    @initialize(start=st.sampled_from((0, 5, RANGE_OFFSETS - 2, 10 * RANGE_OFFSETS - 3)))
    def begin(self, start: int) -> None:
        self.next = start
        changes = EntryChanges()
        changes.next_request, changes.next_dispatch, changes.seq, changes.takeover = start, 7, 8, 9
        self.index.write(changes)

    @rule(dues=st.lists(st.one_of(DUES, st.none()), min_size=1, max_size=9), stored=st.booleans())
    def ingest(self, dues: list[int | None], stored: bool) -> None:
        changes, firsts = EntryChanges(), []
        for due in dues:
            offset, self.next = self.next, self.next + 1
            firsts.append(NO_FIRST_DUE)
            if due is None:  # a transaction marker, or a request with a final mark
                continue
            due_ms = 0 if due == 0 else self.now - 10 + due
            firsts[-1] = self.firsts[offset] = due_ms
            value = body(offset % 5, stored)
            changes.insert(entry_key(due_ms, offset), value, stored=stored)
            self.model.put(due_ms, offset, len(value))
            if stored:
                self.stored.add(offset)
        changes.firsts.append((self.next - len(dues), struct.pack(f"<{len(firsts)}Q", *firsts)))
        changes.next_request = self.next
        self.index.write(changes)

    @precondition(lambda self: self.model.held)
    @rule(data=st.data(), due=DUES, length=st.integers(0, 5))
    def move_or_replace(self, data: st.DataObject, due: int, length: int) -> None:
        old = data.draw(st.sampled_from(sorted(self.model.held)))
        offset = old[1]
        new = (0 if due == 0 else self.now - 10 + due, offset)
        changes = EntryChanges()
        stored = offset in self.stored
        value = body(length, not stored)
        changes.delete(entry_key(*old), self.model.remove(*old), stored=stored)
        changes.insert(entry_key(*new), value, stored=not stored)
        changes.places[offset] = entry_key(*new)
        self.model.put(*new, len(value))
        self.stored.symmetric_difference_update({offset})
        self.index.write(changes)

    @rule(limit=st.integers(1, 12), size=st.integers(1, 200), ahead=st.integers(-3, 12))
    def dispatch(self, limit: int, size: int, ahead: int) -> None:
        before = self.now + ahead
        keys, values = self.index.scan_due(before, limit, size)
        expected: list[tuple[int, int]] = []
        for key in self.model.due(before):
            if len(expected) == limit or sum(self.model.held[k] for k in expected) >= size:
                break
            expected.append(key)
        assert [split_key(key) for key in keys] == expected
        assert [len(value) for value in values] == [self.model.held[key] for key in expected]
        if keys:
            changes = EntryChanges()
            stored = {key for key in keys if split_key(key)[1] in self.stored}
            changes.delete_span(keys[0], keys[-1], keys, list(map(len, values)), stored)
            for due_ms, offset in expected:
                changes.places[offset] = None
                self.model.remove(due_ms, offset)
            changes.seq = self.index.checkpoint.seq + 1
            self.index.write(changes)

    @precondition(lambda self: self.model.held)
    @rule(data=st.data())
    def park(self, data: st.DataObject) -> None:
        due_ms, offset = data.draw(st.sampled_from(sorted(self.model.held)))
        size = self.model.remove(due_ms, offset)
        value = self.index.timer_log.entry(entry_key(due_ms, offset))
        assert value is not None
        changes = EntryChanges()
        changes.delete(entry_key(due_ms, offset), size, stored=offset in self.stored)
        key = parked_key("orders", due_ms, offset)
        changes.insert_parked(key, value, stored=offset in self.stored)
        changes.places[offset] = key
        self.parked[due_ms, offset] = size
        self.index.write(changes)

    @precondition(lambda self: self.parked)
    @rule()
    def unpark(self) -> None:
        keys, values = self.index.timer_log.scan_parked("orders", 100)
        assert [split_key(key) for key in keys] == sorted(self.parked)
        changes = EntryChanges()
        for key, value in zip(keys, values, strict=True):
            due_ms, offset = split_key(key)
            stored = offset in self.stored
            changes.delete_parked(key, len(value), stored=stored)
            changes.insert(entry_key(due_ms, offset), value, stored=stored)
            changes.places[offset] = entry_key(due_ms, offset)
            self.model.put(due_ms, offset, self.parked.pop((due_ms, offset)))
        self.index.write(changes)

    @rule(steps=st.integers(1, 12))
    def raise_low_water(self, steps: int) -> None:
        before, truth = self.index.timer_log.low_water(), self.low_water()
        more = self.index.raise_low_water(steps)
        after = self.index.timer_log.low_water()
        assert after == (before + steps if more else truth)
        assert before <= after <= truth

    def low_water(self) -> int:
        offsets = {offset for _, offset in (*self.model.held, *self.parked)} - self.stored
        return min(offsets, default=self.next)

    @rule(ms=st.one_of(st.integers(0, 3), st.integers(0, 25)), steps=st.integers(0, 3))
    def pass_time(self, ms: int, steps: int) -> None:
        self.now += ms
        self.index.advance(self.now)
        for _ in range(steps):
            self.index.load_step(self.now, keys_max=2)

    @rule(how=st.sampled_from(("clean", "killed", "booted", "no wheel", "flipped")), at=st.integers(0, 4096 + 8 * 32))
    def reopen(self, how: str, at: int) -> None:
        unfinished = self.index._wheel.rings.building or self.index._wheel.rings.wrong
        self.index.close(clean=how in ("clean", "flipped"))
        wheel = self.index.wheel_path
        if how == "booted":
            self.platform = FakePlatform(self.platform.boot + "'")
        elif how == "no wheel":
            wheel.unlink()
        elif how == "flipped":
            data = bytearray(wheel.read_bytes())
            data[at % len(data)] ^= 0x11
            wheel.write_bytes(data)
        self.index = open_index(self.directory, now_ms=self.now, platform=self.platform)
        if how in ("clean", "killed"):
            assert self.index.rebuilds == 0 or unfinished
        if how in ("booted", "no wheel"):
            assert self.index.rebuilds == 1

    @invariant()
    def counters_agree(self) -> None:
        index, held = self.index, self.model.held
        assert index.count == len(held) + len(self.parked)
        assert index.ending_count == sum(1 for due_ms, _ in held if due_ms == 0)
        assert index.checkpoint.totals.ending_bytes == sum(size for (due_ms, _), size in held.items() if due_ms == 0)
        assert index.parked_count == len(self.parked)

    @invariant()
    def next_due_is_a_lower_bound(self) -> None:
        first, hint = self.model.first(), self.index.next_due_ms()
        if first is None:
            assert hint is None or self.index._wheel.rings.building
        else:
            assert hint is not None
            assert hint <= first[0]

    @invariant()
    def low_water_is_close_below_the_truth(self) -> None:
        truth = self.low_water()
        assert truth - RANGE_OFFSETS < self.index.timer_log.low_water() <= truth
        assert truth < self.next or self.index.timer_log.low_water() == truth

    @invariant()
    def every_entry_is_found(self) -> None:
        for offset, due_ms in self.firsts.items():
            assert self.index.timer_log.first_due(offset) == due_ms
        for key in self.model.held:
            assert self.index.timer_log.find(key[1]) == entry_key(*key)
        for due_ms, offset in self.parked:
            assert self.index.timer_log.find(offset) == parked_key("orders", due_ms, offset)

    @invariant()
    def wheel_is_right(self) -> None:
        """Checks that an undamaged wheel is never found wrong, and that a reader of its file sees the same numbers."""
        passed_horizon = self.index._wheel.rings.wrong
        assert self.index.confirm(self.now) or passed_horizon
        with WheelView.open(self.directory) as view:
            snapshot = view.snapshot()
        at_change, over_slots = counted_twice(snapshot)
        assert at_change == over_slots
        if not self.index._wheel.rings.building:
            assert snapshot.count == self.index.count
            assert sum(snapshot.pending_by_horizon(self.now).values()) == self.index.count
            finish_wheel(self.index, self.now)
            passed_horizon |= self.index._wheel.rings.wrong  # loading has reached entries that were beyond the horizon
            assert self.index.confirm(self.now) or passed_horizon


TestIndexAgainstHeap = IndexAgainstHeap.TestCase
TestIndexAgainstHeap.settings = settings(max_examples=40, stateful_step_count=20)
