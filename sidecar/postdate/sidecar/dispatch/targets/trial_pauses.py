"""Decides how long the trials of a target pause, so that messages for other targets rarely wait for them.

A trial takes long if its target is slow or does not answer, or if something else delays it, such as a network outage or
a busy machine. A single trial does not show the cause. So a target has a credit, which a few long trials use up, and
its first long pause is limited. A target whose trials stay long soon gets pauses of full length. Sources of the idea:
the token bucket, and exponential backoff.
"""

from __future__ import annotations

from math import inf

from postdate.sidecar.dispatch.limits import (
    FIRST_PAUSE_MS_MAX,
    LATE_TRIAL_REST,
    LATE_TRIAL_REST_MS_MAX,
    PROBATION_MS,
)


class GrowingLimit:
    """A limit on durations. It starts at `first_ms`; each grant of `first_ms` or more sets it to twice that grant. If
    the last such grant ended at least `forget_ms` ago, the limit is `first_ms` again. All times are steady ms.

    >>> limit = GrowingLimit(1_000.0, 30_000.0)
    >>> [limit.limited(6_000.0, now_ms) for now_ms in (0.0, 3_000.0, 6_000.0, 9_000.0, 44_000.0, 80_000.0)]
    [1000.0, 2000.0, 4000.0, 6000.0, 6000.0, 1000.0]
    """

    def __init__(self, first_ms: float, forget_ms: float) -> None:
        self._first_ms = self._limit_ms = first_ms
        self._forget_ms = forget_ms
        self._reached_at = -inf

    def limited(self, wanted_ms: float, now_ms: float) -> float:
        """Returns `wanted_ms`, or the limit if that is shorter. A request of `first_ms` or more changes the limit."""
        if wanted_ms < self._first_ms:
            return wanted_ms
        if now_ms - self._reached_at >= self._forget_ms:
            self._limit_ms = self._first_ms
        granted_ms = min(wanted_ms, self._limit_ms)
        self._limit_ms, self._reached_at = 2 * granted_ms, now_ms + granted_ms
        return granted_ms


class LateCredit:
    """The time by which trials of one target may still delay messages for other targets beyond the usual wait. It grows
    by 1 ms every LATE_TRIAL_REST ms, up to a maximum, and is full at first. All times are steady ms.

    >>> credit = LateCredit()
    >>> credit.spend(80.0, 100.0, 0.0), credit.spend(23.0, 100.0, 0.0)
    (0.0, 450.0)
    >>> credit.spend(100.0, 100.0, 1_000.0), credit.spend(100.0, 100.0, 3_000.0, hangs=True)
    (1000.0, 10000)
    """

    def __init__(self) -> None:
        self._left_ms = inf
        self._updated_at = 0.0
        self._limit = GrowingLimit(FIRST_PAUSE_MS_MAX, PROBATION_MS)

    def spend(self, late_ms: float, credit_max_ms: float, now_ms: float, hangs: bool = False) -> float:
        """Charges a trial to the credit. Returns how long the target must pause, in ms; 0 if the credit suffices.

        `late_ms`: the time by which messages for other targets waited longer for the trial than usual; a negative value
        adds credit. `credit_max_ms`: the maximum credit. `hangs`: the target is known to be the cause, so only
        LATE_TRIAL_REST_MS_MAX limits the pause.
        """
        earned_ms = max(now_ms - self._updated_at, 0.0) / LATE_TRIAL_REST
        self._left_ms = min(min(self._left_ms + earned_ms, credit_max_ms) - late_ms, credit_max_ms)
        self._updated_at = now_ms
        if self._left_ms >= 0:
            return 0.0
        pause_ms = min(-self._left_ms * LATE_TRIAL_REST, LATE_TRIAL_REST_MS_MAX)
        pause_ms = pause_ms if hangs else self._limit.limited(pause_ms, now_ms)
        self._left_ms, self._updated_at = 0.0, now_ms + pause_ms
        return pause_ms
