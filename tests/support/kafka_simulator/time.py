"""Simulated time: one number that only waiting moves, and what is to happen when it gets there.

Nothing here reads a real clock. Events of the same moment happen in the order in which they were asked for, so a
simulation is the same every time. An event must not wait itself.

Thread rule: one thread.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

#: ms since the epoch: where simulations begin, 2026-01-01 00:00 UTC. Any would do; this one looks like a date.
BEGINNING_MS = 1_767_225_600_000.0


class SimTime:
    """The true time of a simulation, in epoch milliseconds."""

    def __init__(self, now_ms: float = BEGINNING_MS) -> None:
        self.now_ms = now_ms
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def at(self, when_ms: float, action: Callable[[], None]) -> None:
        """Have `action` happen at a time; at the next wait where that is past."""
        heapq.heappush(self._events, (when_ms, next(self._numbers), action))

    def wait(self, wait_ms: float) -> None:
        """Let time pass, and everything happen that is due meanwhile. O(events log events)."""
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
        """Milliseconds since this machine was started: never back, whatever the wall clock does."""
        now_ms = self._time.now_ms
        return (now_ms - self._started_ms - self._stopped_at(now_ms)) * self._rate

    def stop_steady(self, for_ms: float) -> None:
        """The steady clock stands still for that long from now, as that of a virtual machine that is suspended does."""
        self._stopped_ms = self._stopped_at(self._time.now_ms)
        self._stops_at_ms, self._stops_for_ms = self._time.now_ms, for_ms

    def _stopped_at(self, now_ms: float) -> float:
        """How long the steady clock has stood still up to a time."""
        return self._stopped_ms + min(max(now_ms - self._stops_at_ms, 0.0), self._stops_for_ms)

    def wall_ms(self) -> int:
        """Epoch milliseconds as this machine believes them."""
        return int(self._time.now_ms + self.skew_ms)

    def sleep(self, wait_ms: float) -> None:
        """Let that many true milliseconds pass."""
        self._time.wait(wait_ms)

    def step(self, by_ms: float) -> None:
        """Set the wall clock forward, or back."""
        self.skew_ms += by_ms
