"""When the next transaction may begin: small ones keep a distance, and all shards of a process share one budget.

Measured (docs/architecture.md): begun back to back, one transaction in ten to a hundred takes over 20 ms, because the
broker is still writing the markers of the one before, and the client library then waits a fixed 20 ms. A pause of 1 to
5 ms avoids that, how long depends on the broker. So the pause adapts: a transaction that was made to wait lengthens it,
each that was not shortens it a little, which keeps about one in a hundred waiting. A large transaction needs no pause.

An open transaction holds back whoever reads committed records of its partitions. Shards that all have much to deliver
share the one core of their process, so large transactions take turns, few at once: the same messages a second, and each
transaction is open for a shorter time.

Thread rule: `TransactionBudget` and `LargeTurns` are shared and take a lock once a transaction; `TransactionPace`
belongs to one shard.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from postdate.sidecar.limits import (
    LARGE_TRANSACTION_FATES,
    LARGE_TRANSACTIONS_AT_ONCE,
    MADE_TO_WAIT_MS,
    PACE_DOWN_MS,
    PACE_MS_MAX,
    PACE_MS_MIN,
    PACE_UP_MS,
    TURN_TIMEOUT_S,
)


class TransactionBudget:
    """So many transactions a second for all shards of a process: each takes the next free slot in time."""

    def __init__(self, per_second: int) -> None:
        self._interval_ms = 1000.0 / per_second
        self._next_ms = 0.0
        self._lock = threading.Lock()

    def take(self, now_ms: float) -> float:
        """The earliest steady time in ms at which a transaction after this one may begin."""
        with self._lock:
            self._next_ms = max(self._next_ms, now_ms) + self._interval_ms
            return self._next_ms


class TransactionPace:
    """The distance that one shard keeps between its transactions."""

    def __init__(self, budget: TransactionBudget, pace_ms: float) -> None:
        """`pace_ms`: the pause to begin with; 0 for none, ever."""
        self._budget = budget
        self.pace_ms = pace_ms
        self._next_ms = 0.0

    def wait_ms(self, now_ms: float) -> float:
        """Milliseconds until the next transaction may begin; 0 or less: now."""
        return self._next_ms - now_ms

    def note(self, now_ms: float, fates: int, took_ms: float) -> None:
        """A transaction with so many fates has just been committed; its records were acknowledged after `took_ms`."""
        pause = 0.0
        if fates < LARGE_TRANSACTION_FATES and self.pace_ms > 0:
            if took_ms >= MADE_TO_WAIT_MS:
                self.pace_ms = min(self.pace_ms + PACE_UP_MS, PACE_MS_MAX)
            else:
                self.pace_ms = max(self.pace_ms - PACE_DOWN_MS, PACE_MS_MIN)
            pause = self.pace_ms
        self._next_ms = max(self._budget.take(now_ms), now_ms + pause)


class LargeTurns:
    """Lets few large transactions of a process be open at once; small ones go as they come."""

    def __init__(self, at_once: int = LARGE_TRANSACTIONS_AT_ONCE) -> None:
        self._free = threading.BoundedSemaphore(at_once)

    @contextmanager
    def turn(self, fates: int, timeout_s: float = TURN_TIMEOUT_S) -> Iterator[bool]:
        """A transaction of so many fates, which runs inside: waits until it is its turn, or until the time is over;
        gives whether it has one.

        A turn is only the quicker way, so whose turn does not come goes all the same: a transaction may hang for as
        long as its brokers do not answer.
        """
        has_turn = fates >= LARGE_TRANSACTION_FATES and self._free.acquire(timeout=timeout_s)
        try:
            yield has_turn
        finally:
            if has_turn:
                self._free.release()
