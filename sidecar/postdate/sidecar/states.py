"""The states of a shard, and the time that it spent in each.

A shard is always in exactly one state (docs/protocol.md, "Takeover"). For metrics and probes, `StateTimes` records the
time spent in each state, how often each state was entered, and for how long the shard has not delivered.

Thread rule: the shard's thread enters states; other threads read, and may see a change partly applied.
"""

from __future__ import annotations

from enum import StrEnum

from postdate.sidecar.clock import Clock


class State(StrEnum):
    """The state of a shard, which delivers only in CATCHING_UP and RUNNING."""

    UNASSIGNED = "UNASSIGNED"
    OPENING = "OPENING"
    FENCING = "FENCING"
    RECOVERING = "RECOVERING"
    CATCHING_UP = "CATCHING_UP"
    RUNNING = "RUNNING"
    DRAINING = "DRAINING"
    FENCED = "FENCED"
    HALTED = "HALTED"


DELIVERING = frozenset({State.CATCHING_UP, State.RUNNING})


class StateTimes:
    """The states of one shard, over all periods in which this process owned it.

    When a shard returns to this process, a stuck thread of its previous `Stateful` may still exist: only changes of the
    latest `Stateful` count.
    """

    def __init__(self) -> None:
        self.latest: Stateful | None = None
        self.state = State.UNASSIGNED
        self.entered = dict.fromkeys(State, 0)
        self.takeover_ms = -1.0
        """The duration of the last takeover in ms, from the end of delivery or from the assignment to the first
        delivering state; -1 before the first takeover has ended."""
        self._spent_ms = dict.fromkeys(State, 0.0)
        self._since_ms = 0.0
        self._silent_since_ms = 0.0

    def enter(self, state: State, now_ms: float) -> None:
        """Notes that the shard enters `state` at `now_ms`, steady time. Does nothing if it is already in that state."""
        before = self.state
        if state is before:
            return
        if before is not State.UNASSIGNED:
            self._spent_ms[before] += now_ms - self._since_ms
        if (before in DELIVERING and state not in DELIVERING) or before is State.UNASSIGNED:
            self._silent_since_ms = now_ms
        elif state in DELIVERING and before not in DELIVERING:
            self.takeover_ms = now_ms - self._silent_since_ms
        self.state, self._since_ms = state, now_ms
        self.entered[state] += 1

    def spent_ms(self, now_ms: float) -> dict[State, float]:
        """Returns the milliseconds in each state, including the present one, without UNASSIGNED."""
        spent = dict(self._spent_ms)
        if self.state is not State.UNASSIGNED:
            spent[self.state] += max(now_ms - self._since_ms, 0.0)
        return spent

    def silent_ms(self, now_ms: float) -> float:
        """Returns the milliseconds since the end of delivery or the assignment; 0 while the shard delivers."""
        return 0.0 if self.state in DELIVERING else max(now_ms - self._silent_since_ms, 0.0)


class Stateful:
    """An object with a `state`. The `times` of a shard count the changes of its latest `Stateful`."""

    def __init__(self, times: StateTimes, clock: Clock) -> None:
        self._times = times
        self._times_clock = clock
        self._state = State.UNASSIGNED
        times.latest = self
        times.enter(State.UNASSIGNED, clock.steady_ms())

    @property
    def state(self) -> State:
        """The present state."""
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state = state
        if self._times.latest is self:
            self._times.enter(state, self._times_clock.steady_ms())
