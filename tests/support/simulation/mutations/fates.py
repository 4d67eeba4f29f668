"""Mutations: the rules of fates, marks, STORE, the gate, the clock, and holds.

The table in `mutation` includes these. A name such as (M14) is the same mutation of a model of the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import msgspec

from postdate.kafka.interface import Partition, Record
from postdate.sidecar.clock import BrokerClock
from postdate.sidecar.context.holds import HoldState
from postdate.sidecar.dispatch.batch import BatchBuilder
from postdate.sidecar.dispatch.batch_content import Batch
from postdate.sidecar.dispatch.decisions import MessageRules
from postdate.sidecar.dispatch.undelivered_ends import UndeliveredEnds
from postdate.sidecar.index import apply_fates, apply_requests
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.ingest import ingest
from postdate.sidecar.shard.cancel_gate import CancelGate
from postdate.sidecar.takeover import store_reading, takeover
from postdate.sidecar.transaction.transaction import ShardOwnership
from postdate.wheel.entry import Entry, Mark, Spread
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import ENDING_DUE, entry_key
from postdate.wheel.timer_log.timer_log import NO_FIRST_DUE
from postdate.wheel.timing_wheel.even_spread import EvenSpread
from postdate.wire.dispatch_log import Fate, Moved
from postdate.wire.requests.request import Request
from support.simulation.oracles.stored_entries import STORE
from support.simulation.runtime.simulated_run import SimulatedRun

Mutation = Callable[[SimulatedRun], AbstractContextManager[object]]


def _moves_undone(_: SimulatedRun) -> AbstractContextManager[object]:
    """Rule 3: a fate `moved` is applied even if its control was already read: an earlier move undoes a later one (M14).

    The fate then contradicts the index, which would be rebuilt. So the mutation also ignores contradictions.
    """
    honest = apply_fates._change_entry

    def change(overlay: IndexOverlay, key: bytes, fate: Fate, next_request: int) -> None:
        honest(overlay, key, fate, 0)

    stack = ExitStack()
    stack.enter_context(patch.object(apply_fates, "_change_entry", change))
    stack.enter_context(patch.object(IndexOverlay, "contradicted", lambda self, why: None))
    return stack


def _marks_overwritten(_: SimulatedRun) -> AbstractContextManager[object]:
    """Rule 5: the last mark of a request replaces its earlier marks (M4)."""
    honest = apply_fates._mark

    def mark(overlay: IndexOverlay, fate: Fate) -> None:
        overlay.set_mark(fate.offset, None)
        honest(overlay, fate)

    return patch.object(apply_fates, "_mark", mark)


def _unmarked(name: str) -> Mutation:
    honest = apply_fates._mark

    def mark(overlay: IndexOverlay, fate: Fate) -> None:
        if fate.name != name:
            honest(overlay, fate)

    return lambda _: patch.object(apply_fates, "_mark", mark)


def _marked_is_skipped(_: SimulatedRun) -> AbstractContextManager[object]:
    """A request whose mark states that it is stored counts as ended when it is read (M22)."""
    honest = apply_requests.apply_request

    def request(overlay: IndexOverlay, record: Record, read: Any) -> int:
        mark = overlay.mark(record.offset)
        if mark is not None and mark.stored:
            overlay.set_mark(record.offset, None)
            return NO_FIRST_DUE
        return int(honest(overlay, record, read))

    return patch.object(ingest, "apply_request", request)


def _first_due_only(_: SimulatedRun) -> AbstractContextManager[object]:
    """The entry of a fate is looked up under its first due time: entries that were moved since are not found."""
    honest = apply_fates.apply_fate

    def find(self: IndexOverlay, offset: int, first_due_ms: int | None = None) -> bytes | None:
        key = entry_key(first_due_ms or ENDING_DUE, offset)
        return key if self.raw(key) is not None else None

    def apply_fate(overlay: IndexOverlay, fate: Fate, next_request: int) -> None:
        with patch.object(IndexOverlay, "find", find):
            honest(overlay, fate, next_request)

    return patch.object(takeover, "apply_fate", apply_fate)


def _gate_open(_: SimulatedRun) -> AbstractContextManager[object]:
    """Messages leave before the requests that existed at the takeover are read (M5)."""
    return patch.object(CancelGate, "before_ms", lambda self, now_ms: now_ms)


@contextmanager
def _without(dropped: Callable[[Batch, Any], bool]) -> Iterator[None]:
    """Transactions lack the records for STORE for which `dropped` is true."""
    honest = BatchBuilder.build

    def build(self: BatchBuilder, *arguments: Any, **more: Any) -> Batch:
        batch = honest(self, *arguments, **more)
        batch.messages = [each for each in batch.messages if each[1] != STORE or not dropped(batch, each)]
        return batch

    with patch.object(BatchBuilder, "build", build):
        yield


def _no_tombstone(_: SimulatedRun) -> AbstractContextManager[object]:
    """Ended requests stay in STORE (M7)."""
    return _without(lambda batch, message: message[4] is None)


def _moved_not_rewritten(_: SimulatedRun) -> AbstractContextManager[object]:
    """The record of a stored entry is not rewritten when it is moved (M8)."""

    def moved(batch: Batch, message: Any) -> bool:
        return any(isinstance(fate, Moved) and b"%d" % fate.offset == message[3] for fate in batch.fates)

    return _without(lambda batch, message: message[4] is not None and moved(batch, message))


def _all_of_the_store(_: SimulatedRun) -> AbstractContextManager[object]:
    """A rebuild takes all requests from STORE, including those that it reads again from the request topic (M17,
    M18)."""
    honest = store_reading.apply_stored

    def take(index: TimerIndex, store: Partition, records: list[Record], _: int, logged_ms: int) -> None:
        honest(index, store, records, 1 << 62, logged_ms)

    return patch.object(store_reading, "apply_stored", take)


@contextmanager
def _interrupted_rebuild(_: SimulatedRun) -> Iterator[None]:
    """A rebuild that was interrupted while it read STORE continues as if it had read all of STORE."""
    honest, honest_take, honest_count = takeover.recover, store_reading.apply_stored, vars(TimerIndex)["count"].fget
    halves: list[TimerIndex] = []  # steps of several shards alternate, so the patch must distinguish the indexes

    def recover(ctx: Any, bounded: takeover.Bounded, confirm: Any) -> takeover.Recovered:
        progress = bounded.fenced.progress
        index = progress.index
        if not progress.empty or index.checkpoint.next_request is not None or not index.count:
            return honest(ctx, bounded, confirm)
        halves.append(index)
        try:
            return honest(ctx, bounded, confirm)
        finally:
            halves.remove(index)

    def take(index: TimerIndex, *given: Any) -> None:
        if all(index is not half for half in halves):
            honest_take(index, *given)

    def count(self: TimerIndex) -> int:
        return 0 if any(self is half for half in halves) else honest_count(self)

    with (
        patch.object(takeover, "recover", recover),
        patch.object(store_reading, "apply_stored", take),
        patch.object(TimerIndex, "count", property(count)),
    ):
        yield


def _id_taken_away(_: SimulatedRun) -> AbstractContextManager[object]:
    """The end of a request removes its id, even if a later request has that id by now."""

    def drop(self: IndexOverlay, caller_id: bytes, offset: int) -> None:
        if caller_id:
            self._changes.ids[caller_id] = None

    return patch.object(IndexOverlay, "drop_id", drop)


def _append_time_unchecked(_: SimulatedRun) -> AbstractContextManager[object]:
    """A step back of the broker's clock between the estimate and the append is not detected (I6)."""
    honest = ShardOwnership._check
    return patch.object(
        ShardOwnership, "_check", lambda self, left, content: honest(self, left, replace(content, due_max_ms=-1))
    )


def _own_clock(_: SimulatedRun) -> AbstractContextManager[object]:
    """The machine's wall clock decides when a message is due."""
    stack = ExitStack()
    stack.enter_context(_append_time_unchecked(_))
    stack.enter_context(patch.object(BrokerClock, "now_ms", lambda self: self._clock.wall_ms()))
    return stack


def _holds_not_recalled(_: SimulatedRun) -> AbstractContextManager[object]:
    """A new owner does not read the holds of the shard."""
    return patch.object(HoldState, "load", lambda self, *_: None)


def _early_draw(_: SimulatedRun) -> AbstractContextManager[object]:
    """The draw in a window may lie before the due time."""
    honest = IndexOverlay.draw_ms

    def draw(self: IndexOverlay, offset: int, window_ms: int) -> int:
        return honest(self, offset, window_ms) - window_ms // 2

    return patch.object(IndexOverlay, "draw_ms", draw)


def _late_draw(_: SimulatedRun) -> AbstractContextManager[object]:
    """The draw in a window may exceed the window."""
    honest = IndexOverlay.draw_ms
    return patch.object(IndexOverlay, "draw_ms", lambda self, offset, window_ms: honest(self, offset, 2 * window_ms))


def _choosing(choose: Callable[..., int | None]) -> Mutation:
    """Returns a mutation in which an even spread chooses with `choose`, which gets the original function and its
    arguments."""
    honest = EvenSpread.choose

    def mutation(_: SimulatedRun) -> AbstractContextManager[object]:
        return patch.object(EvenSpread, "choose", lambda self, *given, **more: choose(honest, self, *given, **more))

    return mutation


def _early_choice(honest: Any, self: EvenSpread, due_ms: int, last_ms: int, drawn_ms: int, *more: Any) -> int | None:
    """An even spread may choose a tick before the due time."""
    found: int | None = honest(self, due_ms - 2_000, last_ms, drawn_ms, *more)
    return found


def _late_choice(honest: Any, self: EvenSpread, due_ms: int, last_ms: int, drawn_ms: int, *more: Any) -> int | None:
    """An even spread may choose a tick after the window."""
    found: int | None = honest(self, due_ms, last_ms + 2_000, drawn_ms, *more)
    return found


def _choice_without_place(_: SimulatedRun) -> AbstractContextManager[object]:
    """An entry that an even spread has moved is looked up under its first time."""
    honest = IndexOverlay.put

    def put(self: IndexOverlay, offset: int, key_due_ms: int, entry: Entry) -> bytes:
        key = honest(self, offset, key_due_ms, entry)
        if entry.window is not None and entry.window.spread == Spread.CHOSEN:
            self.drop_place(offset)
        return key

    return patch.object(IndexOverlay, "put", put)


def _grace_from_due(_: SimulatedRun) -> AbstractContextManager[object]:
    """The grace of a message with a window counts from the due time, not from the chosen time."""
    honest = MessageRules.decide

    def decide(self: MessageRules, entry: Entry, *arguments: Any) -> Any:
        return honest(self, msgspec.structs.replace(entry, due=entry.requested_due), *arguments)

    honest_letter = UndeliveredEnds.dead_letter

    def dead_letter(self: UndeliveredEnds, batch: Batch, entry: Entry, offset: int, refusal: Any) -> None:
        before_ms = batch.due_max_ms
        honest_letter(self, batch, entry, offset, refusal)
        # without this, the check of the append time would refuse such an end
        if entry.window is not None and entry.grace_ms >= 0:
            batch.due_max_ms = max(before_ms, entry.requested_due + entry.grace_ms + 1)

    stack = ExitStack()
    stack.enter_context(patch.object(MessageRules, "decide", decide))
    stack.enter_context(patch.object(UndeliveredEnds, "dead_letter", dead_letter))
    return stack


def _every_end_sent(_: SimulatedRun) -> AbstractContextManager[object]:
    """Recovery ignores that a control ended a message: the id is remembered as delivered."""
    honest = apply_requests._catch_up

    def catch_up(overlay: IndexOverlay, offset: int, request: Request, mark: Mark) -> None:
        honest(overlay, offset, request, msgspec.structs.replace(mark, sent=True))

    return patch.object(apply_requests, "_catch_up", catch_up)


#: Name -> the mutation, and the theme of the runs that must detect it.
FATE_MUTATIONS: dict[str, tuple[Mutation, str]] = {
    "rule 3: moves undone": (_moves_undone, "moves"),
    "rule 5: marks overwritten": (_marks_overwritten, "moves"),
    "rule 5: no mark for stored": (_unmarked("stored"), "store"),
    "rule 5: no mark for moved": (_unmarked("moved"), "moves"),
    "rule 5: marked as stored, taken for ended": (_marked_is_skipped, "store"),
    "fates looked up under the first due time": (_first_due_only, "moves"),
    "gate always open": (_gate_open, "outage"),
    "no tombstones": (_no_tombstone, "store"),
    "moved, not stored anew": (_moved_not_rewritten, "moves"),
    "all of STORE is taken": (_all_of_the_store, "store"),
    "half a rebuild is gone on with": (_interrupted_rebuild, "store"),
    "an id freed for another": (_id_taken_away, "moves"),
    "append time not looked at": (_append_time_unchecked, "clocks"),
    "own clock believed": (_own_clock, "clocks"),
    "a mark does not say who ended its request": (_every_end_sent, "controls"),
    "holds not recalled": (_holds_not_recalled, "held"),
    "a draw before the due time": (_early_draw, "windows"),
    "a draw beyond the window": (_late_draw, "windows"),
    "an even choice before the due time": (_choosing(_early_choice), "windows"),
    "an even choice behind the window": (_choosing(_late_choice), "windows"),
    "an even choice moves an entry without its place": (_choice_without_place, "windows"),
    "grace counts from the due time": (_grace_from_due, "windows"),
}
