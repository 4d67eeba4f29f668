"""Consistent read-only copies of a wheel, for other processes.

`WheelView.snapshot` copies the whole file. The sequence counter in the header shows whether the owner made an update
during the copy, so all numbers of a snapshot belong to one state. If the owner has replaced its file, the next snapshot
maps the new one.

Thread rule: a view belongs to one thread; any number of processes may have views. A view takes no lock and does not
slow the owner down.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

from postdate.wheel.errors import Corrupt, TimerIndexError, TornRead, from_os_error
from postdate.wheel.limits import TORN_READS_MAX
from postdate.wheel.timing_wheel.forecast import ForecastLoad, due_load, load_ahead, next_due_ms, pending_by_horizon
from postdate.wheel.timing_wheel.layout import COUNTERS_OFFSET, SEQUENCE, Geometry, read_fixed, read_stamp
from postdate.wheel.timing_wheel.rings import Rings
from postdate.wheel.timing_wheel.wheel_file import NO_REQUEST

WHEEL_NAME = "wheel"


class WheelSnapshot:
    """One consistent state of a wheel."""

    def __init__(self, geometry: Geometry, copy: bytes) -> None:
        """`copy` is the whole file, taken between two updates."""
        self._rings = Rings(geometry, memoryview(copy))
        stamp = read_stamp(copy)
        self.geometry = geometry
        self.sequence = self._rings.sequence
        self.building = self._rings.building
        self.clean = stamp is not None and stamp.clean
        self.next_request = None if stamp is None or stamp.next_request == NO_REQUEST else stamp.next_request

    @property
    def count(self) -> int:
        """The number of all pending entries, parked ones included; while `building`, of those counted so far."""
        return self._rings.total.count + self._rings.parked.count

    @property
    def size_bytes(self) -> int:
        """The estimated bytes of the values of all pending entries."""
        return self._rings.total.size_bytes + self._rings.parked.size_bytes

    @property
    def ending_count(self) -> int:
        """The number of entries whose keys have due time 0, such as controls that wait for their transaction."""
        return self._rings.ending.count

    @property
    def parked_count(self) -> int:
        """The number of parked entries."""
        return self._rings.parked.count

    def next_due_ms(self) -> int | None:
        """Returns the same as `TimerIndex.next_due_ms`, but 0 if an entry is overdue. Invalid while `building`."""
        return next_due_ms(self._rings)

    def due(self, now_ms: int) -> ForecastLoad:
        """Returns the load of the entries that are due by the end of the tick of `now_ms`."""
        return due_load(self._rings, now_ms)

    def pending_by_horizon(self, now_ms: int) -> dict[str, int]:
        """Returns the same as `TimerIndex.pending_by_horizon`."""
        return pending_by_horizon(self._rings, now_ms)

    def load_ahead(self, from_ms: int, step_ms: int, steps: int) -> list[int]:
        """Returns the number of entries due in each of `steps` spans of `step_ms` from `from_ms` on."""
        return load_ahead(self._rings, from_ms, step_ms, steps)


class WheelView:
    """The wheel file of a timer index, read-only; `close` it, or use it as a context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._map()

    @staticmethod
    def open(path: Path) -> WheelView:
        """Maps the wheel file at `path`, or that of the timer index in the directory `path`.

        Raises StorageError if there is no file, and Corrupt if the file is not a wheel of this format.
        """
        return WheelView(path / WHEEL_NAME if path.is_dir() else path)

    def snapshot(self) -> WheelSnapshot:
        """Returns one consistent state. O(file), about 1 ms.

        Raises TornRead if the owner is always busy, or died in an update: read again later. Raises StorageError or
        Corrupt if the owner has replaced the file and the new one cannot be mapped.
        """
        self._follow()
        for _ in range(TORN_READS_MAX):
            (before,) = SEQUENCE.unpack_from(self._mapped, COUNTERS_OFFSET)
            if before % 2 == 0:
                copy = self._mapped[:]
                (after,) = SEQUENCE.unpack_from(self._mapped, COUNTERS_OFFSET)
                if before == after:
                    return WheelSnapshot(self._geometry, copy)
            time.sleep(0.0002)
        raise TornRead(f"{self._path}: no consistent copy in {TORN_READS_MAX} attempts")

    def close(self) -> None:
        """Unmaps the file."""
        self._mapped.close()

    def __enter__(self) -> WheelView:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _map(self) -> None:
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
            try:
                status = os.fstat(descriptor)
                if not status.st_size:
                    raise Corrupt(f"{self._path} is empty")
                self._mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise from_os_error(error) from error
        self._inode = (status.st_dev, status.st_ino)
        with memoryview(self._mapped) as buffer:
            fixed = read_fixed(buffer)
        if fixed is None or fixed[0].file_size_bytes != len(self._mapped):
            self._mapped.close()
            raise Corrupt(f"{self._path} is not a wheel of this format")
        self._geometry = fixed[0]

    def _follow(self) -> None:
        """Maps the new file if the owner has replaced it."""
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return  # moved aside: the last state stays readable
        except OSError as error:
            raise from_os_error(error) from error
        if (status.st_dev, status.st_ino) != self._inode:
            self._mapped.close()
            self._map()


def present_snapshot(directory: Path, *, complete: bool = True) -> WheelSnapshot | None:
    """Returns a snapshot of the wheel of a timer index, or None if the file cannot be read or changes too fast. With
    `complete`, also returns None while the wheel is being built, since it then counts only some of the entries."""
    try:
        with WheelView.open(directory) as view:
            snapshot = view.snapshot()
    except TimerIndexError:
        return None
    return None if complete and snapshot.building else snapshot
