"""RocksDB with its column families. Only this module creates iterators, since rocksdict has hazards.

- The mode is always raw: the default mode unpickles values, so a tampered file would execute code.
- `set_iterate_lower_bound` of rocksdict 0.3.29 sets the upper bound. It is never called; a scan seeks to its start.
- If a `ReadOptions` is collected while its iterator lives, scans silently end early, since the bound of the iterator is
  a raw pointer into the options. `RangeIterator` owns both, and `finish` checks the iterator's status after every scan.
- `close` keeps the LOCK while any view, handle or iterator lives. `Database` drops its views and handles first.

Thread rule: one owner, one thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rocksdict import ColumnFamily, Rdict, RdictIter, ReadOptions, WriteBatch, WriteOptions

from postdate.wheel.errors import Closed, Corrupt, StorageError, from_os_error, from_rocksdict
from postdate.wheel.options import IndexOptions, database_options, family_options

FAMILIES = ("entries", "ids", "parked", "places", "ended", "ahead", "blocks", "firsts", "meta")
WITH_BODIES = frozenset({"entries", "parked"})


class RangeIterator:
    """An iterator over one column family up to an exclusive bound. Owns the objects that must outlive the iterator."""

    __slots__ = ("_read_options", "key", "next", "rows", "value")

    def __init__(self, view: Rdict, before: bytes | None, skips_max: int) -> None:
        self._read_options = ReadOptions()  # lives as long as `rows`: see the module's docstring
        if before is not None:
            self._read_options.set_iterate_upper_bound(before)
        if skips_max:
            self._read_options.set_max_skippable_internal_keys(skips_max)
        self.rows: RdictIter = view.iter(self._read_options)
        self.key = self.rows.key
        self.value = self.rows.value
        self.next = self.rows.next

    def finish(self) -> None:
        """Raises the error that cut the scan short, if there was one. REQUIRED after each scan.

        Drops the iterator before it raises the error: a traceback that refers to the iterator would keep the LOCK.
        """
        try:
            self.rows.status()
        except Exception as error:
            del self.rows, self.key, self.value, self.next
            raise from_rocksdict(error) from error

    def collect_keys(self, limit: int) -> list[bytes]:
        """Returns the next keys, at most `limit`."""
        key, step = self.key, self.next
        keys: list[bytes] = []
        add = keys.append
        while limit > 0 and (row := key()) is not None:
            add(row)
            limit -= 1
            step()
        return keys

    def collect(self, limit: int, size_bytes_max: int) -> tuple[list[bytes], list[bytes]]:
        """Returns the next keys and values: at most `limit`, and no more once the values have `size_bytes_max`."""
        key, value, step = self.key, self.value, self.next
        keys: list[bytes] = []
        values: list[bytes] = []
        add_key, add_value = keys.append, values.append
        while limit > 0 and size_bytes_max > 0 and (row := key()) is not None:
            body = value()
            add_key(row)
            add_value(body)
            size_bytes_max -= len(body)
            limit -= 1
            step()
        return keys, values


class Database:
    """The open RocksDB of one directory."""

    def __init__(self, path: Path, options: IndexOptions) -> None:
        """Opens or creates the database; raises Locked, Corrupt, DiskFull or StorageError."""
        families = {name: family_options(options, name in WITH_BODIES) for name in FAMILIES}
        self.path = path
        self._write_options = WriteOptions()
        self._write_options.sync = False  # write() holds the GIL while it syncs; `sync` below releases it
        try:
            self._db: Rdict | None = Rdict(str(path), database_options(options), column_families=families)
        except Exception as error:
            raise _open_error(error) from error
        self._views: dict[str, Rdict] = {name: self._db.get_column_family(name) for name in FAMILIES}
        self._handles: dict[str, ColumnFamily] = {name: self._db.get_column_family_handle(name) for name in FAMILIES}

    @property
    def open_db(self) -> Rdict:
        """The database. Raises Closed after `close`."""
        if self._db is None:
            raise Closed(f"{self.path} is closed")
        return self._db

    def handle(self, family: str) -> ColumnFamily:
        """Returns the handle for a WriteBatch; raises Closed after `close`."""
        if self._db is None:
            raise Closed(f"{self.path} is closed")
        return self._handles[family]

    def get(self, family: str, key: bytes) -> bytes | None:
        """Returns the value under a key, or None; one point look-up."""
        view = self._view(family)
        try:
            value: bytes | None = view.get(key)
        except Exception as error:
            raise from_rocksdict(error) from error
        return value

    def range(self, family: str, start: bytes, before: bytes | None, skips_max: int = 0) -> RangeIterator:
        """Returns an iterator at the first key at or after `start`; one seek. A `skips_max` of 0 sets no bound."""
        rows = self._range(family, before, skips_max)
        rows.rows.seek(start)
        return rows

    def first_key(self, family: str, start: bytes, before: bytes | None = None, skips_max: int = 0) -> bytes | None:
        """Returns the first key in [start, before), or None. Raises Unfinished if more than `skips_max` tombstones
        precede it; a `skips_max` of 0 sets no bound."""
        rows = self.range(family, start, before, skips_max)
        key: bytes | None = rows.key()
        rows.finish()
        return key

    def last_row(self, family: str, at_most: bytes | None = None) -> tuple[bytes, bytes] | None:
        """Returns the last row, or the last row whose key is at most `at_most`. Returns None if no row matches. One
        seek."""
        iterator = self._range(family, None, 0)
        if at_most is None:
            iterator.rows.seek_to_last()
        else:
            iterator.rows.seek_for_prev(at_most)
        key, value = iterator.key(), iterator.value()
        iterator.finish()
        return None if key is None else (key, value)

    def write(self, batch: WriteBatch) -> None:
        """Makes the batch visible as a whole; it is durable after the next `sync`. After an error, no part of the batch
        is visible."""
        db = self.open_db
        try:
            db.write(batch, self._write_options)
        except Exception as error:
            raise from_rocksdict(error) from error

    def sync(self) -> None:
        """Makes all earlier writes durable; releases the GIL. One fsync."""
        self._call(lambda db: db.flush_wal(True))

    def flush(self, wait: bool) -> None:
        """Writes the memtables of all families to sorted files; releases the GIL. Without `wait`, returns once the
        flushes have begun."""
        for view in self._views.values():  # Rdict.flush covers only one column family

            def flush(_: Rdict, view: Rdict = view) -> None:
                view.flush(wait)

            self._call(flush)

    def compact(self, family: str, first: bytes, last: bytes) -> None:
        """Rewrites a key range without the deleted entries. Releases the GIL. Takes a second for 600 MB."""
        view = self._view(family)
        self._call(lambda _: view.compact_range(first, last))

    def sequence(self) -> int:
        """Returns RocksDB's sequence number: equal numbers of one database mean equal contents."""
        return self.open_db.latest_sequence_number()

    def close(self) -> None:
        """Releases the directory. A second call does nothing."""
        if self._db is None:
            return
        db, self._db = self._db, None
        self._views.clear()
        self._handles.clear()
        try:
            db.close()
        except Exception as error:
            raise from_rocksdict(error) from error
        finally:
            del db

    def _view(self, family: str) -> Rdict:
        if self._db is None:
            raise Closed(f"{self.path} is closed")
        return self._views[family]

    def _range(self, family: str, before: bytes | None, skips_max: int) -> RangeIterator:
        view = self._view(family)
        try:
            return RangeIterator(view, before, skips_max)
        except Exception as error:
            raise from_rocksdict(error) from error

    def _call(self, action: Callable[[Rdict], None]) -> None:
        db = self.open_db
        try:
            action(db)
        except Exception as error:
            raise from_rocksdict(error) from error


def _open_error(error: Exception) -> Exception:
    """Returns the package's error for an error at open. If the text names no other cause and no failed I/O, the file
    CURRENT or MANIFEST is damaged."""
    mapped = from_rocksdict(error)
    if type(mapped) is StorageError and not str(error).startswith("IO error"):
        return Corrupt(str(error))
    return mapped


def create_directory(path: Path) -> None:
    """Creates a directory and its missing parents, accessible only to this user; raises DiskFull or StorageError."""
    try:
        for parent in reversed([path, *path.parents]):
            if not parent.exists():
                parent.mkdir(mode=0o700, exist_ok=True)
        os.chmod(path, 0o700)
    except OSError as error:
        raise from_os_error(error) from error
