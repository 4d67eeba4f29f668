"""Simulated time: a number that only waits advance, and the events that happen at given times.

Nothing here reads a real clock. Events of the same time happen in the order in which they were added, so a simulation
is reproducible. An event must not wait.

Thread rule: one thread.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

#: Milliseconds since the epoch: the start of simulations, 2026-01-01 00:00 UTC. Any time would do.
BEGINNING_MS = 1_767_225_600_000.0


class SimTime:
    """The true time of a simulation, in epoch milliseconds."""

    def __init__(self, now_ms: float = BEGINNING_MS) -> None:
        self.now_ms = now_ms
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def at(self, when_ms: float, action: Callable[[], None]) -> None:
        """Runs `action` at a time; if that time is past, at the next wait."""
        heapq.heappush(self._events, (when_ms, next(self._numbers), action))

    def wait(self, wait_ms: float) -> None:
        """Advances the time, and runs the events that are due meanwhile. O(events log events)."""
        end = self.now_ms + max(wait_ms, 0.0)
        while self._events and self._events[0][0] <= end:
            when_ms, _, action = heapq.heappop(self._events)
            self.now_ms = max(self.now_ms, when_ms)
            action()
        self.now_ms = end


class SimClock:
    """The clocks of one simulated machine. Its steady clock may run fast or slow, its wall clock may be stepped.

    >>> time = SimTime(1_000.0)
    >>> clock = SimClock(time, skew_ms=-300, rate=1.5)
    >>> time.wait(200)
    >>> (clock.wall_ms(), clock.steady_ms())
    (900, 300.0)
    """

    def __init__(self, time: SimTime, skew_ms: float = 0.0, rate: float = 1.0) -> None:
        self._time = time
        self._started_ms = time.now_ms
        self._rate = rate
        self.skew_ms = skew_ms
        self._stopped_ms = 0.0
        self._stops_at_ms = self._stops_for_ms = 0.0

    def steady_ms(self) -> float:
        """Returns milliseconds since this machine was started; steps of the wall clock do not affect it."""
        now_ms = self._time.now_ms
        return (now_ms - self._started_ms - self._stopped_at(now_ms)) * self._rate

    def stop_steady(self, for_ms: float) -> None:
        """Stops the steady clock for this long from now, like that of a suspended virtual machine."""
        self._stopped_ms = self._stopped_at(self._time.now_ms)
        self._stops_at_ms, self._stops_for_ms = self._time.now_ms, for_ms

    def _stopped_at(self, now_ms: float) -> float:
        """Returns the ms for which the steady clock has been stopped up to a time."""
        return self._stopped_ms + min(max(now_ms - self._stops_at_ms, 0.0), self._stops_for_ms)

    def wall_ms(self) -> int:
        """Returns epoch milliseconds by the clock of this machine."""
        return int(self._time.now_ms + self.skew_ms)

    def sleep(self, wait_ms: float) -> None:
        """Advances the true time by this many milliseconds."""
        self._time.wait(wait_ms)

    def step(self, by_ms: float) -> None:
        """Moves the wall clock forward or back."""
        self.skew_ms += by_ms
