"""One takeover attempt: steps 1 to 7 of docs/protocol.md in order, and the cleanup after a failed step.

Thread rule: the shard's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from postdate.kafka.errors import UnknownOutcome
from postdate.sidecar.clock import BrokerClock
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.errors import Halted, HaltReason
from postdate.sidecar.operation.operator_interface import OperatorInterface
from postdate.sidecar.states import State
from postdate.sidecar.takeover import opening, takeover
from postdate.sidecar.takeover.checking import check
from postdate.sidecar.takeover.confirmation import Confirmation
from postdate.sidecar.takeover.takeover import Recovered
from postdate.sidecar.transaction.bound_check import UnverifiedBound
from postdate.sidecar.transaction.transaction import ShardOwnership
from postdate.wheel.index import TimerIndex


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The result of a successful attempt. `gate_end`: the end offset of the requests. It is queried before the
    ownership exists, since an ownership without this offset would run with an open gate."""

    recovered: Recovered
    ownership: ShardOwnership
    gate_end: int


class Attempt:
    """One attempt. `index`: the open index, even after `run` has failed; None if no index is open. `unread`: True if
    the requests from R on must be read again, because the index started empty, or because an accepted loss was used."""

    def __init__(self, index: TimerIndex | None, entered: Callable[[State, TimerIndex | None], None]) -> None:
        """`entered`: called with each new state of the shard, and with the index if the status of the shard must be
        written."""
        self.index = index
        self.unread = False
        self._entered = entered

    def run(
        self, confirmation: Confirmation, operator: OperatorInterface, broker_clock: BrokerClock, owned_seq: int
    ) -> TakenOver:
        """Takes the shard over. Raises Halted if a halt is confirmed, Retriable if it is not confirmed yet, and the
        errors of the steps."""
        with confirmation.context() as ctx:
            try:
                taken = self._steps(ctx, confirmation, operator, broker_clock, owned_seq)
            except Halted as halt:
                is_truncated = halt.reason is HaltReason.DISPATCH_LOG_TRUNCATED
                if is_truncated:  # queried at every finding, since a deposed leader may answer one query
                    confirmation.requests_end = max(confirmation.requests_end, takeover.appended_requests(ctx))
                confirmation.confirm(halt, operator.reason, operator.standing)
                if is_truncated and self.index is not None:
                    standing = operator.reason is halt.reason
                    takeover.leave_mark(ctx, self.index, confirmation.requests_end, standing)
                raise
            except (UnverifiedBound, UnknownOutcome):  # UnknownOutcome: an abort may have failed after UnverifiedBound
                confirmation.note_wrong_answer()
                raise
        confirmation.clear()
        return taken

    def _steps(
        self,
        ctx: ShardContext,
        confirmation: Confirmation,
        operator: OperatorInterface,
        broker_clock: BrokerClock,
        owned_seq: int,
    ) -> TakenOver:
        self._entered(State.OPENING if self.index is None else State.FENCING, None)
        opened = opening.open_index(ctx) if self.index is None else opening.Opened(self.index)
        self.index = opened.index
        ctx.held.load(ctx.admin, ctx.config.group_id, ctx.requests)
        operator.directory = opened.index.wheel_path.parent
        progress = check(ctx, opened, operator.acceptance(), operator.standing)
        self._entered(State.FENCING, None)
        fenced = takeover.fence(ctx, progress)
        try:
            bounded = takeover.bound(ctx, fenced)
            self._entered(State.RECOVERING, progress.index)
            try:
                confirm = partial(confirmation.confirm, reason=operator.reason, loss=operator.standing)
                recovered = takeover.recover(ctx, bounded, confirm)
            finally:
                self.index = progress.index  # recovery may have replaced it
                self.unread = self.unread or progress.empty or bool(progress.acceptance.used)
            gate_end = takeover.end_of_requests(ctx)
            return TakenOver(
                recovered, takeover.claim_ownership(ctx, recovered, broker_clock, owned_seq, gate_end), gate_end
            )
        except BaseException:
            fenced.producer.destroy()
            raise
