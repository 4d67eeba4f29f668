"""Converts entries to records of the store topic (STORE) and back. STORE keeps an entry after its request is deleted.

A STORE record contains all data for rebuilding its entry, if the shard starts without its timer index.

Thread rule: `StoreRecords` belongs to the shard's thread; the functions are pure.
"""

from __future__ import annotations

from postdate.sidecar.transaction.transaction import NOBODY, OutgoingRecord
from postdate.wheel.entry import Entry, Kind, Next, Spread, Window, pack_stripped, stripped_of
from postdate.wire.headers import IF_ENDED, Headers
from postdate.wire.schedules.zones import TZ_VERSION
from postdate.wire.stored import StoredRequest, encode_stored, stored_key
from postdate.wire.topics import OwnTopics


class StoreRecords:
    """Creates the STORE records of one shard."""

    def __init__(self, own: OwnTopics, partition: int) -> None:
        self._topic = own.store
        self._partition = partition

    def record(self, entry: Entry, offset: int) -> OutgoingRecord:
        """Returns the record that stores the present entry of request `offset`."""
        return offset, *self._record(entry, offset)

    def rewritten(self, entry: Entry, offset: int) -> OutgoingRecord:
        """Returns the same record as `record`, but with NOBODY: its refusal is not attributed to the entry."""
        return NOBODY, *self._record(entry, offset)

    def _record(self, entry: Entry, offset: int) -> tuple[str, int, bytes, bytes | None, Headers]:
        key, value, headers = encode_stored(stored_of(entry, offset))
        return self._topic, self._partition, key, value, headers

    def tombstone(self, offset: int) -> OutgoingRecord:
        """Returns the record that marks request `offset` as ended."""
        return NOBODY, self._topic, self._partition, stored_key(offset), None, []


def stored_of(entry: Entry, offset: int) -> StoredRequest:
    """Returns the STORE form of a pending entry."""
    return StoredRequest(
        offset=offset,
        accepted_ms=entry.accepted_ms,
        first_due_ms=entry.first_due,
        due_ms=entry.requested_due if entry.next is None else entry.next.nominal_ms,
        target=entry.target,
        key=entry.key,
        own_key=entry.own_key[0] if entry.own_key else entry.key,
        value=entry.value,
        headers=entry.headers,
        stripped=stripped_of(entry),
        partition=entry.partition,
        id=entry.id,
        grace_ms=entry.grace_ms,
        window_ms=entry.window.length_ms if entry.window is not None else 0,
        chosen_ms=entry.due if entry.window is not None or entry.next is not None else -1,
        is_even=entry.window is not None and entry.window.spread != Spread.DRAWN,
        series_ms=entry.series_ms,
        number=entry.next.number if entry.next is not None else 0,
        switches=entry.next.switches if entry.next is not None else (),
        extras=entry.next.extras if entry.next is not None else (),
        tz=TZ_VERSION if entry.next is not None else "",
    )


def entry_of(request: StoredRequest) -> Entry:
    """Returns the entry that a STORE record describes, marked as stored. An even spread is marked as DEFERRED."""
    has_window, spread = request.window_ms > 0, Spread.DEFERRED if request.is_even else Spread.DRAWN
    return Entry(
        kind=Kind.DELIVER,
        stored=True,
        first_due=request.first_due_ms,
        due=request.chosen_ms if has_window or request.number else request.due_ms,
        target=request.target,
        key=request.key,
        value=request.value,
        headers=request.headers,
        partition=request.partition,
        id=request.id,
        grace_ms=request.grace_ms,
        own_key=() if request.key == request.own_key else (request.own_key,),
        stripped=pack_stripped(request.stripped),
        accepted_ms=request.accepted_ms,
        window=Window(request.due_ms, request.window_ms, request.chosen_ms, spread) if has_window else None,
        series_ms=request.series_ms,
        next=Next(request.number, request.due_ms, request.switches, request.extras) if request.number else None,
        drops=any(name == IF_ENDED for _, name, _ in request.stripped),
    )
