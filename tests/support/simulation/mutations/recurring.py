"""Mutations: the rules of recurring schedules.

The table in `mutation` includes these.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest.mock import patch

import msgspec

from postdate.sidecar.dispatch import batch as builder
from postdate.sidecar.dispatch.batch import BatchBuilder
from postdate.sidecar.dispatch.batch_content import Batch
from postdate.sidecar.dispatch.undelivered_ends import UndeliveredEnds
from postdate.sidecar.index import apply_fates, recurrences
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.index.recurrences import Decided, decide_due
from postdate.sidecar.transaction import store_records
from postdate.wheel.entry import Entry, Next
from postdate.wire.dispatch_log import Backfilled, ExtraFate, Fate, Occurred, PausedOrResumed, Skipped, Triggered
from postdate.wire.schedules import due, extras, pauses
from postdate.wire.schedules.pauses import Pause, Switch, Switches
from postdate.wire.schedules.schedule import Schedule
from postdate.wire.stored import StoredRequest
from support.simulation.runtime.simulated_run import SimulatedRun

Mutation = Callable[[SimulatedRun], AbstractContextManager[object]]


def _store_not_rewritten(_: SimulatedRun) -> AbstractContextManager[object]:
    """An occurrence does not rewrite the record in STORE: a rebuilt schedule continues from an earlier occurrence."""
    honest = BatchBuilder._continue_schedule

    def continue_schedule(self: BatchBuilder, batch: Batch, *arguments: Any) -> bool:
        continues = honest(self, batch, *arguments)
        if continues:
            batch.messages.pop()
        return continues

    return patch.object(BatchBuilder, "_continue_schedule", continue_schedule)


def _marks_without_number(_: SimulatedRun) -> AbstractContextManager[object]:
    """A mark lacks the number of the next occurrence."""
    honest = apply_fates._mark

    def mark(overlay: IndexOverlay, fate: Fate) -> None:
        if not isinstance(fate, Occurred | Skipped):
            honest(overlay, fate)

    return patch.object(apply_fates, "_mark", mark)


def _occurrences_not_replayed(_: SimulatedRun) -> AbstractContextManager[object]:
    """Recovery skips the occurrences of other owners."""
    return patch.object(apply_fates, "continue_schedule", lambda overlay, key, old, following: key)


def _skips_unrecorded(_: SimulatedRun) -> AbstractContextManager[object]:
    """Missed occurrences are skipped without a fate."""

    def decide(entry: Entry, *arguments: Any) -> Decided:
        decided = decide_due(entry, *arguments)
        kept: list[Occurred | Skipped | ExtraFate] = [fate for fate in decided.fates if not isinstance(fate, Skipped)]
        return decided._replace(fates=kept or decided.fates)

    return patch.object(builder, "decide_due", decide)


def _without_tombstone(_: SimulatedRun) -> AbstractContextManager[object]:
    """A completed schedule stays in STORE."""
    honest = BatchBuilder._unlink

    def unlink(self: BatchBuilder, batch: Batch, key: bytes, entry: Entry, offset: int) -> None:
        honest(self, batch, key, entry, offset)
        if entry.next is not None and batch.fates[-1].name == "completed":
            batch.messages.pop()

    return patch.object(BatchBuilder, "_unlink", unlink)


def _unrecorded(kind: type[Fate]) -> Mutation:
    """A control is applied in the index and in STORE, but the log gets no fate of this kind for it."""
    honest = UndeliveredEnds._apply

    def act(self: UndeliveredEnds, batch: Batch, *arguments: Any) -> None:
        honest(self, batch, *arguments)
        batch.fates[:] = [fate for fate in batch.fates if not isinstance(fate, kind)]

    return lambda _: patch.object(UndeliveredEnds, "_apply", act)


def _marks_without(kind: type[Fate]) -> Mutation:
    """A mark lacks the content of fates of this kind."""
    honest = apply_fates._mark

    def mark(overlay: IndexOverlay, fate: Fate) -> None:
        if not isinstance(fate, kind):
            honest(overlay, fate)

    return lambda _: patch.object(apply_fates, "_mark", mark)


def _store_without(field: str) -> Mutation:
    """The record in STORE lacks this field."""
    honest = store_records.stored_of

    def stored_of(entry: Entry, offset: int) -> StoredRequest:
        return msgspec.structs.replace(honest(entry, offset), **{field: ()})

    return lambda _: patch.object(store_records, "stored_of", stored_of)


def _skipped_at_once(_: SimulatedRun) -> AbstractContextManager[object]:
    """Occurrences in a pause are skipped when they are due, not after the resume."""
    honest, stack = pauses.pauses_of, ExitStack()

    def ended(switches: Switches) -> list[Pause]:
        return [pause._replace(until_ms=pause.until_ms - 1) for pause in honest(switches)]

    stack.enter_context(patch.object(recurrences, "is_held", lambda following: False))
    stack.enter_context(patch.object(due, "pauses_of", ended))
    return stack


def _resume_ends_no_pause(_: SimulatedRun) -> AbstractContextManager[object]:
    """A pause is forgotten when its resume is read: the occurrences within the pause are delivered late."""
    honest = pauses.settled

    def settled(switches: Switches, nominal_ms: int, *more: Switch) -> Switches:
        return tuple(switch for switch in honest(switches, nominal_ms, *more)[-1:] if switch[2])

    return patch.object(recurrences, "settled", settled)


def _extras_not_replayed(_: SimulatedRun) -> AbstractContextManager[object]:
    """Recovery skips the extra deliveries of other owners."""
    honest = recurrences.after_fates

    def after_fates(following: Next, *fates: Occurred | Skipped | ExtraFate) -> Next:
        return honest(following, *(fate for fate in fates if not isinstance(fate, ExtraFate)))

    return patch(f"{apply_fates.__name__}.after_fates", after_fates)


def _completed_with_extras(_: SimulatedRun) -> AbstractContextManager[object]:
    """The last occurrence completes a schedule, even if extra deliveries are pending."""
    return patch.object(builder, "is_over", lambda following: not following.nominal_ms)


def _one_time_of_a_backfill_replayed(_: SimulatedRun) -> AbstractContextManager[object]:
    """Recovery treats every delivery for a backfill by another owner as the last delivery of that backfill."""
    honest = recurrences.after_fates

    def after_fates(following: Next, *fates: Occurred | Skipped | ExtraFate) -> Next:
        last = (msgspec.structs.replace(fate, next_ms=0) if isinstance(fate, ExtraFate) else fate for fate in fates)
        return honest(following, *last)

    return patch(f"{apply_fates.__name__}.after_fates", after_fates)


def _last_time_of_a_backfill_left_out(_: SimulatedRun) -> AbstractContextManager[object]:
    """The end of a backfill is exclusive."""
    honest = extras.next_filled

    def next_filled(schedule: Schedule, after_ms: int, end_ms: int) -> int:
        return honest(schedule, after_ms, end_ms - 1)

    return patch(f"{recurrences.__name__}.next_filled", next_filled)


RECURRING_MUTATIONS: dict[str, tuple[Mutation, str]] = {
    "schedules: STORE is not rewritten": (_store_not_rewritten, "calendar"),
    "schedules: marks without the number": (_marks_without_number, "calendar"),
    "schedules: occurrences are not replayed": (_occurrences_not_replayed, "calendar"),
    "schedules: skips are not recorded": (_skips_unrecorded, "calendar"),
    "schedules: no tombstone at the end": (_without_tombstone, "calendar"),
    "pauses: not recorded": (_unrecorded(PausedOrResumed), "calendar"),
    "pauses: marks without them": (_marks_without(PausedOrResumed), "calendar"),
    "pauses: STORE without them": (_store_without("switches"), "calendar"),
    "pauses: skipped when their time comes": (_skipped_at_once, "calendar"),
    "pauses: delivered behind the resume": (_resume_ends_no_pause, "calendar"),
    "triggers: not recorded": (_unrecorded(Triggered), "calendar"),
    "triggers: marks without them": (_marks_without(Triggered), "calendar"),
    "triggers: STORE without them": (_store_without("extras"), "calendar"),
    "triggers: extra deliveries are not replayed": (_extras_not_replayed, "calendar"),
    "triggers: completed before they have left": (_completed_with_extras, "calendar"),
    "backfills: not recorded": (_unrecorded(Backfilled), "calendar"),
    "backfills: marks without them": (_marks_without(Backfilled), "calendar"),
    "backfills: only one delivery is replayed": (_one_time_of_a_backfill_replayed, "calendar"),
    "backfills: the last time is left out": (_last_time_of_a_backfill_left_out, "calendar"),
}
