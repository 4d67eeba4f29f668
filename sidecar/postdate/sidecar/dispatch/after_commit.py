"""Creates the changes of the timer index after a commit: `finish` deletes, moves and parks the entries of a batch. A
batch that only parks entries has no commit.

Until the changes are written, the index lags behind the dispatch log. The crash table of docs/protocol.md covers a
crash in between.

Thread rule: belongs to the shard's thread.
"""

from __future__ import annotations

from postdate.sidecar.dispatch.batch_content import Batch
from postdate.sidecar.index.moves import mark_stored, move
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.wheel.entry import Kind
from postdate.wheel.keys import split_key
from postdate.wheel.timer_log.checkpoint import BulkRow
from postdate.wire.dispatch_log import APPLIED, SENT, BulkProgress


def finish(overlay: IndexOverlay, batch: Batch) -> None:
    """Adds the changes for a batch to `overlay`, after its commit if it has fates. For the fates, the changes have the
    same effect as `apply_fate` for each of them, but are as few as possible.

    REQUIRES: the batch was built with `overlay`.

    The fate of an entry that a single control has changed, such as `moved`, needs no change: ingest of the control has
    already changed the entry (rule 3). Messages beyond the rate of their target are parked in the same write.
    """
    for keys, sizes in zip(batch.runs, batch.sizes, strict=True):
        if keys:
            overlay.remove_run(keys, sizes, batch.kept)
    for key, size_bytes in batch.unparked:
        overlay.remove_parked(key, size_bytes, stored=key in batch.kept)
    for key, raw, entry in batch.over:
        due_ms, offset = split_key(key)
        overlay.park(offset, due_ms, entry.target, raw, entry.stored)
    for key, size_bytes, entry in batch.stored:
        mark_stored(overlay, key, entry, size_bytes)
    for key, old, new in batch.moved:
        move(overlay, key, old, new)
    for key, size_bytes, entry, new in batch.recurred:
        offset = split_key(key)[1]
        overlay.move(key, offset, entry, new, size_bytes)
        overlay.claim_id(new, offset)
    if batch.bulk is not None:
        note_bulk(overlay, batch.bulk)
    for key, entry, fate in batch.linked:
        offset = split_key(key)[1]
        overlay.drop_place(offset)
        overlay.count_schedule(entry, -1)
        if fate in SENT or entry.kind == Kind.DELIVER:  # an entry that another request ended no longer has an id
            overlay.drop_id(entry.id, offset)
        if fate in SENT:  # other ends were noted when the batch was built
            overlay.note_end(offset, entry.id, sent=True)


def note_bulk(overlay: IndexOverlay, fate: BulkProgress) -> None:
    """Applies a committed fate of the bulk control in force to its row."""
    row = overlay.bulk(fate.offset)
    assert row is not None, "only a bulk control in force has such fates"
    if fate.name == APPLIED:
        overlay.drop_bulk(fate.offset)
    else:
        overlay.set_bulk(BulkRow(fate.offset, row.encoded_request, fate.count))
