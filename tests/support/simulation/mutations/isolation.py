"""Mutations: the isolation of bad targets, and the rules that keep their messages from ending too early.

The table in `mutation` includes these.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import msgspec

from postdate.sidecar.dispatch import batch
from postdate.sidecar.dispatch.decisions import MessageRules
from postdate.sidecar.dispatch.parking import Parking
from postdate.sidecar.dispatch.targets.fault_attribution import FaultAttribution, Finding, FinishedTransaction
from postdate.sidecar.dispatch.targets.targets import Refusal
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.wheel.entry import Entry, decode_entry
from support.simulation.runtime.simulated_run import SimulatedRun
from support.simulation.themes import BAD_TARGET

Mutation = Callable[[SimulatedRun], AbstractContextManager[object]]


def _slow_is_unavailable(_: SimulatedRun) -> AbstractContextManager[object]:
    """A message whose target times out becomes a dead letter after its own retry budget, even if the target accepts
    other messages."""

    def spent(self: FaultAttribution, name: str, due_ms: int, now_ms: int) -> Refusal | None:
        isolated = self._isolated.get(name)
        return isolated.refusal if isolated is not None and now_ms >= due_ms + self._budget_ms else None

    return patch.object(FaultAttribution, "spent", spent)


def _nobody_isolated(_: SimulatedRun) -> AbstractContextManager[object]:
    """A target that refuses records is not isolated: its messages abort the common transactions."""

    def aborted(self: FaultAttribution, attempt: FinishedTransaction, now_ms: int) -> Finding:
        return Finding.BACK_OFF

    return patch.object(FaultAttribution, "aborted", aborted)


def _budget_from_fault(_: SimulatedRun) -> AbstractContextManager[object]:
    """The retry budget does not begin at the due time of the message: a late message becomes a dead letter at once."""

    def spent(self: FaultAttribution, name: str, due_ms: int, now_ms: int) -> Refusal | None:
        isolated = self._isolated.get(name)
        is_away = isolated is not None and isolated.failed_at - isolated.acknowledged_at >= self._budget_ms
        return isolated.refusal if isolated is not None and is_away else None

    return patch.object(FaultAttribution, "spent", spent)


def _first_dues_forgotten(_: SimulatedRun) -> AbstractContextManager[object]:
    """The first due time of an earlier request is forgotten: a control that names the request's offset finds no
    message."""
    return patch.object(IndexOverlay, "_first_due", lambda self, offset: None)


def _given_up_at_once(_: SimulatedRun) -> AbstractContextManager[object]:
    """A message becomes a dead letter as soon as its target is missing in the metadata, not after the retry budget."""
    honest = MessageRules.decide

    def decide(self: MessageRules, entry: Entry, size_bytes: int, now_ms: int, *more: Any) -> Any:
        target = self.target_of(entry.target)
        fails = target is not None and not target.works
        return honest(self, entry, size_bytes, now_ms + self._budget_ms if fails else now_ms, *more)

    return patch.object(MessageRules, "decide", decide)


def _half_the_grace(_: SimulatedRun) -> AbstractContextManager[object]:
    """A message expires after half of its grace."""

    def halved(raw: bytes) -> Entry:
        entry = decode_entry(raw)
        return msgspec.structs.replace(entry, grace_ms=entry.grace_ms // 2)

    return patch.object(batch, "decode_entry", halved)


def _parked_ones_overtaken(_: SimulatedRun) -> AbstractContextManager[object]:
    """A message leaves although earlier messages for its target are still parked."""
    return patch.object(Parking, "precedes", lambda *_: False)


ISOLATION_MUTATIONS: dict[str, tuple[Mutation, str]] = {
    "slow is unavailable": (_slow_is_unavailable, BAD_TARGET),
    "nobody is isolated": (_nobody_isolated, BAD_TARGET),
    "first due times forgotten": (_first_dues_forgotten, "controls"),
    "a missing target is not waited for": (_given_up_at_once, BAD_TARGET),
    "half the grace": (_half_the_grace, "controls"),
    "parked messages are overtaken": (_parked_ones_overtaken, BAD_TARGET),
    "retry budget not from the due time": (_budget_from_fault, BAD_TARGET),
}
