"""The thread of one shard: runs turns until the shard is released, then closes the index itself.

A thread that waits for a commit cannot be stopped from outside. After `release` it begins no further turn, and closes
its index when the commit returns. The next owner's fence decides the outcome of its transaction.

Thread rule: `release`, `join`, `wake_if_needed` and `is_resting` from the poll thread; private methods from the
shard's thread.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from postdate.sidecar.context.pacing import TransactionThrottle
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.operation.instructions import is_instructed
from postdate.sidecar.shard.inbox import Inbox
from postdate.sidecar.shard.limits import CONFIRM_INTERVAL_MS, TAKEOVER_IDLE_S, TAKEOVERS_AT_ONCE_MAX
from postdate.sidecar.shard.shard import Shard
from postdate.sidecar.shard.takeover_slots import Slot, SlottedKafka, TakeoverSlots
from postdate.sidecar.states import DELIVERING, State

_slots = TakeoverSlots(TAKEOVERS_AT_ONCE_MAX, TAKEOVER_IDLE_S)
_TAKING_OVER = frozenset({State.OPENING, State.FENCING, State.RECOVERING})


class ShardThread:
    """One shard and the thread that acts for it."""

    def __init__(self, ctx: ShardContext, pace: TransactionThrottle, released: threading.Event) -> None:
        self.inbox = Inbox()
        self._slot = Slot(_slots, released.is_set)
        kafka = SlottedKafka(ctx.kafka, self._slot, lambda: self.shard.state in _TAKING_OVER)
        self.shard = Shard(replace(ctx, kafka=kafka), self.inbox, pace)
        self._released = released
        self._rests_until = 0.0  # steady ms; above 0 while it sleeps for long
        self._thread = threading.Thread(target=self._run, name=f"shard {ctx.name}", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Asks the shard to release its resources; returns immediately."""
        self._released.set()
        self.inbox.wake()

    def join(self, timeout_s: float) -> bool:
        """Waits until the shard is released; False if it is not released within `timeout_s`."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def wake_if_needed(self) -> None:
        """Wakes a shard from a long sleep if there is an instruction, or if the time of the sleep is over: the sleep
        itself takes longer if the machine was suspended meanwhile. One system call during a long sleep, otherwise
        none."""
        until = self._rests_until
        if until > 0:
            ctx = self.shard.ctx
            figures = ctx.index_queries.figures
            if ctx.clock.steady_ms() > until or (figures is not None and is_instructed(figures.directory)):
                self.inbox.wake()

    @property
    def is_resting(self) -> bool:
        """True during a long sleep."""
        return self._rests_until > 0

    def _run(self) -> None:
        shard, released = self.shard, self._released
        try:
            while not released.is_set():
                try:
                    wait_ms = self._turn(shard)
                except Exception as error:
                    wait_ms = shard.fail(error)
                if wait_ms > 0 and not released.is_set():
                    takes = shard.state in DELIVERING and not shard.ctx.held.current.intake
                    if wait_ms > CONFIRM_INTERVAL_MS:
                        self._rests_until = shard.ctx.clock.steady_ms() + wait_ms
                    self.inbox.wait(wait_ms / 1000.0, for_records=takes)
                    self._rests_until = 0.0
        finally:
            shard.close()

    def _turn(self, shard: Shard) -> float:
        if shard.state in _TAKING_OVER and not self._slot.acquire():
            return 0.0
        try:
            return shard.turn()
        finally:
            self._slot.release()
