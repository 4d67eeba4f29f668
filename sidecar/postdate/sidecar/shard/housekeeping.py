"""The periodic duties of a delivering shard, besides ingest and dispatch.

They sync the timer log, advance and confirm the wheel, raise the low-water mark, maintain targets, parked entries and
old entries, pass the markers at the end of the requests, query the end of the requests for the gate mode `always`, and
release memory and disk space. If Kafka does not answer a duty, the shard continues to deliver.

A shard without changes rests: after several checks without a change, the next check comes late. Every event of the
shard ends its rest.

Thread rule: the shard's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from postdate.kafka.errors import KafkaFault
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.dispatch.dispatcher import Dispatcher
from postdate.sidecar.dispatch.limits import MAINTENANCE_INTERVAL_MS, UNPARK_INTERVAL_MS
from postdate.sidecar.index.overlay import read_up_to
from postdate.sidecar.ingest.ingest import skip_markers
from postdate.sidecar.ingest.limits import SETTLE_MS
from postdate.sidecar.shard.cancel_gate import CancelGate
from postdate.sidecar.shard.inbox import Inbox
from postdate.sidecar.shard.limits import (
    CONFIRM_INTERVAL_MS,
    DUTY_DELAY_MS_MAX,
    GATE_CHECK_INTERVAL_MS,
    MARKERS_QUIET_MS,
    RECLAIM_INTERVAL_MS,
    RECLAIM_QUIET_MS,
    REST_CHECKS,
    REST_INTERVAL_MS,
    TRIM_INTERVAL_MS,
)
from postdate.sidecar.takeover.takeover import end_of_requests
from postdate.wheel.index import TimerIndex
from postdate.wheel.timing_wheel.platform import return_free_memory

log = logging.getLogger(__name__)


class Housekeeping:
    """The duties of one shard, and the time at which each is due next."""

    def __init__(self, ctx: ShardContext, inbox: Inbox, gate: CancelGate, dispatcher: Dispatcher) -> None:
        self._ctx = ctx
        self._inbox = inbox
        self._gate = gate
        self._dispatcher = dispatcher
        self._due_at: dict[str, float] = {}
        self._delays_ms: dict[str, float] = {}  # retry delays of failing duties
        self._changes = -1  # changes of the index at the last check
        self._quiet_checks = 0
        self._rests_until = 0.0  # steady ms

    def next_check_in_ms(self, index: TimerIndex, is_running: bool, committed_at: float) -> float:
        """Returns the milliseconds until the next check, if no entry leaves and no request arrives before.

        `committed_at`: the end of the last transaction, steady ms. The next `beat` is due `beat_interval_ms` after it.
        """
        is_quiet = is_running and self._quiet_checks >= REST_CHECKS and index.timer_log.sequence() == self._changes
        if self._dispatcher.needs_maintenance(index):
            return max(self._due_at.get("maintain", 0.0) - self._ctx.clock.steady_ms(), 1.0)
        if not is_quiet or not self._inbox.empty:
            return float(CONFIRM_INTERVAL_MS)
        steady = self._ctx.clock.steady_ms()
        beat_in_ms = committed_at + self._ctx.beat_interval_ms - steady
        check_in_ms = float(max(min(REST_INTERVAL_MS, beat_in_ms), CONFIRM_INTERVAL_MS))
        self._rests_until = steady + check_in_ms
        return check_in_ms

    def run(self, index: TimerIndex, now_ms: int, steady: float) -> None:
        """Runs the duties that are due. `now_ms` is the broker's time, `steady` the local steady clock."""
        if steady < self._rests_until:  # an event ended the rest
            self._quiet_checks, self._rests_until = 0, 0.0
        if self._every("sync", self._ctx.config.index.sync_interval_ms, steady):
            index.sync()
            index.advance(now_ms)
        if self._every("confirm", CONFIRM_INTERVAL_MS, steady):
            is_known = index.confirm(now_ms)
            index.forget_outcomes(self._ctx.clock.wall_ms(), self._gate.read_ms)
            is_known = not index.raise_low_water() and is_known and index.timer_log.sequence() == self._changes
            self._quiet_checks = self._quiet_checks + 1 if is_known else 0
            if self._quiet_checks == REST_CHECKS and self._every("trim", TRIM_INTERVAL_MS, steady):  # the rest begins
                return_free_memory()
            self._changes = index.timer_log.sequence()
        if self._every("maintain", MAINTENANCE_INTERVAL_MS, steady) and self._dispatcher.maintain(index, now_ms):
            self._due_at["maintain"] = steady + UNPARK_INTERVAL_MS
        at_markers = self._inbox.position_if_empty() > read_up_to(index)
        if at_markers and self._is_quiet(index, now_ms, MARKERS_QUIET_MS) and self._every("settle", SETTLE_MS, steady):
            self._run_kafka_duty("settle", lambda: skip_markers(self._ctx, index))  # some 0.2 s
        if self._gate.always and self._every("gate", GATE_CHECK_INTERVAL_MS, steady):
            self._run_kafka_duty("gate", lambda: self._open_gate(index, now_ms))
        if self._every("reclaim", RECLAIM_INTERVAL_MS, steady) and self._is_quiet(index, now_ms, RECLAIM_QUIET_MS):
            index.reclaim()

    def _open_gate(self, index: TimerIndex, now_ms: int) -> None:
        if reached(index, self._inbox) >= end_of_requests(self._ctx):
            self._gate.note_read(now_ms)

    def _run_kafka_duty(self, name: str, duty: Callable[[], object]) -> None:
        """Runs a duty that needs an answer from Kafka. If there is no answer, dispatch continues, and the duty is
        retried after a delay that doubles, since each attempt may block the shard for the time of an admin request."""
        try:
            duty()
        except KafkaFault as fault:
            delay_ms = self._delays_ms[name] = min(
                self._delays_ms.get(name, MAINTENANCE_INTERVAL_MS) * 2, DUTY_DELAY_MS_MAX
            )
            self._due_at[name] = self._ctx.clock.steady_ms() + delay_ms
            log.warning("shard %s: %s fails, next try in %d ms: %s", self._ctx.name, name, delay_ms, fault)
        else:
            self._delays_ms.pop(name, None)

    def _is_quiet(self, index: TimerIndex, now_ms: int, for_ms: int) -> bool:
        """True if no request waits and nothing will be due for `for_ms`, so that a slow duty delays nothing."""
        if not self._inbox.empty:
            return False
        next_due = index.next_due_ms()
        return next_due is None or next_due >= now_ms + for_ms

    def _every(self, name: str, interval_ms: float, steady: float) -> bool:
        if steady < self._due_at.get(name, 0.0):
            return False
        self._due_at[name] = steady + interval_ms
        return True


def reached(index: TimerIndex, inbox: Inbox) -> int:
    """Returns the offset below which every request has been ingested. The markers at the end of the topic that the
    reader has passed also lie below it."""
    return max(read_up_to(index), inbox.position_if_empty())
