"""Dispatch: from what is due in the timer index to committed transactions, one at a time; isolation and parking.

Steps 1 to 3 of docs/protocol.md, "Running", and "Isolate". Steps 4 and 5 (unknown outcome, fenced) are exceptions
that leave `dispatch`: the shard drops the tenure and takes over anew.

Thread rule: the shard's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from postdate.connectors.kafka.classification import Blame, blame
from postdate.connectors.kafka.errors import AbortRequired, KafkaFault, RecordRejected
from postdate.connectors.wire.delivered import record_size_bytes
from postdate.connectors.wire.dispatch_log import BEAT, FATES
from postdate.connectors.wire.reasons import Reason
from postdate.sidecar import failpoints
from postdate.sidecar.answers import Answers
from postdate.sidecar.batch import Batch, BatchBuilder, Refusal, finish
from postdate.sidecar.batch_limit import BatchLimit
from postdate.sidecar.draft import Draft, read_up_to
from postdate.sidecar.limits import (
    BACKOFF_MS_MAX,
    BACKOFF_MS_MIN,
    CONTROL_SIZE_BYTES_MAX,
    ISOLATING_ENTRIES_MAX,
    SUSPECTS_MAX,
    TARGET_PROBE_MS_MIN,
    UNPARK_ENTRIES_MAX,
)
from postdate.sidecar.long_delays import Sweep
from postdate.sidecar.look_ahead import LookAhead
from postdate.sidecar.shard_context import ShardContext
from postdate.sidecar.targets import Target, Targets
from postdate.sidecar.transaction import Message, Tenure
from postdate.wheel.entry import Entry, decode_entry, encode_entry
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import ENTRY_KEY_SIZE_BYTES, parked_key, parked_prefix, split_key, split_parked_key

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
    read. `full`: a bound ended the scan of the first cursor. `goes_on`: more may be due. `ordered`: an ordinary scan,
    of messages alone."""

    keys: list[bytes]
    values: list[bytes]
    apart: Collection[bytes] = ()
    full: bool = False
    goes_on: bool = False
    ordered: bool = False


class Dispatcher:
    """Dispatches for one tenure-less shard: the tenure is given with each call, the rest lives as long as the shard."""

    def __init__(self, ctx: ShardContext, targets: Targets) -> None:
        self._ctx = ctx
        self._targets = targets
        self._sweep = Sweep(ctx.long_delays.sweep_age_ms)
        self._budget_ms = ctx.config.dispatch.retry_budget_ms
        answers = Answers(ctx.own, ctx.partition, ctx.topic.verdicts, ctx.clock.wall_ms)
        self._builder = BatchBuilder(
            ctx.own, ctx.partition, targets.get, self._forbidden, self._budget_ms, answers, ctx.held
        )
        self._limit = BatchLimit(ctx.config.dispatch.entries_max, ctx.config.dispatch.size_bytes_max)
        self._ahead = LookAhead()
        self._suspects: dict[int, Suspect] = {}
        self._isolating = False
        self._retry_at = 0.0
        self._retry_delay_ms: float = BACKOFF_MS_MIN

    def dispatch(self, index: TimerIndex, tenure: Tenure, before_ms: int) -> tuple[int, bool]:
        """Run one transaction with what is due before `before_ms`. Returns (fates committed, whether more may be due).

        Raises UnknownOutcome, Fenced, FatalClient: drop the tenure. Raises Unreachable: nothing was begun; try later.
        """
        steady = self._ctx.clock.steady_ms()
        if steady < self._retry_at:
            return 0, False
        alone = self._next_alone(index, steady, before_ms)
        due = self._read(index, alone, before_ms)
        if not due.keys:
            return 0, False
        draft, batch = self._build(index, due, before_ms - 1, alone)
        for _ in range(_LOOKS):
            if batch.unknown:
                self._targets.learn(batch.unknown)
                draft, batch = self._build(index, due, before_ms - 1, alone)
        if batch.park:
            self._park(index, batch)
            return 0, True
        if not batch.fates:
            return 0, False
        if not self._commit(index, tenure, draft, batch, alone):
            return 0, True
        self._go_on(index, tenure, due, batch, before_ms)
        return len(batch.fates), due.goes_on or batch.stayed > 0

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
        for name in _parked_targets(index):
            if name in self._ctx.held.now.targets:
                continue
            target = self._targets.get(name)
            if target is None:
                self._targets.learn([name])
                target = self._targets.get(name)
            assert target is not None, "learn knows every name it was asked for"
            moved |= self._unpark(index, target, now_ms)
        return moved

    # ---- one batch -------------------------------------------------------------------------------------------------

    def _read(self, index: TimerIndex, alone: int, before_ms: int) -> Due:
        """What the next transaction may take: a suspect alone, or what is due first and, in a backlog, what is due for
        targets that have nothing in it."""
        if alone >= 0:
            key = index.find(alone)
            raw = index.entry(key) if key is not None else None
            return Due([key], [raw]) if key is not None and raw is not None else Due([], [])
        controls = index.control_count
        limit, size_max = self._limits(index)
        if not controls and not self._isolating:
            ahead = self._ahead.take(index, before_ms, max(1, limit // 2), max(1, size_max // 2))
            if ahead is not None:
                limit = max(1, limit // 4 if self._ahead.searching else limit - len(ahead.keys))
                size_max = max(1, size_max - ahead.size_bytes)
                due = Due(*index.scan_due(before_ms, limit, size_max, until=ahead.until), ordered=True)
                due.full = len(due.keys) >= limit or sum(map(len, due.values)) >= size_max
                due.goes_on = due.full or self._ahead.searching or bool(ahead.keys)
                due.keys += ahead.keys
                due.values += ahead.values
                due.apart = ahead.apart
                return due
        due = Due(*index.scan_due(before_ms, limit, size_max), ordered=not (controls or self._isolating))
        due.full = due.goes_on = len(due.keys) >= limit or sum(map(len, due.values)) >= size_max
        return due

    def _limits(self, index: TimerIndex) -> tuple[int, int]:
        """Entries and bytes of the next scan. Whatever lies under key 0 must be in it whole (rule 1)."""
        limit, size_max = self._limit.entries, self._limit.size_bytes
        if self._isolating:
            limit = min(limit, ISOLATING_ENTRIES_MAX)
        if index.control_count:
            return max(index.control_count, limit // 2), max(size_max, 4 * CONTROL_SIZE_BYTES_MAX)
        return limit, size_max

    def _go_on(self, index: TimerIndex, tenure: Tenure, due: Due, batch: Batch, before_ms: int) -> None:
        """After a commit: how large the next transaction may be, and whether to look ahead of what waits."""
        self._limit.committed(due.full and not self._ahead.searching, tenure.took_ms)
        if not due.ordered:
            return
        if not due.goes_on:
            self._ahead.end()
        elif self._ahead.active:
            self._ahead.committed(due.keys, due.values, batch.ended())
        elif LookAhead.wanted(index, before_ms, len(due.keys)):
            self._ahead.begin(index, due.keys, due.values, batch.ended())

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
        return draft, self._builder.build(draft, due.keys, due.values, now_ms, steady, verdicts, due.apart)

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

    def _commit(self, index: TimerIndex, tenure: Tenure, draft: Draft, batch: Batch, alone: int) -> bool:
        report = self._isolating or alone >= 0
        low_water = tenure.low_water_of(index)
        try:
            with self._ctx.counts.transaction(self._ctx.clock):
                offset = tenure.run(
                    batch.messages, batch.fates, FATES, read_up_to(index), low_water, batch.due_max_ms, report=report
                )
        except AbortRequired as fault:
            self._aborted(tenure, batch, fault, alone)
            return False
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

    def _aborted(self, tenure: Tenure, batch: Batch, fault: AbortRequired, alone: int) -> None:
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

    def _forbidden(self, target: str) -> Refusal | None:
        """The allow-list at dispatch: it may have been narrowed since the request was accepted."""
        if self._ctx.rules.permits(target):
            return None
        return Reason.FORBIDDEN_TARGET, f"{target} is not among the targets that {self._ctx.own.requests} allows"

    # ---- parking ---------------------------------------------------------------------------------------------------

    def _park(self, index: TimerIndex, batch: Batch) -> None:
        """Move entries of a failing target aside, so that they hold nobody up; a local change only."""
        draft = Draft(index)
        for key, entry in batch.park:
            self._rekey(draft, key, entry, parked=True)
        index.write(draft.changes)

    def _unpark(self, index: TimerIndex, target: Target, now_ms: int) -> bool:
        """Move entries back: all of a target that works, else those whose retry budget is used up."""
        steady = self._ctx.clock.steady_ms()
        keys, values = index.scan_parked(target.name, UNPARK_ENTRIES_MAX)
        draft, moved = Draft(index), 0
        last_look = steady - target.looked_at > TARGET_PROBE_MS_MIN
        for key, raw in zip(keys, values, strict=True):
            spent = steady - target.failing_since >= self._budget_ms and (split_key(key)[0] + self._budget_ms <= now_ms)
            if spent and last_look and not target.works:  # nobody ends for a target that came back a moment ago
                last_look = False
                self._targets.look_again(target.name)
            if not target.works and not spent:
                break
            self._rekey(draft, key, decode_entry(raw), parked=False)
            moved += 1
        if moved:
            index.write(draft.changes)
        return moved > 0

    def _rekey(self, draft: Draft, key: bytes, entry: Entry, parked: bool) -> None:
        due_ms, offset = split_key(key)
        draft.remove(key, entry.stored)
        if parked:
            new_key = parked_key(entry.target, due_ms, offset)
            draft.changes.insert_parked(new_key, encode_entry(entry), stored=entry.stored)
            draft.changes.places[offset] = new_key
        else:
            draft.changes.places[offset] = None
            draft.put(offset, due_ms, entry)


def _parked_targets(index: TimerIndex) -> list[str]:
    """The targets that have parked entries, by one seek each."""
    names: list[str] = []
    start = b""
    while keys := index.scan_parked_keys(start, 1):
        names.append(split_parked_key(keys[0])[0])
        start = parked_prefix(names[-1])[:-1] + b"\1"
    return names
