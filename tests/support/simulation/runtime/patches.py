"""The parts of the sidecar that the simulation replaces.

The simulation replaces the database below the timer log, the size of the rings, the boot id, the failpoints, and the
module `time` in takeover and poller. It may lower some limits of batches. Other patches only count and observe. All
other code is the shipped code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from postdate.kafka.errors import Fenced
from postdate.kafka.interface import Partition, Record
from postdate.sidecar import failpoints
from postdate.sidecar.clock import BrokerClock
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.dispatch.dispatcher import Dispatcher
from postdate.sidecar.dispatch.due import bulk_sweep
from postdate.sidecar.errors import Halted
from postdate.sidecar.group import poller
from postdate.sidecar.index.moves import choose_deferred
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.shard import shard
from postdate.sidecar.shard.shard import Shard
from postdate.sidecar.takeover import dispatch_tail, opening, store_reading, takeover
from postdate.sidecar.transaction.transaction import ShardOwnership
from postdate.wheel.index import TimerIndex
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log import timer_log
from postdate.wheel.timer_log.identity import Identity
from support.kafka_simulator import SimBroker
from support.kafka_simulator.producer import SimTransactionalProducer
from support.simulation.requests.traffic import REQUESTS
from support.simulation.runtime.disk import MemoryBatch
from support.simulation.runtime.simulated_run import FINE_SLOTS, HOUR_MS, HOUR_SLOTS, SimulatedRun

#: A step that has no name in the sidecar: only some entries of STORE are written.
STORE_APPLIED = "takeover.store-applied"


class _Time:
    """Replaces the module `time`."""

    def __init__(self, run: SimulatedRun) -> None:
        self._run = run

    def sleep(self, seconds: float) -> None:
        self._run.acting().wait(seconds * 1000)

    def monotonic(self) -> float:
        return self._run.time.now_ms / 1000

    def time_ns(self) -> int:
        return int(self._run.time.now_ms * 1e6)


class _Indexes:
    """Replaces `TimerIndex` in takeover: opens real indexes with the platform of the acting machine."""

    def __init__(self, run: SimulatedRun) -> None:
        self._run = run

    def open(self, directory: Path, identity: Identity, options: IndexOptions, now_ms: int) -> TimerIndex:
        index = TimerIndex.open(directory, identity, options, now_ms, self._run.acting().machine.platform)
        return self._run.watched(index)


def _counting_suspicion(run: SimulatedRun) -> Callable[[SimTransactionalProducer], bool]:
    honest = SimTransactionalProducer.settle

    def settle(self: SimTransactionalProducer) -> bool:
        settled = honest(self)
        run.reached["settled" if settled else "recycled"] += 1
        return settled

    return settle


def _counting_fences(run: SimulatedRun) -> Callable[[Shard, Fenced], float]:
    honest = Shard._fenced

    def fenced(self: Shard, fault: Fenced) -> float:
        run.reached["fenced"] += 1
        return honest(self, fault)

    return fenced


def _recording_halts(run: SimulatedRun) -> Callable[[Shard, Halted], float]:
    """Records every halt, including those that end later."""
    honest = Shard._halt

    def halt(self: Shard, why: Halted) -> float:
        run.halts.append((self.ctx.partition, f"{run.acting().name}: {why}"))
        return honest(self, why)

    return halt


@contextmanager
def _checking_takeovers(run: SimulatedRun) -> Iterator[None]:
    honest_recover, honest_own, honest_end = takeover.recover, takeover.claim_ownership, takeover.end_of_requests
    ends: dict[tuple[str, int], int] = {}

    def recover(ctx: ShardContext, bounded: takeover.Bounded, confirm: Callable[[Halted], None]) -> takeover.Recovered:
        ends[ctx.instance, ctx.partition] = run.broker.topics[REQUESTS].logs[ctx.partition].stable_end
        return honest_recover(ctx, bounded, confirm)

    def end_of_requests(ctx: ShardContext) -> int:
        """Opens the gate after a single response, which by docs/protocol.md may come from a deposed leader."""
        before = run.broker.stale_answers
        end = honest_end(ctx)
        if run.broker.stale_answers > before and (ctx.instance, ctx.partition) in ends:
            run.reached["the gate opens by the answer of a deposed leader"] += 1
            ends[ctx.instance, ctx.partition] = min(end, ends[ctx.instance, ctx.partition])
        return end

    def own(
        ctx: ShardContext, recovered: takeover.Recovered, broker_clock: BrokerClock, owned_seq: int, requests_end: int
    ) -> ShardOwnership:
        ownership = honest_own(ctx, recovered, broker_clock, owned_seq, requests_end)
        run.known.setdefault((ctx.partition, ownership.takeover), ends[ctx.instance, ctx.partition])
        run.check_index(ctx.partition, recovered.index, "taken over")
        return ownership

    with (
        patch.object(takeover, "recover", recover),
        patch.object(takeover, "claim_ownership", own),
        patch.object(takeover, "end_of_requests", end_of_requests),
    ):
        yield


def _checking_commits(run: SimulatedRun) -> Callable[[Dispatcher, ShardOwnership, IndexOverlay, int], None]:
    honest = Dispatcher._write

    def write(self: Dispatcher, ownership: ShardOwnership, overlay: IndexOverlay, log_offset: int) -> None:
        honest(self, ownership, overlay, log_offset)
        run.check_index(self._ctx.partition, overlay._index, "committed")

    return write


def _recording_dead_letters(run: SimulatedRun) -> Callable[..., tuple[int, int]]:
    """Records the time and the machine of each dead letter."""
    honest = SimBroker.append

    def append(self: SimBroker, part: Partition, *given: Any, **more: Any) -> tuple[int, int]:
        written = honest(self, part, *given, **more)
        if part.topic == f"{REQUESTS}.dead-letters":
            run.troubles.left(part.index, written[0], run.acting().machine.name)
        return written

    return append


def _counting_choices(run: SimulatedRun) -> Callable[[TimerIndex, int], bool]:
    """Counts the batches of deferred choices: an even spread moves an entry as soon as the fine ring covers its
    window."""

    def choose(index: TimerIndex, now_ms: int) -> bool:
        before = index.timer_log.sequence()
        more = choose_deferred(index, now_ms)
        run.reached["an even choice that was deferred"] += index.timer_log.sequence() > before
        return more

    return choose


def _counting_stored(run: SimulatedRun) -> Callable[[TimerIndex, Partition, list[Record], int, int], None]:
    honest = store_reading.apply_stored

    def take(index: TimerIndex, store: Partition, records: list[Record], low: int, logged_ms: int) -> None:
        before = index.count
        honest(index, store, records, low, logged_ms)
        run.reached["a rebuild reads STORE in several batches"] += before >= 1_000 and index.count > before
        if index.count > before:
            run.reached["entry read from STORE"] += index.count - before
            run.failpoint(STORE_APPLIED)

    return take


@contextmanager
def simulated(run: SimulatedRun) -> Iterator[None]:
    """Lets the sidecar's code run in this simulation while the context lasts."""

    def tiny(tick_ms: int, ended_window_ms: int) -> IndexOptions:
        return IndexOptions(
            tick_ms=tick_ms,
            fine_slots=FINE_SLOTS,
            hour_ms=HOUR_MS,
            hour_slots=HOUR_SLOTS,
            ended_window_ms=ended_window_ms,
        )

    with (
        patch.object(timer_log, "Database", run.make_database),
        patch.object(timer_log, "WriteBatch", MemoryBatch),
        patch.object(opening, "TimerIndex", _Indexes(run)),
        patch.object(opening, "IndexOptions", tiny),
        patch.object(opening, "time", _Time(run)),
        patch.object(poller, "time", _Time(run)),
        patch.object(failpoints, "reached", run.failpoint),
        patch.object(SimTransactionalProducer, "settle", _counting_suspicion(run)),
        patch.object(SimBroker, "append", _recording_dead_letters(run)),
        patch.object(Shard, "_fenced", _counting_fences(run)),
        patch.object(Shard, "_halt", _recording_halts(run)),
        patch.object(bulk_sweep, "SWEPT_ENTRIES_MAX", run.swept_max),
        patch.object(takeover, "RECOVERY_RECORDS_MAX", run.replayed_max),
        patch.object(store_reading, "STORE_RECORDS_MAX", run.store_records_max),
        patch.object(store_reading, "apply_stored", _counting_stored(run)),
        patch.object(shard, "choose_deferred", _counting_choices(run)),
        _checking_takeovers(run),
        patch.object(Dispatcher, "_write", _checking_commits(run)),
        patch.object(dispatch_tail, "TAIL_OFFSETS", run.tail_offsets),
    ):
        yield
