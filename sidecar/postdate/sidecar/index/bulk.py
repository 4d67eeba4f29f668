"""Decides which entries a bulk control selects, and which bulk control is in force.

The bulk controls of a shard that have not ended are rows of the timer index, ascending by offset. The first is *in
force* once its request is ingested; the others wait. A bulk control acts on the pending entries below its offset that
it selects (`Bulk.acts_on`), in bounded transactions (docs/protocol.md, "Bulk control").

Thread rule: functions over their arguments, for any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import msgspec

from postdate.wheel.entry import PENDING, Entry, Spread, Window
from postdate.wheel.errors import Corrupt
from postdate.wheel.timer_log.checkpoint import BulkRow, BulkRows
from postdate.wire.headers import returned_id
from postdate.wire.limits import DUE_MS_MIN, INTEGER_END, WINDOW_MS_MAX
from postdate.wire.requests.selection import BulkRequest, Selection, decode_bulk
from postdate.wire.values.windows import not_before


@dataclass(frozen=True, slots=True)
class Bulk:
    """A bulk control whose request is ingested: it is in force, or waits for an earlier one."""

    offset: int
    request: BulkRequest
    count: int
    """The number of entries on which the control has acted; -1 before its first transaction."""

    def acts_on(self, entry: Entry, offset: int) -> bool:
        """True if the control ends or moves this entry, which belongs to the request at `offset`. O(1).

        It ignores an entry that this or a later control has moved, and never moves a recurring schedule.
        """
        return self.may_act_on(entry, offset, entry.requested_due)

    def may_act_on(self, entry: Entry, offset: int, due_ms: int | None = None) -> bool:
        """True if the control would end or move this entry if it were due at `due_ms`; None: at any time that the
        control selects."""
        selection = self.request.selection
        return (
            offset < self.offset
            and entry.moved_by < self.offset
            and (entry.next is None or not self.request.moves)
            and selects(selection, entry, selection.from_ms if due_ms is None else due_ms)
        )

    def moved(self, entry: Entry, now_ms: int) -> Entry:
        """Returns the moved entry. `now_ms`: the broker's time."""
        due_ms = self.request.due_ms
        if due_ms < 0:
            due_ms = min(max(entry.requested_due + self.request.by_ms, DUE_MS_MIN), INTEGER_END - 1 - WINDOW_MS_MAX)
        return moved_to(entry, due_ms, self.offset, now_ms)


def selects(selection: Selection, entry: Entry, due_ms: int) -> bool:
    """True if an entry is pending and a selection selects it at this due time. O(1)."""
    caller_id = delivered_id(entry) if selection.id_prefix else b""
    return entry.kind in PENDING and selection.selects(entry.target, caller_id, entry.key, due_ms)


def delivered_id(entry: Entry) -> bytes:
    """Returns the id of the delivered message; b"": no id. For a return, the id is only in the headers."""
    return entry.id or returned_id(entry.headers)


def moved_to(entry: Entry, due_ms: int, control: int, left_ms: int) -> Entry:
    """Returns the entry with the due time that the bulk control at offset `control` gives it. `left_ms`: as
    `IndexOverlay.left_ms`."""
    if entry.window is None:
        return msgspec.structs.replace(entry, due=due_ms, moved_by=control)
    chosen_ms, window = shifted(entry.window, entry.due, due_ms, left_ms)
    return msgspec.structs.replace(entry, due=chosen_ms, window=window, moved_by=control)


def shifted(window: Window, chosen_ms: int, due_ms: int, left_ms: int) -> tuple[int, Window]:
    """Returns the chosen time of a message and its window after a move to another due time. The chosen time keeps its
    distance from the due time. If this puts the chosen time of an even spread at or before `left_ms`, a later time in
    the window replaces it."""
    chosen_ms += due_ms - window.due
    if window.spread != Spread.DRAWN:
        chosen_ms = not_before(chosen_ms, left_ms, due_ms + window.length_ms)
    return chosen_ms, msgspec.structs.replace(window, due=due_ms)


def in_force(rows: BulkRows) -> Bulk | None:
    """Returns the bulk control in force; None if there is none. Raises Corrupt. O(1)."""
    return _decode(rows[0]) if rows and rows[0].encoded_request else None


def may_end_later(rows: BulkRows, entry: Entry, offset: int) -> bool:
    """True if a bulk cancel that waits for another bulk control may later end the entry of the request at `offset`. The
    entry may have another due time then. O(rows)."""
    waiting = (_decode(row) for row in rows[1:] if row.encoded_request)
    return any(not bulk.request.moves and bulk.may_act_on(entry, offset) for bulk in waiting)


def are_ahead(rows: BulkRows, next_request: int) -> bool:
    """True if a bulk control has begun and its request is not ingested yet. `next_request`: the next request to ingest.
    Until then no message may leave, since the control may select it."""
    return bool(rows) and rows[-1].offset >= next_request


def with_row(rows: BulkRows, row: BulkRow) -> BulkRows:
    """Returns the rows with `row`, which replaces the row of the same offset."""
    return tuple(sorted((*without_row(rows, row.offset), row), key=lambda other: other.offset))


def without_row(rows: BulkRows, offset: int) -> BulkRows:
    """Returns the rows without the row of `offset`."""
    return tuple(row for row in rows if row.offset != offset)


@lru_cache(maxsize=64)
def _decode(row: BulkRow) -> Bulk:
    try:
        return Bulk(row.offset, decode_bulk(row.encoded_request), row.count)
    except ValueError as error:
        raise Corrupt(f"the selection of request {row.offset} does not decode: {error}") from error
