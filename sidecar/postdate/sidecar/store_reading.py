"""Reading STORE: what an empty timer index holds of requests below the low-water mark.

Part of step 5 of a takeover (docs/protocol.md). After the fence nobody else can write to STORE, so it is read whole, to
the bound of step 4.

Thread rule: the shard's thread. Cost: one pass over what compaction has left, some 20 us a pending entry.
"""

from __future__ import annotations

from postdate.connectors.kafka.seam import Isolation, Partition, Record
from postdate.connectors.wire.errors import FormatError
from postdate.connectors.wire.stored import decode_stored, stored_offset
from postdate.sidecar.dispatch_tail import read_until
from postdate.sidecar.draft import Draft
from postdate.sidecar.errors import Halted, HaltReason
from postdate.sidecar.limits import STORE_RECORDS_MAX
from postdate.sidecar.shard_context import ShardContext
from postdate.sidecar.store import entry_of
from postdate.wheel.entry import Entry
from postdate.wheel.index import TimerIndex


def rebuild(ctx: ShardContext, index: TimerIndex, start: int, end: int, low: int) -> int:
    """Put what STORE keeps in [start, end) of requests below `low` into the index; returns how many entries those are.

    Only those below: the others come from REQ with the fates of the dispatch log, and taking them here too would
    deliver them twice. REQUIRES: the index is empty. Raises Halted for a record that is not ours, and as `read_until`.
    """

    def take(records: list[Record]) -> None:
        for first in range(0, len(records), STORE_RECORDS_MAX):
            take_stored(index, ctx.store, records[first : first + STORE_RECORDS_MAX], low)

    reader = ctx.kafka.log_reader(ctx.store, start, Isolation.READ_COMMITTED)
    try:
        read_until(reader, end, ctx.clock, ctx.stopping, take)
    finally:
        reader.close()
    return index.count


def take_stored(index: TimerIndex, store: Partition, records: list[Record], low: int) -> None:
    """One local write: of each request below `low` the last record counts, a null value takes its entry out.

    Raises Halted for a record that is not ours.
    """
    draft = Draft(index)
    last: dict[int, Entry | None] = {}
    for record in records:
        try:
            offset = stored_offset(record.key)
            if offset < low:
                entry = None
                if record.value is not None:
                    entry = entry_of(decode_stored(record.key, record.value, record.headers))
                last.pop(offset, None)
                last[offset] = entry
        except FormatError as error:
            raise Halted(
                HaltReason.FOREIGN_RECORD,
                f"record {store.topic}/{store.index}/{record.offset} is not a record of the store ({error}): find who "
                "writes into it and take their permission away",
            ) from error
    for offset, entry in last.items():
        _put(draft, offset, entry)
    index.write(draft.changes)


def _put(draft: Draft, offset: int, entry: Entry | None) -> None:
    """Hold for a request what its STORE record says, and nothing of an earlier one; None: it has ended."""
    key = draft.find(offset)
    if key is not None:
        old = draft.entry(key)
        draft.remove(key, old.stored)
        draft.changes.places[offset] = None
        draft.drop_id(old.id, offset)
    if entry is not None:
        draft.put(offset, entry.due, entry)
        draft.claim_id(entry, offset)  # whoever had the id before has ended in the transaction that stored this one
