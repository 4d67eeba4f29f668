"""The timer index of a shard: its timer log and its wheel behind one interface, which the sidecar uses.

Directory: `log/` (RocksDB) and `wheel` (the mapped file), accessible only to the user of the process.

The timer log is authoritative: it contains the due entries, the checkpoint and the counters. The wheel is a hint for
when to scan. A wrong wheel can cause a superfluous scan, or delay a scan by up to a second, until `confirm` finds the
error. It never changes which messages are delivered. During a rebuild `next_due_ms` queries the timer log.

The calls of an owner, in a loop: `write` for new input; `advance`; `load_step` until it returns False; `next_due_ms`,
and `scan_due` if that time has passed; `sync` several times a second; `confirm` once a second, and less often while
`timer_log.sequence()` is unchanged. `close` ends the loop.

Thread rule: one thread owns the index. It starts no thread and reads no clock: callers pass `now_ms`. Other threads and
processes use `WheelView`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from postdate.wheel import limits
from postdate.wheel.errors import Corrupt, Unfinished, from_os_error
from postdate.wheel.keys import DUE_MS_MAX, FIRST_KEY, entry_key, split_key
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.changes import EntryChanges
from postdate.wheel.timer_log.checkpoint import Checkpoint
from postdate.wheel.timer_log.identity import Identity
from postdate.wheel.timer_log.scan_cursor import ScanCursor
from postdate.wheel.timer_log.timer_log import TimerLog, TimerLogReader
from postdate.wheel.timer_log.write_delta import WriteDelta
from postdate.wheel.timing_wheel import forecast
from postdate.wheel.timing_wheel.even_spread import EvenSpread, known_before_ms
from postdate.wheel.timing_wheel.forecast import ForecastLoad
from postdate.wheel.timing_wheel.platform import LocalPlatform, Platform
from postdate.wheel.timing_wheel.wheel_maintenance import WheelMaintenance, open_wheel
from postdate.wheel.timing_wheel.wheel_view import WHEEL_NAME

__all__ = ["Identity", "IndexOptions", "TimerIndex", "move_aside"]

LOG_NAME = "log"
_FIRST_MESSAGE = entry_key(1, 0)
_NOTHING = entry_key(DUE_MS_MAX, DUE_MS_MAX)


class TimerIndex:
    """An open timer index, created by `open`. `rebuilds` counts how often the wheel was missing or invalid at open, or
    proved wrong later.

    `timer_log` is for reading only. Use `write` to change entries, since it also updates the wheel.
    """

    def __init__(self, log: TimerLog, wheel: WheelMaintenance, rebuilds: int) -> None:
        self.timer_log: Final[TimerLogReader] = log
        self._log = log
        self._wheel = wheel
        self._ending = ScanCursor(FIRST_KEY)
        self._messages = ScanCursor(_FIRST_MESSAGE)
        self._lowest_put: bytes | None = None
        self.rebuilds = rebuilds
        self.wheel_path = wheel.path

    @staticmethod
    def open(
        directory: Path, identity: Identity, options: IndexOptions, now_ms: int, platform: Platform | None = None
    ) -> TimerIndex:
        """Opens the timer index of a directory, or creates it.

        Raises Locked (another owner: wait), Corrupt or FormatMismatch (`move_aside`, then reopen), IdentityMismatch
        (an operator decides if `.fields` shows that a topic was re-created), DiskFull, StorageError. The time does not
        depend on the number of pending entries, since `load_step` rebuilds an invalid wheel later.
        """
        log = TimerLog(directory / LOG_NAME, identity, options)
        try:
            wheel, believed = open_wheel(
                log, directory / WHEEL_NAME, identity, options, now_ms, platform or LocalPlatform()
            )
            return TimerIndex(log, wheel, rebuilds=0 if believed or log.is_new else 1)
        except BaseException:
            log.close()
            raise

    # ---- progress and counters

    @property
    def checkpoint(self) -> Checkpoint:
        """The progress of the shard and its counters."""
        return self._log.checkpoint

    @property
    def count(self) -> int:
        """The number of pending entries of every kind, parked ones included. Exact."""
        return self._log.checkpoint.totals.entries + self._log.checkpoint.totals.parked

    @property
    def ending_count(self) -> int:
        """The number of entries whose keys have due time 0. Exact."""
        return self._log.checkpoint.totals.ending

    @property
    def parked_count(self) -> int:
        """The number of parked entries. Exact."""
        return self._log.checkpoint.totals.parked

    # ---- changes

    def forget_outcomes(self, at_ms: int, read_ms: int = -1) -> None:
        """Deletes outcomes and deliveries of ids that no later request needs. See TimerLog."""
        self._log.forget_outcomes(at_ms, read_ms)

    def write(self, changes: EntryChanges) -> None:
        """Makes all changes visible in one write, then applies them to the wheel. They are durable after the next
        `sync`.

        Raises DiskFull, StorageError or Corrupt. Then either nothing has changed, or everything has, and only freeing
        space failed; the checkpoint shows which. O(changes).
        """
        delta = self._log.write(changes)
        self._ending.note_deleted(changes.entries)
        self._messages.note_deleted(changes.entries)
        self._lower_cursors(delta)
        self._wheel.apply(delta)
        if self._log.tidy():
            self._wheel.stamp()

    def release_memory(self) -> None:
        """Flushes the memtables after many writes. Takes about 50 ms. Raises as `write`."""
        self._log.release_memory()

    def sync(self) -> None:
        """Makes all earlier writes durable with one fsync, which releases the GIL."""
        self._log.sync()

    def raise_low_water(self, steps_max: int = limits.LOW_WATER_STEPS_MAX) -> bool:
        """Raises the low-water mark over requests that have ended or are in STORE. Returns True if another call may
        raise it further. See TimerLog."""
        more = self._log.raise_low_water(steps_max)
        self._wheel.stamp()
        return more

    def reclaim(self) -> bool:
        """Frees the disk space of ended entries if that is worth a compaction. Returns True if it compacted. See
        TimerLog."""
        return self._log.reclaim(self._messages.at)

    # ---- due entries

    def scan_due(
        self,
        before_ms: int,
        limit: int,
        size_bytes_max: int = limits.SCAN_SIZE_BYTES_MAX,
        until: bytes | None = None,
    ) -> tuple[list[bytes], list[bytes]]:
        """Returns keys and values of the entries due before `before_ms` and below the key `until`, ascending by due
        time and offset.

        `before_ms` is exclusive: a message may leave only when its whole millisecond has passed. Entries under due time
        0, such as controls, come first, also if `until` is lower. Returns at most `limit` entries, and stops once the
        values have `size_bytes_max`. Raises Corrupt if entries under due time 0 are counted but absent. O(entries
        returned), about 1 us each; ended entries are skipped.
        """
        before = entry_key(max(before_ms, 1), 0)
        if until is not None:
            before = min(before, until)
        keys: list[bytes] = []
        values: list[bytes] = []
        if self.ending_count:
            keys, values = self._scan_cursor(self._ending, _FIRST_MESSAGE, limit, size_bytes_max)
            if not keys and limit > 0:
                raise Corrupt(f"{self.ending_count} entries under key 0 are counted, but the timer log has none")
            limit -= len(keys)
            size_bytes_max -= sum(map(len, values))
        if limit > 0 and size_bytes_max > 0 and self._messages.at < before:
            more_keys, more_values = self._scan_cursor(self._messages, before, limit, size_bytes_max)
            if not keys:
                return more_keys, more_values
            keys += more_keys
            values += more_values
        return keys, values

    def lowest_put(self) -> bytes | None:
        """Returns the lowest key of a message that was put since the last call, or None. A caller that scans further
        ahead than `scan_due` needs this key to return to such a message."""
        lowest, self._lowest_put = self._lowest_put, None
        return lowest

    @property
    def messages_from(self) -> bytes:
        """A key below which there is no message. A scan of pending messages begins here and so skips the tombstones of
        ended messages."""
        return self._messages.at

    def next_due_ms(self) -> int | None:
        """Returns a time before which no entry is due: 0 if there are entries under due time 0, None if there are no
        entries other than parked ones.

        The time is a hint from the wheel; amortised O(1). If the wheel counts overdue entries, contradicts the timer
        log or is being rebuilt, the exact time is read from the timer log, which costs at most one seek.
        """
        if self.ending_count:
            return 0
        if self._wheel.rings.building:
            return self._seek_due()
        first = self._wheel.rings.first_message()
        if first is None:
            return None
        return first[2] if first[2] >= split_key(self._messages.at[:16])[0] else self._seek_due()

    def due_load(self, before_ms: int) -> ForecastLoad:
        """Returns the load of the entries that are due by the end of the tick of `before_ms`, according to the wheel.
        Callers use it to size a transaction."""
        return forecast.due_load(self._wheel.rings, before_ms)

    def pending_by_horizon(self, now_ms: int) -> dict[str, int]:
        """Returns how many entries are due within 5 s, from there to 1 min, and so on. See
        `forecast.pending_by_horizon`."""
        return forecast.pending_by_horizon(self._wheel.rings, now_ms)

    def even_spread(self, now_ms: int, changes: EntryChanges) -> EvenSpread:
        """Returns an object that chooses ticks with a low load for one batch of changes. O(changes so far)."""
        put = (key for key, value in changes.entries.items() if value is not None)
        return EvenSpread(self._wheel.rings, now_ms, put)

    def deferred(self, limit: int) -> list[bytes]:
        """Returns the keys of entries whose time within their windows is not chosen yet, and can be chosen now.

        An entry may have ended or moved since it was deferred. O(keys returned).
        """
        return self._log.deferred(entry_key(known_before_ms(self._wheel.rings), 0), limit)

    # ---- the wheel's maintenance

    def advance(self, now_ms: int) -> None:
        """Moves the window of the fine ring to the present tick. O(ticks passed); does nothing within a tick."""
        self._wheel.advance(now_ms)

    def load_step(self, now_ms: int, keys_max: int = limits.LOAD_KEYS_MAX) -> bool:
        """Loads or rebuilds one piece of the wheel. Returns True if more is left. At most 1 us a key."""
        return self._wheel.load_step(now_ms, keys_max)

    def confirm(self, now_ms: int) -> bool:
        """Returns True if the wheel and the timer log agree on the first message and on the counts of entries, without
        parked ones. Otherwise begins to rebuild the wheel and returns False.

        Also returns True while the wheel is being built, and if too many tombstones precede the first message. Costs at
        most one seek over a bounded number of tombstones: call it once a second.
        """
        if self._wheel.rings.building or self._agrees():
            return True
        self.rebuilds += 1
        self._wheel.rebuild(now_ms)
        return False

    def close(self, clean: bool = True) -> None:
        """Releases the directory. With `clean`, the wheel is valid at the next open, even after a reboot.

        Raises StorageError if a write-back failed, but releases everything first. A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if clean:
                self._log.sync()
        finally:
            try:
                self._wheel.close(clean)
            finally:
                self._log.close()

    _closed = False

    # ---- inside

    def _scan_cursor(
        self, cursor: ScanCursor, before: bytes, limit: int, size_bytes_max: int
    ) -> tuple[list[bytes], list[bytes]]:
        keys, values = self._log.scan_from(cursor.at, before, limit, size_bytes_max)
        if keys:
            cursor.note_present(keys)
        elif limit > 0 and size_bytes_max > 0:
            cursor.note_empty(before)
        return keys, values

    def _seek_due(self, skips_max: int = 0) -> int | None:
        """Returns the exact due time of the first message, or None if there is none."""
        if not self._messages.is_exact:
            key = self._log.first_key(self._messages.at, None, skips_max)
            if key is None:
                self._messages.note_empty(_NOTHING)
            else:
                self._messages.note_present([key])
        return split_key(self._messages.at)[0] if self._messages.is_exact else None

    def _lower_cursors(self, delta: WriteDelta) -> None:
        due, offset = delta.gained.due, delta.gained.offset
        if delta.gained.is_short:
            for due_ms, request, _ in delta.gained.rows():
                if due_ms:
                    self._put_message(entry_key(due_ms, request))
                else:
                    self._ending.note_put(entry_key(0, request))
            return
        messages = due != 0
        if messages.any():
            lowest = due[messages].min()
            self._put_message(entry_key(int(lowest), int(offset[due == lowest].min())))
        if not messages.all():
            self._ending.note_put(entry_key(0, int(offset[~messages].min())))

    def _put_message(self, key: bytes) -> None:
        self._messages.note_put(key)
        if self._lowest_put is None or key < self._lowest_put:
            self._lowest_put = key

    def _agrees(self) -> bool:
        rings, totals = self._wheel.rings, self._log.checkpoint.totals
        if rings.wrong or (rings.total.count, rings.ending.count) != (totals.entries, totals.ending):
            return False
        try:
            self._seek_due(limits.CONFIRM_SKIPS_MAX)
        except Unfinished:
            return True  # too many tombstones precede the first entry: the next call checks again
        first = rings.first_message()
        if first is None or not self._messages.is_exact:
            return first is None and not self._messages.is_exact
        due_ms, offset = split_key(self._messages.at)
        return first[:2] == rings.zone_of(due_ms, offset) and first[2] <= due_ms


def move_aside(directory: Path, why: str) -> Path:
    """Renames a damaged or foreign directory and returns its new path; an operator removes it.

    `why` becomes part of the name. REQUIRES: the index is closed. Raises StorageError.
    """
    number = 1
    while (aside := directory.with_name(f"{directory.name}.{why}-{number}")).exists():
        number += 1
    try:
        return directory.rename(aside)
    except OSError as error:
        raise from_os_error(error) from error
