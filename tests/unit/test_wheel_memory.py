"""Goal: memory does not grow with what is held or with what has passed through.

Method: a child process writes 40,000 entries of 100 bytes a round, drains half of them and keeps the rest, and reports
its resident memory after each round; once warm, it must stay where it is.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, sys
from pathlib import Path
from support.timer_indexes import NOW_MS, drain, open_index, put_entries
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
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={"PYTHONPATH": ":".join(sys.path), "MALLOC_ARENA_MAX": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    resident = [int(line) for line in done.stdout.split()]
    assert len(resident) == 12
    assert resident[-1] - resident[3] < GROWTH_BYTES_MAX, resident
    assert resident[-1] < 400 * 1024 * 1024
