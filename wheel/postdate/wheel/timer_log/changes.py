"""The content of one WriteBatch as plain dicts, so that later steps of a batch see the earlier ones.

Each dict except `drops` and `parked_drops` is an overlay over a column family: an absent key is unchanged, None deletes
the key, any other value replaces its value. The counts in `blocks` and in the wheel follow only from the state before
and after the batch: from the entries that the log loses (`drops`, `parked_drops`, `spans`), and from those that it
gains (values in `entries` and `parked` that are not None). An entry that is inserted and deleted within the batch
leaves no trace.

Sizes are the lengths of the values. `stored` marks an entry whose record is in STORE, so that it no longer holds back
the low-water mark.

Thread rule: used only by the thread that owns the timer index, and written once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from postdate.wheel.entry import Mark
from postdate.wheel.limits import SPAN_KEYS_MIN
from postdate.wheel.timer_log.checkpoint import BulkRows, PolicyRows


class KeyRange(NamedTuple):
    """Entries that end together: all keys from the first to the last, both included."""

    keys: Sequence[bytes]
    sizes_bytes: Sequence[int]


class EntryChanges:
    """The changes of one step; `TimerIndex.write` makes all of them visible, or none."""

    __slots__ = (
        "bulks",
        "deferred",
        "drops",
        "ended",
        "entries",
        "firsts",
        "ids",
        "marks",
        "next_dispatch",
        "next_request",
        "parked",
        "parked_drops",
        "places",
        "policies",
        "schedules",
        "seq",
        "spans",
        "stored_drops",
        "stored_puts",
        "takeover",
        "zones",
    )

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes | None] = {}
        self.parked: dict[bytes, bytes | None] = {}
        self.drops: dict[bytes, int] = {}
        self.parked_drops: dict[bytes, int] = {}
        self.spans: list[KeyRange] = []
        self.stored_puts: set[bytes] = set()
        self.stored_drops: set[bytes] = set()
        self.ids: dict[bytes, bytes | None] = {}
        self.places: dict[int, bytes | None] = {}
        self.marks: dict[int, Mark | None] = {}
        self.ended: dict[bytes, bytes | None] = {}
        self.firsts: list[tuple[int, bytes]] = []
        self.deferred: dict[bytes, bytes | None] = {}  # keys of entries whose time is not chosen yet, with b""
        self.next_request: int | None = None
        self.next_dispatch: int | None = None
        self.seq: int | None = None
        self.takeover: int | None = None
        self.zones: str | None = None
        self.schedules = 0  # the number of added schedules minus the number of ended ones
        self.policies: PolicyRows | None = None
        self.bulks: BulkRows | None = None

    def insert(self, key: bytes, value: bytes, stored: bool = False) -> None:
        """Puts an entry under an absent key. O(1)."""
        self.entries[key] = value
        if stored:
            self.stored_puts.add(key)

    def delete(self, key: bytes, size_bytes: int, stored: bool = False) -> None:
        """Ends the entry under a present key. `size_bytes` is the length of its value. O(1)."""
        self._delete(self.entries, self.drops, key, size_bytes, stored)

    def replace(
        self, key: bytes, value: bytes, old_size_bytes: int, stored: bool = False, old_stored: bool = False
    ) -> None:
        """Replaces the value of the entry under a present key. O(1)."""
        self.delete(key, old_size_bytes, stored=old_stored)
        self.insert(key, value, stored=stored)

    def delete_span(
        self,
        first_key: bytes,
        last_key: bytes,
        keys: Sequence[bytes],
        sizes_bytes: Sequence[int],
        stored: Collection[bytes] | None = None,
    ) -> None:
        """Ends all entries from `first_key` to `last_key`, both included. `stored`: the keys of the entries whose
        records are in STORE.

        REQUIRES: `keys` are, in ascending order, all present keys of this span, in the log and in these changes. For
        256 keys or more, one range tombstone replaces the point deletes, unless these changes put one of the keys.
        O(len(keys)).
        """
        assert keys, "a span has at least one key"
        assert (keys[0], keys[-1], len(keys)) == (first_key, last_key, len(sizes_bytes)), "keys and bounds disagree"
        entries = self.entries
        if len(keys) < SPAN_KEYS_MIN or (entries and any(entries.get(key) is not None for key in keys)):
            for key, size_bytes in zip(keys, sizes_bytes, strict=True):
                self._delete(entries, self.drops, key, size_bytes, stored is not None and key in stored)
            return
        entries.update(dict.fromkeys(keys))
        self.spans.append(KeyRange(keys, sizes_bytes))
        if stored:
            self.stored_drops.update(stored)

    def insert_parked(self, key: bytes, value: bytes, stored: bool = False) -> None:
        """Puts an entry under an absent parked key. O(1)."""
        self.parked[key] = value
        if stored:
            self.stored_puts.add(key)

    def delete_parked(self, key: bytes, size_bytes: int, stored: bool = False) -> None:
        """Deletes the entry under a present parked key. O(1)."""
        self._delete(self.parked, self.parked_drops, key, size_bytes, stored)

    def _delete(
        self, overlay: dict[bytes, bytes | None], drops: dict[bytes, int], key: bytes, size_bytes: int, stored: bool
    ) -> None:
        if overlay.get(key) is not None:  # these changes put it: if the log has a value, `drops` has its size
            overlay[key] = None
            self.stored_puts.discard(key)
            return
        assert key not in overlay, "these changes already ended the entry"
        overlay[key] = None
        drops[key] = size_bytes
        if stored:
            self.stored_drops.add(key)
