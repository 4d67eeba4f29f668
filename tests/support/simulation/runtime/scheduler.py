"""Selects the actor that runs next. Each step of an actor is a separate coroutine, so any two steps may interleave in
any order.

An actor's step runs until it waits, or until it lets others run. Then it is suspended, and the scheduler draws the next
actor: a suspended step whose time has come, or an actor that is due. So a process may be overtaken between any two of
its requests, any number of times, and the overtaking process need not end first.

A step of a dead process is resumed at once, and the check after each suspension ends it.

Thread rule: one thread. The coroutines are greenlets, since the code under test has no suspension points.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from greenlet import getcurrent, greenlet

from support.kafka_simulator import SimTime
from support.simulation.runtime.process import Actor, Crashed, SimulatedProcess

if TYPE_CHECKING:
    from support.simulation.runtime.process import PollActor, ShardActor

    AnyActor = PollActor | ShardActor

#: A run with more steps than this is assumed to loop.
STEPS_MAX = 60_000
#: Milliseconds: the maximum advance of time in one step, since events may wake actors.
_PASSES_MS_MAX = 100.0
#: Milliseconds: the minimum advance of time in one step: time must pass even if an actor is due but cannot run.
_PASSES_MS_MIN = 0.05


class Scheduler:
    """Runs the actors of `processes`, one at a time. `failed` is called with an actor whose step raised."""

    def __init__(
        self, time: SimTime, random: Random, processes: list[SimulatedProcess], failed: Callable[[Actor, str], None]
    ) -> None:
        self.steps = 0
        self._time = time
        self._random = random
        self._processes = processes
        self._failed = failed
        self._current: AnyActor | None = None
        self._suspended: dict[AnyActor, tuple[greenlet, float]] = {}  # the time at which each continues

    @property
    def current(self) -> AnyActor:
        """The actor whose step is running. REQUIRES: a step is running."""
        assert self._current is not None, "nobody acts now"
        return self._current

    def is_within(self, actor: AnyActor) -> bool:
        """True while a step of the actor is running or suspended."""
        return actor is self._current or actor in self._suspended

    def run_until(self, end_ms: float) -> None:
        """Runs actors until that time."""
        while self._time.now_ms < end_ms:
            if not self._run_one():
                self._pass_time(end_ms)
        self._end_dead()

    def suspend(self, until_ms: float) -> None:
        """Suspends the running step until that time or later; others run meanwhile. REQUIRES: called within a step."""
        actor, hub = self.current, getcurrent().parent
        assert hub is not None, "a step runs within the scheduler"
        self._suspended[actor] = (getcurrent(), until_ms)
        hub.switch()

    def others_may_act(self) -> bool:
        """True if another actor is ready."""
        return any(actor is not self._current for actor in self._ready())

    def unwind(self) -> None:
        """Ends every step of a dead process. REQUIRES: called outside of any step."""
        self._end_dead()

    def _run_one(self) -> bool:
        """Runs one ready actor; False if none is ready."""
        self._end_dead()
        ready = list(self._ready())
        if not ready:
            return False
        actor = ready[0] if len(ready) == 1 else self._random.choice(ready)
        if actor in self._suspended:
            self._resume(actor, self._suspended.pop(actor)[0])
        else:
            self.steps += 1
            if self.steps > STEPS_MAX:
                raise AssertionError(f"{STEPS_MAX} steps and no end: {actor.name} at {self._time.now_ms}")
            self._resume(actor, greenlet(self._step))
        return True

    def _resume(self, actor: AnyActor, task: greenlet) -> None:
        self._current = actor
        try:
            task.switch()
        finally:
            self._current = None

    def _step(self) -> None:
        """Runs one step of the current actor, from its beginning to its end."""
        actor = self.current
        try:
            actor.step()
        except Crashed:
            self._failed(actor, "")
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)[-4:]
            where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
            self._failed(actor, f"{type(error).__name__}: {error} at {where}")

    def _end_dead(self) -> None:
        """Resumes the suspended steps of dead processes, which ends them."""
        for actor in [actor for actor in self._suspended if actor.process.dead]:
            self._resume(actor, self._suspended.pop(actor)[0])
            assert actor not in self._suspended, f"{actor.name} is dead and goes on"

    def _ready(self) -> Iterator[AnyActor]:
        """Yields the actors that may run now, in a deterministic order."""
        now_ms, suspended = self._time.now_ms, self._suspended
        for process in self._processes:
            if process.paused_until_ms <= now_ms:
                for actor in process.actors:
                    if actor in suspended:
                        if suspended[actor][1] <= now_ms:
                            yield actor
                    elif actor is not self._current and actor.is_due(now_ms):
                        yield actor

    def _pass_time(self, end_ms: float) -> None:
        """Advances the time until an actor may be ready. REQUIRES: no actor is ready."""
        now_ms, soonest = self._time.now_ms, end_ms
        for process in self._processes:
            if process.paused_until_ms > now_ms:
                soonest = min(soonest, process.paused_until_ms)
                continue
            for actor in process.actors:
                at_ms = self._suspended[actor][1] if actor in self._suspended else actor.next_at_ms
                soonest = min(soonest, at_ms)
        self._time.wait(min(end_ms, max(soonest, now_ms + _PASSES_MS_MIN), now_ms + _PASSES_MS_MAX) - now_ms)
