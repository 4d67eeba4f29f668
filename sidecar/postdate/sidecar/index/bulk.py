"""Bulk controls: which entries they select, and which of them is in force.

The bulk controls of a shard that have not ended are rows of the timer index, ascending by offset. The first one is *in
force* once its request is ingested; the others wait. It acts on every pending entry below its offset that its selection
describes, in bounded transactions (docs/protocol.md, "Bulk control").

Thread rule: that of the overlay.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from postdate.wheel.bulk_rows import BulkRow, BulkRows
from postdate.wheel.entry import PENDING, Entry
from postdate.wheel.errors import Corrupt
from postdate.wire.selection import Selection, decode_selection


@dataclass(frozen=True, slots=True)
class Bulk:
    """A bulk control in force."""

    offset: int
    selection: Selection
    count: int
    """The number of entries on which it has acted; -1 before its first transaction."""

    def acts_on(self, entry: Entry, offset: int) -> bool:
        """True if it ends this entry, which is that of the request at `offset`. O(1).

        An entry that a later control has moved belongs to that control.
        """
        return (
            offset < self.offset
            and entry.kind in PENDING
            and entry.moved_by < self.offset
            and self.selection.selects(entry.target, entry.id, entry.key, entry.requested_due)
        )


def in_force(rows: BulkRows) -> Bulk | None:
    """The bulk control in force; None if there is none. Raises Corrupt. O(1)."""
    return _read(rows[0]) if rows and rows[0].asked else None


def are_ahead(rows: BulkRows, next_request: int) -> bool:
    """True if a bulk control has begun whose request is not ingested yet: R is `next_request`. No message may leave
    before it is, since that control may select it."""
    return bool(rows) and rows[-1].offset >= next_request


def with_row(rows: BulkRows, row: BulkRow) -> BulkRows:
    """The rows with one that replaces that of the same offset."""
    return tuple(sorted((*without_row(rows, row.offset), row), key=lambda each: each.offset))


def without_row(rows: BulkRows, offset: int) -> BulkRows:
    """The rows without that of `offset`."""
    return tuple(row for row in rows if row.offset != offset)


@lru_cache(maxsize=64)
def _read(row: BulkRow) -> Bulk:
    try:
        return Bulk(row.offset, decode_selection(row.asked), row.count)
    except ValueError as error:
        raise Corrupt(f"the selection of request {row.offset} does not decode: {error}") from error
