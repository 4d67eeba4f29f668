"""Goal: memory does not grow with the number of pending or delivered entries.

Method: in each round, a child process writes 40,000 entries of 100 bytes, drains half of them, keeps the rest, and
reports its resident memory. After a warm-up, the memory must stay constant. RocksDB reports the size of the memtables
of several shards.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from postdate.wheel import limits
from postdate.wheel.options import IndexOptions, Resources
from support.shards.timer_indexes import NOW_MS, open_index, put_entries

CACHE_BYTES, BUFFERS_BYTES = 8 * 1024 * 1024, 16 * 1024 * 1024
PROGRAM = """
import os, sys
from pathlib import Path
from support.shards.timer_indexes import NOW_MS, drain, open_index, put_entries
from postdate.wheel.options import IndexOptions, Resources
resources = Resources.create(8 * 1024 * 1024)
options = IndexOptions(write_buffer_size_bytes=1024 * 1024, resources=resources)
index = open_index(Path(sys.argv[1]), options)
offset = 0
for round in range(12):
    for batch in range(10):
        put_entries(index, [(NOW_MS + o % 997, o) for o in range(offset, offset + 2000)], 100)
        put_entries(index, [(10**9 + o, o) for o in range(offset + 2000, offset + 4000)], 100)
        offset += 4000
    assert len(drain(index, NOW_MS + 5000, limit=2000)) == 20_000
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    print(resident, flush=True)
index.close()
"""
GROWTH_BYTES_MAX = 12 * 1024 * 1024


def test_memory_is_flat_while_entries_pass_and_pile_up(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={"PYTHONPATH": ":".join(sys.path), "MALLOC_ARENA_MAX": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    resident = [int(line) for line in process.stdout.split()]
    assert len(resident) == 12
    assert resident[-1] - resident[3] < GROWTH_BYTES_MAX, resident
    assert resident[-1] < 400 * 1024 * 1024


def test_the_memtables_of_a_process_are_bounded_for_any_number_of_shards(tmp_path: Path) -> None:
    """Every shard writes less than one write buffer; together the shards write four times the bound."""
    resources = Resources.create(CACHE_BYTES, buffers_size_bytes=BUFFERS_BYTES)
    indexes = [open_index(tmp_path / str(shard), IndexOptions(resources=resources)) for shard in range(16)]
    most = 0
    for offset in range(0, 4_000, 400):
        for index in indexes:
            put_entries(index, [(NOW_MS + number % 997, number) for number in range(offset, offset + 400)], 1_000)
            most = max(most, resources.buffers.get_usage())
    for index in indexes:
        index.close()
    assert most < 1.5 * BUFFERS_BYTES  # memtables count until their flush has ended


def test_shards_share_the_bound_of_their_process_unless_they_get_another() -> None:
    assert IndexOptions().resources.buffers is IndexOptions(ended_window_ms=1).resources.buffers
    assert IndexOptions().resources.buffers.get_buffer_size() == limits.MEMTABLES_SIZE_BYTES_MAX


def test_a_quiet_shard_yields_its_memory_once_half_of_the_bound_is_used(tmp_path: Path) -> None:
    """If idle shards kept their memtables, the busy shards would stay at the bound, and each of their writes would
    create a file."""
    resources = Resources.create(CACHE_BYTES, buffers_size_bytes=BUFFERS_BYTES)
    options = IndexOptions(write_buffer_size_bytes=limits.WRITE_BUFFER_SIZE_BYTES, resources=resources)
    quiet = open_index(tmp_path / "quiet", options)
    put_entries(quiet, [(NOW_MS, number) for number in range(3_000)], 1_000)
    used = resources.buffers.get_usage()
    assert used < BUFFERS_BYTES // 2
    quiet.reclaim()
    assert resources.buffers.get_usage() == used
    busy = open_index(tmp_path / "busy", options)
    put_entries(busy, [(NOW_MS, number) for number in range(7_000)], 1_000)
    assert resources.buffers.get_usage() > BUFFERS_BYTES // 2
    before = resources.buffers.get_usage()
    quiet.reclaim()
    assert resources.buffers.get_usage() < before - used // 2
    quiet.close()
    busy.close()


def test_shards_do_not_all_flush_at_the_same_time(tmp_path: Path) -> None:
    """Their write buffers differ in size. RocksDB's log shows that RocksDB uses the chosen size."""
    sizes = [IndexOptions().write_buffer_size_bytes for _ in range(8)]
    assert all(limits.WRITE_BUFFER_SIZE_BYTES // 2 <= size <= limits.WRITE_BUFFER_SIZE_BYTES for size in sizes)
    assert max(sizes) - min(sizes) > limits.WRITE_BUFFER_SIZE_BYTES // 20
    for number, size in enumerate(sizes[:2]):
        open_index(tmp_path / str(number), IndexOptions(write_buffer_size_bytes=size)).close()
        log_text = next((tmp_path / str(number)).rglob("LOG")).read_text()
        assert f"Options.write_buffer_size: {size}\n" in log_text
