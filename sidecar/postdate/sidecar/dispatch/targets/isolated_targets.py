"""The state of one isolated target: the size of its trials, its probation, and the entries that it has refused.

`fault_attribution` decides which targets are isolated, and explains the rules. Thread rule: belongs to the shard's
thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from postdate.sidecar.dispatch.limits import (
    GOOD_TRIALS,
    PROBATION_MS,
    REFUSED_MAX,
    REFUSED_RETRY_MS_MAX,
    REFUSED_RETRY_MS_MIN,
)
from postdate.sidecar.dispatch.targets.targets import Refusal
from postdate.sidecar.dispatch.targets.trial_pauses import LateCredit
from postdate.sidecar.limits import BACKOFF_MS_MIN
from postdate.sidecar.transaction.transaction import NOBODY
from postdate.wire.reasons import Reason

#: The name of the isolated "target" that stands for Postdate's own topics; no topic has an empty name.
OWN: Final = ""

#: The number of recent durations that are kept.
_RECENT = 32

_UNAVAILABLE: Final = Refusal(Reason.TARGET_UNAVAILABLE, "")


@dataclass(slots=True)
class RefusedEntry:
    """An entry that was refused. `since`: the time of its first refusal. `next_at`: the time of its next attempt, alone
    in a trial. Both are steady ms. `delay_ms`: the pause after that attempt."""

    since: float
    next_at: float
    delay_ms: float = REFUSED_RETRY_MS_MIN


class RecentDurations:
    """The durations of the last transactions, in ms.

    >>> recent = RecentDurations()
    >>> recent.shortest, recent.median
    (0.0, 0.0)
    >>> for took_ms in (5.0, 300.0, 4.0):
    ...     recent.add(took_ms)
    >>> recent.shortest, recent.median
    (4.0, 5.0)
    """

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=_RECENT)

    def add(self, took_ms: float) -> None:
        self._last.append(took_ms)

    @property
    def shortest(self) -> float:
        """The shortest duration; 0 before the first transaction."""
        return min(self._last, default=0.0)

    @property
    def median(self) -> float:
        """The median, which a few stalls do not change; 0 before the first transaction. O(32 log 32)."""
        return self._quantile(2)

    @property
    def upper_quartile(self) -> float:
        """The upper quartile; 0 before the first transaction. O(32 log 32)."""
        return self._quantile(3)

    def mean_above(self, limit_ms: float) -> float:
        """Returns the mean time by which the durations exceeded `limit_ms`; a shorter duration counts as 0. O(32)."""
        return sum(max(took_ms - limit_ms, 0.0) for took_ms in self._last) / max(len(self._last), 1)

    def _quantile(self, quarters: int) -> float:
        return sorted(self._last)[len(self._last) * quarters // 4] if self._last else 0.0


@dataclass(slots=True)
class Isolated:
    """One target whose messages leave in trials. All times are steady ms."""

    name: str
    messages_max: int
    """The most messages of one trial; for OWN, the most entries."""
    faulted_at: float
    acknowledged_at: float
    accepted_at: float
    probation_ms: float = PROBATION_MS
    good_trials: int = 0
    """The number of acknowledged trials since the last fault."""
    failing_since: float = 0.0
    """The end of the first failed trial after the last acknowledgement. If no trial has failed since, this is not later
    than `acknowledged_at`."""
    failed_at: float = -inf
    """The end of the last failed trial that shows that the rest of the cluster works: its log record was acknowledged,
    or a transaction was committed after the previous failed trial."""
    tried_at: float = -inf
    retry_at: float = 0.0
    delay_ms: float = BACKOFF_MS_MIN
    refusal: Refusal = _UNAVAILABLE
    refused: dict[int, RefusedEntry] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)
    """For OWN: the topics that were to blame."""
    waits: bool = True
    """False if a trial would find no entry that may leave."""
    alone_next: bool = False
    """True if the next trial retries a refused entry, provided that one is due: new and refused entries take turns."""
    pace_ms: float = inf
    """The duration of its last trial in ms for each message."""
    took_ms: RecentDurations = field(default_factory=RecentDurations)
    """The durations of its committed trials."""
    credit: LateCredit = field(default_factory=LateCredit)
    """The time by which its trials may still delay messages for other targets."""

    def fault(self, at: float) -> None:
        """Notes a fault at `at`: the probation begins again."""
        self.faulted_at, self.good_trials = at, 0

    def is_through_probation(self, now: float) -> bool:
        """True if the target has had no fault for the duration of its probation, and (except OWN) has acknowledged a
        record since its last fault."""
        if self.acknowledged_at < self.faulted_at and self.name != OWN:  # OWN returns anyway: bulk controls wait for it
            return False
        probation_ms = self.probation_ms if self.good_trials >= GOOD_TRIALS else PROBATION_MS
        return now - self.faulted_at >= probation_ms

    def retry_alone(self, offsets: Iterable[int], now: float) -> None:
        """Schedules a separate retry for each of these refused entries, since they are to blame and not the target."""
        for offset in offsets:
            if offset != NOBODY and len(self.refused) < REFUSED_MAX:
                self.refused.setdefault(offset, RefusedEntry(now, now))

    def refuse_again(self, offset: int, now: float) -> None:
        """Schedules the next retry of an entry that was refused alone, after a longer pause."""
        refused = self.refused.get(offset)
        if refused is None:
            if len(self.refused) >= REFUSED_MAX:
                return
            refused = self.refused[offset] = RefusedEntry(now, now)
        refused.next_at = now + refused.delay_ms
        refused.delay_ms = min(refused.delay_ms * 2, REFUSED_RETRY_MS_MAX)
