"""The memory-mapped file of a wheel: the conditions under which it is valid, and the steps of an update.

In an update, the sequence becomes odd; rings, counters and the older copy of the stamp change; the sequence becomes
even. A reader that sees an odd or a changed sequence reads again. After a crash during an update, the next owner sees
an odd sequence, or the stamp of another state of the timer log, and rebuilds the wheel.

A file is valid at open if all of these conditions hold:

- It has this format, this geometry and the digest of this timer log, which depends on the log's random id.
- Its sequence is even, and no rebuild was in progress.
- The stamp's RocksDB sequence number and next request equal the log's. The rings' counts of entries, of entries under
  due time 0 and of parked entries equal the log's counters.
- It was closed cleanly and has the right crc; or it was not, but was written since the last boot, and its counters and
  slots do not contradict each other. Unless the machine has rebooted, the page cache holds exactly the written bytes.

A new file replaces any other one; a reader that still maps the old file keeps its content. Only errors of the file
system are raised.

Thread rule: one writer, the owner of the timer log. Memory order: the interpreter issues the stores in order, and
x86-64 keeps this order. On a machine with weaker ordering, a reader could mistake a torn copy for a consistent one; the
consequence is a wrong number on a dashboard.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path

from postdate.wheel.errors import from_os_error
from postdate.wheel.timer_log.checkpoint import Totals
from postdate.wheel.timing_wheel.layout import (
    COUNTERS_OFFSET,
    SEQUENCE,
    Geometry,
    Stamp,
    read_fixed,
    read_stamp,
    rings_crc,
    write_fixed,
    write_stamp,
)
from postdate.wheel.timing_wheel.platform import NO_BOOT, Platform
from postdate.wheel.timing_wheel.rings import Rings

NO_REQUEST = 2**64 - 1


class WheelFile:
    """An open wheel file with its rings. An update is always `begin`, a change of the rings, `commit`."""

    def __init__(self, path: Path, mapped: mmap.mmap, geometry: Geometry, platform: Platform) -> None:
        self.path = path
        self._mapped = mapped
        self._buffer = memoryview(mapped)
        self._platform = platform
        self._boot_id = platform.boot_id()
        stamp = read_stamp(self._buffer)
        self._generation = 0 if stamp is None else stamp.generation
        self.stamp = stamp
        self.rings = Rings(geometry, self._buffer)

    @staticmethod
    def create(path: Path, geometry: Geometry, digest: bytes, platform: Platform) -> WheelFile:
        """Returns a new file with empty rings that replaces any other. Raises DiskFull or StorageError.

        An old file stays unchanged for the processes that map it, and stays in place if the disk is full.
        """
        building = path.with_name(path.name + ".new")
        try:
            descriptor = os.open(building, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                platform.allocate(descriptor, geometry.file_size_bytes)
                mapped = mmap.mmap(descriptor, geometry.file_size_bytes)
            finally:
                os.close(descriptor)
            with memoryview(mapped) as buffer:
                write_fixed(buffer, geometry, digest)
            os.replace(building, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                building.unlink(missing_ok=True)
            raise from_os_error(error) from error
        return WheelFile(path, mapped, geometry, platform)

    @staticmethod
    def open_existing(path: Path, geometry: Geometry, digest: bytes, platform: Platform) -> WheelFile | None:
        """Returns the file at `path` if it is a wheel of this geometry and timer log, otherwise None. Does not check
        the rings. Raises DiskFull or StorageError."""
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise from_os_error(error) from error
        try:
            if os.fstat(descriptor).st_size != geometry.file_size_bytes:
                return None
            # A copied file may be sparse: a write to it on a full disk would kill the process.
            platform.allocate(descriptor, geometry.file_size_bytes)
            mapped = mmap.mmap(descriptor, geometry.file_size_bytes)
        except OSError as error:
            raise from_os_error(error) from error
        finally:
            os.close(descriptor)
        with memoryview(mapped) as buffer:
            fixed = read_fixed(buffer)
        if fixed != (geometry, digest):
            mapped.close()
            return None
        return WheelFile(path, mapped, geometry, platform)

    def is_believed(self, log_sequence: int, next_request: int | None, totals: Totals) -> bool:
        """Returns True if the rings match the present state of the timer log; see the module's docstring. O(slots)."""
        stamp, rings = self.stamp, self.rings
        if stamp is None or rings.sequence % 2:
            return False
        if stamp.log_sequence != log_sequence or stamp.next_request != _request_number(next_request):
            return False
        if rings.building or not _agrees(rings, totals):
            return False
        if stamp.clean:
            return stamp.rings_crc == rings_crc(self._buffer)
        return stamp.boot_id == self._boot_id != NO_BOOT and rings.is_sound()

    def begin(self) -> None:
        """Announces an update: until `commit`, readers wait and a crash makes the file invalid."""
        self._count_up()

    def commit(self, log_sequence: int, next_request: int | None) -> None:
        """Makes the update visible, stamped with the state of the timer log that the rings match."""
        rings = self.rings
        self._write_stamp(log_sequence, next_request, clean=False)
        rings.publish()  # before the sequence becomes even: counters are part of the update
        self._count_up()

    def close(self, log_sequence: int, next_request: int | None, clean: bool) -> None:
        """Unmaps the file. With `clean`, first writes back the pages, and then the stamp that marks them as complete.

        Raises StorageError if the write-back failed, but unmaps the file first.
        """
        try:
            if clean:
                self._platform.sync(self._mapped)
                self._write_stamp(log_sequence, next_request, clean=True)
                self._platform.sync(self._mapped)
        except OSError as error:
            raise from_os_error(error) from error
        finally:
            del self.rings  # numpy's views hold the mapping
            # If the traceback of an error still holds the views, the mapping lives as long as the traceback; nothing
            # writes to it.
            with contextlib.suppress(BufferError):
                self._buffer.release()
                self._mapped.close()

    def _count_up(self) -> None:
        """Writes the next sequence, by assignment as in `Rings.publish`."""
        self.rings.sequence += 1
        self._buffer[COUNTERS_OFFSET : COUNTERS_OFFSET + SEQUENCE.size] = SEQUENCE.pack(self.rings.sequence)

    def _write_stamp(self, log_sequence: int, next_request: int | None, clean: bool) -> None:
        self._generation += 1
        crc = rings_crc(self._buffer) if clean else 0
        request = _request_number(next_request)
        write_stamp(self._buffer, Stamp(self._generation, log_sequence, request, self._boot_id, clean, crc))


def _request_number(next_request: int | None) -> int:
    return NO_REQUEST if next_request is None else next_request


def _agrees(rings: Rings, totals: Totals) -> bool:
    counted = (rings.total.count, rings.ending.count, rings.parked.count)
    return counted == (totals.entries, totals.ending, totals.parked)
