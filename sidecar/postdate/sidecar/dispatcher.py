"""Dispatch: from what is due in the timer index to committed transactions, one at a time; isolation and parking.

Steps 1 to 3 of docs/protocol.md, "Running", and "Isolate". Steps 4 and 5 (unknown outcome, fenced) are exceptions
that leave `dispatch`: the shard drops the tenure and takes over anew.

Thread rule: the shard's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from math import inf

from postdate.connectors.kafka.classification import Blame, blame
from postdate.connectors.kafka.errors import AbortRequired, KafkaFault, RecordRejected
from postdate.connectors.wire.delivered import record_size_bytes
from postdate.connectors.wire.dispatch_log import BEAT, FATES
from postdate.connectors.wire.reasons import Reason
from postdate.sidecar import failpoints
from postdate.sidecar.answers import Answers
from postdate.sidecar.batch import BatchBuilder, Refusal, finish
from postdate.sidecar.batch_content import Batch
from postdate.sidecar.batch_limit import BatchLimit
from postdate.sidecar.draft import Draft, read_up_to
from postdate.sidecar.holds import Holds
from postdate.sidecar.limits import (
    BACKOFF_MS_MAX,
    BACKOFF_MS_MIN,
    CONTROL_SIZE_BYTES_MAX,
    ISOLATING_ENTRIES_MAX,
    SUSPECTS_MAX,
)
from postdate.sidecar.long_delays import Sweep
from postdate.sidecar.look_ahead import LookAhead
from postdate.sidecar.parking import Parking
from postdate.sidecar.rate_rules import RateRules
from postdate.sidecar.shard_context import ShardContext
from postdate.sidecar.target_rates import TargetRates
from postdate.sidecar.targets import Targets
from postdate.sidecar.transaction import Message, Tenure
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import ENTRY_KEY_SIZE_BYTES, LAST_KEY, split_key

log = logging.getLogger(__name__)

_BLAME_REASONS = {
    Blame.UNKNOWN_TARGET: Reason.UNKNOWN_TARGET,
    Blame.UNAUTHORIZED: Reason.UNAUTHORIZED,
    Blame.UNAVAILABLE: Reason.TARGET_UNAVAILABLE,
    Blame.TOO_LARGE: Reason.TOO_LARGE,
    Blame.REFUSED: Reason.RECORD_REFUSED,
}
#: What was not looked at is first a target, and where that refuses, the dead letters.
_LOOKS = 2

#: What part of a full transaction leaves while others wait for the second cursor to find them.
_SHORT = 4

_TARGET_BLAMES = frozenset({Blame.UNKNOWN_TARGET, Blame.UNAUTHORIZED, Blame.UNAVAILABLE})


@dataclass(slots=True)
class Suspect:
    """An entry that Kafka refused and that is tried alone: since when, when next, and what Kafka said."""

    since: float
    next_at: float
    delay_ms: float
    refusal: Refusal


@dataclass(slots=True)
class Due:
    """What was read for one transaction: keys and values, ascending; `apart`: keys that follow on one that was not
    read. `read_to`: all that is due up to this key was read. `full`: a bound ended the scan of the first cursor;
    `short`: it was lower than it might be. `goes_on`: more may be due. `ordered`: an ordinary scan, of messages alone.
    `waiting`: parked keys and values whose turn it is at the rate of their target."""

    keys: list[bytes]
    values: list[bytes]
    apart: Collection[bytes] = ()
    read_to: bytes = b""
    full: bool = False
    goes_on: bool = False
    short: bool = False
    ordered: bool = False
    waiting: list[tuple[bytes, bytes]] = field(default_factory=list)


class Dispatcher:
    """Dispatches for one tenure-less shard: the tenure is given with each call, the rest lives as long as the shard."""

    def __init__(self, ctx: ShardContext, targets: Targets) -> None:
        self._ctx = ctx
        self._targets = targets
        self._sweep = Sweep(ctx.long_delays.sweep_age_ms)
        self._budget_ms = ctx.config.dispatch.retry_budget_ms
        answers = Answers(ctx.own, ctx.partition, ctx.topic.verdicts, ctx.clock.wall_ms)
        rules = RateRules.of(ctx.topic.messages_per_second_max)
        self._rates = TargetRates(rules, ctx.clock.steady_ms()) if rules.rules else None
        self._parking = Parking(ctx, targets, self._rates)
        self._builder = BatchBuilder(
            ctx.own, ctx.partition, targets.get, self._forbidden, self._budget_ms, answers, ctx.held, self._rates
        )
        self._limit = BatchLimit(ctx.config.dispatch.entries_max, ctx.config.dispatch.size_bytes_max)
        self._ahead = LookAhead()
        self._is_behind = False  # more was due than the last transaction took
        self._suspects: dict[int, Suspect] = {}
        self._isolating = False
        self._retry_at = 0.0
        self._retry_delay_ms: float = BACKOFF_MS_MIN

    def dispatch(self, index: TimerIndex, tenure: Tenure, before_ms: int) -> tuple[int, bool]:
        """Run one transaction with what is due before `before_ms`. Returns (fates committed, whether more may be due).

        Raises UnknownOutcome, Fenced, FatalClient: drop the tenure. Raises Unreachable: nothing was begun; try later.
        """
        steady, held = self._ctx.clock.steady_ms(), self._ctx.held.now
        if steady < self._retry_at:
            return 0, False
        if self._rates is not None:
            self._rates.begin(index, steady)
        alone = self._next_alone(index, steady, before_ms)
        due = self._read(index, alone, before_ms)
        if not due.keys and not due.waiting:
            return 0, False
        draft, batch = self._build(index, due, before_ms - 1, alone)
        for _ in range(_LOOKS):
            if batch.unknown:
                self._targets.learn(batch.unknown)
                draft, batch = self._build(index, due, before_ms - 1, alone)
        if batch.park:
            self._parking.park(index, batch)
            return 0, True
        if not batch.fates and not batch.over:
            return 0, False
        if not batch.fates:
            finish(draft, batch)
            index.write(draft.changes)
        elif not self._commit(index, tenure, draft, batch, alone, held):
            return 0, True
        else:
            self._limit.committed(due.full and not due.short, tenure.took_ms)
        if self._rates is not None:
            self._note_rates(self._rates, index, batch)
        self._go_on(index, due, batch, before_ms)
        return len(batch.fates), due.goes_on or batch.stayed > 0 or not batch.fates

    def _note_rates(self, rates: TargetRates, index: TimerIndex, batch: Batch) -> None:
        """What has left and what has been parked, each in the write that has just been made."""
        rates.spend(batch.rated)
        for key, _, entry in batch.over:
            rates.parked(entry.target, key)
        self._ctx.counts.rated += len(batch.over)
        rates.begin(index, self._ctx.clock.steady_ms())

    @property
    def controls_max(self) -> int:
        """How many entries may wait under key 0, where they must all fit one transaction (rule 1)."""
        return self._limit.controls

    def beat(self, index: TimerIndex, tenure: Tenure) -> bool:
        """Commit a record without fates: it keeps the log alive and samples the broker's clock. False where it was
        aborted, or must wait after another abort. Raises as `dispatch`."""
        if self._ctx.clock.steady_ms() < self._retry_at:
            return False
        try:
            with self._ctx.counts.transaction(self._ctx.clock):
                offset = tenure.run([], [], BEAT, read_up_to(index), tenure.low_water_of(index), due_max_ms=0)
        except AbortRequired as fault:
            self._back_off(fault)
            return False
        self._write(index, tenure, Draft(index), offset)
        self._retry_delay_ms = BACKOFF_MS_MIN
        return True

    def tend(self, index: TimerIndex, now_ms: int) -> bool:
        """Look after what waits: probe failing targets that are due and move back what may go on, and store what has
        waited for long. True if entries moved."""
        moved = self._sweep.step(index, now_ms) > 0
        self._targets.refresh()
        if self._rates is not None:
            self._rates.begin(index, self._ctx.clock.steady_ms())
        return self._parking.tend(index, now_ms) or moved

    def must_tend(self, index: TimerIndex) -> bool:
        """True where `tend` should come at its interval: something is parked, or a target fails."""
        return index.parked_count > 0 or bool(self._suspects) or not self._targets.all_work()

    # ---- one batch -------------------------------------------------------------------------------------------------

    def _read(self, index: TimerIndex, alone: int, before_ms: int) -> Due:
        """What the next transaction may take: a suspect alone, or what is due first and, in a backlog, what is due for
        targets that have nothing in it."""
        if alone >= 0:
            key = index.find(alone)
            raw = index.entry(key) if key is not None else None
            return Due([key], [raw]) if key is not None and raw is not None else Due([], [])
        limit, size_max = self._limits(index)
        if self._rates is None or not self._rates.is_ready:
            return self._scan(index, before_ms, limit, size_max)
        room = max(limit - index.control_count, 1) // 2 or int(not index.control_count)
        due = self._scan(index, before_ms, max(limit - room, 1), max(size_max // 2, 1))
        due.waiting = self._rates.take(index, before_ms, room, max(size_max // 2, 1), partial(self._may_go, due))
        return due

    def _scan(self, index: TimerIndex, before_ms: int, limit: int, size_max: int) -> Due:
        """What both cursors take."""
        ordered = not (index.control_count or self._isolating)
        if ordered:
            ahead = self._ahead.take(index, before_ms, max(1, limit // 2), max(1, size_max // 2))
            if ahead is not None:
                limit = max(1, limit // _SHORT if self._ahead.searching else limit - len(ahead.keys))
                size_max = max(1, size_max - ahead.size_bytes)
                due = Due(*index.scan_due(before_ms, limit, size_max, until=ahead.until), ordered=True)
                due.short = self._ahead.searching
                due.full = len(due.keys) >= limit or sum(map(len, due.values)) >= size_max
                due.read_to = due.keys[-1] if due.full else ahead.until
                due.goes_on = due.full or self._ahead.searching or bool(ahead.keys)
                due.keys += ahead.keys
                due.values += ahead.values
                due.apart = ahead.apart
                return due
        # Who is behind a backlog that has just fallen due waits for the first transaction and for the search.
        short = ordered and not self._is_behind and LookAhead.wanted(index, before_ms, limit)
        limit = max(1, limit // _SHORT) if short else limit
        due = Due(*index.scan_due(before_ms, limit, size_max), ordered=ordered, short=short)
        due.full = due.goes_on = len(due.keys) >= limit or sum(map(len, due.values)) >= size_max
        due.read_to = due.keys[-1] if due.full else LAST_KEY
        return due

    def _may_go(self, due: Due, target: str) -> bytes | None:
        """Up to which key what is parked of a target may leave with what was read; None for a target that is held or
        fails. No message of the target that is not parked lies below that key and was not read: it would be overtaken.
        """
        known = self._targets.get(target)
        if target in self._ctx.held.now.targets or not (known is None or known.works):
            return None
        return max(due.read_to, self._ahead.passed(target) if due.ordered else b"")

    def _limits(self, index: TimerIndex) -> tuple[int, int]:
        """Entries and bytes of the next scan. Whatever lies under key 0 must be in it whole (rule 1)."""
        limit, size_max = self._limit.entries, self._limit.size_bytes
        if self._isolating:
            limit = min(limit, ISOLATING_ENTRIES_MAX)
        if index.control_count:
            return max(index.control_count, limit // 2), max(size_max, 4 * CONTROL_SIZE_BYTES_MAX)
        return limit, size_max

    def _go_on(self, index: TimerIndex, due: Due, batch: Batch, before_ms: int) -> None:
        """After what was read has ended or was parked: whether to look ahead of what is still there."""
        self._is_behind = due.goes_on
        if not due.ordered:
            return
        if not due.goes_on:
            self._ahead.end()
        elif self._ahead.active:
            self._ahead.committed(due.keys, due.values, batch.gone())
        else:
            full = len(due.keys) * (_SHORT if due.short else 1)
            if LookAhead.wanted(index, before_ms, full):
                self._ahead.begin(index, due.keys, due.values, batch.gone(), full)

    def _build(self, index: TimerIndex, due: Due, now_ms: int, alone: int) -> tuple[Draft, Batch]:
        """A transaction, and the draft that it has begun to change: another attempt needs another one."""
        steady = self._ctx.clock.steady_ms()
        verdicts: dict[int, Refusal | None] = {}
        for offset, suspect in self._suspects.items():
            if steady - suspect.since >= self._budget_ms:
                verdicts[offset] = suspect.refusal
            elif offset != alone:
                verdicts[offset] = None
        draft = Draft(index, self._ctx.clock.wall_ms())
        return draft, self._builder.build(
            draft, due.keys, due.values, now_ms, steady, verdicts, due.apart, due.waiting, alone >= 0
        )

    def _next_alone(self, index: TimerIndex, steady: float, before_ms: int) -> int:
        """The request offset of a suspect whose next attempt, alone, is due; -1 for none.

        None while controls wait: they leave first, all of them, together with what they act on (rules 1 and 4). What
        has ended meanwhile, or was parked or moved, is no suspect any more.
        """
        if index.control_count:
            return -1
        for offset, suspect in list(self._suspects.items()):
            key = index.find(offset)
            if key is None or len(key) > ENTRY_KEY_SIZE_BYTES or split_key(key)[0] >= before_ms:
                del self._suspects[offset]
            elif suspect.next_at <= steady and steady - suspect.since < self._budget_ms:
                return offset
        return -1

    def _commit(self, index: TimerIndex, tenure: Tenure, draft: Draft, batch: Batch, alone: int, held: Holds) -> bool:
        """Run the transaction of a batch; False where nothing was committed. What a person holds while it waits for its
        turn, so that no longer only `held` is, does not leave, nor does anything once the shard should let go."""
        report = self._isolating or alone >= 0
        low_water = tenure.low_water_of(index)
        said = (batch.messages, batch.fates, FATES, read_up_to(index), low_water, batch.due_max_ms)
        try:
            with self._ctx.turns.turn(len(batch.fates)):
                if self._ctx.held.now is not held or self._ctx.stopping():
                    return False
                with self._ctx.counts.transaction(self._ctx.clock):
                    offset = tenure.run(*said, report=report)
        except AbortRequired as fault:
            self._aborted(index, tenure, batch, fault, alone)
            return False
        except KafkaFault:
            if self._rates is not None:  # it may be committed all the same
                self._rates.spend(batch.rated)
            raise
        self._ctx.counts.committed(batch.fates, batch.dues_ms, batch.dead, tenure.broker_clock)
        finish(draft, batch)
        self._write(index, tenure, draft, offset)
        self._retry_delay_ms, self._isolating = BACKOFF_MS_MIN, False
        self._targets.delivered(batch.targets)
        if self._suspects:
            for fate in batch.fates:
                self._suspects.pop(fate[0], None)
        return True

    def _write(self, index: TimerIndex, tenure: Tenure, draft: Draft, log_offset: int) -> None:
        """Step 2 of Running: the local side follows the known commit, in one WriteBatch."""
        draft.changes.seq, draft.changes.next_dispatch = tenure.seq, log_offset + 1
        index.write(draft.changes)
        failpoints.reached("dispatch.written")

    # ---- isolation -------------------------------------------------------------------------------------------------

    def _aborted(self, index: TimerIndex, tenure: Tenure, batch: Batch, fault: AbortRequired, alone: int) -> None:
        """Step 3. Find who is to blame: a target, one entry, or nobody (then wait and try again)."""
        blamed = {} if tenure.log_failed else dict(tenure.blamed)
        if not blamed:
            if isinstance(fault, RecordRejected) and not tenure.log_failed and not self._isolating:
                self._isolating = True
                log.info("shard %s: a transaction was refused (%s); looking for the entry", self._ctx.name, fault)
                return
            self._limit.failed()
            self._back_off(fault)
            return
        messages = {message[0]: message for message in batch.messages}
        steady = self._ctx.clock.steady_ms()
        if not all([self._suspect(messages[offset], why, steady) for offset, why in blamed.items()]):
            self._back_off(fault)
        for offset in blamed.keys() & self._suspects.keys():
            self._parking.bring_back(index, offset)

    def _suspect(self, message: Message, why: KafkaFault, steady: float) -> bool:
        """Hold one refused record against its target or its entry; False where neither is to blame, or too many are."""
        offset, topic, _, key, value, headers = message
        kind = blame(why)
        if topic in self._ctx.own.names():  # never an entry's fault
            if kind is Blame.TOO_LARGE:
                self._targets.limit(topic, record_size_bytes(key, value, headers) - 1)
            return False
        if kind in _TARGET_BLAMES:
            self._suspects.pop(offset, None)
            self._targets.fail(topic, _BLAME_REASONS[kind], str(why))
            return True
        refusal = (_BLAME_REASONS.get(kind, Reason.RECORD_REFUSED), str(why))
        suspect = self._suspects.get(offset)
        if suspect is None:
            if len(self._suspects) >= SUSPECTS_MAX:
                return False
            suspect = self._suspects[offset] = Suspect(steady, steady, BACKOFF_MS_MIN, refusal)
        else:
            suspect.delay_ms = min(suspect.delay_ms * 2, BACKOFF_MS_MAX)
            suspect.next_at = steady + suspect.delay_ms
        suspect.refusal = refusal
        return True

    def _back_off(self, fault: KafkaFault) -> None:
        log.warning(
            "shard %s: a transaction was aborted, next try in %d ms: %s", self._ctx.name, self._retry_delay_ms, fault
        )
        self._retry_at = self._ctx.clock.steady_ms() + self._retry_delay_ms
        self._retry_delay_ms = min(self._retry_delay_ms * 2, BACKOFF_MS_MAX)

    def retry_at(self) -> float | None:
        """The steady time in ms before which nothing needs to be tried, or None: nothing is waiting for a retry."""
        next_at = min((suspect.next_at for suspect in self._suspects.values()), default=None)
        if self._retry_at > self._ctx.clock.steady_ms():
            return self._retry_at if next_at is None else max(self._retry_at, next_at)
        return next_at

    def rated_in_ms(self) -> float:
        """Milliseconds until something may leave that waits for the rate of its target; infinite where nothing may."""
        at = None if self._rates is None or self._ctx.held.now.delivery else self._rates.next_at()
        return inf if at is None else max(at - self._ctx.clock.steady_ms(), 0.0)

    def _forbidden(self, target: str) -> Refusal | None:
        """The allow-list at dispatch: it may have been narrowed since the request was accepted."""
        if self._ctx.rules.permits(target):
            return None
        return Reason.FORBIDDEN_TARGET, f"{target} is not among the targets that {self._ctx.own.requests} allows"
