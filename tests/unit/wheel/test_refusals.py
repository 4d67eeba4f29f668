"""Goal: the timer log refuses an unusable directory with a typed error, and a failed write changes nothing.

Method: a real RocksDB in a temporary directory whose files are damaged, locked by another process, or belong to other
topics. Errors with RocksDB's own texts are classified.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from postdate.wheel import limits
from postdate.wheel.errors import (
    Closed,
    Corrupt,
    DiskFull,
    FormatMismatch,
    IdentityMismatch,
    Locked,
    StorageError,
    TimerIndexError,
    from_rocksdict,
)
from postdate.wheel.index import move_aside
from postdate.wheel.keys import entry_key
from postdate.wheel.timer_log.changes import EntryChanges
from postdate.wheel.timer_log.database import Database
from postdate.wheel.timer_log.identity import Identity
from postdate.wheel.timer_log.timer_log import TimerLog
from support.shards.timer_indexes import IDENTITY, NOW_MS, TINY, drain, open_index, put_entries


def flushed_log(directory: Path) -> None:
    log = TimerLog(directory, IDENTITY, TINY)
    changes = EntryChanges()
    rng = random.Random(7)
    for offset in range(3000):
        changes.insert(entry_key(NOW_MS + offset, offset), rng.randbytes(100))
    changes.next_request = 3000
    log.write(changes)
    log._db.flush(wait=True)
    log.close()


def damage_cases() -> list[str]:
    return ["*.sst flipped", "*.sst removed", "MANIFEST-* flipped", "CURRENT flipped", "CURRENT removed"]


def read_everything(directory: Path) -> None:
    index = open_index(directory)
    try:
        while index.load_step(NOW_MS):
            pass
        index.scan_due(NOW_MS + 5000, 10_000)
    finally:
        index.close(clean=False)


@pytest.mark.parametrize("case", damage_cases())
def test_damage_is_corrupt_and_can_be_moved_aside(tmp_path: Path, case: str) -> None:
    directory = tmp_path / "shard"
    flushed_log(directory / "log")
    pattern, damage = case.split()
    files = sorted((directory / "log").glob(pattern), key=lambda path: path.stat().st_size)
    if damage == "removed":
        files[-1].unlink()
    else:
        data = bytearray(files[-1].read_bytes())
        for at in range(0, len(data) * 3 // 4, 97 if len(data) > 1000 else 1):
            data[at] ^= 0x55
        files[-1].write_bytes(data)
    with pytest.raises(Corrupt) as raised:  # a handler may keep the error while the directory is opened again
        read_everything(directory)
    aside = move_aside(directory, "corrupt")
    index = open_index(directory)
    assert raised.value.__traceback__ is not None
    assert aside.name == "shard.corrupt-1"
    assert (aside / "log").is_dir()
    assert index._log.is_new
    assert index.checkpoint.next_request is None
    index.close()
    assert move_aside(directory, "corrupt").name == "shard.corrupt-2"


def test_a_held_lock_raises_locked_across_processes_too(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    with pytest.raises(Locked):
        open_index(tmp_path)
    program = (
        "import sys; from pathlib import Path; from postdate.wheel.errors import Locked\n"
        "from support.shards.timer_indexes import open_index\n"
        "try: open_index(Path(sys.argv[1]))\n"
        "except Locked: print('locked')"
    )
    process = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.stdout == "locked\n", process.stderr
    put_entries(index, [(NOW_MS, 0)])  # the owner continues
    index.close()
    open_index(tmp_path).close()


def test_close_releases_the_lock_although_scans_were_made(tmp_path: Path) -> None:
    index = open_index(tmp_path)
    put_entries(index, [(NOW_MS, offset) for offset in range(10)])
    kept = index.scan_due(NOW_MS + 1, 5)
    index.timer_log.low_water()
    index.close()
    index.close()
    with pytest.raises(Closed):
        index.timer_log.entry(kept[0][0])
    with pytest.raises(TimerIndexError):
        put_entries(index, [(NOW_MS, 99)])
    open_index(tmp_path).close()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cluster_id", "x"),
        ("request_topic_id", "x"),
        ("dispatch_log_topic_id", "x"),
        ("store_topic_id", "x"),
        ("partition", 9),
    ],
)
def test_an_identity_mismatch_names_the_field(tmp_path: Path, field: str, value: str | int) -> None:
    open_index(tmp_path).close()
    fields = {name: getattr(IDENTITY, name) for name in Identity.__struct_fields__} | {field: value}
    with pytest.raises(IdentityMismatch) as caught:
        open_index(tmp_path, identity=Identity(**fields))
    assert caught.value.fields == (field,)
    open_index(tmp_path).close()


def test_a_format_mismatch_names_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postdate.wheel.timer_log.identity.FORMAT_VERSION", 3)
    open_index(tmp_path).close()
    monkeypatch.undo()
    with pytest.raises(FormatMismatch, match="format version 3, this program writes 2"):
        open_index(tmp_path)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("IO error: lock hold by current process, acquire time 1: /x/LOCK: No locks available", Locked),
        ("IO error: While lock file: /x/LOCK: Resource temporarily unavailable", Locked),
        (
            "IO error: No space left on device: While appending to file: /x/000008.log: No space left on device",
            DiskFull,
        ),
        ("Corruption: block checksum mismatch", Corrupt),
        ("IO error: No such file or directory: While open a file for random read: /x/000009.sst", Corrupt),
        ("IO error: Input/output error", StorageError),
        ("anything else", StorageError),
    ],
)
def test_errors_are_distinguished_by_their_text(text: str, kind: type[TimerIndexError]) -> None:
    assert type(from_rocksdict(Exception(text))) is kind


def test_a_write_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = open_index(tmp_path)
    put_entries(index, [(NOW_MS, 0)])
    before = index.checkpoint, index.timer_log.low_water(), index.next_due_ms()
    changes = EntryChanges()
    changes.insert(entry_key(NOW_MS - 5, 1), b"x")
    changes.next_request = 2

    def refuse(*_: object) -> None:
        raise DiskFull("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Database, "write", refuse)
        with pytest.raises(DiskFull):
            index.write(changes)
    assert (index.checkpoint, index.timer_log.low_water(), index.next_due_ms()) == before
    assert index.confirm(NOW_MS)
    index.write(changes)  # the same changes again, once the disk has free space
    assert drain(index, NOW_MS + 1) == [(NOW_MS - 5, 1), (NOW_MS, 0)]
    index.close()


def test_the_wheel_counts_a_write_after_which_no_space_could_be_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write moves an entry to an earlier time, so the totals of the timer log do not change."""
    index = open_index(tmp_path)
    put_entries(index, [(NOW_MS + 3, 0)])
    changes = EntryChanges()
    changes.delete(entry_key(NOW_MS + 3, 0), 10)
    changes.insert(entry_key(NOW_MS + 1, 0), bytes(10))

    def failing(*_: object, **__: object) -> None:
        raise DiskFull("no space")

    with monkeypatch.context() as patched:
        patched.setattr(limits, "RANGE_TOMBSTONES_MAX", 0)
        patched.setattr(Database, "flush", failing)
        with pytest.raises(DiskFull):
            index.write(changes)
    index.close()
    index = open_index(tmp_path)
    assert not index.load_step(NOW_MS), "the wheel is valid"
    assert index.next_due_ms() == NOW_MS + 1
    index.close()
