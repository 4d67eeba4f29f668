"""The interface between a shard and its operators: the status that it writes, and the instructions that it reads.

Both are small files in the shard's directory (`shard_status`, `instructions`), so no port is needed, and they work
while no process serves the shard. Periodic writes are bounded: at most every STATUS_INTERVAL_MS after changes,
otherwise every STATUS_AGE_MS_MAX. If the disk refuses a write, the only effect is a line in the log.

Thread rule: the shard's thread.
"""

from __future__ import annotations

import logging
import os

import msgspec

from postdate.kafka.errors import KafkaFault
from postdate.kafka.interface import Isolation
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.errors import IRREPLACEABLE, Halted, HaltReason, Loss
from postdate.sidecar.operation.instructions import take_instruction
from postdate.sidecar.operation.limits import (
    INSTRUCTION_INTERVAL_MS,
    LAG_AGE_MS_MAX,
    LAG_PAUSE_MS,
    LAG_TIMEOUT_S,
    STATUS_AGE_MS_MAX,
    STATUS_INTERVAL_MS,
)
from postdate.sidecar.operation.losses import AcceptedLosses
from postdate.sidecar.operation.shard_status import ShardStatus, read_status, write_status
from postdate.sidecar.states import State
from postdate.wheel.index import TimerIndex

log = logging.getLogger(__name__)


class OperatorInterface:
    """The operator's view of a shard: why it halted, here or in an earlier process, which losses were accepted since,
    and the status as last written. `directory`: the location of the index. That is the shard's own directory unless
    another process held it."""

    def __init__(self, ctx: ShardContext) -> None:
        self._ctx = ctx
        self.directory = ctx.directory
        self._opened = False
        self._accepted: tuple[Loss, ...] = ()
        self._written: ShardStatus | None = None
        self._instruction_check_at = self._change_at = self._repeat_at = self._lag_query_at = self._lag_until = 0.0
        self._lag: int | None = None
        self.reason: HaltReason | None = None
        self.loss: Loss | None = None

    def halted(self, halt: Halted) -> None:
        """Notes the reason and the loss of a halt, until the shard has taken over again.

        The loss of a truncated log is kept if a later halt names no loss: once the log has grown, nothing else shows
        that offsets were used twice.
        """
        is_truncated = self.loss is not None and self.loss.reason in IRREPLACEABLE
        self.reason = halt.reason
        self.loss = self.loss if is_truncated and halt.loss is None else halt.loss

    def recovered(self) -> None:
        """Forgets the reason and the loss of the last halt, and the accepted losses, after a takeover."""
        self.reason = self.loss = None
        self._accepted = ()

    def index_moved_aside(self) -> None:
        """Forgets the halt, the accepted losses and the last written status, after the index was moved aside on
        request."""
        self.recovered()
        self._written = None

    def acceptance(self) -> AcceptedLosses:
        """Returns the accepted losses for the next takeover."""
        self._open()
        return AcceptedLosses(self._accepted)

    @property
    def standing(self) -> Loss | None:
        """The loss of the last halt, here or in an earlier process, unless the shard has taken over since."""
        self._open()
        return self.loss

    def may_rebuild(self) -> bool:
        """False, with a line in the log, if only this index has requests or fates that Kafka has lost: a rebuild would
        lose messages or deliver them again. True if a topic was created again, since it has none of these records."""
        loss = self.loss
        if loss is None or loss.reason not in IRREPLACEABLE or self.reason is HaltReason.TOPIC_RECREATED:
            return True
        log.error("shard %s: not rebuilt: halted as %s, only its index has the lost fates", self._ctx.name, loss.reason)
        return False

    # ---- instructions ----------------------------------------------------------------------------------------------

    def instruction(self, steady_ms: float) -> str:
        """Takes and returns the pending instruction: `resume`, `rebuild`, or empty. Records an accepted loss. Ignores
        an instruction that accepts another loss than that of the halt. Checks once a second."""
        if steady_ms < self._instruction_check_at:
            return ""
        self._instruction_check_at = steady_ms + INSTRUCTION_INTERVAL_MS
        self._open()
        instruction = take_instruction(self.directory)
        if instruction is None:
            return ""
        if instruction.accept is not None:
            if instruction.accept != self.loss:
                log.error(
                    "shard %s: the accepted loss, %s, is not the one for which it halted, %s: ignored",
                    self._ctx.name,
                    instruction.accept,
                    self.loss,
                )
                return ""
            self._accepted = (*self._accepted, instruction.accept)
        log.warning("shard %s: %s was requested", self._ctx.name, instruction.do)
        return instruction.do

    def _open(self) -> None:
        """Loads the last status of an earlier process, with its halt and accepted losses, once."""
        if self._opened:
            return
        self._opened = True
        status = read_status(self.directory)
        if status is not None and status.cluster_id == self._ctx.cluster_id:
            self._written, self.reason, self.loss = status, status.reason, status.loss
            self._accepted = tuple(status.accepted)

    # ---- the status file -------------------------------------------------------------------------------------------

    def report(
        self, state: State, why: str, index: TimerIndex | None, at_once: bool = False, served: bool = True
    ) -> None:
        """Writes the status if it is due. If `index` is None, the figures of the index stay as last written.

        Costs a few comparisons if nothing is due. Raises TimerIndexError if the index fails.
        """
        steady = self._ctx.clock.steady_ms()
        written = self._written
        changed = written is None or (written.state, written.why, written.held) != (
            state,
            why,
            self._ctx.held.current.words(),
        )
        if not at_once and steady < self._change_at:
            return
        self._change_at = steady + STATUS_INTERVAL_MS
        if steady >= self._repeat_at:
            self._repeat_at = steady + STATUS_AGE_MS_MAX
            is_known = self._lag == 0 and steady < self._lag_until and not self._moved(index)
            if not is_known or index is None or self._ctx.held.current.intake:
                self._lag = self._query_lag(index) if steady >= self._lag_query_at else None
                self._lag_until = steady + LAG_AGE_MS_MAX - STATUS_AGE_MS_MAX / 2
        elif not changed and not at_once and not self._moved(index):
            return
        self._write(msgspec.structs.replace(self._status(state, why, index), served=served))

    def _moved(self, index: TimerIndex | None) -> bool:
        written = self._written
        if index is None or written is None:
            return False
        checkpoint = index.checkpoint
        return (written.next_request, written.next_dispatch) != (checkpoint.next_request, checkpoint.next_dispatch)

    def _query_lag(self, index: TimerIndex | None) -> int | None:
        """Returns the number of offsets of the request topic from the next request to read; None if that request is
        unknown, or if Kafka does not answer. Sends one request to Kafka."""
        known = self._written if index is None else index.checkpoint
        read = None if known is None else known.next_request
        if read is None:
            return None
        part = self._ctx.requests
        try:
            return max(self._ctx.admin.end_offsets([part], Isolation.READ_COMMITTED, LAG_TIMEOUT_S)[part] - read, 0)
        except KafkaFault:
            # The query of a partition without a leader blocks until its time-out.
            self._lag_query_at = self._ctx.clock.steady_ms() + LAG_PAUSE_MS
            return None

    def _status(self, state: State, why: str, index: TimerIndex | None) -> ShardStatus:
        ctx, written, at_ms = self._ctx, self._written, self._ctx.clock.wall_ms()
        status = ShardStatus(
            requests=ctx.own.requests,
            partition=ctx.partition,
            cluster_id=ctx.cluster_id,
            state=state,
            instance=ctx.instance,
            process_id=os.getpid(),
            written_ms=at_ms,
            since_ms=written.since_ms if written is not None and written.state is state else at_ms,
            reason=self.reason,
            why=why,
            loss=self.loss,
            accepted=list(self._accepted),
            lag=self._lag,
            held=ctx.held.current.words(),
            skew_ms=ctx.counts.skew_ms,
        )
        if index is not None:
            checkpoint = index.checkpoint
            return msgspec.structs.replace(
                status,
                next_request=checkpoint.next_request,
                next_dispatch=checkpoint.next_dispatch,
                low_water=None if checkpoint.next_request is None else index.timer_log.low_water(),
                seq=max(checkpoint.seq, 0),
                takeover=checkpoint.takeover,
                pending=index.count,
            )
        if written is not None:
            kept = ("next_request", "next_dispatch", "low_water", "seq", "takeover", "pending")
            return msgspec.structs.replace(status, **{name: getattr(written, name) for name in kept})
        return status

    def _write(self, status: ShardStatus) -> None:
        self._written = status
        try:
            write_status(self.directory, status)
        except OSError as error:
            log.warning("shard %s: its status cannot be written: %s", self._ctx.name, error)
