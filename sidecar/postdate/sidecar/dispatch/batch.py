"""Builds a transaction from due entries: decides which entries end now, and creates their records and fates.

This step between the scan of the timer index and `ShardOwnership.run` neither sends nor writes anything. Entries under
key 0 (controls, ended entries, entries to store) come first, in offset order, then messages (docs/protocol.md, rule 4).
The caller passes all entries under key 0, a piece from `control_pieces`, or none, so that the end of an entry and every
pending control on it are in one transaction (rule 1). `undelivered_ends` adds the entries that end without a delivery,
and `after_commit` changes the index.

Thread rule: belongs to the shard's thread. The hot loop is `BatchBuilder.build`: one pass and one decode per entry. Of
the messages for a target, usually only the first needs a look-up of the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import merge
from typing import Final

import msgspec

from postdate.sidecar.dispatch.batch_content import Batch
from postdate.sidecar.dispatch.decisions import Decision, MessageRules, is_special
from postdate.sidecar.dispatch.due.due_reader import Due
from postdate.sidecar.dispatch.due.own_topics_filter import OwnTopicsFilter
from postdate.sidecar.dispatch.limits import (
    CLIENT_BATCH_BYTES,
    TARGET_PARTITIONS_PER_TRANSACTION_MAX,
)
from postdate.sidecar.dispatch.parking import Parking
from postdate.sidecar.dispatch.targets.target_rates import TargetRates
from postdate.sidecar.dispatch.targets.targets import Refusal
from postdate.sidecar.dispatch.undelivered_ends import UndeliveredEnds
from postdate.sidecar.index.bulk import Bulk, in_force
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.index.recurrences import (
    Decided,
    after_fates,
    decide_due,
    grace_end_ms,
    is_over,
    leaves_ms,
    single_delivery_headers,
    undeliverable,
)
from postdate.sidecar.transaction.store_records import StoreRecords
from postdate.sidecar.transaction.verdict_records import VerdictWriter
from postdate.wheel.entry import Entry, Kind, decode_entry
from postdate.wheel.keys import ENTRY_KEY_SIZE_BYTES, split_key
from postdate.wire.delivered import (
    delivered_headers,
    extra_headers,
    occurrence_headers,
)
from postdate.wire.dispatch_log import (
    APPLIED,
    CANCELLED,
    COMPLETED,
    DELIVERED,
    MOVED,
    SWEPT,
    BulkCancelled,
    BulkProgress,
    ChosenFate,
    Completed,
    Moved,
    Occurred,
    PlainFate,
    Skipped,
)
from postdate.wire.limits import FATES_MAX, IDS_MAX
from postdate.wire.topics import OwnTopics
from postdate.wire.values.id_digests import id_digest
from postdate.wire.verdicts import Verdict

# Looking up a member of an enumeration is slow.
_DELIVER_KIND: Final = int(Kind.DELIVER)
_DELIVER: Final = Decision.DELIVER

# One record contains all fates. While a transaction has at most this many, it takes one more entry, which may add two
# fates. A bulk control then adds one for its progress; the rest is a reserve.
_FATES_MAX: Final = FATES_MAX - 5


class BatchBuilder:
    """Builds the transactions of one shard."""

    def __init__(
        self,
        own: OwnTopics,
        partition: int,
        rules: MessageRules,
        verdicts: VerdictWriter,
        parking: Parking | None = None,
        rates: TargetRates | None = None,
    ) -> None:
        self._own = own
        self._rules = rules
        self._target_of = rules.target_of
        self._faults = rules.faults
        self._verdicts = verdicts
        self._undelivered = UndeliveredEnds(own, partition, rules, verdicts)
        self._parking = parking
        self._rates = rates
        self._store = StoreRecords(own, partition)
        self._origin_prefix = f"{own.requests}/{partition}/".encode()

    def build(self, overlay: IndexOverlay, due: Due, steady_ms: float) -> Batch:
        """Builds one transaction from the entries of `due`, up to its limits; `due` does not change. If the batch has
        `unknown` topics, `Dispatcher.dispatch` looks them up and builds again."""
        trial = due.trial.name or None if due.trial is not None else None
        own_filter = due.own_filter.renewed() if due.own_filter is not None else None
        batch = Batch(due.now_ms, due.now_ms - due.behind_ms, due.surplus_max, due.surplus_bytes_max)
        rates, parking = (self._rates, self._parking) if trial is None else (None, None)
        precedes = parking.precedes if parking is not None and parking.any else None
        now_ms, after_gaps, condemned = due.now_ms, due.keys_after_gaps, self._faults.condemned
        bulk = in_force(overlay.bulks) if overlay.bulks else None
        for key, raw in _rows(due.keys, due.values, due.parked):
            if after_gaps and key in after_gaps:
                batch.cut()
            entry, offset = decode_entry(raw), split_key(key)[1]
            if len(batch.fates) > _FATES_MAX and entry.kind == _DELIVER_KIND and _has_more_fates(batch, entry, bulk):
                break
            if (deliver := entry.kind == _DELIVER_KIND) and bulk is not None and bulk.acts_on(entry, offset):
                if own_filter is not None:  # the message waits for the sweep, which waits for Postdate's own topics
                    batch.skip()
                    continue
                if self._act_in_bulk(batch, overlay, (key, entry), bulk):
                    continue
            elif deliver:
                decision: Decision | Refusal = condemned.get(offset, _DELIVER) if condemned else _DELIVER
                ready = batch.ready.get(entry.target)
                if decision is _DELIVER:
                    if ready is None or is_special(entry, len(raw), ready):
                        decision = self._rules.decide(entry, len(raw), now_ms, steady_ms, trial)
                    if decision is _DELIVER and rates is not None and not rates.admits(entry.target, key, batch.rated):
                        decision = Decision.PARK_FOR_RATE
                    elif decision is _DELIVER and precedes is not None and precedes(entry.target, key):
                        decision = Decision.PARK
                if decision is not _DELIVER and isinstance(decision, Decision):
                    batch.postpone(key, raw, entry, decision)
                    continue
                if own_filter is not None and not self._passes(own_filter, key, entry, decision is not _DELIVER):
                    batch.skip()
                    continue
                if decision is _DELIVER:
                    if ready is None and not self._fills(batch, key, entry):
                        batch.skip()
                        continue
                    if ready is None and not self._fits(batch, entry.target):
                        break
                    if entry.next is None and not self._deliver(batch, entry, offset):
                        break
                elif entry.next is None:
                    self._undelivered.dead_letter(batch, entry, offset, decision)
                if entry.next is not None and self._recur(batch, overlay, (key, raw), entry, decision, bulk):
                    continue
            elif entry.kind == Kind.STORE:
                if self._undelivered.store(batch, entry, offset):
                    batch.store(key, len(raw), entry)
                    continue
            else:
                self._undelivered.end_undelivered(batch, overlay, entry, offset)
            was_parked = len(key) > ENTRY_KEY_SIZE_BYTES
            if was_parked:
                batch.unparked.append((key, len(raw)))
            else:
                batch.runs[-1].append(key)
                batch.sizes[-1].append(len(raw))
            first_due = entry.first_due if entry.window is None else entry.window.first  # `first_key_due`, inlined
            if was_parked or entry.id or entry.stored or first_due != (entry.due if deliver else 0):
                self._unlink(batch, key, entry, offset)
        batch.skipped_own = own_filter is not None and own_filter.skipped_own
        if bulk is not None and (batch.swept or due.ends_bulk):
            self._report_bulk(batch, bulk, due.ends_bulk)
        return batch

    def _act_in_bulk(self, batch: Batch, overlay: IndexOverlay, row: tuple[bytes, Entry], bulk: Bulk) -> bool:
        """Moves or ends a message that the bulk control in force selects. `row`: the key and the entry. Returns True if
        the message stays pending."""
        key, entry = row
        offset = split_key(key)[1]
        batch.swept += 1
        if not bulk.request.moves:
            self._cancel_in_bulk(batch, overlay, row, bulk)
            return False
        moved = bulk.moved(entry, batch.now_ms)
        batch.fates.append(Moved(offset, entry.first_due, MOVED, moved.requested_due, bulk.offset))
        if entry.stored or overlay.is_long(moved.due - bulk.request.accepted_ms):
            if not self._undelivered.store(batch, moved, offset):
                return False
            moved = msgspec.structs.replace(moved, stored=True)
        batch.moved.append((key, entry, moved))
        batch.cut()
        return True

    def _cancel_in_bulk(self, batch: Batch, overlay: IndexOverlay, row: tuple[bytes, Entry], bulk: Bulk) -> None:
        key, entry = row
        offset = split_key(key)[1]
        batch.fates.append(BulkCancelled(offset, entry.first_due, CANCELLED, bulk.offset))
        if self._verdicts.all:
            batch.messages.append(self._verdicts.message(Verdict.CANCELLED, offset, entry.id))
        overlay.note_end(offset, entry.id if overlay.has_id(entry.id, offset) else b"", sent=False)
        overlay.forget_choice(key, entry)  # otherwise its row would stay until the due time, perhaps for years

    def _report_bulk(self, batch: Batch, bulk: Bulk, ends: bool) -> None:
        """Adds the fate with the number of messages on which a bulk control has acted and, if the control ends, its
        verdict."""
        count = bulk.count + batch.swept
        batch.bulk = BulkProgress(bulk.offset, 0, APPLIED if ends else SWEPT, count)
        batch.fates.append(batch.bulk)
        if ends:
            batch.messages += self._verdicts.to_bulk(bulk.offset, count)

    def _unlink(self, batch: Batch, key: bytes, entry: Entry, offset: int) -> None:
        """Notes that the STORE record, the id and the place of an entry that ends must be removed."""
        if entry.stored:
            batch.kept.add(key)
            batch.messages.append(self._store.tombstone(offset))
        fate = batch.fates[-1].name
        if fate != APPLIED:  # the id of a control belongs to another entry
            batch.linked.append((key, entry, fate))

    def _passes(self, own_filter: OwnTopicsFilter, key: bytes, entry: Entry, is_dead: bool) -> bool:
        """True if the filter takes the message. Its decision depends on the own topics of Postdate to which the
        transaction must write for this message. `is_dead`: the message becomes a dead letter."""
        needs_own = (
            (is_dead and self._own.dead_letters in own_filter.topics)
            or (entry.stored and self._own.store in own_filter.topics)
            or (self._verdicts.all and self._own.verdicts in own_filter.topics)
        )
        return own_filter.takes(key, entry, is_dead, needs_own)

    def _fits(self, batch: Batch, name: str) -> bool:
        """True if the partitions of this target are in the transaction, or can still be added to it."""
        if name not in batch.targets:
            target = self._target_of(name)
            count = target.partitions if target is not None else 0
            if batch.targets and sum(batch.targets.values()) + count > TARGET_PARTITIONS_PER_TRANSACTION_MAX:
                return False
            batch.targets[name] = count
        return True

    def _fills(self, batch: Batch, key: bytes, entry: Entry) -> bool:
        """False if the message under `key` must wait for the next transaction. There are two possible reasons.

        First, the message and those before it may not fit into one batch of their target: a topic limits the size of
        batches, and the client does not split a refused batch. All later messages of the target wait too, so that their
        order is kept. If the target's limit is at least the client's batch size, every message fits.

        Second, this transaction may store an earlier due message of the target; the next transaction delivers both.
        """
        stored = batch.stored_late.get(entry.target)
        if stored is not None and stored < key[-ENTRY_KEY_SIZE_BYTES:]:
            return False
        target = self._target_of(entry.target)
        if target is None or target.size_bytes_max >= CLIENT_BATCH_BYTES:
            if target is not None and stored is None:
                batch.ready[entry.target] = target
            return True
        filled = batch.filled.get(entry.target, 0)
        size = filled + self._rules.delivered_size_bytes(entry)
        fits = filled == 0 or size <= target.size_bytes_max
        batch.filled[entry.target] = size if fits else target.size_bytes_max
        return fits

    def _remembers(self, batch: Batch, entry: Entry, offset: int) -> bool:
        """Adds the id of a message whose delivery is remembered, if the format version permits. Returns False if the
        transaction already has the maximum number of ids."""
        if len(batch.ids) >= IDS_MAX:
            return False
        if self._rules.writes_version_2:
            batch.ids.append((offset, id_digest(entry.id)))
        return True

    def _deliver(self, batch: Batch, entry: Entry, offset: int) -> bool:
        """Adds the delivery of a message. Returns False if the transaction already has the maximum number of ids."""
        if entry.drops and not self._remembers(batch, entry, offset):
            return False
        origin = self._origin_prefix + b"%d" % offset
        window = entry.window
        headers = delivered_headers(entry.headers, origin, entry.due if window is None else window.due, entry.id)
        batch.messages.append((offset, entry.target, entry.partition, entry.key, entry.value, headers))
        batch.fates.append(
            PlainFate(offset, entry.first_due, DELIVERED)
            if window is None
            else ChosenFate(offset, entry.first_due, DELIVERED, entry.due)
        )
        if self._rates is not None and self._rates.limits(entry.target):
            batch.rated[entry.target] = batch.rated.get(entry.target, 0) + 1
        due_ms, accepted_ms = entry.due, entry.accepted_ms
        batch.dues_ms.append(due_ms if due_ms > accepted_ms else accepted_ms)  # `max` takes three times as long
        if due_ms > batch.due_max_ms:
            batch.due_max_ms = due_ms
        if entry.grace_ms >= 0:
            batch.grace_end_ms = min(batch.grace_end_ms, due_ms + entry.grace_ms)
        if self._verdicts.all:
            batch.messages.append(self._verdicts.message(Verdict.DELIVERED, offset, entry.id))
        return True

    def _recur(
        self,
        batch: Batch,
        overlay: IndexOverlay,
        row: tuple[bytes, bytes],
        entry: Entry,
        decision: Decision | Refusal,
        bulk: Bulk | None,
    ) -> bool:
        """Delivers or skips the due occurrences of a schedule, and delivers its due extra deliveries. If the target
        refuses them, the next delivery becomes a dead letter, with the headers of a single request for it; a skipped
        occurrence has no dead letter. `row`: key and value of the entry. Returns True if the schedule continues."""
        key, raw = row
        offset, accepted_ms = split_key(key)[1], entry.accepted_ms
        assert entry.next is not None
        origin = self._origin_prefix + b"%d" % offset
        surplus_max = self._surplus_max(batch, entry, len(raw)) if isinstance(decision, Decision) else 0
        decided = decide_due(entry, offset, origin, batch.now_ms, batch.until_ms, surplus_max)
        first = decided.fates[0]
        if not isinstance(decision, Decision) and not isinstance(first, Skipped):
            self._undelivered.write_dead_letter(
                batch, entry, offset, decision, single_delivery_headers(entry, first.nominal_ms)
            )
            return self._continue_schedule(batch, overlay, row, entry, undeliverable(entry, first), bulk)
        if bulk is not None:
            decided = _until_selected(decided, entry, offset, bulk)
        extras = entry.next.extras
        requested_ms = {control: at_ms for control, *_, at_ms in extras}
        for fate in decided.fates:
            if isinstance(fate, Skipped):
                continue
            if isinstance(fate, Occurred):
                times_ms = (fate.nominal_ms, fate.next_ms)
                headers = occurrence_headers(entry.headers, origin, entry.id, fate.number, times_ms)
                due_ms = entry.due if fate is first and not extras else fate.nominal_ms
                grace_end = grace_end_ms(entry, origin, fate.number, fate.nominal_ms)
                if grace_end < batch.grace_end_ms:
                    batch.grace_end_ms = grace_end
            else:
                extra, due_ms = self._origin_prefix + b"%d/%d" % (fate.control, fate.number), requested_ms[fate.control]
                headers = extra_headers(entry.headers, origin, entry.id, extra, fate.nominal_ms)
            batch.messages.append((offset, entry.target, entry.partition, entry.key, entry.value, headers))
            batch.dues_ms.append(due_ms if due_ms > accepted_ms else accepted_ms)
            if self._rates is not None and self._rates.limits(entry.target):
                batch.rated[entry.target] = batch.rated.get(entry.target, 0) + 1
        return self._continue_schedule(batch, overlay, row, entry, decided, bulk)

    def _surplus_max(self, batch: Batch, entry: Entry, size_bytes: int) -> int:
        """Returns how many missed occurrences may leave together with the next one; 0 if the target has a rate, accepts
        only small batches, or has an earlier due message that this transaction stores."""
        is_limited = self._rates is not None and self._rates.limits(entry.target)
        if is_limited or entry.target not in batch.ready:
            return 0
        fates_left = min(batch.surplus_max - batch.surplus, _FATES_MAX - len(batch.fates))
        return max(min(fates_left, batch.surplus_bytes_left // size_bytes), 0)

    def _continue_schedule(
        self,
        batch: Batch,
        overlay: IndexOverlay,
        row: tuple[bytes, bytes],
        entry: Entry,
        decided: Decided,
        bulk: Bulk | None,
    ) -> bool:
        """Writes the new state of a schedule to STORE, or completes the schedule. Returns True if it continues.

        The schedule ends if the bulk control in force selects it now, since the sweep may already have passed its key.
        """
        (key, raw), following = row, decided.following
        offset = split_key(key)[1]
        batch.fates += decided.fates
        if surplus := len(decided.fates) - 1:
            batch.surplus += surplus
            batch.surplus_bytes_left -= surplus * len(entry.value or b"")
        if batch.now_ms > batch.due_max_ms:  # skips are valid only once the broker's clock has reached `now_ms`
            batch.due_max_ms = batch.now_ms
        if is_over(following):
            batch.surplus += 1
            batch.fates.append(Completed(offset, entry.first_due, COMPLETED))
            return False
        if bulk is not None and bulk.may_act_on(entry, offset, following.requested_due):
            batch.swept += 1
            self._cancel_in_bulk(batch, overlay, (key, entry), bulk)
            return False
        due = leaves_ms(self._origin_prefix + b"%d" % offset, entry.stripped, following)
        new = msgspec.structs.replace(entry, due=due, next=following)
        batch.messages.append(self._store.rewritten(new, offset))
        batch.recurred.append((key, len(raw), entry, new))
        batch.cut()
        return True


def _has_more_fates(batch: Batch, entry: Entry, bulk: Bulk | None) -> bool:
    """True if the transaction may need more fates than one for each entry: for a bulk control or for schedules."""
    return bulk is not None or batch.surplus > 0 or entry.next is not None


def _until_selected(decided: Decided, entry: Entry, offset: int, bulk: Bulk) -> Decided:
    """Returns the decided fates of a schedule up to the first fate after which a bulk control selects the schedule."""
    assert entry.next is not None
    following = entry.next
    for count, fate in enumerate(decided.fates, 1):
        following = after_fates(following, fate)
        if not is_over(following) and bulk.may_act_on(entry, offset, following.requested_due):
            return Decided(decided.fates[:count], following)
    return decided


def _rows(
    keys: list[bytes], values: list[bytes], parked: Sequence[tuple[bytes, bytes]]
) -> Iterable[tuple[bytes, bytes]]:
    """Merges keys and values with parked rows in delivery order. Both inputs are ascending."""
    rows = zip(keys, values, strict=True)
    return merge(rows, parked, key=_place) if parked else rows


def _place(row: tuple[bytes, bytes]) -> bytes:
    """Returns the sort key of an entry in delivery order, whether or not it is parked."""
    return row[0][-ENTRY_KEY_SIZE_BYTES:]
