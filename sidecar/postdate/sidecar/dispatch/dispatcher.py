"""Dispatch: turns due entries of the timer index into committed transactions, one at a time.

Steps 1 and 2 of docs/protocol.md, "Running". `due_reader` reads the entries that may leave, `batch` builds their
transaction, `aborts` handles an aborted transaction (step 3), and `parking` parks entries that must wait. In the cases
of steps 4 and 5 (unknown outcome, fenced) `dispatch` raises an exception: the shard drops the ownership, and takes over
again if these steps permit it.

Thread rule: the shard's thread.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from postdate.kafka.errors import AbortRequired, KafkaFault
from postdate.sidecar import failpoints
from postdate.sidecar.config.rate_rules import RateRules
from postdate.sidecar.context.holds import Holds
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.dispatch.aborts import Aborts, finished_transaction
from postdate.sidecar.dispatch.after_commit import finish, note_bulk
from postdate.sidecar.dispatch.batch import BatchBuilder
from postdate.sidecar.dispatch.batch_content import Batch
from postdate.sidecar.dispatch.decisions import MessageRules
from postdate.sidecar.dispatch.due.batch_limit import BatchLimit
from postdate.sidecar.dispatch.due.bulk_sweep import BulkSweep
from postdate.sidecar.dispatch.due.due_reader import Due, DueReader
from postdate.sidecar.dispatch.due.sweep import Sweep
from postdate.sidecar.dispatch.parking import Parking
from postdate.sidecar.dispatch.targets.fault_attribution import FaultAttribution
from postdate.sidecar.dispatch.targets.isolated_targets import OWN
from postdate.sidecar.dispatch.targets.target_rates import TargetRates
from postdate.sidecar.dispatch.targets.targets import Targets
from postdate.sidecar.index.bulk import Bulk, are_ahead, in_force
from postdate.sidecar.index.overlay import IndexOverlay, read_up_to
from postdate.sidecar.transaction.transaction import Content, ShardOwnership
from postdate.sidecar.transaction.verdict_records import VerdictWriter
from postdate.wheel.index import TimerIndex
from postdate.wire.dispatch_log import BEAT, FATES, SWEPT, BulkProgress

#: An entry needs at most two unknown topics: its target or the store topic, and the dead-letter topic if the first
#: topic refuses it.
_LOOKUPS_MAX = 2


class Dispatched(NamedTuple):
    """The result of one turn. `fates`: the number of committed fates. `more`: more entries may be due, so the caller
    should call again without a wait."""

    fates: int
    more: bool


class Dispatcher:
    """Dispatches the entries of one shard. The caller passes the ownership to each call; all other state lives as long
    as the shard."""

    def __init__(self, ctx: ShardContext, targets: Targets) -> None:
        self._ctx = ctx
        self._targets = targets
        self._bulk_sweep = BulkSweep()
        self._is_bulk_next = True
        self._sweep = Sweep(ctx.long_delays.sweep_age_ms)
        budget_ms = ctx.config.dispatch.retry_budget_ms
        verdicts = VerdictWriter(ctx.own, ctx.partition, ctx.topic.verdicts, ctx.clock.wall_ms)
        rules = RateRules.of(ctx.topic.messages_per_second_max)
        self._rates = TargetRates(rules, ctx.clock.steady_ms()) if rules.rules else None
        self._faults = FaultAttribution(ctx.clock, budget_ms, ctx.own.names())
        self._parking = Parking(ctx, targets, self._faults, self._rates)
        message_rules = MessageRules(targets.get, ctx.rules, self._faults, budget_ms, ctx.held, ctx.origin_prefix)
        self._builder = BatchBuilder(ctx.own, ctx.partition, message_rules, verdicts, self._parking, self._rates)
        self._limit = BatchLimit(ctx.config.dispatch.entries_max, ctx.config.dispatch.size_bytes_max)
        self._reader = DueReader(ctx, targets, self._faults, self._limit, self._rates)
        self._aborts = Aborts(ctx, targets, self._faults, self._limit)
        self.ran_trial = False
        """True if the last call of `dispatch` ran a trial, of an isolated target or of Postdate's own topics."""

    def dispatch(self, index: TimerIndex, ownership: ShardOwnership, before_ms: int, now_ms: int) -> Dispatched:
        """Runs at most one transaction, with entries due before `before_ms`, or of any due time for a bulk control.

        `now_ms`: the broker's time, by which lateness is measured. It equals `before_ms` unless the cancel gate, a hold
        or a bulk control holds back later entries.

        Raises UnknownOutcome, Fenced, FatalClient, TimerIndexError: the caller drops the ownership. Raises Unreachable:
        no transaction was begun; the caller tries again later.
        """
        steady, held = self._ctx.clock.steady_ms(), self._ctx.held.current
        self.ran_trial = False
        if self._aborts.is_pausing:
            return Dispatched(0, more=False)
        bulks = index.timer_log.bulks
        bulk = in_force(bulks) if bulks else None
        if bulk is not None and bulk.count < 0:
            return self._begin_bulk(index, ownership, bulk)
        self._targets.poll()
        if self._rates is not None:
            self._rates.begin(index, steady)
        self._parking.begin(index)
        if bulk is not None and self.wants_bulk(index):
            self._is_bulk_next = not self._is_bulk_next  # bulk controls and due entries take turns
            if self._is_bulk_next and self._bulk_sweep.may_run(index, bulk):
                return Dispatched(self._dispatch_bulk(index, ownership, bulk, now_ms), more=True)
        due = self._reader.read(index, steady, before_ms)
        due.now_ms, due.behind_ms = now_ms - 1, now_ms - before_ms
        if not due.keys and not due.parked:
            return Dispatched(0, bulk is not None and self.wants_bulk(index))
        overlay, batch = self._build(index, due)
        for _ in range(_LOOKUPS_MAX):
            if batch.unknown:
                self._targets.look_up(batch.unknown, again=True)
                overlay, batch = self._build(index, due)
        for rows in batch.unknown.values():  # the answer is late: only the entries of these targets wait for it
            batch.park += rows
        has_parked = bool(batch.park)
        if has_parked:
            self._parking.park(index, batch)
            if due.keys_after_gaps:
                return Dispatched(0, more=True)
            # Continue in this turn: if each turn parked further entries and returned, no transaction would run.
            due.leave_out({key for key, _ in batch.park})
            overlay, batch = self._build(index, due)
            if batch.park or not batch.fates:
                if due.trial is not None and not batch.park:
                    self._faults.nothing_waits(due.trial)
                return Dispatched(0, more=True)
        if due.trial is None and batch.skipped_own:
            self._faults.parked((OWN,))
        if not batch.fates and not batch.over:
            if due.trial is not None:
                self._faults.nothing_waits(due.trial)
            elif due.full and due.own_filter is not None:
                self._faults.all_wait()
            return Dispatched(0, due.trial is not None)
        if not batch.fates:
            finish(overlay, batch)
            overlay.write()
        elif not self._commit(index, ownership, overlay, batch, due, held):
            return Dispatched(0, more=True)
        elif due.trial is None and not has_parked:
            self._limit.committed(due.full and not due.short, ownership.took_ms)
        if self._rates is not None:
            self._note_rates(self._rates, index, batch)
        if has_parked:  # the transaction was smaller than the input, so it shows nothing about the backlog
            return Dispatched(len(batch.fates), more=True)
        self._reader.ended(index, due, batch.gone(), before_ms)
        more = due.has_more or batch.stayed > 0 or not batch.fates or due.trial is not None
        return Dispatched(len(batch.fates), more)

    def before_ms(self, index: TimerIndex, before_ms: int) -> int:
        """Returns the time before which an entry must be due to leave: `before_ms`, or at most 1 while a bulk control
        has begun whose request is unread, so that no message leaves."""
        bulks = index.timer_log.bulks
        return min(before_ms, 1) if bulks and are_ahead(bulks, read_up_to(index)) else before_ms

    def wants_bulk(self, index: TimerIndex) -> bool:
        """True if a bulk control is in force and may continue now. It must wait while Postdate's own topics are
        isolated. O(1)."""
        bulks = index.timer_log.bulks
        return bool(bulks) and in_force(bulks) is not None and not self._faults.is_isolated(OWN)

    def _begin_bulk(self, index: TimerIndex, ownership: ShardOwnership, bulk: Bulk) -> Dispatched:
        """Runs a transaction that only records that a bulk control is in force. After its commit, no owner delivers a
        message that the control selects."""
        fate = BulkProgress(bulk.offset, 0, SWEPT, 0)
        try:
            with self._ctx.counts.transaction(self._ctx.clock):
                content = Content(FATES, [], [fate])
                offset = ownership.run(content, read_up_to(index), ownership.low_water_of(index))
        except AbortRequired as fault:
            self._aborts.back_off(fault)
            return Dispatched(0, more=False)
        overlay = IndexOverlay(index)
        note_bulk(overlay, fate)
        self._write(ownership, overlay, offset)
        self._aborts.committed()
        return Dispatched(1, more=True)

    def _dispatch_bulk(self, index: TimerIndex, ownership: ShardOwnership, bulk: Bulk, now_ms: int) -> int:
        """Runs a transaction with the next entries on which a bulk control acts; none if the visited entries contain no
        such entry and more follow. Returns the number of committed fates. Raises as `dispatch`."""
        entries_max = self._faults.entries_max(self._limit.entries)
        due = self._bulk_sweep.read(index, bulk, entries_max, self._limit.size_bytes)
        due.now_ms, due.short = now_ms - 1, self._faults.is_attributing
        overlay, batch = self._build(index, due)
        if batch.fates and not self._commit(index, ownership, overlay, batch, due, self._ctx.held.current):
            return 0
        self._limit.committed(due.full and not due.short, ownership.took_ms)
        self._bulk_sweep.committed()
        return len(batch.fates)

    def _note_rates(self, rates: TargetRates, index: TimerIndex, batch: Batch) -> None:
        """Updates the rates after a write: spends tokens for the messages that were sent, and notes those that were
        parked."""
        rates.spend(batch.rated)
        for key, _, entry in batch.over:
            rates.parked(entry.target, key)
        self._ctx.counts.rated += len(batch.over)
        rates.begin(index, self._ctx.clock.steady_ms())

    @property
    def ending_max(self) -> int:
        """The most entries that may wait under key 0; all of them must fit into one transaction (rule 1)."""
        return self._limit.ending

    def commit_beat(self, index: TimerIndex, ownership: ShardOwnership) -> bool:
        """Commits a record without fates, which keeps retention from emptying the log, and samples the broker's clock.
        Returns False if the transaction is aborted, or if the pause after an abort is not over. Raises as
        `dispatch`."""
        if self._aborts.is_pausing:
            return False
        try:
            with self._ctx.counts.transaction(self._ctx.clock):
                offset = ownership.run(Content(BEAT), read_up_to(index), ownership.low_water_of(index))
        except AbortRequired as fault:
            self._aborts.back_off(fault)
            return False
        self._write(ownership, IndexOverlay(index), offset)
        self._aborts.committed()
        return True

    def maintain(self, index: TimerIndex, now_ms: int) -> bool:
        """Refreshes target metadata, moves back parked entries that may leave, and marks old pending entries so that
        the next transaction stores them. Returns True if entries were moved back: more may follow. Waits for an answer
        from Kafka for at most TARGET_LOOKUP_WAIT_MS."""
        self._sweep.step(index, now_ms)
        self._targets.refresh()
        if self._rates is not None:
            self._rates.begin(index, self._ctx.clock.steady_ms())
        return self._parking.maintain(index, now_ms)

    def needs_maintenance(self, index: TimerIndex) -> bool:
        """True if `maintain` must run at its interval: entries are parked, or a bulk control has not ended.

        A failing or isolated target needs no check until a message for it is parked; parking requests its metadata."""
        return index.parked_count > 0 or bool(index.timer_log.bulks)

    # ---- one batch -------------------------------------------------------------------------------------------------

    def _build(self, index: TimerIndex, due: Due) -> tuple[IndexOverlay, Batch]:
        """Builds a transaction. Returns it with the overlay that contains its changes. Each attempt needs a new
        overlay."""
        after_ms = self._ctx.long_delays.store_after_ms
        overlay = IndexOverlay(index, self._ctx.clock.wall_ms(), store_after_ms=after_ms)
        return overlay, self._builder.build(overlay, due, self._ctx.clock.steady_ms())

    def _commit(
        self, index: TimerIndex, ownership: ShardOwnership, overlay: IndexOverlay, batch: Batch, due: Due, held: Holds
    ) -> bool:
        """Runs the transaction of a batch. Returns False if nothing was committed. Sends nothing if the holds are no
        longer `held` after the wait for a slot of large transactions, or if the shard is being released."""
        content = Content(FATES, batch.messages, batch.fates, batch.due_max_ms, batch.ids, batch.grace_end_ms)
        low_water = ownership.low_water_of(index)
        report_all = self._faults.must_report(due.trial, len(batch.fates))
        self.ran_trial = due.trial is not None
        try:
            with self._ctx.large_transactions.slot(len(batch.fates)):
                if self._ctx.held.current is not held or self._ctx.stopping():
                    return False
                with self._ctx.counts.transaction(self._ctx.clock):
                    offset = ownership.run(
                        content,
                        read_up_to(index),
                        low_water,
                        report_all,
                        self._aborts.missing_target(batch),
                    )
        except AbortRequired as fault:
            self._aborts.aborted(ownership, batch, due, fault)
            return False
        except KafkaFault:
            self._targets.refresh_soon(batch.targets)  # a deleted target could end one producer after another
            if self._rates is not None:  # the transaction may have been committed
                self._rates.spend(batch.rated)
            raise
        recurs = bool(batch.recurred or batch.surplus)
        self._ctx.counts.committed(batch.fates, batch.dues_ms, batch.dead, ownership.broker_clock, recurs)
        if self._ctx.traces is not None:
            sent = ((message[0], message[1], message[5]) for message in batch.messages)
            now_ms = ownership.broker_clock.now_ms()
            self._ctx.traces.delivered(self._ctx.requests, sent, batch.fates, batch.dues_ms, now_ms)
        finish(overlay, batch)
        if batch.ids:
            self._ctx.counts.unremembered_ids += overlay.remember_ids(batch.ids, ownership.logged_ms)
        self._write(ownership, overlay, offset)
        self._aborts.committed()
        finished = finished_transaction(ownership, batch, due)
        if self._faults.needs_late_ms:
            finished.late_ms = batch.until_ms - min(batch.dues_ms, default=batch.until_ms)
        self._faults.committed(finished, ownership.first_wait_ms, ownership.log_waited_ms)
        self._faults.ended([fate.offset for fate in batch.fates] if self._faults.condemned else ())
        return True

    def _write(self, ownership: ShardOwnership, overlay: IndexOverlay, log_offset: int) -> None:
        """Updates the local state in one WriteBatch after a known commit: step 2 of "Running"."""
        overlay.advance(seq=ownership.seq, next_dispatch=log_offset + 1)
        overlay.write()
        failpoints.reached("dispatch.written")

    def retry_at(self) -> float | None:
        """Returns the steady time in ms of the next retry; None if no retry is pending."""
        return self._aborts.retry_at()

    def parked_in_ms(self) -> float:
        """Returns the time in ms until a trial may run, or a parked entry may leave by the rate of its target or
        because it is condemned; infinite if neither may, or while all delivery is held."""
        if self._ctx.held.current.delivery:
            return inf
        rated_at = self._rates.next_at() if self._rates is not None else None
        at = min(inf if rated_at is None else rated_at, self._faults.next_at())
        return max(at - self._ctx.clock.steady_ms(), 0.0)
