"""The parts of the sidecar that the simulation replaces.

They are the database below the timer log, the size of the rings and the boot id, the failpoints, the module `time` in
takeover and poller, and some limits of batches, which may be small. Other patches only count and observe. All other
code is the shipped code.
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
from support.simulation.world.disk import MemoryBatch
from support.simulation.world.world import FINE_SLOTS, HOUR_MS, HOUR_SLOTS, World

#: A step that has no name in the sidecar: some entries of STORE are written, others are not.
STORE_APPLIED = "takeover.store-applied"


class _Time:
    """Replaces the module `time`."""

    def __init__(self, world: World) -> None:
        self._world = world

    def sleep(self, seconds: float) -> None:
        self._world.acting().wait(seconds * 1000)

    def monotonic(self) -> float:
        return self._world.time.now_ms / 1000

    def time_ns(self) -> int:
        return int(self._world.time.now_ms * 1e6)


class _Indexes:
    """Replaces `TimerIndex` in takeover: opens the real one, with the platform of the acting machine."""

    def __init__(self, world: World) -> None:
        self._world = world

    def open(self, directory: Path, identity: Identity, options: IndexOptions, now_ms: int) -> TimerIndex:
        index = TimerIndex.open(directory, identity, options, now_ms, self._world.acting().machine.platform)
        return self._world.watched(index)


def _counting_suspicion(world: World) -> Callable[[SimTransactionalProducer], bool]:
    honest = SimTransactionalProducer.settle

    def settle(self: SimTransactionalProducer) -> bool:
        settled = honest(self)
        world.reached["settled" if settled else "recycled"] += 1
        return settled

    return settle


def _counting_fences(world: World) -> Callable[[Shard, Fenced], float]:
    honest = Shard._fenced

    def fenced(self: Shard, fault: Fenced) -> float:
        world.reached["fenced"] += 1
        return honest(self, fault)

    return fenced


def _recording_halts(world: World) -> Callable[[Shard, Halted], float]:
    """Records every halt, including those that end later."""
    honest = Shard._halt

    def halt(self: Shard, why: Halted) -> float:
        world.halts.append((self.ctx.partition, f"{world.acting().name}: {why}"))
        return honest(self, why)

    return halt


@contextmanager
def _checking_takeovers(world: World) -> Iterator[None]:
    honest_recover, honest_own, honest_end = takeover.recover, takeover.claim_ownership, takeover.end_of_requests
    ends: dict[tuple[str, int], int] = {}

    def recover(ctx: ShardContext, bounded: takeover.Bounded, confirm: Callable[[Halted], None]) -> takeover.Recovered:
        ends[ctx.instance, ctx.partition] = world.broker.topics[REQUESTS].logs[ctx.partition].stable_end
        return honest_recover(ctx, bounded, confirm)

    def end_of_requests(ctx: ShardContext) -> int:
        """Opens the gate after a single response. docs/protocol.md does not promise that it comes from the true
        leader."""
        before = world.broker.stale_answers
        end = honest_end(ctx)
        if world.broker.stale_answers > before and (ctx.instance, ctx.partition) in ends:
            world.reached["the gate opens by the answer of a deposed leader"] += 1
            ends[ctx.instance, ctx.partition] = min(end, ends[ctx.instance, ctx.partition])
        return end

    def own(
        ctx: ShardContext, recovered: takeover.Recovered, broker_clock: BrokerClock, owned_seq: int, requests_end: int
    ) -> ShardOwnership:
        ownership = honest_own(ctx, recovered, broker_clock, owned_seq, requests_end)
        world.known.setdefault((ctx.partition, ownership.takeover), ends[ctx.instance, ctx.partition])
        world.check_index(ctx.partition, recovered.index, "taken over")
        return ownership

    with (
        patch.object(takeover, "recover", recover),
        patch.object(takeover, "claim_ownership", own),
        patch.object(takeover, "end_of_requests", end_of_requests),
    ):
        yield


def _checking_commits(world: World) -> Callable[[Dispatcher, ShardOwnership, IndexOverlay, int], None]:
    honest = Dispatcher._write

    def write(self: Dispatcher, ownership: ShardOwnership, overlay: IndexOverlay, log_offset: int) -> None:
        honest(self, ownership, overlay, log_offset)
        world.check_index(self._ctx.partition, overlay._index, "committed")

    return write


def _recording_dead_letters(world: World) -> Callable[..., tuple[int, int]]:
    """Records the time and the machine of each dead letter."""
    honest = SimBroker.append

    def append(self: SimBroker, part: Partition, *given: Any, **more: Any) -> tuple[int, int]:
        written = honest(self, part, *given, **more)
        if part.topic == f"{REQUESTS}.dead-letters":
            world.troubles.left(part.index, written[0], world.acting().machine.name)
        return written

    return append


def _counting_choices(world: World) -> Callable[[TimerIndex, int], bool]:
    """Counts the entries that an even spread moves as soon as the fine ring covers their windows."""

    def choose(index: TimerIndex, now_ms: int) -> bool:
        before = index.timer_log.sequence()
        more = choose_deferred(index, now_ms)
        world.reached["an even choice that was deferred"] += index.timer_log.sequence() > before
        return more

    return choose


def _counting_stored(world: World) -> Callable[[TimerIndex, Partition, list[Record], int, int], None]:
    honest = store_reading.apply_stored

    def take(index: TimerIndex, store: Partition, records: list[Record], low: int, logged_ms: int) -> None:
        before = index.count
        honest(index, store, records, low, logged_ms)
        world.reached["a rebuild reads STORE in several batches"] += before >= 1_000 and index.count > before
        if index.count > before:
            world.reached["entry read from STORE"] += index.count - before
            world.failpoint(STORE_APPLIED)

    return take


@contextmanager
def simulated(world: World) -> Iterator[None]:
    """Makes the sidecar's code run in this simulation while the context lasts."""

    def tiny(tick_ms: int, ended_window_ms: int) -> IndexOptions:
        return IndexOptions(
            tick_ms=tick_ms,
            fine_slots=FINE_SLOTS,
            hour_ms=HOUR_MS,
            hour_slots=HOUR_SLOTS,
            ended_window_ms=ended_window_ms,
        )

    with (
        patch.object(timer_log, "Database", world.make_database),
        patch.object(timer_log, "WriteBatch", MemoryBatch),
        patch.object(opening, "TimerIndex", _Indexes(world)),
        patch.object(opening, "IndexOptions", tiny),
        patch.object(opening, "time", _Time(world)),
        patch.object(poller, "time", _Time(world)),
        patch.object(failpoints, "reached", world.failpoint),
        patch.object(SimTransactionalProducer, "settle", _counting_suspicion(world)),
        patch.object(SimBroker, "append", _recording_dead_letters(world)),
        patch.object(Shard, "_fenced", _counting_fences(world)),
        patch.object(Shard, "_halt", _recording_halts(world)),
        patch.object(bulk_sweep, "SWEPT_ENTRIES_MAX", world.swept_max),
        patch.object(takeover, "RECOVERY_RECORDS_MAX", world.replayed_max),
        patch.object(store_reading, "STORE_RECORDS_MAX", world.store_records_max),
        patch.object(store_reading, "apply_stored", _counting_stored(world)),
        patch.object(shard, "choose_deferred", _counting_choices(world)),
        _checking_takeovers(world),
        patch.object(Dispatcher, "_write", _checking_commits(world)),
        patch.object(dispatch_tail, "TAIL_OFFSETS", world.tail_offsets),
    ):
        yield
