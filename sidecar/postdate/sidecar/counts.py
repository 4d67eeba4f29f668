"""The counters of one shard as plain numbers: its thread writes them, and metrics read them.

Metrics must not slow down the hot path. For each message, ingest makes at most one comparison and dispatch one append;
all other work is done for a whole batch or transaction at once. `http.metrics` defines names, units and meaning of the
metrics.

A `ShardCounts` lives as long as the process, even if the shard moves to another member and returns, so its counters
never decrease.

Thread rule: only the shard's thread writes; any thread may read, and may see a transaction partly counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Final

import numpy as np

from postdate.kafka.errors import AbortRequired, Fenced, UnknownOutcome
from postdate.sidecar.clock import BrokerClock, Clock
from postdate.sidecar.states import StateTimes
from postdate.wire.dispatch_log import (
    BACKFILLED,
    DELIVERED,
    EXTRA,
    EXTRA_DEAD,
    FINAL,
    MOVED,
    OCCURRED,
    PAUSED,
    RESUMED,
    SKIPPED,
    STORED,
    SWEPT,
    TRIGGERED,
    Fate,
    Skipped,
)

#: Upper bounds of the buckets for lateness, ms: close together near the promised lateness, and up to an hour for
#: outages.
LATENESS_BOUNDS_MS: Final = (
    5, 10, 20, 30, 50, 75, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000,
)  # fmt: skip

#: Upper bounds of the buckets for a transaction's duration, ms: about 3 ms with an idle broker; the transaction
#: time-out is 10,000 ms.
TRANSACTION_BOUNDS_MS: Final = (2, 3, 5, 7, 10, 15, 20, 30, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)

COMMITTED, ABORTED, UNKNOWN, FENCED, FAILED = OUTCOMES = ("committed", "aborted", "unknown", "fenced", "failed")
"""The outcomes of transactions, as far as this process knows."""

SCHEDULE, CANCEL, RESCHEDULE, PAUSE, RESUME, TRIGGER, BACKFILL, REFUSED = REQUEST_OUTCOMES = (
    *("schedule", "cancel", "reschedule", "pause", "resume", "trigger"),
    *("backfill", "refused"),
)
"""The kinds of requests that were read."""

_NOT_FINAL: Final = (
    *(MOVED, STORED, SWEPT, OCCURRED, SKIPPED, PAUSED, RESUMED),
    *(TRIGGERED, BACKFILLED, EXTRA, EXTRA_DEAD),
)

# Fewer values than this are sorted into their buckets one by one, since numpy's calls would cost more.
_VECTOR_MIN: Final = 200
_FATE_NAME = attrgetter("name")


class Histogram:
    """Counts of values by bucket. There is one bucket more than there are bounds, for the values above all of them."""

    def __init__(self, bounds: Sequence[int]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.total = 0.0
        self._vector = np.array(bounds, dtype=np.int64)

    def add(self, value: float) -> None:
        """Counts one value. O(log bounds)."""
        self.buckets[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add_since(self, starts: list[int], end: int) -> None:
        """Counts `end - start` for each start; a negative difference counts as 0. Measured: 0.2 us for each value if
        there are few, 0.05 us in thousands."""
        if len(starts) < _VECTOR_MIN:
            buckets, bounds, total = self.buckets, self.bounds, 0
            for start in starts:
                value = end - start if end > start else 0
                buckets[bisect_left(bounds, value)] += 1
                total += value
            self.total += total
            return
        values = np.maximum(end - np.array(starts, dtype=np.int64), 0)
        counts = np.bincount(np.searchsorted(self._vector, values), minlength=len(self.buckets))
        self.buckets = [before + added for before, added in zip(self.buckets, counts.tolist(), strict=True)]
        self.total += float(values.sum())


class ShardCounts:
    """All counters of one shard."""

    def __init__(self) -> None:
        self.states = StateTimes()
        self.requests = dict.fromkeys(REQUEST_OUTCOMES, 0)
        self.fates: Counter[str] = Counter(dict.fromkeys((*sorted(FINAL), *_NOT_FINAL), 0))
        self.dead: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        """Skipped occurrences of recurring schedules by reason."""
        self.rated = 0
        """Messages that were due and had to wait for the rate of their target."""
        self.unremembered_ids = 0
        """Delivered messages whose id is not remembered, because the memory for ids is full."""
        self.lateness = Histogram(LATENESS_BOUNDS_MS)
        self.transactions = dict.fromkeys(OUTCOMES, 0)
        self.transaction_ms = Histogram(TRANSACTION_BOUNDS_MS)
        self.skew_ms: float | None = None
        """The local wall clock minus the broker's in ms, at the last transaction with fates; None before the first."""

    def read(self, requests: int, others: list[str]) -> None:
        """Counts a batch of requests that were read. `requests`: their number. `others`: the outcome of each of them
        that schedules nothing."""
        self.requests[SCHEDULE] += requests - len(others)
        for outcome in others:
            self.requests[outcome] += 1

    @contextmanager
    def transaction(self, clock: Clock) -> Iterator[None]:
        """Times a transaction and counts its outcome; errors propagate."""
        began, outcome = clock.steady_ms(), FAILED
        try:
            yield
            outcome = COMMITTED
        except AbortRequired:
            outcome = ABORTED
            raise
        except UnknownOutcome:
            outcome = UNKNOWN
            raise
        except Fenced:
            outcome = FENCED
            raise
        finally:
            self.transactions[outcome] += 1
            self.transaction_ms.add(clock.steady_ms() - began)

    def committed(
        self, fates: list[Fate], dues_ms: list[int], dead: Iterable[str], clock: BrokerClock, recurs: bool = False
    ) -> None:
        """Counts a transaction with these fates that has just been committed. REQUIRES: `clock` has a sample.

        `dues_ms`: for each `delivered`, `occurred` or `extra` fate the time from which its message could have left.
        `dead`: the reason of each dead letter. `recurs`: some of the fates belong to recurring schedules.
        """
        if len(fates) == len(dues_ms) and not recurs:
            self.fates[DELIVERED] += len(fates)
        else:
            self.fates.update(map(_FATE_NAME, fates))
            self.dead.update(dead)
            if recurs:
                for fate in fates:
                    if isinstance(fate, Skipped):
                        self.skipped[fate.reason] += fate.last + 1 - fate.number
        self.lateness.add_since(dues_ms, clock.now_ms())
        self.skew_ms = clock.skew_ms()
