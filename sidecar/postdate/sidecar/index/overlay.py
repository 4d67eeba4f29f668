"""Shows the state of a shard after the next WriteBatch: the timer index, overlaid with the changes made so far.

The functions that apply requests and fates read and change only an `IndexOverlay`. So ingest, recovery and the write
after a commit see the same state, and each of their steps becomes durable as a whole or not at all.

Thread rule: belongs to the thread that owns the timer index. An overlay is written once (`write`), then dropped.
"""

from __future__ import annotations

import logging
import struct
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from operator import itemgetter

import msgspec

from postdate.sidecar.errors import Contradicted
from postdate.sidecar.index.bulk import with_row, without_row
from postdate.sidecar.index.recurrences import leaves_ms
from postdate.wheel.entry import Entry, Kind, Mark, Next, Spread, decode_entry, encode_entry
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import ENDING_DUE, ENTRY_KEY_SIZE_BYTES, FIRST_KEY, entry_key, parked_key, split_key
from postdate.wheel.limits import FIRSTS_GAP_OFFSETS_MAX
from postdate.wheel.timer_log.changes import EntryChanges
from postdate.wheel.timer_log.checkpoint import BulkRow, BulkRows
from postdate.wheel.timer_log.ended import (
    RecentOutcome,
    control_end_key,
    decode_delivered,
    decode_outcome,
    encode_delivered,
    encode_outcome,
    is_same_id,
)
from postdate.wheel.timer_log.timer_log import NO_FIRST_DUE
from postdate.wheel.timing_wheel.even_spread import EvenSpread
from postdate.wire.dispatch_log import IdRow, PolicyRow
from postdate.wire.limits import INTEGER_END
from postdate.wire.requests.retry_policies import NamedPolicies
from postdate.wire.values.id_digests import digest_bytes, id_digest
from postdate.wire.values.windows import draw_ms, not_before

log = logging.getLogger(__name__)


def read_up_to(index: TimerIndex) -> int:
    """Returns R, the offset of the next request to ingest. REQUIRES: a takeover has set it."""
    offset = index.checkpoint.next_request
    assert offset is not None, "a new index has no R before step 5 of a takeover"
    return offset


class IndexOverlay:
    """The timer index as the next WriteBatch will leave it."""

    def __init__(
        self,
        index: TimerIndex,
        at_ms: int = 0,
        horizon_ms: int = INTEGER_END,
        store_after_ms: int = 0,
        replaceable: bool = True,
        origin_prefix: bytes = b"",
    ) -> None:
        """`at_ms`: the time of these changes, epoch ms. It only determines how long the ends of ids are remembered.

        `horizon_ms`: the longest delay of an entry after its request, if no entries are stored. `store_after_ms`:
        entries with longer delays are stored; 0: no entries are. `ending_count` and `ending_bytes` describe key 0 after
        these changes. `replaceable`: True if the topics hold everything that a rebuild of the index needs.
        `origin_prefix`: the prefix of the origins of the shard's requests; changes that give a request a due time need
        it.
        """
        self._index = index
        self._timer_log = index.timer_log
        self._origin_prefix = origin_prefix
        self.now_ms = -1  # the broker's time; -1: unknown, and choices of even spreads are deferred
        self.logged_ms = -1  # in recovery: the time of the last dispatch-log record
        self._spread: EvenSpread | None = None
        self._replaceable = replaceable
        self.at_ms = at_ms
        self.horizon_ms = horizon_ms
        self.store_after_ms = store_after_ms
        self.ending_count, self.ending_bytes = index.ending_count, index.checkpoint.totals.ending_bytes
        self._changes = EntryChanges()
        self._marks_end = self._timer_log.marks_end
        self._confirmed_moves: set[int] = set()
        # The last look-ups and their results: an entry or an id is usually looked up again at once.
        self._entry: tuple[bytes, bytes | None] = (b"", None)
        self._id: tuple[bytes, bytes | None] = (b"", None)
        self._first_dues: list[tuple[int, list[int]]] = []  # rows: an offset, first due times from it on
        self._firsts_end = -1  # the offset after the last row

    # ---- reads -----------------------------------------------------------------------------------------------------

    def mark(self, offset: int) -> Mark | None:
        """Returns the mark of a request that is not ingested yet: its fates so far; None if it has no fates. O(1) if
        there are no marks."""
        marks = self._changes.marks
        if marks and offset in marks:
            return marks[offset]
        return self._timer_log.mark(offset) if offset < self._marks_end else None

    def raw(self, key: bytes) -> bytes | None:
        """Returns the encoded entry under `key`, in `entries` or, for a longer key, in `parked`; None if there is
        none."""
        if len(key) > ENTRY_KEY_SIZE_BYTES:
            overlay = self._changes.parked
            return overlay[key] if key in overlay else self._timer_log.parked(key)
        entries = self._changes.entries
        if key in entries:
            return entries[key]
        if self._entry[0] != key:
            self._entry = key, self._timer_log.entry(key)
        return self._entry[1]

    def find(self, offset: int, hint_due_ms: int | None = None, hint_key: bytes | None = None) -> bytes | None:
        """Returns the present key of the entry of request `offset`, or None if the request has no entry.

        Only the offset decides. The hints save look-ups if the entry lies under the key that they suggest. `hint_key`:
        the key under which an id is pending. `hint_due_ms`: the first due time in a fate. The writer of the fate may
        have judged the request by other settings, so the entry may lie under another first due time here.
        """
        if hint_key is not None and self.raw(hint_key) is not None:
            return hint_key
        places = self._changes.places
        place = places[offset] if offset in places else self._timer_log.place(offset)
        if place is not None:
            return place
        if hint_due_ms is not None and self.raw(key := entry_key(hint_due_ms, offset)) is not None:
            return key
        first_due_ms = self._first_due(offset)
        if first_due_ms is None or first_due_ms == hint_due_ms:
            return None
        key = entry_key(first_due_ms, offset)
        return key if self.raw(key) is not None else None

    def pending_id(self, caller_id: bytes) -> bytes | None:
        """Returns the key under which the caller's id is pending, as (due, offset), or None."""
        if not caller_id:
            return None
        ids = self._changes.ids
        if caller_id in ids:
            return ids[caller_id]
        if self._id[0] != caller_id:
            self._id = caller_id, self._timer_log.id_key(caller_id)
        return self._id[1]

    def outcome(self, caller_id: bytes) -> RecentOutcome | None:
        """Returns the outcome of the last request of an id, if it is still remembered; otherwise None."""
        for key in self._timer_log.outcomes.keys(caller_id, self.at_ms):
            raw = self._changes.ended[key] if key in self._changes.ended else self._timer_log.ended(key)
            if raw is not None:
                return decode_outcome(raw)
        return None

    def delivered(self, caller_id: bytes, offset: int, at_ms: int) -> int:
        """Returns the offset of a request of this id that was delivered within the window before `at_ms`, or later; -1:
        none was.

        Requests at or above `offset` do not count. The time of a delivery is that of its dispatch-log record, so the
        result is the same for every owner. REQUIRES: this overlay has remembered no ids.
        """
        ids = self._timer_log.delivered
        if ids.window_ms and offset > 0:
            for key in ids.keys(digest_bytes(id_digest(caller_id)), offset - 1, at_ms - ids.window_ms):
                row = self._timer_log.last_ended(key)
                if row is not None and is_same_id(row[0], key):
                    delivery = decode_delivered(*row)
                    if at_ms <= delivery.at_ms + ids.window_ms:
                        return delivery.offset
        return -1

    @property
    def window_ms(self) -> int:
        """The time for which a delivery of an id is remembered; 0: it is not remembered."""
        return self._timer_log.delivered.window_ms

    def was_sent(self, offset: int) -> bool:
        """True if a request that is not pending ended by its delivery, as a dead letter, or as a completed schedule.
        False also for controls, for requests that were refused at ingest, and if the end is forgotten."""
        first_due = self._first_due(offset)
        if first_due is None or first_due == ENDING_DUE:
            return False
        key = control_end_key(offset)
        return key not in self._changes.ended and self._timer_log.ended(key) is None

    def entry(self, key: bytes) -> Entry:
        """Returns the entry under `key`. REQUIRES: the key is present."""
        raw = self.raw(key)
        assert raw is not None, "a place, an id or a scan names an entry that is not there"
        return decode_entry(raw)

    def is_move_confirmed(self, control: int) -> bool:
        """True if `confirm_move` was called for this control."""
        return control in self._confirmed_moves

    def controls(self) -> Iterator[tuple[int, bytes]]:
        """Yields offset and encoded entry of all entries under key 0 in the index, ascending. REQUIRES: no changes so
        far, and no write before the end. O(entries)."""
        rows = self._timer_log.walk(FIRST_KEY, entry_key(ENDING_DUE + 1, 0))
        try:
            while (key := rows.key()) is not None and (raw := rows.value()) is not None:
                yield split_key(key)[1], raw
                rows.next()
        finally:
            rows.finish()

    # ---- changes ---------------------------------------------------------------------------------------------------

    def advance(
        self,
        *,
        next_request: int | None = None,
        next_dispatch: int | None = None,
        seq: int | None = None,
        takeover: int | None = None,
        zones: str | None = None,
    ) -> None:
        """Sets the next offset to read of the request topic (R) and of the dispatch log (D), the seq and takeover of
        the last dispatch-log record, and the version of the time zone rules. None keeps a value."""
        changes = self._changes
        changes.next_request = changes.next_request if next_request is None else next_request
        changes.next_dispatch = changes.next_dispatch if next_dispatch is None else next_dispatch
        changes.seq = changes.seq if seq is None else seq
        changes.takeover = changes.takeover if takeover is None else takeover
        changes.zones = changes.zones if zones is None else zones

    def set_policies(self, policies: NamedPolicies) -> None:
        """Replaces the named retry policies of the shard."""
        self._changes.policies = policies.rows

    def learn_policies(self, rows: list[PolicyRow]) -> None:
        """Adds the named retry policies of a committed record.

        Calls `contradicted` if a policy applied to requests that were ingested here without it. An old row is skipped:
        a known row replaces it for all pending requests.
        """
        known = self._timer_log.policies if self._changes.policies is None else self._changes.policies
        fresh = [row for row in rows if row not in known]
        if not fresh:
            return
        policies, low_water = NamedPolicies(known), self._timer_log.low_water()
        fresh = [row for row in fresh if not policies.replaces(row, low_water)]
        for first, name, _ in fresh:
            if first < read_up_to(self._index):
                self.contradicted(f"retry policy {name} changed at request {first}, which was ingested before")
        if fresh:
            self.set_policies(policies.with_rows(fresh))

    @property
    def bulks(self) -> BulkRows:
        """The bulk controls that have not ended, ascending by offset."""
        return self._timer_log.bulks if self._changes.bulks is None else self._changes.bulks

    def bulk(self, offset: int) -> BulkRow | None:
        """Returns the bulk control at an offset, if it has not ended."""
        return next((row for row in self.bulks if row.offset == offset), None)

    def set_bulk(self, row: BulkRow) -> None:
        """Adds the row of a bulk control, or replaces it."""
        self._changes.bulks = with_row(self.bulks, row)

    def drop_bulk(self, offset: int) -> None:
        """Removes a bulk control, if there is one at this offset."""
        if self.bulk(offset) is not None:
            self._changes.bulks = without_row(self.bulks, offset)

    def set_mark(self, offset: int, mark: Mark | None) -> None:
        """Sets or removes the mark of a request that is not ingested yet."""
        self._changes.marks[offset] = mark

    def put_accepted(self, offset: int, due_ms: int, raw: bytes) -> None:
        """Adds an encoded message without an id, not stored. `due_ms`: the time of its first key. O(1)."""
        self._changes.entries[entry_key(due_ms, offset)] = raw
        if self._spread is not None:
            self._spread.count(due_ms, 1)

    def defer(self, key: bytes) -> None:
        """Notes that the time of the entry under `key` must be chosen later. O(1)."""
        self._changes.deferred[key] = b""

    def drop_deferred(self, key: bytes) -> None:
        """Undoes `defer`. O(1)."""
        self._changes.deferred[key] = None

    def forget_choice(self, key: bytes, entry: Entry) -> None:
        """Undoes `defer` for an entry that leaves its key, if its time has not been chosen yet. O(1)."""
        if entry.window is not None and entry.window.spread == Spread.DEFERRED:
            self.drop_deferred(key)

    def put(self, offset: int, key_due_ms: int, entry: Entry) -> bytes:
        """Adds an entry under (key_due_ms, offset). Records the entry's place if this key is not its first key, or if
        the entry is stored. Returns the key."""
        key, raw = entry_key(key_due_ms, offset), encode_entry(entry)
        self._changes.insert(key, raw, stored=entry.stored)
        if key_due_ms != entry.first_key_due or entry.stored:  # first due times below the low-water mark are not kept
            self._changes.places[offset] = key
        if key_due_ms == ENDING_DUE:
            self.ending_count += 1
            self.ending_bytes += len(raw)
        elif self._spread is not None:
            self._spread.count(key_due_ms, 1)
        if key_due_ms != ENDING_DUE and entry.window is not None and entry.window.spread == Spread.DEFERRED:
            self.defer(key)
        return key

    def park(self, offset: int, due_ms: int, target: str, raw: bytes, stored: bool) -> None:
        """Adds an encoded entry to the parked entries of its target, and records its place. O(1)."""
        self._changes.places[offset] = key = parked_key(target, due_ms, offset)
        self._changes.insert_parked(key, raw, stored=stored)

    def remove(self, key: bytes, stored: bool, size_bytes: int = -1) -> None:
        """Removes an entry, parked or not. The caller must remove its place and id. `size_bytes`: the size of its
        value; -1: unknown, so the entry is read."""
        if size_bytes < 0:
            raw = self.raw(key)
            assert raw is not None, "only a present entry can be removed"
            size_bytes = len(raw)
        if len(key) > ENTRY_KEY_SIZE_BYTES:
            self._changes.delete_parked(key, size_bytes, stored=stored)
        else:
            self._changes.delete(key, size_bytes, stored=stored)
            due_ms = split_key(key)[0]
            if due_ms == ENDING_DUE:
                self.ending_count -= 1
                self.ending_bytes -= size_bytes
            elif self._spread is not None:
                self._spread.count(due_ms, -1)

    def count_schedule(self, entry: Entry, change: int) -> None:
        """Counts the addition (`change` 1) or the end (-1) of an entry, if it is a schedule. O(1)."""
        self._changes.schedules += change if entry.next is not None else 0

    def end(self, key: bytes, entry: Entry) -> None:
        """Removes an entry, parked or not, with its place, its id and its deferred choice."""
        offset = split_key(key)[1]
        self.count_schedule(entry, -1)
        self.remove(key, entry.stored)
        self.forget_choice(key, entry)
        self.drop_place(offset)
        self.drop_id(entry.id, offset)

    def remove_run(self, keys: list[bytes], sizes_bytes: list[int], stored: Collection[bytes]) -> None:
        """Removes entries as the last step before the write: `ending_count` does not change. The caller must remove
        their places and ids.

        `keys`: all present keys from the first to the last, ascending. `sizes_bytes`: the sizes of their values.
        `stored`: keys of stored entries.
        """
        self._changes.delete_span(keys[0], keys[-1], keys, sizes_bytes, stored)

    def remove_parked(self, key: bytes, size_bytes: int, stored: bool) -> None:
        """Removes a parked entry. `size_bytes`: the size of its value. The caller must remove its place and id."""
        self._changes.delete_parked(key, size_bytes, stored=stored)

    def drop_place(self, offset: int) -> None:
        """Removes the place of a request, if it has one."""
        self._changes.places[offset] = None

    def is_long(self, delay_ms: int) -> bool:
        """True if an entry with this delay must be stored."""
        return 0 < self.store_after_ms < delay_ms

    def draw_ms(self, offset: int, window_ms: int) -> int:
        """Returns how many ms after its due time a message leaves, if request `offset` has set that time. REQUIRES:
        `origin_prefix`."""
        assert self._origin_prefix, "a time is drawn from an origin"
        return draw_ms(self._origin_prefix + b"%d" % offset, window_ms)

    @property
    def left_ms(self) -> int:
        """Messages with times up to this one may have left, so a time of an even spread is chosen after it, if the
        window allows."""
        return max(self.now_ms, self.logged_ms)

    def choose_ms(self, offset: int, due_ms: int, length_ms: int, is_even: bool) -> tuple[int, Spread]:
        """Returns the time at which a message with a window leaves, if request `offset` set its due time, and the way
        of choosing it. With `is_even`, the time is after `left_ms`, unless the window ends before. REQUIRES:
        `origin_prefix`. O(1) unless `is_even`: see `timing_wheel.even_spread`."""
        drawn_ms = due_ms + self.draw_ms(offset, length_ms)
        if not is_even:
            return drawn_ms, Spread.DRAWN
        chosen_ms = self.emptiest_ms(due_ms, length_ms, drawn_ms) if self.now_ms >= 0 else None
        at_ms, spread = (drawn_ms, Spread.DEFERRED) if chosen_ms is None else (chosen_ms, Spread.CHOSEN)
        return not_before(at_ms, self.left_ms, due_ms + length_ms), spread

    def emptiest_ms(self, due_ms: int, length_ms: int, drawn_ms: int, is_counted: bool = False) -> int | None:
        """Returns the time with the fewest messages in a window that begins at `due_ms`, as `EvenSpread.choose` does.
        Considers the changes made so far. REQUIRES: `now_ms`."""
        if self._spread is None:
            self._spread = self._index.even_spread(self.now_ms, self._changes)
        return self._spread.choose(due_ms, due_ms + length_ms, drawn_ms, is_counted)

    def chosen_ms(self, offset: int, stripped: msgspec.Raw, following: Next) -> int:
        """Returns the time of the next delivery of the schedule at `offset`. `stripped`: its packed stripped headers.
        REQUIRES: `origin_prefix`."""
        assert self._origin_prefix, "a time is drawn from an origin"
        return leaves_ms(self._origin_prefix + b"%d" % offset, stripped, following)

    def claim_id(self, entry: Entry, offset: int) -> None:
        """Makes the id of a pending entry, if it has one, refer to the entry. REQUIRES: no later request has taken over
        the id."""
        if entry.id:
            self._changes.ids[entry.id] = entry_key(entry.due, offset)

    def move(self, key: bytes, offset: int, old: Entry, new: Entry, size_bytes: int = -1) -> bytes:
        """Replaces the entry under `key` by `new`, under the key that `new` determines. Returns that key. `size_bytes`:
        as for `remove`."""
        self.remove(key, old.stored, size_bytes)
        self.forget_choice(key, old)
        self.drop_place(offset)
        due = new.due if new.kind == Kind.DELIVER else ENDING_DUE
        return self.put(offset, due, new)

    def confirm_move(self, control: int) -> None:
        """Notes that the log confirms a control that ingest has carried out."""
        self._confirmed_moves.add(control)

    def contradicted(self, why: str) -> None:
        """Raises Contradicted if the index can be rebuilt: the log decided a control differently from ingest here.

        If the index cannot be rebuilt, logs a warning and returns; the caller then changes the index as the log
        requires.
        """
        if self._replaceable:
            raise Contradicted(why)
        log.warning("the dispatch log contradicts the index, which cannot be rebuilt: %s", why)

    def has_id(self, caller_id: bytes, offset: int) -> bool:
        """True if an id refers to the pending request at `offset`. A later request may have taken over the id, even
        from an entry that a bulk cancel selects; then the outcome of that request counts for the id."""
        key = self.pending_id(caller_id)
        return key is not None and split_key(key)[1] == offset

    def drop_id(self, caller_id: bytes, offset: int) -> None:
        """Frees an id if it still refers to `offset`."""
        if self.has_id(caller_id, offset):
            self._changes.ids[caller_id] = None

    def note_end(self, offset: int, caller_id: bytes, sent: bool) -> None:
        """Remembers that a request has ended. `sent`: True if a delivery, a dead letter or the completion of a
        schedule ended it, False if another request did."""
        if not sent and offset >= self._timer_log.first_dues_from:  # below it, `was_sent` has no first due time
            self._changes.ended[control_end_key(offset)] = b""
        key = self._timer_log.outcomes.key(caller_id, self.at_ms) if caller_id else None
        if key is not None:
            self._changes.ended[key] = encode_outcome(RecentOutcome(offset, sent))

    def remember_ids(self, rows: Iterable[IdRow], at_ms: int) -> int:
        """Remembers the ids of messages that a dispatch-log record of this time has delivered. Returns the number of
        ids that were not remembered because their hour is full. O(rows)."""
        ids, missed = self._timer_log.delivered, 0
        for offset, digest in rows:
            key = ids.key(digest_bytes(digest), offset, at_ms)
            if key is not None:
                self._changes.ended[key] = encode_delivered(at_ms)
            elif ids.window_ms:
                missed += 1
        return missed

    def write(self) -> None:
        """Makes all changes visible in one write, once. Raises as `TimerIndex.write`."""
        self._index.write(self._changes)

    # ---- first due times of the requests of this batch -------------------------------------------------------------

    def note_first_due(self, offset: int, first_due_ms: int) -> None:
        """Records the first due time of a request, so that a control can name the request by its offset. Offsets
        ascend.

        A small gap is filled; a large one, such as an aborted transaction of millions of records, starts a new row.
        """
        rows = self._first_dues
        if offset != self._firsts_end:
            gap = offset - self._firsts_end
            if not rows or gap > FIRSTS_GAP_OFFSETS_MAX:
                rows.append((offset, []))
            else:
                rows[-1][1].extend([NO_FIRST_DUE] * gap)
        rows[-1][1].append(first_due_ms)
        self._firsts_end = offset + 1

    def note_first_dues(self) -> None:
        """Adds the first due times of this batch to its changes."""
        for base, row in self._first_dues:
            self._changes.firsts.append((base, struct.pack(f"<{len(row)}Q", *row)))

    def _first_due(self, offset: int) -> int | None:
        row_index = bisect_right(self._first_dues, offset, key=itemgetter(0)) - 1
        if row_index < 0:
            return self._timer_log.first_due(offset)
        base, row = self._first_dues[row_index]
        first_due = row[offset - base] if offset - base < len(row) else NO_FIRST_DUE
        return None if first_due == NO_FIRST_DUE else first_due
