"""Goal: another process sees the wheel of a running owner, never an unfinished update, and follows a replaced file.

Method: a child maps the file and takes snapshots while this process writes batches. In each snapshot, the total, which
every change updates, must equal the sum over all slots. A torn state, made by hand, shows that the check can fail.
"""

from __future__ import annotations

import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from postdate.wheel import limits
from postdate.wheel.errors import Corrupt, StorageError, TornRead
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.changes import EntryChanges
from postdate.wheel.timing_wheel import wheel_view
from postdate.wheel.timing_wheel.layout import COUNTERS_OFFSET, HEADER_SIZE_BYTES, SEQUENCE, Geometry
from postdate.wheel.timing_wheel.wheel_view import WheelView
from support.shards.timer_indexes import NOW_MS, TINY, counted_twice, drain, finish_wheel, open_index, put_entries
from support.waiting.rounds import LONGER, expect, first_round_in_time
from support.waiting.timeouts import WAIT_TIMEOUT_S

SPREAD = IndexOptions(tick_ms=1, fine_slots=20_000, hour_ms=10_000, hour_slots=50)
READER = """
import sys
from pathlib import Path
from postdate.wheel.errors import TornRead
from postdate.wheel.timing_wheel.wheel_view import WheelView
from support.shards.timer_indexes import counted_twice
torn, seen = 0, set()
with WheelView.open(Path(sys.argv[1])) as view:
    print("reading", flush=True)
    while True:
        try:
            snapshot = view.snapshot()
        except TornRead:  # the writer was busy during each attempt
            continue
        at_change, over_slots = counted_twice(snapshot)
        torn += at_change != over_slots
        seen.add(snapshot.sequence)
        if snapshot.next_request == int(sys.argv[2]):
            break
print(torn, len(seen), snapshot.count, snapshot.next_due_ms(), flush=True)
"""


def test_a_reader_in_another_process_sees_no_torn_counts(tmp_path: Path) -> None:
    first_round_in_time(lambda slower: _read_while_it_is_written(tmp_path / f"{slower}", 300 * slower), LONGER)


PUBLISHER = """
import mmap, os, sys
from postdate.wheel.timing_wheel.layout import Geometry
from postdate.wheel.timing_wheel.rings import Rings
with open(sys.argv[1], "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
    rings = Rings(Geometry(1, 1_000, 50, 10_000), memoryview(mapped))
    print("publishing", flush=True)
    for _ in range(200_000):
        rings.publish()
    print("done", flush=True)
    os._exit(0)
"""


def test_an_update_never_looks_finished_before_it_is(tmp_path: Path) -> None:
    """If the owner is suspended between two stores, a reader sees the result of the first store."""
    path, geometry = tmp_path / "wheel", Geometry(1, 1_000, 50, 10_000)
    path.write_bytes(bytes(geometry.file_size_bytes))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[COUNTERS_OFFSET : COUNTERS_OFFSET + SEQUENCE.size] = SEQUENCE.pack(0x01010101)
        command = [sys.executable, "-c", PUBLISHER, str(path)]
        with subprocess.Popen(
            command, env={"PYTHONPATH": ":".join(sys.path)}, stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "publishing\n"
            seen = set[int]()
            while child.poll() is None:
                seen.update(SEQUENCE.unpack_from(mapped, COUNTERS_OFFSET)[0] for _ in range(1_000))
            assert (child.stdout.read(), child.returncode) == ("done\n", 0)
    assert seen == {0x01010101}


def _read_while_it_is_written(directory: Path, batches: int) -> None:
    directory.mkdir()
    index, size = open_index(directory, SPREAD), 400
    child = subprocess.Popen(
        [sys.executable, "-c", READER, str(directory), str(batches * size)],
        env={"PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "reading\n"
        for batch in range(batches):
            first = batch * size
            put_entries(index, [(NOW_MS + offset * 7 % 40_000, offset) for offset in range(first, first + size)])
            index.advance(NOW_MS + batch)
            index.load_step(NOW_MS + batch, keys_max=500)
        torn, seen, count, next_due = child.stdout.read().split()
        assert child.wait(WAIT_TIMEOUT_S) == 0
    assert int(torn) == 0
    assert int(count) == batches * size
    assert int(next_due) <= NOW_MS + batches
    index.close()
    expect(int(seen) > 3, "the reader saw too little of the writing to prove anything")


def test_a_torn_file_is_seen_as_torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = open_index(tmp_path)
    put_entries(index, [(NOW_MS, 0), (NOW_MS + 1, 1)])
    index.close()
    data = bytearray(index.wheel_path.read_bytes())
    data[HEADER_SIZE_BYTES + 8] += 1
    index.wheel_path.write_bytes(data)
    with WheelView.open(tmp_path) as view:
        at_change, over_slots = counted_twice(view.snapshot())
    assert at_change != over_slots
    (sequence,) = SEQUENCE.unpack_from(data, COUNTERS_OFFSET)
    SEQUENCE.pack_into(data, COUNTERS_OFFSET, sequence + 1)  # the state after an owner died in an update
    index.wheel_path.write_bytes(data)
    monkeypatch.setattr(wheel_view, "TORN_READS_MAX", 3)
    with WheelView.open(index.wheel_path) as view, pytest.raises(TornRead):
        view.snapshot()
    assert limits.TORN_READS_MAX > 3


def test_a_view_follows_the_file_that_replaces_the_mapped_one(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    put_entries(index, [(NOW_MS, 0)])
    with WheelView.open(tmp_path) as view:
        assert view.snapshot().count == 1
        index.close()
        assert view.snapshot().clean
        index.wheel_path.unlink()
        index = open_index(tmp_path)
        finish_wheel(index, NOW_MS)
        put_entries(index, [(NOW_MS + 1, 1)])
        snapshot = view.snapshot()
        assert (snapshot.count, snapshot.clean, snapshot.building) == (2, False, False)
        assert snapshot.next_request == 2
        index.close()


def test_a_view_answers_as_the_owner_does(tmp_path: Path) -> None:
    index = open_index(tmp_path, TINY)
    put_entries(index, [(0, 0), *((NOW_MS + at % 9, at) for at in range(1, 50))])
    changes = EntryChanges()
    changes.insert_parked(b"orders\0" + bytes(15) + b"\7" + bytes(7) + b"\7", b"12345")
    index.write(changes)
    index.load_step(NOW_MS + 3)
    with WheelView.open(tmp_path) as view:
        snapshot = view.snapshot()
    assert snapshot.next_due_ms() == index.next_due_ms() == 0
    assert snapshot.pending_by_horizon(NOW_MS + 3) == index.pending_by_horizon(NOW_MS + 3)
    assert snapshot.due(NOW_MS + 3) == index.due_load(NOW_MS + 3)
    assert (snapshot.ending_count, snapshot.parked_count) == (index.ending_count, index.parked_count) == (1, 1)
    assert snapshot.count == index.count == 51
    assert snapshot.size_bytes == 505
    assert len(drain(index, NOW_MS + 20)) == 50
    index.close()


def test_a_file_that_is_not_a_wheel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        WheelView.open(tmp_path)
    for data in (b"", b"x", bytes(8192)):
        (tmp_path / "wheel").write_bytes(data)
        with pytest.raises(Corrupt):
            WheelView.open(tmp_path)


@pytest.mark.parametrize("step_ms", [60_000, 3_600_000])
def test_the_upcoming_load_counts_entries_by_span(tmp_path: Path, step_ms: int) -> None:
    """Entries that are overdue or beyond the last span are in no span."""
    index = open_index(tmp_path, IndexOptions())
    steps = 40
    dues = [NOW_MS + offset * 997 * step_ms // 1500 for offset in range(100)]
    put_entries(index, [(1, 100), *((due_ms, offset) for offset, due_ms in enumerate(dues))])
    finish_wheel(index, NOW_MS)
    with WheelView.open(tmp_path) as view:
        loads = view.snapshot().load_ahead(0, step_ms, steps)
    assert loads == [sum(at * step_ms <= due < (at + 1) * step_ms for due in dues) for at in range(steps)]
    assert sum(loads) < len(dues)
    index.close()
