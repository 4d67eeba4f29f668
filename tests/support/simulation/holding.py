"""A person who holds and releases: the delivery of a shard, its intake, one target; and the oracle of what is held.

O11: from the moment at which the group keeps a hold until somebody asks for its release, the shard delivers nothing of
what is held, whoever owns it by then, but for the one transaction that may have been under way. That what is due in the
meantime is delivered after the release, and once, is for the other oracles.

Thread rule: one thread; a request waits at each process until its poll thread serves it.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from postdate.kafka.interface import Partition
from postdate.sidecar.context.holds import DELIVERY, INTAKE, NOTHING, TARGET, Holds
from postdate.sidecar.group.hold_requests import _Asked
from postdate.wire.dispatch_log import DELIVERED, OWNER, decode_record
from postdate.wire.errors import FormatError
from support.simulation.judge import JudgedOutcome, committed
from support.simulation.traffic import REQUESTS, TARGETS, SimulatedTraffic

if TYPE_CHECKING:
    from support.simulation.world import World

_LOG = f"{REQUESTS}.dispatch-log"
#: ms. How long something stays held: shorter and longer than a takeover, a session, and what is due ahead.
_HELD_MS = (500.0, 3_000.0, 12_000.0)
_ASKED_AGAIN_MS = 500.0


@dataclass(frozen=True)
class _Wish:
    """What somebody wants to be held."""

    index: int
    what: str
    target: str


@dataclass
class _Window:
    """Offsets of the dispatch log between which something is held."""

    index: int
    what: str
    target: str
    first: int
    end: int = -1


class _Served(threading.Event):
    """Tells, at the very step of the poll thread that serves a request, that it was served."""

    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__()
        self._tell = tell

    def set(self) -> None:
        super().set()
        self._tell()


class Holding:
    """What people ask to hold in one schedule."""

    def __init__(self, world: World, random: Random, partitions: int) -> None:
        self._world = world
        self._random = random
        self._partitions = partitions
        self._windows: list[_Window] = []
        self._releasing: Counter[_Wish] = Counter()  # releases that were asked for and are not done
        self._at_peace = False

    def plan(self, count: int, duration_ms: float, then: Callable[[], None] | None = None) -> None:
        """So many holds at times of their own, each released again after a while. `then`: what befalls the world soon
        after each."""
        for _ in range(count):
            index = self._random.randrange(self._partitions)
            what = self._random.choice([DELIVERY, DELIVERY, INTAKE, TARGET])
            target = self._random.choice(sorted(TARGETS)) if what == TARGET else ""
            self._later(self._random.uniform(0.0, duration_ms), self._hold, _Wish(index, what, target), then)

    def is_held(self) -> bool:
        """True while a shard that somebody acts for holds anything."""
        return any(actor.shard.ctx.held.now != NOTHING for each in self._world.processes for actor in each.shards())

    def release_all(self) -> None:
        """At the end of all trouble: ask for the release of whatever is held. Who cannot yet is asked again."""
        self._at_peace = True
        for window in self._windows:
            self._close(window)
        for process in self._world.processes:
            for actor in process.shards():
                if actor.shard.ctx.held.now != NOTHING:
                    self._ask(actor.part.index, lambda _: NOTHING)

    def _hold(self, wish: _Wish, then: Callable[[], None] | None) -> None:
        def done() -> None:
            if not (self._releasing[wish] or self._at_peace):  # else an earlier release may be served after this
                self._windows.append(_Window(wish.index, wish.what, wish.target, self._log_end(wish.index)))
            self._later(self._random.choice(_HELD_MS), self._release, wish)
            if then is not None:
                self._later(self._random.uniform(0.0, 1_000.0), then)

        held = functools.partial(Holds.changed, what=wish.what, is_held=True, target=wish.target)
        self._insist(f"held {wish.what}", wish.index, held, done)

    def _release(self, wish: _Wish) -> None:
        for window in self._windows:
            if (window.index, window.what, window.target) == (wish.index, wish.what, wish.target):
                self._close(window)
        released = functools.partial(Holds.changed, what=wish.what, is_held=False, target=wish.target)
        self._releasing[wish] += 1

        def done() -> None:
            self._releasing[wish] -= 1

        self._insist(f"released {wish.what}", wish.index, released, done)

    def _insist(self, name: str, index: int, change: Callable[[Holds], Holds], done: Callable[[], None]) -> None:
        """Ask until it is done, as a person would: a shard that is being taken over can hold and release nothing. What
        was asked and is done by now is not asked of anybody any more."""
        was_done = False
        waiting: list[tuple[deque[_Asked], _Asked]] = []

        def success() -> None:
            nonlocal was_done
            if not was_done:
                was_done = True
                for queue, asked in waiting:
                    if asked in queue:
                        queue.remove(asked)
                self._world.reached[name] += 1
                done()

        def ask() -> None:
            if not was_done and not self._at_peace:
                waiting[:] = [(queue, asked) for queue, asked in waiting if asked in queue]
                waiting.extend(self._ask(index, change, success, [queue for queue, _ in waiting]))
                self._later(_ASKED_AGAIN_MS, ask)

        ask()

    def _ask(
        self,
        index: int,
        change: Callable[[Holds], Holds],
        done: Callable[[], None] = lambda: None,
        but: Sequence[deque[_Asked]] = (),
    ) -> list[tuple[deque[_Asked], _Asked]]:
        """Everybody is asked, as by a command that looks for the owner; only the owner can do it. Not asked is `but`
        whose queues have it already. Returns where it waits now."""
        placed = []
        for process in self._world.processes:
            queue = process.poller.holds._waiting
            if all(queue is not other for other in but):
                asked = _Asked([Partition(REQUESTS, index)], change)
                asked.done = _Served(functools.partial(_tell_success, asked, done))
                queue.append(asked)
                placed.append((queue, asked))
        return placed

    def _later(self, wait_ms: float, act: Callable[..., None], *given: object) -> None:
        self._world.time.at(self._world.time.now_ms + wait_ms, functools.partial(act, *given))

    def _close(self, window: _Window) -> None:
        if window.end < 0:
            window.end = self._log_end(window.index)

    def _log_end(self, index: int) -> int:
        """The end of the dispatch log, what is not committed yet included."""
        return self._world.broker.topics[_LOG].logs[index].end

    def judge(self, outcome: JudgedOutcome, traffic: SimulatedTraffic) -> None:
        """O11."""
        for window in self._windows:
            if window.what != INTAKE:
                found = self._deliveries(window, traffic)
                if len(found) > 1:
                    outcome.wrong.append(f"O11: {window} does not keep {found} from being delivered")
            owners = [takeover for takeover, kind, _ in self._records(window) if kind == OWNER]
            outcome.reached["held over a takeover"] += bool(owners)

    def _records(self, window: _Window) -> list[tuple[int, str, list[int]]]:
        """Takeover, kind and delivered requests of each record of Postdate's within the window."""
        said = []
        archived = self._world.archive.get(Partition(_LOG, window.index), [])
        for record in (*archived, *committed(self._world.broker, _LOG, window.index)):
            if window.first <= record.offset < window.end:
                try:
                    each = decode_record(record.value)
                except FormatError:
                    continue
                said.append((each.takeover, each.kind, [fate.offset for fate in each.fates if fate.name == DELIVERED]))
        return said

    def _deliveries(self, window: _Window, traffic: SimulatedTraffic) -> list[tuple[int, list[int]]]:
        """The takeover and the requests of each transaction that delivers something of what is held."""
        index = window.index
        targets = {at: each.target for at, each in traffic.asked.items()}
        targets |= {at: each.target for at, each in traffic.recurrences.asked.items()}
        found = [
            (takeover, [each for each in offsets if window.target in ("", targets[index, each])])
            for takeover, _, offsets in self._records(window)
        ]
        return [(takeover, offsets) for takeover, offsets in found if offsets]


def _tell_success(asked: _Asked, done: Callable[[], None]) -> None:
    if not asked.why_not:
        done()
