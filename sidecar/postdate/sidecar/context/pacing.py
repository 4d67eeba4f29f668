"""Decides when the next transaction may begin: a pause follows a small one, and the shards of a process share a budget.

Measured (docs/architecture.md): if transactions follow each other immediately, between one in ten and one in a hundred
takes more than 20 ms. The broker is still writing the markers of the previous one, and the client library then waits a
fixed 20 ms. A pause of 1 to 5 ms, depending on the broker, avoids that. So the pause adapts: a transaction that had to
wait lengthens it, and each other transaction shortens it a little. This keeps about one transaction in a hundred
waiting. Trials do not change the pause. A large transaction neither changes nor needs it.

A process with many shards may start more small transactions than its machine or its brokers can handle. Then all of
them take long. Running more of them in parallel does not help, but fewer and larger ones do. So the budget has a
window: the average number of transactions that may be in progress. It grows while the average transaction takes less
than twice as long as the fastest one, and otherwise shrinks, down to WINDOW_MIN. Source: TCP Vegas, and BBR for
measuring the fastest one periodically.

An open transaction blocks `read_committed` readers of its partitions, and the shards of a process share one core. So
large transactions share slots: throughput stays the same, and each transaction is open for a shorter time.

Thread rule: `TransactionBudget` and `LargeTransactionSemaphore` are shared and take a lock once per transaction;
`TransactionThrottle` belongs to one shard.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Final

from postdate.sidecar.context.limits import (
    LARGE_TRANSACTION_FATES,
    LARGE_TRANSACTIONS_AT_ONCE,
    MADE_TO_WAIT_MS,
    PACE_DOWN_MS,
    PACE_MS_MAX,
    PACE_MS_MIN,
    PACE_UP_MS,
    SLOT_TIMEOUT_S,
    WINDOW_MAX,
    WINDOW_MIN,
    WINDOW_PROBE_MS,
    WINDOW_TOOK_MS_MAX,
)

#: The number of transactions over which durations are averaged: several for each shard, since each shard reserves its
#: next slot in advance. With fewer, all shards would slow down and speed up together.
_REMEMBERED: Final = 512
#: A multiple of the fastest duration: transactions that take longer wait for each other rather than for Kafka.
_SLOW: Final = 2.0


class TransactionBudget:
    """Limits the transactions per second of all shards of a process. Also limits the small transactions in progress, so
    that they do not slow each other down. Each transaction takes the next free slot in time."""

    def __init__(self, per_second: int) -> None:
        self._interval_ms = 1000.0 / per_second
        self._next_ms = 0.0
        self._next_small_ms = 0.0
        self._lock = threading.Lock()
        self.window = WINDOW_MIN
        """The number of small transactions that may run at a time, on average."""
        self._took_ms = 0.0
        self._seen = 0
        self._quickest_ms = inf
        self._probe_at = 0.0

    def reserve(self, now_ms: float, took_ms: float = 0.0, *, is_trial: bool = False) -> float:
        """Returns the earliest steady time in ms at which a transaction after this one may begin.

        `took_ms`: for a small transaction, the time until all its records were acknowledged, without the commit. It is
        0 for a large transaction, or if pauses are switched off; the window ignores these. A trial of an isolated
        target takes a slot, but its duration shows nothing about other transactions.
        """
        with self._lock:
            if took_ms > 0 and not is_trial:
                self._learn(now_ms, took_ms)
            self._next_ms = max(self._next_ms, now_ms) + self._interval_ms
            if took_ms <= 0:
                return self._next_ms
            # Separate slots: a large transaction does not queue behind the small ones.
            self._next_small_ms = max(self._next_small_ms, now_ms) + self._took_ms / self.window
            return max(self._next_ms, self._next_small_ms)

    def _learn(self, now_ms: float, took_ms: float) -> None:
        took_ms = min(took_ms, WINDOW_TOOK_MS_MAX)
        self._seen = min(self._seen + 1, _REMEMBERED)
        self._took_ms += (took_ms - self._took_ms) / self._seen
        if now_ms >= self._probe_at:  # measures again, with few concurrent transactions
            self._probe_at = now_ms + WINDOW_PROBE_MS
            self.window, self._quickest_ms = WINDOW_MIN, inf
        self._quickest_ms = min(self._quickest_ms, took_ms)
        if self._took_ms < _SLOW * self._quickest_ms:
            self.window = min(self.window + 1 / self.window, WINDOW_MAX)
        else:
            self.window = max(self.window - 1 / self.window, WINDOW_MIN)


class TransactionThrottle:
    """The pause that one shard keeps between its transactions."""

    def __init__(self, budget: TransactionBudget, pace_ms: float) -> None:
        """`pace_ms`: the initial pause; if it is 0, there is never a pause."""
        self._budget = budget
        self.pace_ms = pace_ms
        self._next_ms = 0.0

    def wait_ms(self, now_ms: float) -> float:
        """Returns the milliseconds until the next transaction may begin; 0 or less: it may begin now."""
        return self._next_ms - now_ms

    def observe(self, now_ms: float, fates: int, took_ms: float, *, is_trial: bool = False) -> None:
        """Notes a committed transaction with this number of fates, whose records were acknowledged after `took_ms`.

        The duration of a trial depends on its target, so a trial changes neither the pause nor the budget's window.
        """
        pause = 0.0
        if fates < LARGE_TRANSACTION_FATES and self.pace_ms > 0:
            if not is_trial:
                change_ms = PACE_UP_MS if took_ms >= MADE_TO_WAIT_MS else -PACE_DOWN_MS
                self.pace_ms = min(max(self.pace_ms + change_ms, PACE_MS_MIN), PACE_MS_MAX)
            pause = self.pace_ms
        free_ms = self._budget.reserve(now_ms, took_ms if pause else 0.0, is_trial=is_trial)
        self._next_ms = max(free_ms, now_ms + pause)


class LargeTransactionSemaphore:
    """Limits the large transactions of a process that are open at once; small ones do not wait."""

    def __init__(self, at_once: int = LARGE_TRANSACTIONS_AT_ONCE) -> None:
        self._free = threading.BoundedSemaphore(at_once)

    @contextmanager
    def slot(self, fates: int, timeout_s: float = SLOT_TIMEOUT_S) -> Iterator[bool]:
        """Provides a slot for a transaction with this number of fates. Waits for a slot or until the time-out; yields
        True if the transaction has one.

        A slot only improves speed, so a transaction without one runs anyway: another transaction may hang for as long
        as its brokers do not answer.
        """
        has_slot = fates >= LARGE_TRANSACTION_FATES and self._free.acquire(timeout=timeout_s)
        try:
            yield has_slot
        finally:
            if has_slot:
                self._free.release()
