"""Keeps the wheel in step with the timer log: applies writes, loads hours, rebuilds.

Every update of the rings happens here, between `begin` and `commit`. A rebuild empties the rings and then counts the
entries of the timer log piece by piece, in order of their keys. An entry written during the rebuild is counted at once
if the scan has passed its key, and otherwise by the scan. So the rings are right at the end, and nothing waits for the
rebuild.

Thread rule: the thread that owns the index uses it.
"""

from __future__ import annotations

from pathlib import Path

from postdate.wheel.keys import entry_key
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.identity import Identity, wheel_digest
from postdate.wheel.timer_log.timer_log import TimerLog
from postdate.wheel.timer_log.write_delta import WriteDelta, key_column
from postdate.wheel.timing_wheel.layout import Geometry
from postdate.wheel.timing_wheel.platform import Platform
from postdate.wheel.timing_wheel.rings import Rings
from postdate.wheel.timing_wheel.wheel_file import WheelFile


class WheelMaintenance:
    """The wheel file of a timer log, and the only code that changes it."""

    def __init__(self, log: TimerLog, file: WheelFile) -> None:
        self._log = log
        self._file = file
        self.path = file.path

    @property
    def rings(self) -> Rings:
        """The rings, for queries only."""
        return self._file.rings

    def apply(self, written: WriteDelta) -> None:
        """Counts the entries that the timer log has just written."""
        self._file.begin()
        self._file.rings.apply(written)
        self._commit()

    def stamp(self) -> None:
        """Stamps the wheel after a write that changes no ring. A wheel whose stamp names an older state of the timer
        log would be invalid."""
        self._file.begin()
        self._commit()

    def advance(self, now_ms: int) -> None:
        """Moves the window of the fine ring to the present tick."""
        rings = self._file.rings
        if now_ms // rings.geometry.tick_ms > rings.window:
            self._file.begin()
            rings.advance(now_ms)
            self._commit()

    def load_step(self, now_ms: int, keys_max: int) -> bool:
        """Counts the next keys of a rebuild, or loads the next keys of an hour. Returns True if more is left."""
        self.advance(now_ms)
        if self._file.rings.building:
            self._build_piece(keys_max)
        else:
            self._load_piece(keys_max)
        return self._file.rings.building or self._file.rings.next_load() is not None

    def rebuild(self, now_ms: int) -> None:
        """Empties the rings and begins a rebuild: `load_step` then counts the entries of the timer log."""
        self._file.begin()
        totals = self._log.checkpoint.totals
        self._file.rings.reset(now_ms, building=totals.entries > 0)
        self._file.rings.parked.change(totals.parked, totals.parked_bytes)
        self._commit()

    def close(self, clean: bool) -> None:
        """Unmaps the file. `clean` marks it as closed cleanly. REQUIRES: the timer log is still open."""
        self._file.close(self._log.sequence(), self._log.checkpoint.next_request, clean)

    def _build_piece(self, keys_max: int) -> None:
        rings, totals = self._file.rings, self._log.checkpoint.totals
        keys = self._log.scan_keys(entry_key(*rings.built), None, keys_max)
        mean = totals.entries_bytes / totals.entries if totals.entries else 0
        self._file.begin()
        rings.build(key_column(keys, mean), is_last=len(keys) < keys_max)
        self._commit()

    def _load_piece(self, keys_max: int) -> None:
        rings = self._file.rings
        hour = rings.next_load()
        if hour is None:
            return
        (due_ms, offset), end_ms = hour
        keys = self._log.scan_keys(entry_key(due_ms, offset), entry_key(end_ms, 0), keys_max)
        self._file.begin()
        rings.load(key_column(keys, 0), end_ms, is_last=len(keys) < keys_max)
        self._commit()

    def _commit(self) -> None:
        self._file.commit(self._log.sequence(), self._log.checkpoint.next_request)


def open_wheel(
    log: TimerLog, path: Path, identity: Identity, options: IndexOptions, now_ms: int, platform: Platform
) -> tuple[WheelMaintenance, bool]:
    """Returns the valid wheel at `path` and True, or an empty wheel, which `load_step` builds, and False.

    Marks the file as not closed cleanly. Raises DiskFull or StorageError.
    """
    geometry, digest, checkpoint = Geometry.of(options), wheel_digest(identity, log.log_id), log.checkpoint
    file = WheelFile.open_existing(path, geometry, digest, platform)
    if file is not None and file.is_believed(log.sequence(), checkpoint.next_request, checkpoint.totals):
        file.begin()
        file.rings.advance(now_ms)
        file.commit(log.sequence(), checkpoint.next_request)
        return WheelMaintenance(log, file), True
    if file is not None:
        file.close(log.sequence(), checkpoint.next_request, clean=False)
    maintenance = WheelMaintenance(log, WheelFile.create(path, geometry, digest, platform))
    maintenance.rebuild(now_ms)
    return maintenance, False
