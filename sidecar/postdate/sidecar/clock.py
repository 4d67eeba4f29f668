"""Clocks: those of this machine, and an estimate of the broker's clock.

The **broker's** clock decides whether a message may leave. The delivery report of each dispatch-log record contains the
time at which the broker appended the record (LogAppendTime). The difference between this time and the machine's steady
clock when the report arrives is a sample. The largest sample of the last hour, added to the present time of the steady
clock, is an estimate of the broker's time. This estimate

- is ahead of the broker only if the broker's clock goes back or the steady clock drifts: a report takes time to arrive,
  so each sample is too small, never too large;
- does not depend on the local wall clock: ``CLOCK_BOOTTIME`` only counts forward, even while the machine sleeps;
- lags by the latency of the fastest delivery report of the hour, about a millisecond;
- is not used if a request has a timestamp well ahead of it, until a new record of this shard adds a sample: the
  broker's clock may have been set forward, and every message would then be late by that step.

Thread rule: a `BrokerClock` belongs to one shard thread. A `Clock` is shared and has no state.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Protocol

from postdate.kafka.interface import Record
from postdate.sidecar.limits import CLOCK_AHEAD_MS_MAX, CLOCK_DOUBT_MS, CLOCK_SAMPLE_AGE_MS_MAX, CLOCK_SAMPLES_MAX


class Clock(Protocol):
    """The machine's clocks, injected so that a simulation can control the time."""

    def steady_ms(self) -> float:
        """Returns the milliseconds since an arbitrary start, by a clock that never goes back and never stops."""

    def wall_ms(self) -> int:
        """Returns epoch milliseconds by the wall clock of this machine, which never decides whether a message may
        leave."""

    def sleep(self, wait_ms: float) -> None:
        """Waits for `wait_ms` milliseconds."""


class SystemClock:
    """The clocks of the running machine."""

    def steady_ms(self) -> float:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1e6

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, wait_ms: float) -> None:
        time.sleep(wait_ms / 1000)


class BrokerClock:
    """An estimate of the broker's time, from the append times of this shard's records.

    >>> class Stopped:
    ...     def steady_ms(self): return 500.0
    ...     def wall_ms(self): return 0
    ...     def sleep(self, wait_ms): pass
    >>> clock = BrokerClock(Stopped())
    >>> clock.sample(append_ms=10_400, reported_at=450.0)
    >>> clock.now_ms()
    10450
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._samples: deque[tuple[float, float]] = deque()  # (steady time, difference): times rise, differences fall
        self._doubted = False
        self._doubt_at = 0.0

    def sample(self, append_ms: int, reported_at: float) -> None:
        """Adds a sample. `append_ms`: when the broker appended a record. `reported_at`: the steady time of its
        report."""
        self._doubted = False
        difference = append_ms - reported_at
        while self._samples and self._samples[-1][1] <= difference:
            self._samples.pop()
        self._samples.append((reported_at, difference))
        if len(self._samples) > CLOCK_SAMPLES_MAX:
            self._samples.popleft()

    def observe(self, record: Record) -> None:
        """Checks the timestamp of a request that was just read. The timestamp is not a sample, since another broker may
        have set it. But if a broker set it far ahead of the estimate, `known` returns False until the next sample; this
        happens at most once in CLOCK_DOUBT_MS."""
        if not record.log_append or not self._samples or record.timestamp_ms <= self.now_ms() + CLOCK_AHEAD_MS_MAX:
            return
        steady = self._clock.steady_ms()
        if steady >= self._doubt_at:
            self._doubted, self._doubt_at = True, steady + CLOCK_DOUBT_MS

    def known(self) -> bool:
        """True if there is a sample of the last hour, and no doubt about it. Otherwise no message may be dispatched."""
        self._expire()
        return bool(self._samples) and not self._doubted

    def now_ms(self) -> int:
        """Returns the estimate of the broker's time, epoch ms.

        REQUIRES: a sample.
        """
        return int(self._samples[0][1] + self._clock.steady_ms())

    def skew_ms(self) -> float:
        """Returns the local wall clock minus the estimate of the broker's clock in ms, for a metric. REQUIRES: a
        sample."""
        return self._clock.wall_ms() - (self._samples[0][1] + self._clock.steady_ms())

    def forget(self) -> None:
        """Drops every sample, after the broker's clock has gone back."""
        self._samples.clear()

    def _expire(self) -> None:
        oldest = self._clock.steady_ms() - CLOCK_SAMPLE_AGE_MS_MAX
        while self._samples and self._samples[0][0] < oldest:
            self._samples.popleft()
