"""The key at which a scan of due entries begins, so that it skips the tombstones of ended entries.

A scan steps over the tombstone of every ended entry before the first present one. In a queue, the tombstones are at the
front, so scans become slow. The cursor is a key below which no key is present. It rises if a scan finds nothing below a
key, or if entries at the beginning of a scan's result end. It falls if an entry is put below it.

Invariants: no present key is smaller than `at`. If `_found` is not empty, it has all present keys from `at` up to its
last key, in ascending order. Thread rule: the thread that owns the index uses it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping


class ScanCursor:
    """The start of the next scan of one range of keys."""

    def __init__(self, first: bytes) -> None:
        """REQUIRES: nothing is present below `first`."""
        self.at = first
        self._found: list[bytes] = []

    @property
    def is_exact(self) -> bool:
        """True if `at` is known to be a present key, the first one."""
        return bool(self._found)

    def note_present(self, keys: list[bytes]) -> None:
        """Notes the first keys that a scan from `at` has found. The caller may change the list later. O(keys).
        REQUIRES: at least one key, in ascending order, with no present key left out."""
        self.at = keys[0]
        self._found = keys.copy()

    def note_empty(self, before: bytes) -> None:
        """Notes that a scan from `at` has found nothing below `before`."""
        self.at = max(self.at, before)
        self._found = []

    def note_deleted(self, overlay: Mapping[bytes, bytes | None]) -> None:
        """Notes that a write deleted the entries that `overlay` maps to None. O(known keys)."""
        if not self._found:
            return
        last = self._found[-1]
        first, self._found = self._found[0], [key for key in self._found if overlay.get(key, key) is not None]
        if not self._found:
            self.at = last + b"\0"
        elif self._found[0] != first:
            self.at = self._found[0]

    def note_put(self, lowest: bytes) -> None:
        """Notes that a write put entries, with `lowest` as the smallest key. Call it after `note_deleted` for the same
        write."""
        if lowest < self.at:
            self.at, self._found = lowest, [lowest]
        elif self._found and lowest < self._found[-1]:
            self._found = [*self._found[: bisect_left(self._found, lowest)], lowest]
