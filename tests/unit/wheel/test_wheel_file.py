"""Goal: a wheel file is trusted only if it is correct; a damaged, stale, half-written or foreign file has no effect.

Method: each case fills an index, damages the file in one way, opens the index again and checks whether it trusts the
file. In every case, the index must deliver the same entries at once, and end with a wheel that agrees with the timer
log.
"""

from __future__ import annotations

import errno
import mmap
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from postdate.wheel.errors import DiskFull, StorageError
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import entry_key
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.changes import EntryChanges
from postdate.wheel.timer_log.checkpoint import Totals
from postdate.wheel.timer_log.database import Database
from postdate.wheel.timing_wheel.layout import (
    COUNTERS_OFFSET,
    HEADER_SIZE_BYTES,
    STAMP_OFFSETS,
    Geometry,
    read_fixed,
    read_stamp,
)
from postdate.wheel.timing_wheel.platform import LocalPlatform
from postdate.wheel.timing_wheel.wheel_file import WheelFile
from support.shards.fake_platform import FakePlatform
from support.shards.timer_indexes import NOW_MS, TINY, drain, finish_wheel, open_index, put_entries

ENTRIES = [(NOW_MS + at // 3, at) for at in range(40)]
SLOTS_END = Geometry.of(TINY).file_size_bytes


def reopened(directory: Path, platform: FakePlatform | None = None) -> TimerIndex:
    return open_index(directory, platform=platform or FakePlatform())


def filled(directory: Path, clean: bool) -> Path:
    index = reopened(directory)
    put_entries(index, ENTRIES)
    finish_wheel(index, NOW_MS)
    index.close(clean=clean)
    return index.wheel_path


def assert_same_deliveries(index: TimerIndex) -> None:
    hint = index.next_due_ms()
    assert hint is not None
    assert hint <= NOW_MS, "a delivery waits for the wheel"
    assert drain(index, NOW_MS + 5) == [key for key in ENTRIES if key[0] < NOW_MS + 5]
    finish_wheel(index, NOW_MS + 5)
    assert index.confirm(NOW_MS + 5)
    assert sum(index.pending_by_horizon(NOW_MS + 5).values()) == index.count
    assert drain(index, NOW_MS + 100) == [key for key in ENTRIES if key[0] >= NOW_MS + 5]
    assert index.next_due_ms() is None


def edit(path: Path, change: Callable[[bytearray], None]) -> None:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def zero(data: bytearray) -> None:
    data[:] = bytes(len(data))


def zero_rings(data: bytearray) -> None:
    data[HEADER_SIZE_BYTES:] = bytes(len(data) - HEADER_SIZE_BYTES)


def truncate(data: bytearray) -> None:
    del data[len(data) // 2 :]


def empty(data: bytearray) -> None:
    data.clear()


def extend(data: bytearray) -> None:
    data.extend(bytes(4096))


def mark_busy(data: bytearray) -> None:
    data[COUNTERS_OFFSET] ^= 1


@pytest.mark.parametrize("clean", [True, False])
def test_an_undamaged_file_is_trusted(tmp_path: Path, clean: bool) -> None:
    filled(tmp_path, clean)
    index = reopened(tmp_path)
    assert index.rebuilds == 0
    assert not index._wheel.rings.building
    assert_same_deliveries(index)
    index.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", [zero, zero_rings, truncate, empty, extend, mark_busy])
def test_a_damaged_file_is_rebuilt(tmp_path: Path, clean: bool, damage: Callable[[bytearray], None]) -> None:
    edit(filled(tmp_path, clean), damage)
    index = reopened(tmp_path)
    assert index.rebuilds == 1
    assert_same_deliveries(index)
    index.close()


def test_every_flipped_byte_of_a_clean_file_is_harmless(tmp_path: Path) -> None:
    wheel = filled(tmp_path, clean=True)
    shutil.copytree(tmp_path, tmp_path.with_name("kept"))
    used = [*range(COUNTERS_OFFSET + 144), *range(HEADER_SIZE_BYTES, SLOTS_END)]
    disbelieved = 0
    for at in random.Random(1).sample(used, 60):
        shutil.rmtree(tmp_path)
        shutil.copytree(tmp_path.with_name("kept"), tmp_path)

        def flip(data: bytearray, at: int = at) -> None:
            data[at] ^= 0x40

        edit(wheel, flip)
        index = reopened(tmp_path)
        disbelieved += index.rebuilds
        assert_same_deliveries(index)
        index.close(clean=False)
    assert disbelieved > 40, "the crc saw almost none of the flips"


def test_a_flipped_count_of_an_unclean_file_is_seen_in_the_sums(tmp_path: Path) -> None:
    wheel = filled(tmp_path, clean=False)

    def flip_count(data: bytearray) -> None:
        data[HEADER_SIZE_BYTES + 8] ^= 1

    edit(wheel, flip_count)
    index = reopened(tmp_path)
    assert index.rebuilds == 1
    assert_same_deliveries(index)
    index.close()


def test_an_unclean_file_of_another_boot_is_rebuilt_and_a_clean_one_trusted(tmp_path: Path) -> None:
    filled(tmp_path, clean=False)
    index = reopened(tmp_path, FakePlatform("boot-2"))
    assert index.rebuilds == 1
    finish_wheel(index, NOW_MS)
    index.close()
    index = reopened(tmp_path, FakePlatform("boot-3"))
    assert index.rebuilds == 0
    assert_same_deliveries(index)
    index.close()


def test_a_new_file_is_trusted_from_its_first_update_on(tmp_path: Path) -> None:
    path, geometry, digest, platform = tmp_path / "wheel", Geometry.of(TINY), bytes(32), FakePlatform()
    made = WheelFile.create(path, geometry, digest, platform)
    made.begin()
    made.commit(7, 3)
    made.close(7, 3, clean=False)
    again = WheelFile.open_existing(path, geometry, digest, platform)
    assert again is not None
    assert again.is_believed(7, 3, Totals())
    assert not again.is_believed(7, 3, Totals(entries=1))
    again.rings.building = True
    assert not again.is_believed(7, 3, Totals())
    again.close(7, 3, clean=False)


def test_a_stamp_is_written_beside_the_last_one(tmp_path: Path) -> None:
    """A torn stamp then leaves the other copy whole."""
    path = tmp_path / "wheel"
    made = WheelFile.create(path, Geometry.of(TINY), bytes(32), FakePlatform())
    for log_sequence in (7, 8, 9):
        made.begin()
        made.commit(log_sequence, 3)
    found = set()
    for offset in STAMP_OFFSETS:
        torn = bytearray(path.read_bytes())
        torn[offset] ^= 1
        stamp = read_stamp(bytes(torn))
        assert stamp is not None
        found.add(stamp.log_sequence)
    assert found == {8, 9}
    made.close(9, 3, clean=False)


def test_a_wheel_that_cannot_be_written_back_is_an_error_of_the_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = FakePlatform()
    made = WheelFile.create(tmp_path / "wheel", Geometry.of(TINY), bytes(32), platform)

    def sync(mapped: mmap.mmap) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(platform, "sync", sync)
    with pytest.raises(StorageError, match="Input/output error"):
        made.close(7, 3, clean=True)


class SyncedPlatform(FakePlatform):
    """A machine that keeps a copy of the file as of its latest write-back: only this copy is sure to survive a loss of
    power."""

    synced = b""

    def sync(self, mapped: mmap.mmap) -> None:
        super().sync(mapped)
        self.synced = bytes(mapped)


def test_a_clean_file_is_trusted_after_a_power_failure(tmp_path: Path) -> None:
    platform = SyncedPlatform()
    index = reopened(tmp_path, platform)
    put_entries(index, ENTRIES)
    finish_wheel(index, NOW_MS)
    index.close()
    index.wheel_path.write_bytes(platform.synced)
    index = reopened(tmp_path, FakePlatform("boot-2"))
    assert index.rebuilds == 0
    assert_same_deliveries(index)
    index.close()


def test_a_clean_close_syncs_the_timer_log_before_the_wheel_is_marked_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(Database, "sync", lambda self: synced.append("timer log"))
    monkeypatch.setattr(SyncedPlatform, "sync", lambda self, mapped: synced.append("wheel"))
    index = reopened(tmp_path, SyncedPlatform())
    put_entries(index, ENTRIES)
    synced.clear()
    index.close()
    assert synced == ["timer log", "wheel", "wheel"]


def test_an_existing_file_is_allocated_on_the_disk_before_it_is_mapped(tmp_path: Path) -> None:
    """A copied file may be sparse; a write to it on a full disk would kill the process."""
    filled(tmp_path, clean=True)
    with pytest.raises(DiskFull):
        reopened(tmp_path, FakePlatform(free_bytes=SLOTS_END - 1))
    reopened(tmp_path, FakePlatform(free_bytes=SLOTS_END)).close()


def test_a_process_that_dies_during_an_update_leaves_a_file_that_is_not_trusted(tmp_path: Path) -> None:
    index = reopened(tmp_path)
    put_entries(index, ENTRIES)
    finish_wheel(index, NOW_MS)
    file, seen = index._wheel._file, index.checkpoint
    fixed = read_fixed(index.wheel_path.read_bytes())
    assert fixed is not None

    def is_believed() -> bool:
        """True if a process that opens the file as it is now trusts it."""
        opened = WheelFile.open_existing(index.wheel_path, *fixed, FakePlatform())
        assert opened is not None
        believed = opened.is_believed(index._log.sequence(), seen.next_request, seen.totals)
        opened.close(0, None, clean=False)
        return believed

    assert is_believed()
    file.begin()
    assert not is_believed()
    file.commit(index._log.sequence(), seen.next_request)
    assert is_believed()
    index.close()


def test_a_file_that_cannot_be_opened_is_an_error_of_the_storage(tmp_path: Path) -> None:
    path = filled(tmp_path, clean=True)
    path.unlink()
    path.mkdir()
    with pytest.raises(StorageError, match="Is a directory"):
        reopened(tmp_path)


@pytest.mark.parametrize("clean", [True, False])
def test_a_closed_file_is_unmapped(tmp_path: Path, clean: bool) -> None:
    index = reopened(tmp_path)
    mapped = index._wheel._file._mapped
    index.close(clean)
    assert mapped.closed


def test_a_file_that_is_created_or_opened_leaves_no_descriptor_open(tmp_path: Path) -> None:
    path, geometry, digest, platform = tmp_path / "wheel", Geometry.of(TINY), bytes(32), FakePlatform()

    def opened() -> int:
        return sum(os.path.realpath(link).startswith(str(tmp_path)) for link in Path("/proc/self/fd").iterdir())

    WheelFile.create(path, geometry, digest, platform).close(0, None, clean=True)
    assert opened() == 0
    again = WheelFile.open_existing(path, geometry, digest, platform)
    assert again is not None
    again.close(0, None, clean=False)
    assert WheelFile.open_existing(path, geometry, bytes([1] * 32), platform) is None
    assert opened() == 0


def test_the_machine_writes_a_mapped_file_back() -> None:
    flushed: list[bool] = []

    class Mapped(mmap.mmap):
        def flush(self, *_: int) -> None:
            flushed.append(True)

    with Mapped(-1, 4096) as mapped:
        LocalPlatform().sync(mapped)
    assert flushed == [True]


def test_an_unclean_file_is_not_trusted_if_the_boot_is_unknown(tmp_path: Path) -> None:
    class Nameless(FakePlatform):
        def boot_id(self) -> bytes:
            return bytes(16)

    filled(tmp_path, clean=False)
    index = reopened(tmp_path, Nameless())
    index.close(clean=False)
    index = reopened(tmp_path, Nameless())
    assert index.rebuilds == 1
    assert_same_deliveries(index)
    index.close()


@pytest.mark.parametrize("clean", [True, False])
def test_an_older_copy_put_back_is_rebuilt(tmp_path: Path, clean: bool) -> None:
    wheel = filled(tmp_path, clean)
    old = wheel.read_bytes()
    index = reopened(tmp_path)
    put_entries(index, [(NOW_MS + 50, 100)])
    drain(index, NOW_MS + 60)
    put_entries(index, [(due_ms, offset + 200) for due_ms, offset in ENTRIES])
    index.close(clean=clean)
    wheel.write_bytes(old)
    index = reopened(tmp_path)
    assert index.rebuilds == 1
    assert len(drain(index, NOW_MS + 100)) == len(ENTRIES)
    index.close()


def test_half_the_pages_of_another_copy_are_seen(tmp_path: Path) -> None:
    wheel = filled(tmp_path, clean=True)
    old = wheel.read_bytes()
    index = reopened(tmp_path)
    put_entries(index, [(NOW_MS + 1, 100)])
    index.close()

    def mix(data: bytearray) -> None:
        data[HEADER_SIZE_BYTES:] = old[HEADER_SIZE_BYTES:]

    edit(wheel, mix)
    index = reopened(tmp_path)
    assert index.rebuilds == 1
    index.close()


def test_the_wheel_of_another_timer_log_is_rebuilt(tmp_path: Path) -> None:
    wheel = filled(tmp_path / "a", clean=True)
    other = filled(tmp_path / "b", clean=True)
    shutil.copy(wheel, other)
    index = reopened(tmp_path / "b")
    assert index.rebuilds == 1, "two logs of one shard, with equal sequence numbers, must not share a wheel"
    assert_same_deliveries(index)
    index.close()


def test_another_geometry_is_rebuilt(tmp_path: Path) -> None:
    filled(tmp_path, clean=True)
    options = IndexOptions(tick_ms=2, fine_slots=4, hour_ms=4, hour_slots=4)
    index = open_index(tmp_path, options, platform=FakePlatform())
    assert index.rebuilds == 1
    assert_same_deliveries(index)
    index.close()


def test_a_half_built_wheel_is_rebuilt_after_a_restart(tmp_path: Path) -> None:
    edit(filled(tmp_path, clean=True), zero)
    index = reopened(tmp_path)
    index.load_step(NOW_MS, keys_max=5)
    assert index._wheel.rings.building
    index.close(clean=True)
    index = reopened(tmp_path)
    assert index.rebuilds == 1
    assert_same_deliveries(index)
    index.close()


def test_a_wheel_that_is_wrong_while_open_is_found_and_rebuilt(tmp_path: Path) -> None:
    index = reopened(tmp_path)
    put_entries(index, ENTRIES)
    finish_wheel(index, NOW_MS)
    with open(index.wheel_path, "r+b") as file:  # another program writes to the file: the first slots are now empty
        file.seek(HEADER_SIZE_BYTES)
        file.write(bytes(32 * 3))
    assert not index.confirm(NOW_MS)
    assert index.rebuilds == 1
    assert index._wheel.rings.building
    assert index.next_due_ms() == NOW_MS, "while it is rebuilt, a seek tells"
    assert_same_deliveries(index)
    index.close()


def test_a_full_disk_for_the_wheel_raises_and_releases_the_lock(tmp_path: Path) -> None:
    with pytest.raises(DiskFull):
        reopened(tmp_path, FakePlatform(free_bytes=100))
    assert sorted(os.listdir(tmp_path)) == ["log"]
    index = reopened(tmp_path)
    assert index.count == 0
    index.close()


def test_directory_and_files_are_for_this_user_alone(tmp_path: Path) -> None:
    index = reopened(tmp_path / "cluster" / "requests" / "3")
    for path in (tmp_path / "cluster", tmp_path / "cluster" / "requests" / "3", index.wheel_path.parent / "log"):
        assert path.stat().st_mode & 0o777 == 0o700
    assert index.wheel_path.stat().st_mode & 0o777 == 0o600
    assert index.wheel_path.stat().st_blocks * 512 >= SLOTS_END, "a sparse file dies by SIGBUS on a full disk"
    index.close()


@pytest.mark.parametrize("clean", [True, False])
def test_an_older_copy_of_the_same_counts_is_rebuilt(tmp_path: Path, clean: bool) -> None:
    wheel = filled(tmp_path, clean)
    old = wheel.read_bytes()
    index = reopened(tmp_path)
    changes = EntryChanges()  # a reschedule: the number of entries and `next_request` stay the same
    changes.delete(entry_key(*ENTRIES[0]), 10)
    changes.insert(entry_key(NOW_MS + 60, ENTRIES[0][1]), bytes(10))
    index.write(changes)
    index.close(clean=clean)
    wheel.write_bytes(old)
    index = reopened(tmp_path)
    assert index.rebuilds == 1
    index.close()
