"""Adds entries that end without a delivery to a transaction: dead letters, controls, and entries that another request
has ended. Also adds entries that stay pending and are written to STORE.

The fate and the verdict of a control are decided here, from the present state of the entry on which it acts, not from
the state at ingest (rule 2). If the topic's size limit is known, a dead letter that is too large is shortened, and
an entry that is too large for the store topic becomes a dead letter.

Thread rule: belongs to the shard's thread.
"""

from __future__ import annotations

from postdate.sidecar.dispatch.batch_content import Batch
from postdate.sidecar.dispatch.decisions import MessageRules
from postdate.sidecar.dispatch.targets.targets import SIZE_UNKNOWN_BYTES, Refusal
from postdate.sidecar.index.apply_requests import action_of
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.index.recurrences import backfill_fate
from postdate.sidecar.transaction.store_records import StoreRecords
from postdate.sidecar.transaction.verdict_records import VerdictWriter
from postdate.wheel.entry import ENDED_BY_EARLIER, PENDING, Entry, Kind, stripped_of
from postdate.wire.delivered import VALUE_LEFT_OUT, dead_letter_headers, record_size_bytes
from postdate.wire.dispatch_log import (
    APPLIED,
    CANCELLED,
    DEAD,
    DROPPED,
    KEPT,
    MOVED,
    PAUSED,
    REPLACED,
    RESUMED,
    STORED,
    TRIGGERED,
    Backfilled,
    ChosenFate,
    Fate,
    Moved,
    PausedOrResumed,
    PlainFate,
    SeriesFate,
    SurvivorFate,
    Triggered,
)
from postdate.wire.headers import Headers
from postdate.wire.reasons import Reason
from postdate.wire.requests.parser import sent_headers
from postdate.wire.requests.request import Action
from postdate.wire.topics import OwnTopics
from postdate.wire.verdicts import Verdict


class UndeliveredEnds:
    """Ends entries of one shard without a delivery, and writes entries that stay pending to STORE."""

    def __init__(self, own: OwnTopics, partition: int, rules: MessageRules, verdicts: VerdictWriter) -> None:
        self._own = own
        self._partition = partition
        self._rules = rules
        self._target_of = rules.target_of
        self._verdicts = verdicts
        self._store = StoreRecords(own, partition)
        self._origin_prefix = f"{own.requests}/{partition}/".encode()

    def end_undelivered(self, batch: Batch, overlay: IndexOverlay, entry: Entry, offset: int) -> None:
        """Ends an entry that ingest has decided about: a refused request, a control, or an entry that another request
        has ended."""
        if entry.kind == Kind.DEAD:
            self.dead_letter(batch, entry, offset, Refusal(Reason(entry.reason), entry.detail))
        elif entry.kind == Kind.APPLIED:
            self._apply(batch, overlay, entry, offset)
        else:
            batch.fates.append(self._end_by_another(entry, offset))
            batch.messages += self._verdicts.to_ended(entry, offset)
            # Note it now, because a later control in this transaction looks it up.
            overlay.note_end(offset, b"" if entry.kind in ENDED_BY_EARLIER else entry.id, sent=False)

    def dead_letter(self, batch: Batch, entry: Entry, offset: int, refusal: Refusal) -> None:
        """Ends an entry as a dead letter: adds the dead letter, the fate and, if the setting requires it, a verdict."""
        self.write_dead_letter(batch, entry, offset, refusal, sent_headers(entry.headers, stripped_of(entry)))
        batch.fates.append(
            PlainFate(offset, entry.first_due, DEAD)
            if entry.window is None
            else ChosenFate(offset, entry.first_due, DEAD, entry.due)
        )
        if entry.kind == Kind.DEAD:
            batch.messages += self._verdicts.to_refused(entry, offset)
        elif self._verdicts.all:
            batch.messages.append(self._verdicts.message(Verdict.DEAD, offset, entry.id))

    def write_dead_letter(self, batch: Batch, entry: Entry, offset: int, refusal: Refusal, original: Headers) -> None:
        """Adds a dead letter with the headers `original` of a request. If it is too large, leaves out the value, and if
        necessary these headers."""
        reason, detail = refusal.reason, refusal.detail
        if reason is Reason.EXPIRED:  # the broker's timestamp must confirm the expiry
            batch.due_max_ms = max(batch.due_max_ms, entry.due + entry.grace_ms + 1)
        origin = self._origin_prefix + b"%d" % offset
        (key,) = entry.own_key or (entry.key,)
        value, headers = entry.value, dead_letter_headers(original, reason, detail, origin)
        size_max = self._size_max(batch, self._own.dead_letters)
        if record_size_bytes(key, value, headers) > size_max:
            value, without = None, f"{VALUE_LEFT_OUT}, it is at {origin.decode()}; {detail}"
            headers = dead_letter_headers(original, reason, without, origin)
            if record_size_bytes(key, value, headers) > size_max:
                headers = dead_letter_headers([], reason, f"headers and {without}", origin)
        batch.messages.append((offset, self._own.dead_letters, self._partition, key, value, headers))
        batch.dead.append(reason)

    def _end_by_another(self, entry: Entry, offset: int) -> Fate:
        """Returns the fate of an entry that another request ends. The fate of a kept or dropped entry names the
        survivor. From format version 2 on, the fate of a replaced entry names it, too. If the survivor continues a
        series, the fate always names it, and contains the start of the series."""
        if entry.kind == Kind.CANCELLED:
            return PlainFate(offset, entry.first_due, CANCELLED)
        if entry.kind in ENDED_BY_EARLIER:
            return SurvivorFate(offset, entry.first_due, KEPT if entry.kind == Kind.KEPT else DROPPED, entry.acts_on)
        if entry.series_ms >= 0:
            return SeriesFate(offset, entry.first_due, REPLACED, entry.acts_on, entry.series_ms)
        if self._rules.writes_version_2:
            return SurvivorFate(offset, entry.first_due, REPLACED, entry.acts_on)
        return PlainFate(offset, entry.first_due, REPLACED)

    def store(self, batch: Batch, entry: Entry, offset: int) -> bool:
        """Adds the fate of an entry and the record that writes it to STORE, and returns True. If the record is too
        large for the store topic, makes the entry a dead letter and returns False."""
        record = self._store.record(entry, offset)
        *_, key, value, headers = record
        size = record_size_bytes(key, value, headers)
        size_max = self._size_max(batch, self._own.store)
        if size > size_max:
            detail = f"{size} bytes are more than the {size_max} that {self._own.store} takes"
            self.dead_letter(batch, entry, offset, Refusal(Reason.TOO_LARGE, detail))
            batch.unstored.add(offset)
            return False
        batch.messages.append(record)
        batch.fates.append(PlainFate(offset, entry.first_due, STORED))
        if self._verdicts.all and not entry.stored:
            batch.messages.append(self._verdicts.message(Verdict.ACCEPTED, offset, entry.id))
        return True

    def _size_max(self, batch: Batch, own_topic: str) -> int:
        """Returns the size in bytes of the largest record that one of Postdate's own topics accepts. Notes an unknown
        topic in `batch.unknown`; except for a bulk control, `Dispatcher.dispatch` looks it up and builds again.

        While the limit is unknown, every record counts as small enough. If the broker refuses one as too large,
        `Aborts` lowers the limit of a known topic for the next attempt.
        """
        topic = self._target_of(own_topic)
        if topic is None:
            batch.unknown.setdefault(own_topic, [])
            return SIZE_UNKNOWN_BYTES
        return topic.size_bytes_max

    def _apply(self, batch: Batch, overlay: IndexOverlay, entry: Entry, offset: int) -> None:
        if entry.acts_on in batch.unstored:
            batch.fates.append(PlainFate(offset, 0, APPLIED))
            batch.messages += self._verdicts.too_late(entry, offset)
            return
        key = overlay.find(entry.acts_on) if entry.acts_on >= 0 and entry.new_due >= 0 else None
        if key is not None:
            other = overlay.entry(key)
            if other.kind in PENDING:
                batch.fates.append(_changed(entry, offset, other))
            if other.kind == Kind.DELIVER and other.stored and entry.acts_on not in batch.rewritten:
                # Another owner stored this entry before it read the control, so the record in STORE lacks the change.
                batch.rewritten.add(entry.acts_on)
                batch.messages.append(self._store.rewritten(other, entry.acts_on))
        batch.fates.append(PlainFate(offset, 0, APPLIED))
        batch.messages += self._verdicts.to_control(overlay, entry, offset)


def _changed(entry: Entry, control: int, other: Entry) -> Moved | PausedOrResumed | Triggered | Backfilled:
    """Returns the fate of the entry `other`, which the control `entry` at the offset `control` has changed."""
    offset, first_due_ms, at_ms = entry.acts_on, other.first_due, entry.new_due
    match action_of(entry):
        case Action.BACKFILL:
            return backfill_fate(other, offset, control)
        case Action.TRIGGER:
            return Triggered(offset, first_due_ms, TRIGGERED, at_ms, control)
        case Action.RESCHEDULE:
            return Moved(offset, first_due_ms, MOVED, at_ms, control)
        case action:
            return PausedOrResumed(offset, first_due_ms, PAUSED if action is Action.PAUSE else RESUMED, at_ms, control)
