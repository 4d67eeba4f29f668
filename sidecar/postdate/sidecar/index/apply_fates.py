"""Applies fates to the state of a shard: in recovery, `apply_fate` brings the index up to the committed dispatch log.

After a commit of this owner, `after_commit.finish` has the same effect in bulk. The result depends only on the overlay
and the arguments, so a restart that reads the same records reaches the same state. Comments mark the places of rules 3
and 5 of `docs/protocol.md`.

Thread rule: as for `IndexOverlay`.
"""

from __future__ import annotations

import msgspec

from postdate.sidecar.index.bulk import moved_to
from postdate.sidecar.index.contradictions import check_moved, check_series, has_moved
from postdate.sidecar.index.moves import continue_schedule, due_at, mark_stored, move
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.index.recurrences import after_control_fate, after_fates, compared_ms
from postdate.wheel.entry import Entry, Kind, Mark, Next
from postdate.wheel.keys import ENDING_DUE
from postdate.wheel.timer_log.checkpoint import BulkRow
from postdate.wire.dispatch_log import (
    APPLIED,
    BY_EARLIER,
    FINAL,
    SENT,
    SWEPT,
    Backfilled,
    BulkCancelled,
    BulkProgress,
    ExtraFate,
    Fate,
    Moved,
    Occurred,
    PausedOrResumed,
    SeriesFate,
    Skipped,
    Triggered,
)


def apply_fate(overlay: IndexOverlay, fate: Fate, next_request: int) -> None:
    """Applies one committed fate. `next_request` is R, the offset of the next request to ingest.

    A pending entry is changed or ended. A request at or above R gets a mark (rule 5). If a request below R has no
    entry, it has already ended, and its fate has no effect. Raises Contradicted if the log decided a control
    differently from ingest here: the index must be rebuilt.
    """
    if type(fate) is SeriesFate:
        _continue_series(overlay, fate, next_request)
    if isinstance(fate, BulkProgress) or (overlay.bulks and overlay.bulk(fate.offset) is not None):
        _bulk_progress(overlay, fate, next_request)
    if fate.name == SWEPT:
        return
    if fate.offset < next_request:
        key = overlay.find(fate.offset, fate.first_due_ms)
        if key is not None:
            _change_entry(overlay, key, fate, next_request)
    else:
        _mark(overlay, fate)


def _bulk_progress(overlay: IndexOverlay, fate: Fate, next_request: int) -> None:
    """Applies a fate of a bulk control to its row. A fate of another type than `BulkProgress` shows that the log
    refused the control. Ingest has decided later controls by its own judgement of this control, so a different
    judgement in the log contradicts the index."""
    row, offset = overlay.bulk(fate.offset), fate.offset
    if not isinstance(fate, BulkProgress):
        if offset < next_request:
            overlay.contradicted(f"bulk control {offset} ended as {fate.name}, but was accepted here")
        overlay.drop_bulk(offset)
    elif row is None and offset < next_request:
        if overlay.find(offset, ENDING_DUE) is not None:
            overlay.contradicted(f"bulk control {offset} was carried out, but was judged otherwise here")
    elif fate.name == SWEPT:
        overlay.set_bulk(BulkRow(offset, b"" if row is None else row.encoded_request, fate.count))
    else:
        overlay.drop_bulk(offset)


def _change_entry(overlay: IndexOverlay, key: bytes, fate: Fate, next_request: int) -> None:
    offset, old = fate.offset, overlay.entry(key)
    if isinstance(fate, Moved):
        if overlay.bulk(fate.control) is not None:  # the request of the control may be unread
            if old.moved_by < fate.control:
                move(overlay, key, old, moved_to(old, fate.due_ms, fate.control, overlay.left_ms))
        elif fate.control >= next_request or not has_moved(overlay, fate, fate.due_ms):  # rule 3
            move(overlay, key, old, due_at(overlay, old, fate.due_ms, fate.control))
    elif isinstance(fate, PausedOrResumed | Triggered | Backfilled):
        is_new = fate.control >= next_request or not has_moved(overlay, fate, compared_ms(fate))
        if is_new and old.next is not None:
            continue_schedule(overlay, key, old, after_control_fate(old.next, fate))
    elif fate.name in FINAL:
        if old.kind == Kind.APPLIED:
            check_moved(overlay, offset, old)
        elif old.kind == Kind.REPLACED and old.series_ms >= 0:
            check_series(overlay, fate, old)
        is_noted = fate.name not in BY_EARLIER and (type(fate) is not BulkCancelled or overlay.has_id(old.id, offset))
        overlay.end(key, old)
        if fate.name != APPLIED:
            overlay.note_end(offset, old.id if is_noted else b"", fate.name in SENT)
    elif isinstance(fate, Occurred | Skipped | ExtraFate):
        if old.next is not None and (following := after_fates(old.next, fate)) != old.next:
            continue_schedule(overlay, key, old, following)
    else:
        _publish_first(overlay, key, old, fate.first_due_ms)


def _publish_first(overlay: IndexOverlay, key: bytes, old: Entry, first_due_ms: int) -> None:
    """Applies a fate `stored` to an entry. If the entry is a schedule, the fate publishes its first nominal time."""
    if old.next is not None and old.next.number == 1 and old.first_due != first_due_ms:
        key = continue_schedule(overlay, key, old, msgspec.structs.replace(old.next, nominal_ms=first_due_ms))
        old = msgspec.structs.replace(overlay.entry(key), first_due=first_due_ms)
    mark_stored(overlay, key, old)


def _continue_series(overlay: IndexOverlay, fate: SeriesFate, next_request: int) -> None:
    """Applies the start of a series from a committed `replaced` to its survivor. The mark of an unread survivor gets
    the start; a pending survivor must have the same start here."""
    survivor, start_ms = fate.survivor, fate.start_ms
    if survivor >= next_request:
        mark = overlay.mark(survivor) or Mark(final=False, stored=False, due=-1)
        if not mark.final:
            overlay.set_mark(survivor, msgspec.structs.replace(mark, series_ms=start_ms))
    elif (key := overlay.find(survivor)) is not None:
        here_ms = overlay.entry(key).series_ms
        if here_ms >= 0 and here_ms != start_ms:
            overlay.contradicted(f"request {survivor} continues a series from {start_ms}, and from {here_ms} here")


def _mark(overlay: IndexOverlay, fate: Fate) -> None:
    was = overlay.mark(fate.offset) or Mark(final=False, stored=False, due=-1)
    if was.final:  # rule 5
        return
    if isinstance(fate, Moved):
        in_bulk = overlay.bulk(fate.control) is not None
        drawn_by = (was.drawn_by if was.in_bulk else was.control) if in_bulk else -1
        new = msgspec.structs.replace(was, due=fate.due_ms, control=fate.control, in_bulk=in_bulk, drawn_by=drawn_by)
    elif isinstance(fate, Occurred | Skipped | ExtraFate):
        following = was.next or Next(1, fate.first_due_ms)
        new = msgspec.structs.replace(was, next=after_fates(following, fate))
    elif isinstance(fate, PausedOrResumed | Triggered | Backfilled):
        following = was.next or Next(1, fate.first_due_ms)
        new = msgspec.structs.replace(was, next=after_control_fate(following, fate))
    elif fate.name in FINAL:
        sent, had_time = fate.name in SENT, fate.first_due_ms != ENDING_DUE
        kept, refused = fate.name in BY_EARLIER, sent and not had_time
        new = Mark(final=True, stored=False, due=-1, sent=sent and had_time, kept=kept, refused=refused)
    else:
        new = msgspec.structs.replace(was, stored=True, next=was.next or Next(1, fate.first_due_ms))
    overlay.set_mark(fate.offset, new)
