"""Counts the situations of `situations` that are visible only while the sidecar's code runs.

The wrapped functions behave as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from postdate.kafka.errors import UnknownOutcome
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.dispatch.due.backlog_bypass import BacklogBypass, BypassedMessages
from postdate.sidecar.dispatch.due.due_reader import DueReader
from postdate.sidecar.dispatch.parking import Parking
from postdate.sidecar.dispatch.targets.fault_attribution import FaultAttribution
from postdate.sidecar.dispatch.targets.isolated_targets import Isolated
from postdate.sidecar.dispatch.targets.target_rates import TargetRates
from postdate.sidecar.index import apply_fates
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.shard.cancel_gate import CancelGate
from postdate.sidecar.takeover import empty_start, takeover
from postdate.sidecar.transaction.transaction import OutgoingRecord
from postdate.sidecar.transaction.verdict_records import VerdictWriter
from postdate.wheel.entry import PENDING, Entry, Kind
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import entry_key
from postdate.wire.dispatch_log import FINAL, Fate, Moved, SeriesFate
from support.kafka_simulator.coordinator import Phase
from support.kafka_simulator.producer import SimTransactionalProducer
from support.simulation.requests.volume import BYTES_MAX, ENTRIES_MAX
from support.simulation.runtime.process import ShardActor
from support.simulation.runtime.simulated_run import SimulatedRun


@contextmanager
def counted(run: SimulatedRun) -> Iterator[None]:
    """Counts situations in `reached` while the context lasts."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(takeover, "apply_fate", _fates(run)))
        stack.enter_context(patch.object(takeover, "bound", _bounds(run)))
        stack.enter_context(patch.object(takeover, "_pieces", _pieces(run)))
        stack.enter_context(patch.object(takeover, "start_empty", _empty_starts(run)))
        stack.enter_context(patch.object(CancelGate, "before_ms", _gates(run)))
        stack.enter_context(patch.object(VerdictWriter, "to_control", _answers(run)))
        stack.enter_context(patch.object(SimTransactionalProducer, "commit", _commits(run)))
        stack.enter_context(patch.object(FaultAttribution, "_isolate", _isolations(run)))
        stack.enter_context(patch.object(BacklogBypass, "next_messages", _counts_bypassed(run)))
        stack.enter_context(patch.object(TargetRates, "next_messages", _rates(run)))
        stack.enter_context(patch.object(Parking, "maintain", _maintains(run)))
        stack.enter_context(patch.object(Isolated, "retry_alone", _refusals(run)))
        stack.enter_context(patch.object(Isolated, "refuse_again", _refusals_alone(run)))
        stack.enter_context(patch.object(IndexOverlay, "contradicted", _contradictions(run)))
        stack.enter_context(patch.object(DueReader, "_limits", _limits(run)))
        yield


def _fates(run: SimulatedRun) -> Callable[[IndexOverlay, Fate, int], None]:
    """Counts the ways in which recovery treats the fates that it reads."""
    honest = apply_fates.apply_fate

    def apply_fate(overlay: IndexOverlay, fate: Fate, next_request: int) -> None:
        key = overlay.find(fate.offset, fate.first_due_ms)
        if key is not None:
            if fate.name in FINAL:
                run.reached["recovery: ends an entry"] += 1
                run.reached["recovery: finds an entry that was moved"] += key != entry_key(
                    fate.first_due_ms, fate.offset
                )
            elif isinstance(fate, Moved):
                read = fate.control < next_request
                entry = overlay.entry(key)
                run.reached[f"recovery: moved by a control that was {'read' if read else 'not read'}"] += 1
                run.reached["recovery: moved again since"] += read and entry.due != fate.due_ms
            else:
                run.reached["recovery: stored by another"] += 1
        elif fate.offset < next_request:
            run.reached["recovery: known already"] += 1
        if isinstance(fate, SeriesFate) and fate.survivor >= next_request:
            run.reached["recovery: the start of a series before its survivor"] += 1
        honest(overlay, fate, next_request)

    return apply_fate


def _bounds(run: SimulatedRun) -> Callable[[ShardContext, takeover.FencedShard], takeover.Bounded]:
    honest = takeover.bound

    def bound(ctx: ShardContext, fenced: takeover.FencedShard) -> takeover.Bounded:
        bounded = honest(ctx, fenced)
        log = run.broker.topics[ctx.own.dispatch_log].logs[ctx.partition]
        hidden = any(record.offset >= log.stable_end for record in log.committed())
        run.reached["fates behind the last stable offset"] += hidden
        return bounded

    return bound


def _pieces(run: SimulatedRun) -> Callable[..., Iterator[list[Any]]]:
    honest = takeover._pieces

    def pieces(*arguments: Any) -> Iterator[list[Any]]:
        fates = 0
        for piece in honest(*arguments):
            run.reached["a recovery applies its fates in several pieces"] += fates > 0
            fates += sum(len(decoded.fates) for _, decoded in piece)
            yield piece

    return pieces


def _empty_starts(run: SimulatedRun) -> Callable[..., object]:
    honest = empty_start.start_empty

    def start_empty(*arguments: object, **more: object) -> object:
        run.reached["started empty"] += 1
        return honest(*arguments, **more)  # type: ignore[arg-type]  # passed on as they came

    return start_empty


def _gates(run: SimulatedRun) -> Callable[[CancelGate, int], int]:
    honest = CancelGate.before_ms

    def before_ms(self: CancelGate, now_ms: int) -> int:
        before = honest(self, now_ms)
        actor = run.scheduler.current
        index = actor.shard._index if isinstance(actor, ShardActor) else None
        if before < now_ms and index is not None:
            held = index.timer_log.scan_keys(entry_key(max(before, 1), 0), entry_key(now_ms, 0), 1)
            run.reached["gate holds a due message"] += bool(held)
        return before

    return before_ms


def _isolations(run: SimulatedRun) -> Callable[..., Isolated]:
    honest = FaultAttribution._isolate

    def isolate(self: FaultAttribution, name: str, *arguments: Any) -> Isolated:
        run.key_zero_isolated |= not name
        run.reached["isolated a target" if name else "isolated key 0"] += 1
        return honest(self, name, *arguments)

    return isolate


def _counts_bypassed(run: SimulatedRun) -> Callable[..., BypassedMessages | None]:
    honest = BacklogBypass.next_messages

    def next_messages(self: BacklogBypass, *arguments: Any) -> BypassedMessages | None:
        bypassed = honest(self, *arguments)
        run.reached["the second cursor takes a message"] += bypassed is not None and bool(bypassed.keys)
        return bypassed

    return next_messages


def _rates(run: SimulatedRun) -> Callable[..., list[tuple[bytes, bytes]]]:
    honest = TargetRates.next_messages

    def next_messages(self: TargetRates, *arguments: Any) -> list[tuple[bytes, bytes]]:
        rows = honest(self, *arguments)
        run.reached["rate: leaves when its turn comes"] += bool(rows)
        return rows

    return next_messages


def _limits(run: SimulatedRun) -> Callable[[DueReader, TimerIndex], tuple[int, int]]:
    honest = DueReader._limits

    def limits(self: DueReader, index: TimerIndex) -> tuple[int, int]:
        run.reached["key 0 holds as many entries as it may"] += index.ending_count >= ENTRIES_MAX
        run.reached["key 0 holds as many bytes as it may"] += index.checkpoint.totals.ending_bytes >= BYTES_MAX
        return honest(self, index)

    return limits


def _contradictions(run: SimulatedRun) -> Callable[[IndexOverlay, str], None]:
    honest = IndexOverlay.contradicted

    def contradicted(self: IndexOverlay, why: str) -> None:
        run.reached["recovery: the log contradicts the index"] += 1
        honest(self, why)

    return contradicted


def _refusals(run: SimulatedRun) -> Callable[..., None]:
    honest = Isolated.retry_alone

    def retry_alone(self: Isolated, offsets: Any, now: float) -> None:
        actor = run.scheduler.current
        assert isinstance(actor, ShardActor)
        run.refused.update((actor.shard.ctx.partition, offset) for offset in offsets)
        honest(self, offsets, now)

    return retry_alone


def _refusals_alone(run: SimulatedRun) -> Callable[..., None]:
    honest = Isolated.refuse_again

    def refuse_again(self: Isolated, offset: int, now: float) -> None:
        actor = run.scheduler.current
        assert isinstance(actor, ShardActor)
        run.refused.add((actor.shard.ctx.partition, offset))
        honest(self, offset, now)

    return refuse_again


def _maintains(run: SimulatedRun) -> Callable[[Parking, TimerIndex, int], bool]:
    honest = Parking.maintain

    def maintain(self: Parking, index: TimerIndex, now_ms: int) -> bool:
        rates = self._rates
        known = rates is None or any(rates._buckets.values())
        moved = honest(self, index, now_ms)
        waits = rates is not None and bool(rates._turns)
        run.reached["rate: waits where another owner left it"] += waits and not known
        return moved

    return maintain


def _answers(run: SimulatedRun) -> Callable[[VerdictWriter, IndexOverlay, Entry, int], list[OutgoingRecord]]:
    honest = VerdictWriter.to_control

    def to_control(self: VerdictWriter, overlay: IndexOverlay, entry: Entry, offset: int) -> list[OutgoingRecord]:
        key = overlay.find(entry.acts_on) if entry.acts_on >= 0 else None
        if entry.acts_on >= 0 and key is None:
            run.reached["control: its message is gone"] += 1
        elif key is not None:
            other = overlay.entry(key)
            overtaken = other.kind not in PENDING and (other.kind != Kind.CANCELLED or other.acts_on != offset)
            run.reached["control: overtaken by another"] += overtaken
        return honest(self, overlay, entry, offset)

    return to_control


def _commits(run: SimulatedRun) -> Callable[[SimTransactionalProducer], None]:
    honest = SimTransactionalProducer.commit

    def commit(self: SimTransactionalProducer) -> None:
        try:
            honest(self)
        except UnknownOutcome:
            done = run.broker.transactions.phase(self._id) in (Phase.PREPARE_COMMIT, Phase.COMPLETE_COMMIT)
            run.reached["unknown outcome"] += 1
            run.reached[f"unknown outcome: {'committed' if done else 'not committed'}"] += 1
            raise

    return commit
