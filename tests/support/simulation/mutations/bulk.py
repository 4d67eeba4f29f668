"""Mutations: safeguards of bulk controls.

The table in `mutation` includes these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from postdate.sidecar.dispatch import batch, dispatcher
from postdate.sidecar.dispatch.batch import BatchBuilder
from postdate.sidecar.dispatch.batch_content import Batch
from postdate.sidecar.dispatch.dispatcher import Dispatcher
from postdate.sidecar.dispatch.due.bulk_sweep import BulkSweep
from postdate.sidecar.index import apply_fates, apply_requests
from postdate.sidecar.index import bulk as bulks
from postdate.sidecar.index.bulk import Bulk
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.transaction.transaction import ShardOwnership
from postdate.wheel.entry import Entry
from postdate.wheel.index import TimerIndex
from postdate.wheel.timer_log.checkpoint import BulkRow, BulkRows
from postdate.wire.dispatch_log import BulkProgress, Fate, Moved
from support.simulation.requests.bulk import BULK
from support.simulation.runtime.simulated_run import SimulatedRun

Mutation = Callable[[SimulatedRun], AbstractContextManager[object]]


@contextmanager
def _only_the_sweep_ends(_: SimulatedRun) -> Iterator[None]:
    """A selected message that becomes due before the sweep has found it is delivered."""
    honest, honest_step = bulks.in_force, Dispatcher._dispatch_bulk
    sweeping: list[bool] = []

    def in_force(rows: BulkRows) -> Bulk | None:
        return honest(rows) if sweeping else None

    def step(self: Dispatcher, index: TimerIndex, ownership: ShardOwnership, bulk: Bulk, before_ms: int) -> int:
        sweeping.append(True)
        try:
            return honest_step(self, index, ownership, bulk, before_ms)
        finally:
            sweeping.pop()

    with patch.object(batch, "in_force", in_force), patch.object(Dispatcher, "_dispatch_bulk", step):
        yield


def _open_before_it_is_read(_: SimulatedRun) -> AbstractContextManager[object]:
    """Messages leave although the log contains a bulk control that the owner has not read yet."""
    return patch.object(dispatcher, "are_ahead", lambda rows, next_request: False)


def _later_controls_act(_: SimulatedRun) -> AbstractContextManager[object]:
    """Later controls act on messages that a bulk control selects."""
    return patch.object(apply_requests, "_is_swept", lambda *_: False)


@contextmanager
def _counted_from_zero(_: SimulatedRun) -> Iterator[None]:
    """Each owner begins the count of a bulk control at zero."""
    honest = apply_fates._bulk_progress

    def progress(overlay: IndexOverlay, fate: BulkProgress, next_request: int) -> None:
        honest(overlay, fate, next_request)
        row = overlay.bulk(fate.offset)
        if row is not None:
            overlay.set_bulk(BulkRow(row.offset, row.encoded_request, min(row.count, 0)))

    with patch.object(apply_fates, "_bulk_progress", progress):
        yield


def _parked_left_out(_: SimulatedRun) -> AbstractContextManager[object]:
    """The sweep does not visit parked entries."""
    honest = BulkSweep._select

    def take(self: BulkSweep, *arguments: object) -> bytes | None:
        return None if self._is_parked else honest(self, *arguments)  # type: ignore[arg-type]

    return patch.object(BulkSweep, "_select", take)


def _schedules_come_in(_: SimulatedRun) -> AbstractContextManager[object]:
    """A schedule continues although a bulk control selects its next occurrence."""
    honest = BatchBuilder._continue_schedule

    def continue_schedule(self: BatchBuilder, content: Batch, *arguments: Any) -> bool:
        return honest(self, content, *arguments[:-1], None)  # type: ignore[call-arg]

    return patch.object(BatchBuilder, "_continue_schedule", continue_schedule)


def _without_mover(entry: Entry, due_ms: int, control: int, left_ms: int) -> Entry:
    return msgspec.structs.replace(bulks.moved_to(entry, due_ms, control, left_ms), moved_by=entry.moved_by)


def _moved_again(_: SimulatedRun) -> AbstractContextManager[object]:
    """A bulk control selects messages again that it has already moved."""
    honest = Bulk.moved

    def moved(self: Bulk, entry: Entry, now_ms: int) -> Entry:
        return msgspec.structs.replace(honest(self, entry, now_ms), moved_by=entry.moved_by)

    return patch.object(Bulk, "moved", moved)


def _moved_again_by_the_next(_: SimulatedRun) -> AbstractContextManager[object]:
    """Recovery does not record which bulk control has moved a message, so the control selects it again."""
    return patch.object(apply_fates, "moved_to", _without_mover)


def _marks_without_mover(_: SimulatedRun) -> AbstractContextManager[object]:
    """A mark does not record which bulk control has moved its request."""
    honest = apply_fates._mark

    def mark(overlay: IndexOverlay, fate: Fate) -> None:
        honest(overlay, fate)
        noted = overlay.mark(fate.offset)
        if isinstance(fate, Moved) and noted is not None and noted.in_bulk:
            overlay.set_mark(fate.offset, msgspec.structs.replace(noted, control=-1))

    return patch.object(apply_fates, "_mark", mark)


def _moves_not_replayed(_: SimulatedRun) -> AbstractContextManager[object]:
    """Recovery skips the moves of bulk controls."""
    honest = apply_fates._change_entry

    def change(overlay: IndexOverlay, key: bytes, fate: Fate, next_request: int) -> None:
        if not (isinstance(fate, Moved) and overlay.bulk(fate.control) is not None):
            honest(overlay, key, fate, next_request)

    return patch.object(apply_fates, "_change_entry", change)


#: Name -> the mutation, and the theme of the runs that must detect it.
BULK_MUTATIONS: dict[str, tuple[Mutation, str]] = {
    "bulk: only the sweep ends messages": (_only_the_sweep_ends, BULK),
    "bulk: messages leave before it is read": (_open_before_it_is_read, BULK),
    "bulk: later controls act on what it selects": (_later_controls_act, BULK),
    "bulk: each owner counts from zero": (_counted_from_zero, BULK),
    "bulk: parked messages are left out": (_parked_left_out, BULK),
    "bulk: a schedule outlives it": (_schedules_come_in, BULK),
    "bulk: moved messages are selected again": (_moved_again, BULK),
    "bulk: the next owner moves messages again": (_moved_again_by_the_next, BULK),
    "bulk: marks do not name what has moved": (_marks_without_mover, BULK),
    "bulk: moves of others are not replayed": (_moves_not_replayed, BULK),
}
