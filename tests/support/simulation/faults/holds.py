"""Operators hold and release the delivery of a shard, its intake, or one target; and the oracle of holds.

O11: from the commit of a hold until its release is requested, no owner of the shard delivers a held message, except in
a transaction that was already in progress. The other oracles check that held messages are delivered once after the
release.

Thread rule: one thread; a request waits in each process until its poll thread handles it.
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
from postdate.sidecar.group.hold_requests import _HoldChange
from postdate.wire.dispatch_log import DELIVERED, OWNER, decode_record
from postdate.wire.errors import FormatError
from support.simulation.oracles.outcomes import JudgedOutcome, committed
from support.simulation.requests.traffic import REQUESTS, TARGETS, SimulatedTraffic

if TYPE_CHECKING:
    from support.simulation.runtime.simulated_run import SimulatedRun

_LOG = f"{REQUESTS}.dispatch-log"
#: Milliseconds: the durations of holds, some shorter and some longer than a takeover, a session time-out, or the
#: bypass.
_HELD_MS = (500.0, 3_000.0, 12_000.0)
_ASKED_AGAIN_MS = 500.0


@dataclass(frozen=True)
class _RequestedHold:
    """A hold that an operator requests."""

    index: int
    what: str
    target: str


@dataclass
class _Window:
    """A range of dispatch-log offsets within which a hold is in effect."""

    index: int
    what: str
    target: str
    first: int
    end: int = -1


class _Served(threading.Event):
    """Calls `notify` in the step of the poll thread that handles a request."""

    def __init__(self, notify: Callable[[], None]) -> None:
        super().__init__()
        self._notify = notify

    def set(self) -> None:
        super().set()
        self._notify()


class Holding:
    """The holds and releases that operators request in one run."""

    def __init__(self, run: SimulatedRun, random: Random, partitions: int) -> None:
        self._run = run
        self._random = random
        self._partitions = partitions
        self._windows: list[_Window] = []
        self._releasing: Counter[_RequestedHold] = Counter()  # releases that are requested but not done
        self._at_peace = False

    def plan(self, count: int, duration_ms: float, then: Callable[[], None] | None = None) -> None:
        """Plans `count` holds at random times, and the release of each some time later. `then`: an event shortly after
        each hold."""
        for _ in range(count):
            index = self._random.randrange(self._partitions)
            what = self._random.choice([DELIVERY, DELIVERY, INTAKE, TARGET])
            target = self._random.choice(sorted(TARGETS)) if what == TARGET else ""
            self._later(self._random.uniform(0.0, duration_ms), self._hold, _RequestedHold(index, what, target), then)

    def is_held(self) -> bool:
        """True while an owned shard holds anything."""
        return any(actor.shard.ctx.held.current != NOTHING for each in self._run.processes for actor in each.shards())

    def release_all(self) -> None:
        """Requests the release of all holds, after all faults have ended. A shard that cannot release yet gets another
        request later."""
        self._at_peace = True
        for window in self._windows:
            self._close(window)
        for process in self._run.processes:
            for actor in process.shards():
                if actor.shard.ctx.held.current != NOTHING:
                    self._ask(actor.part.index, lambda _: NOTHING)

    def _hold(self, hold: _RequestedHold, then: Callable[[], None] | None) -> None:
        def done() -> None:
            # otherwise an earlier release may be handled after this hold
            if not (self._releasing[hold] or self._at_peace):
                self._windows.append(_Window(hold.index, hold.what, hold.target, self._log_end(hold.index)))
            self._later(self._random.choice(_HELD_MS), self._release, hold)
            if then is not None:
                self._later(self._random.uniform(0.0, 1_000.0), then)

        held = functools.partial(Holds.changed, kind=hold.what, is_held=True, target=hold.target)
        self._insist(f"held {hold.what}", hold.index, held, done)

    def _release(self, hold: _RequestedHold) -> None:
        for window in self._windows:
            if (window.index, window.what, window.target) == (hold.index, hold.what, hold.target):
                self._close(window)
        released = functools.partial(Holds.changed, kind=hold.what, is_held=False, target=hold.target)
        self._releasing[hold] += 1

        def done() -> None:
            self._releasing[hold] -= 1

        self._insist(f"released {hold.what}", hold.index, released, done)

    def _insist(self, name: str, index: int, change: Callable[[Holds], Holds], done: Callable[[], None]) -> None:
        """Repeats a request until it succeeds, as an operator would: during a takeover a shard can neither hold nor
        release. After a success, withdraws the remaining requests."""
        was_done = False
        waiting: list[tuple[deque[_HoldChange], _HoldChange]] = []

        def success() -> None:
            nonlocal was_done
            if not was_done:
                was_done = True
                for queue, request in waiting:
                    if request in queue:
                        queue.remove(request)
                self._run.reached[name] += 1
                done()

        def ask() -> None:
            if not was_done and not self._at_peace:
                waiting[:] = [(queue, request) for queue, request in waiting if request in queue]
                waiting.extend(self._ask(index, change, success, [queue for queue, _ in waiting]))
                self._later(_ASKED_AGAIN_MS, ask)

        ask()

    def _ask(
        self,
        index: int,
        change: Callable[[Holds], Holds],
        done: Callable[[], None] = lambda: None,
        but: Sequence[deque[_HoldChange]] = (),
    ) -> list[tuple[deque[_HoldChange], _HoldChange]]:
        """Sends a request to every process, like a command that searches for the owner, since only the owner can apply
        it. Omits the queues in `but`, which already contain the request. Returns the new queue entries."""
        placed = []
        for process in self._run.processes:
            queue = process.poller.holds._waiting
            if all(queue is not other for other in but):
                request = _HoldChange([Partition(REQUESTS, index)], change)
                request.done = _Served(functools.partial(_notify_success, request, done))
                queue.append(request)
                placed.append((queue, request))
        return placed

    def _later(self, wait_ms: float, act: Callable[..., None], *given: object) -> None:
        self._run.time.at(self._run.time.now_ms + wait_ms, functools.partial(act, *given))

    def _close(self, window: _Window) -> None:
        if window.end < 0:
            window.end = self._log_end(window.index)

    def _log_end(self, index: int) -> int:
        """Returns the end of the dispatch log, including records that are not committed yet."""
        return self._run.broker.topics[_LOG].logs[index].end

    def judge(self, outcome: JudgedOutcome, traffic: SimulatedTraffic) -> None:
        """Checks O11."""
        for window in self._windows:
            if window.what != INTAKE:
                found = self._deliveries(window, traffic)
                if len(found) > 1:
                    outcome.wrong.append(f"O11: {window} does not keep {found} from being delivered")
            owners = [takeover for takeover, kind, _ in self._records(window) if kind == OWNER]
            outcome.reached["held over a takeover"] += bool(owners)

    def _records(self, window: _Window) -> list[tuple[int, str, list[int]]]:
        """Returns (takeover, kind, delivered requests) of each of Postdate's records within the window."""
        records = []
        archived = self._run.archive.get(Partition(_LOG, window.index), [])
        for record in (*archived, *committed(self._run.broker, _LOG, window.index)):
            if window.first <= record.offset < window.end:
                try:
                    each = decode_record(record.value)
                except FormatError:
                    continue
                records.append(
                    (each.takeover, each.kind, [fate.offset for fate in each.fates if fate.name == DELIVERED])
                )
        return records

    def _deliveries(self, window: _Window, traffic: SimulatedTraffic) -> list[tuple[int, list[int]]]:
        """Returns (takeover, requests) of each transaction that delivers a held message."""
        index = window.index
        targets = {at: each.target for at, each in traffic.requests.items()}
        targets |= {at: each.target for at, each in traffic.recurrences.requests.items()}
        found = [
            (takeover, [each for each in offsets if window.target in ("", targets[index, each])])
            for takeover, _, offsets in self._records(window)
        ]
        return [(takeover, offsets) for takeover, offsets in found if offsets]


def _notify_success(request: _HoldChange, done: Callable[[], None]) -> None:
    if not request.refusals:
        done()
