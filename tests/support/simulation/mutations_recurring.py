"""More of the sidecar with one safeguard taken out: the rules of recurring schedules.

As `mutations`, whose table lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from postdate.sidecar.dispatch import batch as builder
from postdate.sidecar.dispatch.batch import BatchBuilder
from postdate.sidecar.dispatch.batch_content import Batch
from postdate.sidecar.index import apply
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.index.recurrences import Decided, decide_due
from postdate.wheel.entry import Entry
from postdate.wire.dispatch_log import Fate, Occurred, Skipped
from support.simulation.world import World

Mutation = Callable[[World], AbstractContextManager[object]]


def _store_not_rewritten(_: World) -> AbstractContextManager[object]:
    """An occurrence does not rewrite the record of STORE: a rebuild begins at an earlier one."""
    honest = BatchBuilder._go_on

    def go_on(self: BatchBuilder, batch: Batch, *arguments: Any) -> bool:
        goes_on = honest(self, batch, *arguments)
        if goes_on:
            batch.messages.pop()
        return goes_on

    return patch.object(BatchBuilder, "_go_on", go_on)


def _marks_without_number(_: World) -> AbstractContextManager[object]:
    """A mark does not keep the number of the next occurrence."""
    honest = apply._mark

    def mark(overlay: IndexOverlay, fate: Fate) -> None:
        if not isinstance(fate, Occurred | Skipped):
            honest(overlay, fate)

    return patch.object(apply, "_mark", mark)


def _occurrences_not_replayed(_: World) -> AbstractContextManager[object]:
    """Recovery passes over the occurrences of others."""
    return patch.object(apply, "go_on", lambda overlay, key, old, following: key)


def _skips_unrecorded(_: World) -> AbstractContextManager[object]:
    """What was missed is passed over without a fate."""

    def decide(entry: Entry, *arguments: Any) -> Decided:
        decided = decide_due(entry, *arguments)
        kept: list[Occurred | Skipped] = [fate for fate in decided.fates if not isinstance(fate, Skipped)]
        return decided._replace(fates=kept or decided.fates)

    return patch.object(builder, "decide_due", decide)


def _without_tombstone(_: World) -> AbstractContextManager[object]:
    """A schedule that has completed stays in STORE."""
    honest = BatchBuilder._unlink

    def unlink(self: BatchBuilder, batch: Batch, key: bytes, entry: Entry, offset: int) -> None:
        honest(self, batch, key, entry, offset)
        if entry.next is not None and batch.fates[-1].name == "completed":
            batch.messages.pop()

    return patch.object(BatchBuilder, "_unlink", unlink)


RECURRING_MUTATIONS: dict[str, tuple[Mutation, str]] = {
    "schedules: STORE is not rewritten": (_store_not_rewritten, "calendar"),
    "schedules: marks without the number": (_marks_without_number, "calendar"),
    "schedules: occurrences are not replayed": (_occurrences_not_replayed, "calendar"),
    "schedules: skips are not recorded": (_skips_unrecorded, "calendar"),
    "schedules: no tombstone at the end": (_without_tombstone, "calendar"),
}
