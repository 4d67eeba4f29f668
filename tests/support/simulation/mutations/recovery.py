"""Mutations: the responses that a recovery trusts, its halts, and the state that it keeps.

The table in `mutation` includes these.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from postdate.kafka.errors import Retriable
from postdate.kafka.interface import Record
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.errors import Halted, HaltReason
from postdate.sidecar.takeover import dispatch_tail, takeover
from postdate.sidecar.takeover.checking import TakeoverProgress
from postdate.sidecar.takeover.confirmation import Confirmation
from postdate.sidecar.transaction.bound_check import BoundCheck
from support.simulation.requests.expiry import EXPIRED
from support.simulation.runtime.simulated_run import SimulatedRun
from support.simulation.themes import BROKERS, STALLS

Mutation = Callable[[SimulatedRun], AbstractContextManager[object]]


def _bound_not_verified(_: SimulatedRun) -> AbstractContextManager[object]:
    """The owner trusts the end of the dispatch log that a deposed leader reports: later fates are missed."""
    return patch.object(BoundCheck, "verify", lambda self, offset: None)


def _halts_at_once(_: SimulatedRun) -> AbstractContextManager[object]:
    """A halt is not confirmed: the response of a deposed leader halts a shard that has lost nothing."""
    return patch.object(Confirmation, "confirm", lambda self, halt, reason, loss: None)


def _stall_halts(_: SimulatedRun) -> AbstractContextManager[object]:
    """The shard halts if a log is unreadable for some time."""
    honest = dispatch_tail._batches

    def batches(*arguments: Any) -> Generator[list[Record], None, None]:
        try:
            yield from honest(*arguments)
        except Retriable as fault:
            if str(fault).startswith("no progress"):
                raise Halted(HaltReason.FOREIGN_RECORD, str(fault)) from fault
            raise

    return patch.object(dispatch_tail, "_batches", batches)


def _nothing_missed(_: SimulatedRun) -> AbstractContextManager[object]:
    """After the dispatch log has expired, an index is always trusted, although another owner may have ended its
    entries."""
    return patch.object(takeover, "_has_missed", lambda *_: False)


def _all_missed(_: SimulatedRun) -> AbstractContextManager[object]:
    """After the dispatch log has expired, an index is never trusted, even if the log lost only an aborted
    transaction."""

    def has_missed(ctx: ShardContext, bounded: takeover.Bounded, progress: TakeoverProgress) -> bool:
        seen = progress.index.checkpoint.next_dispatch
        return seen is not None and seen < bounded.start and progress.rewind_to < 0

    return patch.object(takeover, "_has_missed", has_missed)


RECOVERY_MUTATIONS: dict[str, tuple[Mutation, str]] = {
    "bound of the recovery not verified": (_bound_not_verified, BROKERS),
    "halts not confirmed": (_halts_at_once, BROKERS),
    "a stall halts": (_stall_halts, STALLS),
    "an expired log is trusted": (_nothing_missed, EXPIRED),
    "an expired log is not trusted": (_all_missed, EXPIRED),
}
