"""A shard: the state machine of one request partition. Exactly one thread of one process acts for it.

States (docs/protocol.md, "Takeover")::

    OPENING -> FENCING -> RECOVERING -> CATCHING_UP -> RUNNING -> DRAINING -> UNASSIGNED
       any doubt about a transaction: back to FENCING, with a new producer
       another producer has fenced it: FENCED     an operator must act: HALTED

`turn` does one step, and returns how long the caller may wait before the next one. So one thread can own one shard
(`shard_thread`), and a simulation can own many.

Thread rule: the shard's thread. Other threads read `ctx`, `state`, `why`, `next_request` and `foreign`. The poll thread
calls `partition_fault` and `note_ownership_confirmed`.
"""

from __future__ import annotations

import logging

from postdate.kafka.errors import FatalClient, Fenced, KafkaFault, OffsetOutOfRange, UnknownOutcome
from postdate.sidecar.clock import BrokerClock
from postdate.sidecar.context.pacing import TransactionThrottle
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.dispatch.dispatcher import Dispatcher
from postdate.sidecar.dispatch.targets.targets import Targets
from postdate.sidecar.errors import Halted, HaltReason
from postdate.sidecar.index.moves import choose_deferred
from postdate.sidecar.index.overlay import read_up_to
from postdate.sidecar.ingest.ingest import Intake, ingest
from postdate.sidecar.ingest.limits import SETTLE_MS
from postdate.sidecar.ingest.quota import Quota
from postdate.sidecar.limits import BACKOFF_MS_MAX, BACKOFF_MS_MIN
from postdate.sidecar.logs import source_location
from postdate.sidecar.operation.halts import DISK_FULL
from postdate.sidecar.operation.instructions import RESUME
from postdate.sidecar.operation.limits import INSTRUCTION_INTERVAL_MS
from postdate.sidecar.operation.operator_interface import OperatorInterface
from postdate.sidecar.shard.cancel_gate import CancelGate
from postdate.sidecar.shard.housekeeping import Housekeeping, reached
from postdate.sidecar.shard.inbox import Inbox
from postdate.sidecar.shard.internal_failures import InternalFailures
from postdate.sidecar.shard.limits import FENCED_RECHECK_MS
from postdate.sidecar.states import DELIVERING, State, Stateful
from postdate.sidecar.takeover.attempt import Attempt
from postdate.sidecar.takeover.confirmation import Confirmation
from postdate.sidecar.takeover.dispatch_tail import Stopped
from postdate.sidecar.takeover.fenced_arbitration import FencedArbitration
from postdate.sidecar.takeover.opening import close_index, put_aside
from postdate.sidecar.transaction.transaction import ShardOwnership
from postdate.wheel.errors import Corrupt, DiskFull, TimerIndexError, release_frames
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import FIRST_KEY, split_key

log = logging.getLogger(__name__)


class Shard(Stateful):
    """The state machine of one shard. Through its inbox it asks the poll thread to read the partition from R."""

    def __init__(self, ctx: ShardContext, inbox: Inbox, pace: TransactionThrottle) -> None:
        super().__init__(ctx.counts.states, ctx.clock)
        self.ctx = ctx
        self.inbox = inbox
        self.state = State.OPENING
        self.why = ""
        self.next_request = -1
        self._pace = pace
        self._index: TimerIndex | None = None
        self._ownership: ShardOwnership | None = None
        self._broker_clock = BrokerClock(ctx.clock)
        self._dispatcher = Dispatcher(ctx, Targets(ctx.admin, ctx.clock))
        quota = Quota(ctx.topic)
        self._quota = quota if quota.limits else None
        self._intake = Intake(
            ctx.rules, ctx.partition, self._quota, ctx.long_delays.store_after_ms, ctx.counts, ctx.traces
        )
        self._gate = CancelGate(ctx.topic.cancel_gate)
        self._housekeeping = Housekeeping(ctx, inbox, self._gate, self._dispatcher)
        self._backoff_ms: float = BACKOFF_MS_MIN
        self._last_committed_at = self.ctx.clock.steady_ms()
        self._fenced_arbitration = FencedArbitration(ctx)
        self._operator = OperatorInterface(ctx)
        self._confirmation = Confirmation(ctx)
        self._failures = InternalFailures()
        self._unread = True  # the partition must be read from R: none of its records is in the inbox
        self._owned_seq = -1
        self._reopen = False

    # ---- one step --------------------------------------------------------------------------------------------------

    def turn(self) -> float:
        """Does one step. Returns the milliseconds after which the next step is wanted (0: at once)."""
        try:
            return self._turn()
        except Stopped:
            return 0.0
        except Halted as halt:
            return self._halt(halt)
        except Fenced as fault:
            return self._fenced(fault)
        except (UnknownOutcome, FatalClient) as fault:
            log.warning("shard %s: the outcome of a transaction is unknown, fencing again: %s", self.ctx.name, fault)
            self._drop_ownership()
            return self._later()
        except TimerIndexError as fault:
            return self._without_index(fault)
        except KafkaFault as fault:
            log.warning("shard %s: %s: %s", self.ctx.name, type(fault).__name__, fault)
            self.why = str(fault)
            if self._ownership is None or not fault.retriable:
                self._drop_ownership()
            return self._later()
        finally:
            self._recycle()

    def partition_fault(self, fault: KafkaFault) -> None:
        """Makes the shard compare its index with the logs again if the fault is that the read position is out of range.
        From the poll thread."""
        if isinstance(fault, OffsetOutOfRange):
            self._reopen = True
            self.inbox.wake()

    def _turn(self) -> float:
        if self._reopen:
            self._reopen = False
            self._drop_ownership()
            self._drop_index()
        self._attend()
        if self.state in (State.HALTED, State.UNASSIGNED):
            return float(INSTRUCTION_INTERVAL_MS)
        if self.state is State.FENCED:
            return self._recheck()
        if self._ownership is None:
            self._take_over()
            return 0.0 if self._ownership is not None else self._later()
        assert self._index is not None, "an ownership is never without an index"
        return self._run(self._index, self._ownership)

    def _take_over(self) -> None:
        """Runs steps 1 to 7. After a failure there is no ownership; an open index is kept for the next attempt."""
        attempt = Attempt(self._index, self._enter)
        self._index = None  # recovery may replace the index; the attempt always knows the open one
        try:
            taken = attempt.run(self._confirmation, self._operator, self._broker_clock, self._owned_seq)
        finally:
            self._index, self._unread = attempt.index, self._unread or attempt.unread
        self._ownership, index = taken.ownership, taken.recovered.index
        number, read = taken.ownership.takeover, read_up_to(index)
        self.next_request = read
        self._owned_seq = self._ownership.seq
        self._last_committed_at = self.ctx.clock.steady_ms()
        self._gate.close(taken.gate_end, forgets_reads=self._unread)
        if self._unread:
            self.inbox.restart(read)
            self._unread = False
        if self._quota is not None:
            self._quota.resume(taken.recovered.ingested_to)
        self.state, self.why = State.CATCHING_UP, ""
        self._operator.recovered()
        log.info(
            "shard %s: takeover %d complete: next request %d, %d pending", self.ctx.name, number, read, index.count
        )

    def _enter(self, state: State, index: TimerIndex | None) -> None:
        """Enters the state of an attempt's next step; writes the status if the attempt passes the index."""
        self.state = state
        if index is not None:
            self._operator.report(state, self.why, index, at_once=True)

    # ---- running ---------------------------------------------------------------------------------------------------

    def _run(self, index: TimerIndex, ownership: ShardOwnership) -> float:
        more = self._broker_clock.known() and self._ingest(index)  # ingest needs the time for even spreads
        steady = self.ctx.clock.steady_ms()
        if not self._broker_clock.known() or self._owes_record(index, ownership, steady):
            if not self._dispatcher.commit_beat(index, ownership):
                self._ingest(index)  # even if the time is unknown, since a cancel cannot wait
                return float(BACKOFF_MS_MIN)
            self._after_transaction()
            return 0.0
        now_ms = self._broker_clock.now_ms()
        self.ctx.index_queries.serve(index, steady)
        self._housekeeping.run(index, now_ms, steady)
        self.next_request = read_up_to(index)
        wait_ms = self._dispatch(index, ownership, now_ms, steady)
        goes_on = index.load_step(now_ms)
        if choose_deferred(index, now_ms) or goes_on or (more and not self.inbox.empty) or self.ctx.index_queries.waits:
            return 0.0
        return wait_ms

    def _owes_record(self, index: TimerIndex, ownership: ShardOwnership, steady: float) -> bool:
        """True if a record must be written now: before retention empties the log, or to publish a new low-water
        mark."""
        silent_ms = steady - self._last_committed_at
        if silent_ms > self.ctx.beat_interval_ms:
            return True
        return silent_ms > SETTLE_MS and ownership.low_water != ownership.low_water_of(index)

    def _ingest(self, index: TimerIndex) -> bool:
        """Applies the oldest batches of the inbox. Returns False if ingest cannot continue now: requests must wait for
        a dispatch, or intake is held."""
        ctx = self.ctx
        records = [] if ctx.held.current.intake else self.inbox.drain()
        if records:
            now_ms = self._broker_clock.now_ms() if self._broker_clock.known() else -1
            used = ingest(index, self._intake, records, ctx.clock.wall_ms(), self._dispatcher.ending_max, now_ms)
            if used:
                self._gate.note_read(records[used - 1].timestamp_ms)
                self._broker_clock.observe(records[used - 1])
            self.next_request = read_up_to(index)
            if used < len(records):
                self.inbox.put_back(records[used:])
                return False
        if self.state is State.CATCHING_UP and self._gate.try_open(reached(index, self.inbox)):
            self.state = State.RUNNING
            log.info("shard %s: caught up at request %d", self.ctx.name, read_up_to(index))
        return not ctx.held.current.intake

    def _dispatch(self, index: TimerIndex, ownership: ShardOwnership, now_ms: int, steady: float) -> float:
        before_ms = self._before_ms(index, now_ms)
        next_due = index.next_due_ms()
        is_idle = (next_due is None or next_due >= max(before_ms, 1)) and not self._dispatcher.wants_bulk(index)
        if is_idle and self._dispatcher.parked_in_ms() > 0:
            return min(self._idle(index, now_ms, next_due), self._dispatcher.parked_in_ms())
        wait_ms = self._pace.wait_ms(steady)
        if wait_ms > 0:
            return wait_ms
        fates, more = self._dispatcher.dispatch(index, ownership, before_ms, now_ms)
        if fates:
            is_trial = self._dispatcher.ran_trial
            self._pace.observe(self.ctx.clock.steady_ms(), fates, ownership.acknowledged_ms, is_trial=is_trial)
            self._after_transaction()
            return 0.0
        if more:
            return 0.0
        retry_at = self._dispatcher.retry_at()
        # The wheel knows only a lower bound: one seek finds the exact time.
        keys = index.timer_log.scan_keys(FIRST_KEY, None, 1)
        exact = split_key(keys[0])[0] if keys else None
        if retry_at is not None:
            return max(retry_at - self.ctx.clock.steady_ms(), 1.0)
        return min(self._idle(index, now_ms, exact), max(self._dispatcher.parked_in_ms(), 1.0))

    def _before_ms(self, index: TimerIndex, now_ms: int) -> int:
        """Returns the time before which messages must be due in order to leave now."""
        before_ms = self._dispatcher.before_ms(index, self._gate.before_ms(now_ms))
        return self.ctx.held.current.before_ms(before_ms)

    def _idle(self, index: TimerIndex, now_ms: int, next_due: int | None) -> float:
        """Returns the milliseconds until a message may leave or a duty is due. REQUIRES: no message may leave now."""
        check_in_ms = self._housekeeping.next_check_in_ms(index, self.state is State.RUNNING, self._last_committed_at)
        if next_due is None or self.ctx.held.current.delivery or self._before_ms(index, now_ms) < now_ms:
            return check_in_ms if next_due is None or self.ctx.held.current.delivery else 50.0
        return min(check_in_ms, max(next_due + 1 - now_ms, 0.2))

    def _after_transaction(self) -> None:
        self._last_committed_at = self.ctx.clock.steady_ms()
        self._backoff_ms = 0.0  # the first failure after a success is retried at once, further ones after a pause

    def _recycle(self) -> None:
        """Drops an ownership whose last transaction was not settled cleanly: a late copy of its commit request could
        decide the next transaction (KAFKA-17754)."""
        if self._ownership is not None and not self._ownership.reusable:
            log.info("shard %s: replacing the producer, and taking over again", self.ctx.name)
            self._drop_ownership()

    # ---- when it cannot continue -----------------------------------------------------------------------------------

    def _later(self, wait_min_ms: float = 0.0) -> float:
        wait = max(self._backoff_ms, wait_min_ms)
        self._backoff_ms = min(max(self._backoff_ms * 2, BACKOFF_MS_MIN), BACKOFF_MS_MAX)
        return wait

    def _halt(self, halt: Halted) -> float:
        self._drop_ownership()
        self._drop_index()
        self.state, self.why = State.HALTED, str(halt)
        log.error("shard %s: HALTED: %s", self.ctx.name, halt)
        self._operator.halted(halt)
        self._operator.report(self.state, self.why, None, at_once=True)
        return float(INSTRUCTION_INTERVAL_MS)

    def fail(self, error: Exception) -> float:
        """Logs an unexpected error that `turn` has raised. The shard starts again after a pause; after too many such
        errors it halts.

        Returns the milliseconds after which the next turn is wanted. From the shard's thread.
        """
        log.error("shard %s: a defect of Postdate stopped it", self.ctx.name, exc_info=error)
        retry_ms, detail = self._failures.retry_ms(self.ctx.clock.steady_ms()), source_location(error)
        if retry_ms is None:
            return self._halt(Halted(HaltReason.INTERNAL, f"{detail}; report it with the log"))
        self._drop_ownership()
        self._drop_index()
        if self.state is not State.FENCED:
            self.state = State.OPENING
        self.why = f"failed {self._failures.count} times, {detail}; next attempt in {retry_ms / 1000:.0f} s"
        self._operator.report(self.state, self.why, None, at_once=True)
        return retry_ms

    def _attend(self) -> None:
        """Carries out instructions and writes the status, each at its interval. Between these times it costs little."""
        instruction = self._operator.instruction(self.ctx.clock.steady_ms())
        if instruction == RESUME:
            self._resume()
        elif instruction and self._operator.may_rebuild():
            self._move_index_aside()
        if self._index is not None or self.state is State.HALTED:
            self._operator.report(self.state, self.why, self._index)

    def _resume(self) -> None:
        if self.state is State.FENCED:
            self._fenced_arbitration = FencedArbitration(self.ctx)
        if self.state in (State.FENCED, State.HALTED):
            self.state, self.why, self._backoff_ms = State.OPENING, "", BACKOFF_MS_MIN

    def _move_index_aside(self) -> None:
        """Moves the index aside; the next takeover rebuilds it from the topics."""
        self._drop_ownership()
        self._drop_index()
        put_aside(self.ctx.name, self._operator.directory, "set-aside")
        self._operator.index_moved_aside()
        self._fenced_arbitration = FencedArbitration(self.ctx)
        self.state, self.why, self._backoff_ms = State.OPENING, "", BACKOFF_MS_MIN

    def _fenced(self, fault: Fenced) -> float:
        """Stops because another producer holds the transactional id, and starts to find out who holds it, before any
        new init (step 5 of Running)."""
        log.warning(
            "shard %s: fenced: another producer acts for it (%s); nothing more is delivered from here",
            self.ctx.name,
            fault,
        )
        held = self._ownership or (None if self._index is None else self._index.checkpoint)
        self._fenced_arbitration.begin(held.takeover if held is not None else None)
        self._drop_ownership()
        self._owned_seq = -1  # the next takeover writes a new owner record, for the process that fenced this one
        self.state, self.why = State.FENCED, str(fault)
        return float(FENCED_RECHECK_MS)

    @property
    def foreign(self) -> bool:
        """True if a deployment of another group has taken over: this process must not fence again."""
        return bool(self._fenced_arbitration.foreign)

    def note_ownership_confirmed(self) -> None:
        """Notes that the group has confirmed, after the fence, that this process still holds the partition. From the
        poll thread."""
        self._fenced_arbitration.note_ownership_confirmed()
        self.inbox.wake()

    def _recheck(self) -> float:
        if self.foreign:
            return float(INSTRUCTION_INTERVAL_MS)
        if self._fenced_arbitration.may_return():
            log.warning("shard %s: the group confirms that it is ours; taking over again", self.ctx.name)
            self.state = State.FENCING
            return 0.0
        if not self.foreign:
            return float(FENCED_RECHECK_MS)
        self.why = self._fenced_arbitration.foreign
        log.error("shard %s: FENCED: %s", self.ctx.name, self.why)
        return float(INSTRUCTION_INTERVAL_MS)

    # ---- release ---------------------------------------------------------------------------------------------------

    def _drop_ownership(self) -> None:
        if self._ownership is not None:
            if self._ownership.is_refuted:
                self._confirmation.note_wrong_answer()
            self._ownership.producer.destroy()
            self._ownership = None
        if self.state in DELIVERING:
            self.state = State.FENCING

    def _drop_index(self, clean: bool = True) -> None:
        index, self._index = self._index, None
        if index is not None:
            self._unread = True
            close_index(self.ctx.name, index, clean)

    def _without_index(self, fault: TimerIndexError) -> float:
        """Releases the timer index after a failure. The next takeover opens it again, or rebuilds it if it is
        damaged."""
        release_frames(fault)
        self._drop_ownership()
        if isinstance(fault, Corrupt):
            log.error("shard %s: the timer index is damaged, rebuilding: %s", self.ctx.name, fault)
            if self._index is not None:
                directory = self._index.wheel_path.parent
                self._drop_index(clean=False)
                put_aside(self.ctx.name, directory, "unusable")
            return self._later()
        is_full = isinstance(fault, DiskFull)
        self.why = f"{DISK_FULL} ({fault})" if is_full else f"the timer index failed: {fault}"
        self._drop_index()
        self._operator.report(self.state, self.why, None, at_once=True)
        log.error("shard %s: %s", self.ctx.name, self.why)
        return self._later(BACKOFF_MS_MAX if is_full else 0.0)

    def close(self) -> None:
        """Releases the shard gracefully: no transaction is open between turns, so the index is synced and closed."""
        final_state = State.HALTED if self.state is State.HALTED else State.UNASSIGNED
        self.state = State.DRAINING
        if self._ownership is not None:
            self._ownership.producer.destroy()
            self._ownership = None
        if self._index is not None or final_state is State.HALTED:
            try:
                self._operator.report(final_state, self.why, self._index, at_once=True, served=False)
            except TimerIndexError as fault:
                log.warning("shard %s: its status cannot be written: %s", self.ctx.name, fault)
        self._drop_index()
        self.state = State.UNASSIGNED
