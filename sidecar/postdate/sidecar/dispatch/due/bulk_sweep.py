"""Finds the entries on which the bulk control in force acts, piece by piece.

A sweep visits the parked entries first and then the unparked ones, in key order. While a bulk control is in force, no
entry that it selects leaves the second part before the sweep visits it: dispatch carries out the bulk control on such
an entry instead of parking it, and the sweep of long delays, which moves entries under key 0, is suspended. A parked
entry that is moved back is visited in the second part. So one pass visits every entry. The position is in memory only:
another owner begins again at the start, and finds the remaining entries.

Thread rule: belongs to the shard's thread.
"""

from __future__ import annotations

from postdate.sidecar.dispatch.due.due_reader import Due
from postdate.sidecar.dispatch.limits import SWEPT_ENTRIES_MAX, SWEPT_SIZE_BYTES_MAX, SWEPT_VISITED_MAX
from postdate.sidecar.index.bulk import Bulk
from postdate.wheel.entry import decode_entry, decode_head
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import ENDING_DUE, FIRST_KEY, LAST_KEY, entry_key, split_key
from postdate.wheel.timer_log.database import RangeIterator


class BulkSweep:
    """The sweep of one shard."""

    def __init__(self) -> None:
        self._index: TimerIndex | None = None
        self._offset = -1
        self._position = self._next_position = b""
        self._is_parked = self._next_is_parked = True
        self._entries_max = self._size_bytes_max = 0

    def may_run(self, index: TimerIndex, bulk: Bulk) -> bool:
        """True if no entry of a request before the bulk control lies under key 0. Such an entry could be a control on
        an entry that the bulk control selects (rule 4). One seek, or none if key 0 is empty."""
        return not (index.ending_count and index.timer_log.scan_keys(FIRST_KEY, entry_key(ENDING_DUE, bulk.offset), 1))

    def read(self, index: TimerIndex, bulk: Bulk, entries_max: int, size_bytes_max: int) -> Due:
        """Returns the next selected entries, within the limits of the next transaction. `full` is True if one of these
        limits was reached, `ends_bulk` if no more selected entries follow. Visits at most SWEPT_VISITED_MAX entries, 1
        to 3 us each. Without a call of `committed`, the next call returns the same entries."""
        self._entries_max = min(entries_max, SWEPT_ENTRIES_MAX)
        self._size_bytes_max = min(size_bytes_max, SWEPT_SIZE_BYTES_MAX)
        if (index, bulk.offset) != (self._index, self._offset):
            self._index, self._offset, self._position, self._is_parked = index, bulk.offset, b"", True
        due = Due([], [])
        if self._is_parked:
            rows = index.timer_log.walk_parked(self._position)
            self._next_position = self._select(rows, bulk, due) or b""
            self._next_is_parked = bool(self._next_position)
        else:
            start = max(self._position, entry_key(ENDING_DUE + 1, 0), index.messages_from)
            rows = index.timer_log.walk(start, LAST_KEY)
            self._next_position = self._select(rows, bulk, due) or b""
            self._next_is_parked = False
            due.ends_bulk = not self._next_position
        rows.finish()
        return due

    def committed(self) -> None:
        """Moves past the entries that the last `read` visited, after the commit of the selected ones, or if it selected
        none."""
        self._position, self._is_parked = self._next_position, self._next_is_parked

    def _select(self, rows: RangeIterator, bulk: Bulk, due: Due) -> bytes | None:
        """Adds the selected entries to `due`. Returns the first key that was not visited; None if all were visited."""
        target, has_skipped, size_bytes = bulk.request.selection.target, False, 0
        after_gaps: set[bytes] = set()
        parked = due.parked if self._is_parked else None
        keys, values = due.keys, due.values
        for _ in range(SWEPT_VISITED_MAX):
            key, raw = rows.key(), rows.value()
            if key is None or raw is None:
                due.keys_after_gaps = after_gaps
                return None
            if len(keys) + len(due.parked) >= self._entries_max or size_bytes >= self._size_bytes_max:
                due.full = True
                break
            is_selected = (not target or decode_head(raw).target == target) and bulk.acts_on(
                decode_entry(raw), split_key(key)[1]
            )
            if is_selected and parked is not None:
                parked.append((key, raw))
            elif is_selected:
                keys.append(key)
                values.append(raw)
                if has_skipped:
                    after_gaps.add(key)
            has_skipped = not is_selected
            size_bytes += len(raw) if is_selected else 0
            rows.next()
        due.keys_after_gaps = after_gaps
        following: bytes | None = rows.key()
        return following
