"""The file layer of the simulation: a database that loses unsynced data at a power failure.

`MemoryDatabase` replaces RocksDB below the timer log, with the same methods; all code above it is the code under test.
It has the guarantees of RocksDB. A write is atomic. After a kill, all writes are present. After a power failure, all
writes up to the last sync are present, and a random prefix of the later writes.

A file in its directory identifies a database. So a directory may be renamed, copied or removed like a real one. A dead
process can neither read nor write.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from pathlib import Path
from random import Random

from postdate.wheel.errors import Closed, DiskFull, Locked
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.database import FAMILIES

#: family -> its rows
Rows = dict[str, "Table"]
#: One change: family, key, value or None, end of a deleted range or None.
_Change = tuple[str, bytes, bytes | None, bytes | None]

_MARKER = "database"


class MemoryBatch:
    """Replaces rocksdict's WriteBatch; the handle of a family is its name."""

    def __init__(self, raw_mode: bool = True) -> None:
        assert raw_mode
        self.changes: list[_Change] = []

    def put(self, key: bytes, value: bytes, family: str) -> None:
        self.changes.append((family, key, value, None))

    def delete(self, key: bytes, family: str) -> None:
        self.changes.append((family, key, None, None))

    def delete_range(self, first: bytes, before: bytes, family: str) -> None:
        self.changes.append((family, first, None, before))


class Table:
    """The rows of one family, with their keys in order. A reader holds a snapshot: while a snapshot exists, a write
    first makes a copy."""

    def __init__(self, rows: dict[bytes, bytes] | None = None) -> None:
        self.rows = rows or {}
        self._keys = sorted(self.rows)
        self._is_held = False

    def held(self) -> tuple[dict[bytes, bytes], list[bytes]]:
        """Returns a snapshot of rows and keys, which no later write changes."""
        self._is_held = True
        return self.rows, self._keys

    def between(self, start: bytes, before: bytes | None) -> tuple[int, int]:
        """Returns the positions of the keys from `start` on and below `before`; None: up to the end."""
        return bisect_left(self._keys, start), len(self._keys) if before is None else bisect_left(self._keys, before)

    def first(self, start: bytes, before: bytes | None) -> bytes | None:
        first, end = self.between(start, before)
        return self._keys[first] if first < end else None

    def last(self, at_most: bytes | None) -> bytes | None:
        end = len(self._keys) if at_most is None else bisect_right(self._keys, at_most)
        return self._keys[end - 1] if end else None

    def put(self, key: bytes, value: bytes) -> None:
        self._own()
        if key not in self.rows:
            insort(self._keys, key)
        self.rows[key] = value

    def delete(self, key: bytes) -> None:
        if key in self.rows:
            self._own()
            del self.rows[key]
            del self._keys[bisect_left(self._keys, key)]

    def delete_range(self, start: bytes, before: bytes) -> None:
        self._own()
        first, end = self.between(start, before)
        for key in self._keys[first:end]:
            del self.rows[key]
        del self._keys[first:end]

    def _own(self) -> None:
        if self._is_held:
            self.rows, self._keys, self._is_held = dict(self.rows), list(self._keys), False


class _Store:
    """The content of one directory: the synced rows, and the batches written since."""

    def __init__(self) -> None:
        self.synced: Rows = {family: Table() for family in FAMILIES}
        self.present: Rows = {family: Table() for family in FAMILIES}
        self.unsynced: list[list[_Change]] = []
        self.sequence = 0
        self.owner: MemoryDatabase | None = None


def _apply(rows: Rows, changes: list[_Change]) -> None:
    for family, key, value, before in changes:
        table = rows[family]
        if before is not None:
            table.delete_range(key, before)
        elif value is None:
            table.delete(key)
        else:
            table.put(key, value)


def _copied(rows: Rows) -> Rows:
    return {family: Table(dict(table.rows)) for family, table in rows.items()}


class Disks:
    """All databases of a simulation. `full` contains the directories of the machines with a full disk; `refused` counts
    the writes that failed there."""

    def __init__(self) -> None:
        self.full: set[Path] = set()
        self.refused = 0
        self._stores: dict[str, _Store] = {}
        self._numbers = itertools.count()

    def open(self, path: Path, owner: MemoryDatabase) -> _Store:
        """Returns the store of a directory, new if there is none. Raises Locked."""
        marker = path / _MARKER
        if not marker.exists():
            marker.write_text(str(next(self._numbers)))
        store = self._stores.setdefault(marker.read_text(), _Store())
        if store.owner is not None:
            raise Locked(f"{path.parent.name} is held by another process")
        store.owner = owner
        return store

    def is_full(self, path: Path) -> bool:
        """True if the disk of this directory is full."""
        return any(path.is_relative_to(root) for root in self.full)

    def lose_power(self, root: Path, random: Random) -> int:
        """Drops the unsynced batches of every database under `root`, except a random prefix; returns the number of
        dropped batches."""
        gone = 0
        for marker in sorted(root.glob(f"**/{_MARKER}")):
            store = self._stores[marker.read_text()]
            kept = random.randint(0, len(store.unsynced))
            lost = len(store.unsynced) - kept
            gone += lost
            store.sequence -= lost
            for changes in store.unsynced[:kept]:
                _apply(store.synced, changes)
            store.present = _copied(store.synced)
            store.unsynced = []
        return gone

    def backup(self, root: Path) -> dict[str, tuple[Rows, int]]:
        """Returns a copy of every database under `root`."""
        names = [marker.read_text() for marker in sorted(root.glob(f"**/{_MARKER}"))]
        return {name: (_copied(self._stores[name].present), self._stores[name].sequence) for name in names}

    def restore(self, copies: dict[str, tuple[Rows, int]]) -> None:
        """Restores copies to their directories. REQUIRES: the databases are closed."""
        for name, (rows, sequence) in copies.items():
            store = self._stores[name]
            assert store.owner is None, "a backup is put back while somebody holds the directory"
            store.present, store.synced, store.unsynced = _copied(rows), _copied(rows), []
            store.sequence = sequence


class MemoryRange:
    """Replaces an iterator of the timer log: a snapshot of the rows at its creation."""

    def __init__(self, table: Table, start: bytes, before: bytes | None) -> None:
        self._at, self._end = table.between(start, before)
        self._rows, self._keys = table.held()

    def key(self) -> bytes | None:
        return self._keys[self._at] if self._at < self._end else None

    def value(self) -> bytes | None:
        return self._rows[self._keys[self._at]] if self._at < self._end else None

    def next(self) -> None:
        self._at += 1

    def finish(self) -> None:
        return

    def collect_keys(self, limit: int) -> list[bytes]:
        found = self._keys[self._at : min(self._at + limit, self._end)]
        self._at += len(found)
        return found

    def collect(self, limit: int, size_bytes_max: int) -> tuple[list[bytes], list[bytes]]:
        keys: list[bytes] = []
        values: list[bytes] = []
        while limit > 0 and size_bytes_max > 0 and self._at < self._end:
            key = self._keys[self._at]
            value = self._rows[key]
            keys.append(key)
            values.append(value)
            size_bytes_max -= len(value)
            limit -= 1
            self._at += 1
        return keys, values


class MemoryDatabase:
    """Replaces `Database` of the timer log. `check_alive` raises if the process that created it is dead."""

    def __init__(self, disks: Disks, check_alive: Callable[[], None], path: Path, _options: IndexOptions) -> None:
        self._check_alive = check_alive
        self._disks, self._path, self._has_failed = disks, path, False
        if disks.is_full(path):
            raise DiskFull(f"no space left for {path.parent.name}")
        self._store: _Store | None = disks.open(path, self)
        self._check_alive()

    def handle(self, family: str) -> str:
        return family

    def get(self, family: str, key: bytes) -> bytes | None:
        return self._open().present[family].rows.get(key)

    def range(self, family: str, start: bytes, before: bytes | None, skips_max: int = 0) -> MemoryRange:
        return MemoryRange(self._open().present[family], start, before)

    def first_key(self, family: str, start: bytes, before: bytes | None = None, skips_max: int = 0) -> bytes | None:
        return self._open().present[family].first(start, before)

    def last_row(self, family: str, at_most: bytes | None = None) -> tuple[bytes, bytes] | None:
        table = self._open().present[family]
        key = table.last(at_most)
        return None if key is None else (key, table.rows[key])

    def write(self, batch: MemoryBatch) -> None:
        store = self._open()
        self._has_failed = self._has_failed or self._disks.is_full(self._path)
        # like RocksDB, which refuses writes until it is reopened, even if there is space again
        if self._has_failed:
            self._disks.refused += 1
            raise DiskFull(f"no space left for {self._path.parent.name}")
        _apply(store.present, batch.changes)
        store.unsynced.append(batch.changes)
        store.sequence += 1

    def sync(self) -> None:
        store = self._open()
        for changes in store.unsynced:
            _apply(store.synced, changes)
        store.unsynced = []

    def flush(self, wait: bool) -> None:
        self.sync()

    def compact(self, family: str, first: bytes, last: bytes) -> None:
        self._open()

    def sequence(self) -> int:
        return self._open().sequence

    def close(self) -> None:
        if self._store is not None and self._store.owner is self:
            self._store.owner = None
        self._store = None

    def release(self) -> None:
        """Releases the lock of a dead process; its handles become unusable."""
        self.close()

    def _open(self) -> _Store:
        self._check_alive()
        if self._store is None:
            raise Closed("the database is closed")
        return self._store
