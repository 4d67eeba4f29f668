"""Goal: the timer log keeps synced data in one consistent state, and raises if it cannot.

Method: a real RocksDB in a temporary directory whose files are cut, flipped or removed between two opens. Both ways of
deleting, and all look-ups of entries, are compared with brute force.
"""

from __future__ import annotations

import gc
import random
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Options, WriteBatch

from postdate.wheel import limits
from postdate.wheel.entry import Entry, Kind, Mark, encode_entry
from postdate.wheel.errors import Corrupt, StorageError
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import entry_key, parked_key, split_key
from postdate.wheel.options import IndexOptions, database_options
from postdate.wheel.timer_log.changes import EntryChanges
from postdate.wheel.timer_log.checkpoint import CHECKPOINT_NAME, BulkRow
from postdate.wheel.timer_log.database import Database, RangeIterator
from postdate.wheel.timer_log.ended import control_end_key
from postdate.wheel.timer_log.timer_log import _IDENTITY, NO_FIRST_DUE, TimerLog
from support.shards.timer_indexes import IDENTITY, NOW_MS, TINY, drain, note_firsts, open_index, put_entries


def write_batches(index: TimerIndex, first: int, end: int) -> None:
    """Writes the batches [`first`, `end`). Batch n puts ten entries, sets `next_request` to 10 * (n + 1) and `seq` to
    n."""
    for number in range(first, end):
        changes = EntryChanges()
        for offset in range(number * 10, number * 10 + 10):
            changes.insert(entry_key(NOW_MS + offset % 7, offset), bytes(100))
            changes.ids[b"id-%d" % offset] = entry_key(NOW_MS + offset % 7, offset)
        changes.next_request, changes.seq = number * 10 + 10, number
        index.write(changes)


def assert_is_prefix(index: TimerIndex, at_least: int) -> None:
    """Checks that all families are in the state after the same batch, and that this is batch `at_least` or a later
    one."""
    batches = (index.checkpoint.next_request or 0) // 10
    assert batches >= at_least
    keys, values = index.timer_log.scan(None, entry_key(NOW_MS + 100, 0), 10_000)
    assert sorted(split_key(key)[1] for key in keys) == list(range(batches * 10))
    assert all(value == bytes(100) for value in values)
    assert index.count == batches * 10
    assert index.checkpoint.seq == max(batches - 1, 0)
    for offset in range(batches * 10):
        assert index.timer_log.id_key(b"id-%d" % offset) == entry_key(NOW_MS + offset % 7, offset)
    assert index.timer_log.id_key(b"id-%d" % (batches * 10)) is None
    assert index.timer_log.low_water() == 0


@pytest.mark.parametrize("seed", range(6))
def test_a_log_cut_after_the_last_sync_opens_at_a_consistent_prefix(tmp_path: Path, seed: int) -> None:
    index = open_index(tmp_path / "live")
    write_batches(index, 0, 20)
    index.sync()
    [wal] = (tmp_path / "live" / "log").glob("*.log")
    synced = wal.stat().st_size
    write_batches(index, 20, 40)
    shutil.copytree(tmp_path / "live", tmp_path / "killed")  # the files after a loss of power, before the cut
    index.close(clean=False)
    wal = tmp_path / "killed" / "log" / wal.name
    cut = random.Random(seed).randrange(synced, wal.stat().st_size)
    with wal.open("r+b") as file:
        file.truncate(cut)
    index = open_index(tmp_path / "killed")
    assert_is_prefix(index, at_least=20)
    assert (index.checkpoint.next_request or 0) < 400
    assert index.rebuilds == 1, "the wheel counts what the log has lost"
    assert len(drain(index, NOW_MS + 100)) == index.checkpoint.next_request
    index.close()


@pytest.fixture
def wal_syncs(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Returns a function that counts the syncs of the write-ahead log of the database opened last, from RocksDB's
    statistics. A file looks the same before and after a sync, since the kernel has its content."""
    opened: list[Options] = []

    def counting(options: IndexOptions) -> Options:
        opened.append(database_options(options))
        opened[-1].enable_statistics()
        return opened[-1]

    def count() -> int:
        match = re.search(r"rocksdb\.wal\.synced COUNT : (\d+)", opened[-1].get_statistics() or "")
        assert match is not None
        return int(match[1])

    monkeypatch.setattr("postdate.wheel.timer_log.database.database_options", counting)
    return count


def test_a_sync_reaches_the_disk(tmp_path: Path, wal_syncs: Callable[[], int]) -> None:
    index = open_index(tmp_path)
    assert wal_syncs() == 1, "a new log is identified on the disk before anything is written"
    write_batches(index, 0, 5)
    assert wal_syncs() == 1
    index.sync()
    assert wal_syncs() == 2
    index.close()


def test_a_flush_between_syncs_leaves_no_family_ahead_of_another(tmp_path: Path) -> None:
    log = TimerLog(tmp_path / "live", IDENTITY, TINY)
    changes = EntryChanges()
    changes.insert(entry_key(5, 0), b"a")
    changes.ids[b"id"] = entry_key(5, 0)
    log.write(changes)
    log._db.flush(wait=True)
    shutil.copytree(tmp_path / "live", tmp_path / "killed")
    log.close()
    for wal in (tmp_path / "killed").glob("*.log"):
        wal.write_bytes(b"")
    log = TimerLog(tmp_path / "killed", IDENTITY, TINY)
    assert log.entry(entry_key(5, 0)) == b"a"
    assert log.id_key(b"id") == entry_key(5, 0)
    assert log.checkpoint.totals.entries == 1
    log.close()


def test_a_span_and_point_deletes_leave_the_same(tmp_path: Path) -> None:
    rng = random.Random(3)
    keys = sorted((rng.randrange(NOW_MS, NOW_MS + 50), offset) for offset in range(1000))
    indexes = [open_index(tmp_path / name) for name in ("span", "points")]
    for index in indexes:
        put_entries(index, keys)
    for first, end in ((0, 300), (300, 600), (600, 610)):
        span = EntryChanges()
        chosen = [entry_key(*key) for key in keys[first:end]]
        span.delete_span(chosen[0], chosen[-1], chosen, [10] * len(chosen), {chosen[1]} if first else None)
        assert len(span.spans) == (1 if end - first >= 256 else 0)
        points = EntryChanges()
        for at, key in enumerate(chosen):
            points.delete(key, 10, stored=bool(first) and at == 1)
        if first:  # the second entry is put into STORE first, so that `blocks` does not count it
            for index in indexes:
                mark = EntryChanges()
                mark.replace(chosen[1], bytes(10), 10, stored=True, old_stored=False)
                index.write(mark)
        moved = entry_key(keys[first][0], 5000 + first)  # the same write puts this key inside the span: it stays
        for index, changes in ((indexes[0], span), (indexes[1], points)):
            changes.insert(moved, bytes(10))
            index.write(changes)
        before = entry_key(NOW_MS + 100, 0)
        assert indexes[0].timer_log.scan(None, before, 5000) == indexes[1].timer_log.scan(None, before, 5000)
        assert indexes[0].timer_log.entry(moved) is not None
        assert indexes[0].checkpoint == indexes[1].checkpoint
        assert indexes[0].timer_log.low_water() == indexes[1].timer_log.low_water()
        assert indexes[0].pending_by_horizon(NOW_MS) == indexes[1].pending_by_horizon(NOW_MS)
    for index in indexes:
        index.close()


def test_first_dues_are_found_in_any_order(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    note_firsts(index, 0, [100, 101, 102])
    note_firsts(index, 3, list(range(103, 120)))
    for offset in (3, 1, 0, 19, 4, 2):
        assert index.timer_log.first_due(offset) == 100 + offset
    assert index.timer_log.first_due(20) is None
    index.close()


def test_first_dues_are_found_and_given_up_below_the_low_water_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FIRSTS_TRIM_OFFSETS", 8192)
    index = open_index(tmp_path)
    dues: dict[int, int] = {}
    offset = 0
    rng = random.Random(5)
    while offset < 20_000:
        batch = [NOW_MS + rng.randrange(100) for _ in range(rng.randrange(1, 700))]
        batch[rng.randrange(len(batch))] = NO_FIRST_DUE
        note_firsts(index, offset, batch)
        dues.update({offset + at: due for at, due in enumerate(batch)})
        offset += len(batch) + rng.randrange(2)  # sometimes an offset that no batch names
    for at in rng.sample(range(20_000), 2000):
        expected = dues.get(at)
        assert index.timer_log.first_due(at) == (None if expected == NO_FIRST_DUE else expected)
    put_entries(index, [(NOW_MS, 15_000)])  # every entry below has ended: the low-water mark rises to 15,000
    assert index.timer_log.low_water() == 15_000
    assert index.timer_log.first_due(2_000) is None
    for at in range(15_000, 20_000, 37):
        expected = dues.get(at)
        assert index.timer_log.first_due(at) == (None if expected == NO_FIRST_DUE else expected)
    index.close()


def test_no_row_of_first_dues_stays_behind_the_low_water_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FIRSTS_TRIM_OFFSETS", 100)
    log = TimerLog(tmp_path, IDENTITY, TINY)
    for first in range(0, 3_000, 30):
        changes = EntryChanges()
        changes.firsts.append((first, bytes(30 * 8)))
        changes.ended[control_end_key(first)] = b""
        changes.next_request = first + 30
        log.write(changes)
        log.tidy()
    assert log.low_water() == 3_000
    for family, number_at in (("firsts", 0), ("ended", 1)):
        rows = log._db.range(family, b"", None)
        held = [int.from_bytes(key[number_at:], "big") for key in rows.collect_keys(1_000)]
        rows.finish()
        assert min(held) > 3_000 - 100 - 2 * 30, family
        assert held[-1] == 2_970
    log.close()


def test_overlay_and_log_agree_on_marks_places_ids_and_ended(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    assert index.timer_log.marks_end == 0
    changes = EntryChanges()
    changes.marks[41] = Mark(final=False, stored=True, due=77)
    changes.places[3] = parked_key("orders", 9, 3)
    changes.ids[b"a"] = entry_key(1, 2)
    changes.ended[b"a"] = b"how"
    changes.next_request, changes.next_dispatch, changes.seq, changes.takeover = 1, 2, 3, 4
    index.write(changes)
    index.close()
    index = open_index(tmp_path)
    read = index.checkpoint
    assert (read.next_request, read.next_dispatch, read.seq, read.takeover) == (1, 2, 3, 4)
    assert index.timer_log.marks_end == 42
    assert index.timer_log.mark(41) == Mark(final=False, stored=True, due=77)
    assert index.timer_log.mark(40) is None
    assert index.timer_log.mark(42) is None
    assert index.timer_log.find(3) == index.timer_log.place(3) == parked_key("orders", 9, 3)
    assert index.timer_log.id_key(b"a") == entry_key(1, 2)
    assert index.timer_log.ended(b"a") == b"how"
    changes = EntryChanges()
    changes.marks[41] = changes.places[3] = changes.ids[b"a"] = changes.ended[b"a"] = None
    index.write(changes)
    log = index.timer_log
    assert (log.mark(41), log.place(3), log.id_key(b"a"), log.ended(b"a")) == (None,) * 4
    index.close()


def test_scans_are_bounded_and_begin_after_ended_entries(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    put_entries(index, [(NOW_MS + at, at) for at in range(100)], size_bytes=100)
    keys, _ = index.scan_due(NOW_MS + 50, 10)
    assert [split_key(key)[1] for key in keys] == list(range(10))
    keys, values = index.scan_due(NOW_MS + 50, 1000, size_bytes_max=950)
    assert len(keys) == len(values) == 10
    keys, _ = index.timer_log.scan(keys[-1], entry_key(NOW_MS + 50, 0), 1000)
    assert [split_key(key)[1] for key in keys] == list(range(10, 50))
    assert index.scan_due(NOW_MS, 1000) == ([], [])
    assert drain(index, NOW_MS + 50) == [(NOW_MS + at, at) for at in range(50)]
    assert split_key(index._messages.at)[0] == NOW_MS + 50
    put_entries(index, [(NOW_MS + 7, 200)])  # below the cursor: a scan must not miss it
    assert drain(index, NOW_MS + 50) == [(NOW_MS + 7, 200)]
    index.close()


def test_space_of_ended_entries_is_reclaimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECLAIM_SIZE_BYTES_MIN", 1_000_000)
    index = open_index(tmp_path)
    rng = random.Random(1)
    for batch in range(10):
        changes = EntryChanges()
        for offset in range(batch * 400, batch * 400 + 400):
            changes.insert(entry_key(NOW_MS + offset, offset), rng.randbytes(1000))
        index.write(changes)
    index._log._db.flush(wait=True)
    assert index._log.reclaimable_size_bytes == 0
    assert not index.reclaim()
    drain(index, NOW_MS + 3900, limit=300)
    assert index.reclaim()
    assert not index.reclaim()
    held = sum(path.stat().st_size for path in (tmp_path / "log").glob("*.sst"))
    assert held < 1_000_000
    assert len(drain(index, NOW_MS + 5000)) == 100
    index.close()


def test_range_tombstones_in_memory_are_written_out_before_they_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every scan visits each range tombstone in memory. The last write does not wait for the flush."""
    monkeypatch.setattr(limits, "RANGE_TOMBSTONES_MAX", 3)
    index = open_index(tmp_path)
    put_entries(index, [(NOW_MS, offset) for offset in range(7 * limits.SPAN_KEYS_MIN)])
    flushed: list[tuple[int, bool]] = []
    monkeypatch.setattr(Database, "flush", lambda self, wait: flushed.append((index.count, wait)))
    drain(index, NOW_MS + 5, limit=limits.SPAN_KEYS_MIN)
    assert flushed == [(4 * limits.SPAN_KEYS_MIN, False), (limits.SPAN_KEYS_MIN, False)]
    index.close()


def test_ends_of_ids_are_forgotten_from_the_beginning_of_time_on(tmp_path: Path) -> None:
    """A delivery is remembered until all requests that may refer to it have been read."""
    hour_ms, window_ms = 3_600_000, 1_000
    options = IndexOptions(ended_window_ms=window_ms)
    log = TimerLog(tmp_path, IDENTITY, options)
    outcome, delivered = log.outcomes.key(b"a", 0), log.delivered.key(bytes(16), 0, 0)
    assert outcome is not None
    assert delivered is not None
    changes = EntryChanges()
    changes.ended = {outcome: b"how", delivered: b"when"}
    log.write(changes)
    log.close()
    log = TimerLog(tmp_path, IDENTITY, options)
    log.forget_outcomes(10 * hour_ms)
    assert (log.ended(outcome), log.ended(delivered)) == (None, b"when")
    log.forget_outcomes(10 * hour_ms, read_ms=10 * hour_ms)
    assert log.ended(delivered) is None
    log.close()


def test_a_mark_is_looked_up_only_below_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = open_index(tmp_path)
    changes = EntryChanges()
    changes.marks[4] = Mark(final=True, stored=False, due=-1)
    index.write(changes)
    looked_up: list[str] = []
    monkeypatch.setattr(Database, "get", lambda self, family, key: looked_up.append(family))
    assert [index.timer_log.mark(offset) for offset in (3, 4, 5, 6)] == [None] * 4
    assert looked_up == ["ahead"] * 2
    index.close()


def test_deferred_choices_are_looked_up_only_if_there_may_be_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = TimerLog(tmp_path, IDENTITY, TINY)
    key, before = entry_key(NOW_MS, 1), entry_key(NOW_MS + 5, 0)

    def defer(value: bytes | None) -> None:
        changes = EntryChanges()
        changes.deferred[key] = value
        log.write(changes)

    defer(b"")
    assert log.deferred(key, 10) == []
    assert log.deferred(before, 10) == log.deferred(before, 10) == [key]
    defer(None)
    assert log.deferred(before, 10) == []
    with monkeypatch.context() as patch:
        patch.setattr(Database, "range", None)
        assert log.deferred(before, 10) == []
    defer(b"")
    assert log.deferred(before, 10) == [key]
    log.close()


def test_memory_is_released_when_the_memtables_have_been_written_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = open_index(tmp_path)
    waited: list[bool] = []
    monkeypatch.setattr(Database, "flush", lambda self, wait: waited.append(wait))
    index.release_memory()
    assert waited == [True]
    index.close()


def test_a_reference_to_the_bounds_of_a_scan_is_kept(tmp_path: Path) -> None:
    """Without the reference, scans silently end early: rocksdict keeps raw pointers into the bound."""
    log = TimerLog(tmp_path, IDENTITY, TINY)
    changes = EntryChanges()
    for offset in range(200):
        changes.insert(entry_key(NOW_MS, offset), b"x")
    log.write(changes)
    iterator = log._db.range("entries", entry_key(0, 0), entry_key(NOW_MS + 1, 0))
    references = [type(thing).__name__ for thing in gc.get_referents(iterator)] + [
        type(iterator._read_options).__name__
    ]
    assert "ReadOptions" in references
    iterator.finish()
    del iterator
    for _ in range(300):  # bounds of all sizes are freed, so that their memory is reused at once
        keys, _values = log.scan_from(entry_key(0, 0), entry_key(NOW_MS + 1, 0), 1000, 1_000_000)
        assert len(keys) == 200
    log.close()


def test_the_low_water_mark_of_a_topic_that_begins_late_is_not_below_its_beginning(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    assert index.timer_log.low_water() == 0
    changes = EntryChanges()
    changes.next_request = 1_000
    index.write(changes)
    assert index.timer_log.low_water() == 1_000
    put_entries(index, [(NOW_MS + 9, 1_003), (NOW_MS, 1_001), (NOW_MS, 9_000)])
    assert index.timer_log.low_water() == 1_001
    drain(index, NOW_MS + 5)
    assert 1_001 <= index.timer_log.low_water() <= 1_003
    drain(index, NOW_MS + 10)
    assert index.timer_log.low_water() == index.checkpoint.next_request == 9_001
    index.close()


def test_the_low_water_mark_follows_the_oldest_entry_within_a_range(tmp_path: Path) -> None:
    body = encode_entry(Entry(Kind.DELIVER, False, first_due=0, due=0, target="", key=None, value=b"", headers=[]))
    index = open_index(tmp_path)
    for offset in range(4_000):  # one request is always pending
        changes = EntryChanges()
        changes.insert(entry_key(NOW_MS + offset, offset), body)
        changes.firsts.append((offset, struct.pack("<Q", NOW_MS + offset)))
        if offset:
            changes.delete(entry_key(NOW_MS + offset - 1, offset - 1), len(body))
        changes.next_request = offset + 1
        index.write(changes)
    assert (index.count, index.timer_log.low_water()) == (1, 0)
    calls = [index.raise_low_water(1_000) for _ in range(5)]
    assert calls == [True, True, True, False, False]
    assert index.timer_log.low_water() == 3_999
    index.sync()
    index.close(clean=False)
    index = open_index(tmp_path)
    assert index.timer_log.low_water() == 3_999, "a mark that falls back would name requests that may be gone"
    assert index.rebuilds == 0, "the wheel knows of the write"
    assert drain(index, NOW_MS + 5_000) == [(NOW_MS + 3_999, 3_999)]
    assert index.timer_log.low_water() == 4_000
    assert not index.raise_low_water(1_000)
    index.close()


def test_the_low_water_mark_falls_to_an_entry_of_an_earlier_range(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    put_entries(index, [(NOW_MS, 5 * limits.RANGE_OFFSETS)])
    assert index.timer_log.low_water() == 5 * limits.RANGE_OFFSETS
    put_entries(index, [(NOW_MS, 7)])
    assert index.timer_log.low_water() == 7
    index.close()


def test_a_later_entry_of_its_range_does_not_lower_a_raised_low_water_mark(tmp_path: Path) -> None:
    body = encode_entry(Entry(Kind.DELIVER, False, first_due=0, due=0, target="", key=None, value=b"", headers=[]))
    index = open_index(tmp_path)
    note_firsts(index, 0, [NOW_MS, NOW_MS + 9])
    put_entries(index, [(NOW_MS, 0), (NOW_MS + 9, 1)], len(body))
    changes = EntryChanges()
    changes.replace(entry_key(NOW_MS + 9, 1), body, len(body))
    index.write(changes)
    drain(index, NOW_MS + 5)
    index.raise_low_water(10)
    assert index.timer_log.low_water() == 1
    put_entries(index, [(NOW_MS + 9, 2)])
    assert index.timer_log.low_water() == 1
    index.close()


@pytest.mark.parametrize(
    ("offset", "bound"),
    [(0, 5), (5, 5), (7, 7), (limits.RANGE_OFFSETS, limits.RANGE_OFFSETS + 9), (2 * limits.RANGE_OFFSETS, None)],
)
def test_no_unstored_entry_lies_below_the_bound(tmp_path: Path, offset: int, bound: int | None) -> None:
    log = TimerLog(tmp_path, IDENTITY, TINY)
    changes = EntryChanges()
    for at in (5, 8, limits.RANGE_OFFSETS + 9):
        changes.insert(entry_key(NOW_MS, at), b"x")
    changes.insert(entry_key(NOW_MS, 2 * limits.RANGE_OFFSETS), b"x", stored=True)
    log.write(changes)
    assert log.unstored_from(offset) == bound
    log.close()


def test_the_low_water_mark_rises_with_a_write_that_also_ends_entries_of_a_later_range(tmp_path: Path) -> None:
    index, later = open_index(tmp_path), 5 * limits.RANGE_OFFSETS
    put_entries(index, [(NOW_MS, 0), (NOW_MS, later), (NOW_MS + 9, later + 1)])
    assert index.timer_log.low_water() == 0
    drain(index, NOW_MS + 5)
    assert later <= index.timer_log.low_water() <= later + 1
    index.close()


def test_a_scan_that_fails_does_not_raise_the_low_water_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the error were ignored, the missing rows of the scan would count as ended requests."""
    index = open_index(tmp_path)
    put_entries(index, [(NOW_MS, 0)])
    note_firsts(index, 0, [NOW_MS])
    index.timer_log.low_water()
    broken: list[RangeIterator] = []

    def collect(self: RangeIterator, *_: int) -> tuple[list[bytes], list[bytes]]:
        broken.append(self)
        return [], []

    def finish(self: RangeIterator) -> None:
        if self in broken:
            raise StorageError("a disk error")

    monkeypatch.setattr(RangeIterator, "collect", collect)
    monkeypatch.setattr(RangeIterator, "finish", finish)
    with pytest.raises(StorageError):
        index.raise_low_water(10)
    monkeypatch.undo()
    assert index.timer_log.low_water() == 0
    index.close()


@pytest.mark.parametrize("lost", [(_IDENTITY,), (_IDENTITY, CHECKPOINT_NAME)])
@pytest.mark.parametrize("entries", [0, 1])
def test_a_log_that_has_lost_its_identity_is_corrupt_unless_it_is_empty(
    tmp_path: Path, lost: tuple[bytes, ...], entries: int
) -> None:
    log = TimerLog(tmp_path, IDENTITY, TINY)
    changes = EntryChanges()
    changes.next_request = 7
    for offset in range(entries):
        changes.insert(entry_key(NOW_MS, offset), b"x")
    log.write(changes)
    batch = WriteBatch(raw_mode=True)
    for name in lost:
        batch.delete(name, log._db.handle("meta"))
    log._db.write(batch)
    log.close()
    if entries or CHECKPOINT_NAME not in lost:
        with pytest.raises(Corrupt, match="identity"):
            TimerLog(tmp_path, IDENTITY, TINY)
    else:
        log = TimerLog(tmp_path, IDENTITY, TINY)
        assert log.is_new
        log.close()


def test_a_bulk_control_holds_the_low_water_mark(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    put_entries(index, [(NOW_MS, 5)])
    for offsets, low in (((3, 8), 3), ((8, 9), 5)):
        changes = EntryChanges()
        changes.bulks = tuple(BulkRow(offset, b"", -1) for offset in offsets)
        index.write(changes)
        assert index.timer_log.low_water() == low
    index.close()


@pytest.mark.parametrize(
    "read",
    [
        lambda log: log.low_water(),
        lambda log: log.unstored_from(0),
        lambda log: log.scan(None, entry_key(NOW_MS, 0), 10),
        lambda log: log.scan_keys(entry_key(0, 0), None, 10),
    ],
    ids=["low-water mark", "unstored entries", "entries", "keys"],
)
def test_a_read_that_fails_is_not_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[TimerLog], object]
) -> None:
    log = TimerLog(tmp_path, IDENTITY, TINY)

    def finish(self: RangeIterator) -> None:
        raise StorageError("a disk error")

    monkeypatch.setattr(RangeIterator, "finish", finish)
    with pytest.raises(StorageError):
        read(log)
    log.close()


def test_a_range_with_a_wrong_count_is_corrupt(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    put_entries(index, [(NOW_MS, 5)])  # pending, but no look-up finds it
    with pytest.raises(Corrupt, match="row 0 of `blocks`"):
        index.raise_low_water(10_000)
    put_entries(index, [(NOW_MS, limits.RANGE_OFFSETS + 3)])
    note_firsts(index, limits.RANGE_OFFSETS + 3, [NOW_MS])
    with pytest.raises(Corrupt, match="row 0 of `blocks`"):  # an entry of the next range does not make up for it
        index.raise_low_water(10 * limits.RANGE_OFFSETS)
    index.close()
