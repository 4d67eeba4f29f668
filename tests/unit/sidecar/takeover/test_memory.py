"""Goal: eight concurrent takeovers stay within 256 MiB, even if the dispatch log has records of the largest size.

Method: eight threads of a separate process replay a made-up log into timer indexes, with reads of the largest size. The
kernel reports the peak memory of the process. A second test counts the reads until memory is released.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from postdate.kafka.interface import Partition, Record
from postdate.sidecar.operation.losses import AcceptedLosses
from postdate.sidecar.shard.limits import TAKEOVERS_AT_ONCE_MAX
from postdate.sidecar.takeover import takeover
from postdate.sidecar.takeover.checking import TakeoverProgress
from postdate.wheel.index import TimerIndex
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.changes import EntryChanges
from postdate.wheel.timer_log.identity import Identity
from postdate.wire.dispatch_log import DELIVERED, DispatchRecord, PlainFate, encode_record
from postdate.wire.limits import FATES_MAX

_RECORDS = 15
#: A read returns at most what the reader has prefetched, 4 MiB.
_READ_RECORDS = 10
_FIRST = 1_000_000
_MIB = 1024 * 1024
_ALLOWED_BYTES = 256 * _MIB


def test_eight_takeovers_at_once_stay_within_256_mib(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, __file__, str(tmp_path)], capture_output=True, text=True, check=True, timeout=240
    )
    assert int(ran.stdout) < _ALLOWED_BYTES, f"{int(ran.stdout) / _MIB:.0f} MiB"


@pytest.mark.parametrize(("spare_bytes", "released_after"), [(0, [3, 6]), (-1, [2, 4, 6])])
def test_a_replay_releases_memory_when_it_has_read_more_than_its_bound(
    tmp_path: Path, spare_bytes: int, released_after: list[int]
) -> None:
    """The bound is the size of two records, or one byte less; each read returns one record."""
    records = [_record(number, fates=1) for number in range(7)]
    index, released, reads = _index(tmp_path, 0), [], 0

    def read_log(_ctx: Any, _part: Partition, _start: int, _end: int, take: Any) -> None:
        nonlocal reads
        for record in records:
            reads += 1
            take([record])

    assert len({len(record.value or b"") for record in records}) == 1
    memory_max = 2 * len(records[0].value or b"") + spare_bytes
    with (
        patch.object(takeover, "read_log", read_log),
        patch.object(takeover, "RECOVERY_MEMTABLES_BYTES_MAX", memory_max),
        patch.object(index, "release_memory", lambda: released.append(reads)),
    ):
        _replay(index, len(records), fates=1)
    assert released == released_after
    index.close()


def _record(number: int, fates: int = FATES_MAX) -> Record:
    """Returns a record with `fates` fates, by default as many as fit. The index has read none of their requests, so
    each fate leaves a mark."""
    first = _FIRST + number * fates
    dispatch_record = DispatchRecord(
        seq=number + 1,
        takeover=1,
        instance="i",
        group="g",
        at=1,
        next_request=first + fates,
        low_water=0,
        fates=[PlainFate(first + at, 1_795_258_283_950 + number, DELIVERED) for at in range(fates)],
    )
    return Record(2 * number, 1_795_258_284_000 + number, True, None, encode_record(dispatch_record), [])


def _read_log(_ctx: Any, _part: Partition, _start: int, _end: int, take: Any) -> None:
    for first in range(0, _RECORDS, _READ_RECORDS):
        take([_record(number) for number in range(first, min(first + _READ_RECORDS, _RECORDS))])


def _index(directory: Path, number: int) -> TimerIndex:
    index = TimerIndex.open(directory, Identity("c", "r", "d", number, "s"), IndexOptions(), 1)
    changes = EntryChanges()
    changes.next_request, changes.next_dispatch, changes.seq, changes.takeover = 0, 0, 0, 0
    index.write(changes)
    return index


def _replay(index: TimerIndex, records: int = _RECORDS, fates: int = FATES_MAX) -> None:
    ctx: Any = SimpleNamespace(own=SimpleNamespace(requests="r"), log=Partition("d", 0), origin_prefix=b"r/0/")
    progress = TakeoverProgress(index, AcceptedLosses(), empty=False, behind=False)
    takeover._replay(ctx, progress, 0, 2 * records)
    assert index.timer_log.marks_end == _FIRST + records * fates


def _memory_bytes(field: str) -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def _main(directory: Path) -> None:
    indexes = [_index(directory / str(number), number) for number in range(TAKEOVERS_AT_ONCE_MAX)]
    idle = _memory_bytes("VmRSS")
    with patch.object(takeover, "read_log", _read_log), ThreadPoolExecutor(TAKEOVERS_AT_ONCE_MAX) as threads:
        list(threads.map(_replay, indexes))
    sys.stdout.write(str(_memory_bytes("VmHWM") - idle))
    for index in indexes:
        index.close()


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
