"""Runs in which no process is alive for longer than the retention of the dispatch log: only disks remain, and no
record.

An owner stops, mostly during a transaction; in half of the runs another owner follows and also stops. Then requests and
dispatch log expire, and one machine starts again. If its index has missed no fate, it must continue and deliver its
entries. If it may have missed one, it must halt.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from postdate.kafka.interface import Partition
from support.simulation.faults.losses import LOG_EXPIRED
from support.simulation.requests.traffic import REQUESTS, SimulatedRequest, SimulatedTraffic
from support.simulation.runtime.process import Machine

if TYPE_CHECKING:
    from support.simulation.faults.losses import Losses
    from support.simulation.runtime.simulated_run import SimulatedRun

EXPIRED = "expired"
#: Milliseconds: longer than the retention of the dispatch log.
_AWAY_MS = 9 * 3_600_000.0
#: Milliseconds: the times at which the first owner stops, the second owner stops, the logs expire, and the run ends.
_FIRST_MS, _SECOND_MS, _GONE_MS, _END_MS = 8_000.0, 30_000.0, 60_000.0, 75_000.0
#: If the owner dies at a step before the commit, the transaction is aborted and no fate is missed. At a later step its
#: index may miss fates.
_ABORTED, _UNKNOWN = ("dispatch.produced", "dispatch.flushed"), ("commit.sent", "commit.done", "dispatch.committed")


class Expiry:
    """The events of one run of this theme. REQUIRES: two machines."""

    def __init__(self, run: SimulatedRun, random: Random, traffic: SimulatedTraffic, losses: Losses) -> None:
        self._run = run
        self._random = random
        self._traffic = traffic
        self._losses = losses

    def plan(self, start: Callable[[Machine], None]) -> float:
        """Plans the events; `start` starts a process. Returns the duration in ms."""
        run, choose = self._run, self._random
        first, second = run.machines
        run.on_exit = lambda _: None
        start(first)
        for number in range(12):
            self._at(1_000.0 + 100.0 * number, self._ask, choose.choice([500, 15_000, 1_800_000, 2_400_000]))
        self._stop(_FIRST_MS)
        back = first
        if choose.random() < 0.5:
            # the index of the first owner misses the fates of the second one
            self._at(_FIRST_MS + 12_000.0, start, second)
            for number in range(choose.choice([0, 3])):
                self._at(_FIRST_MS + 14_000.0 + 100.0 * number, self._ask, 500)
            self._stop(_SECOND_MS)
            back = choose.choice([first, first, second])
            if back is first:
                self._may_halt()
        self._at(_GONE_MS, self._expire)
        self._at(_GONE_MS + 100.0, start, back)
        return _END_MS

    def _at(self, wait_ms: float, act: Callable[..., None], *given: object) -> None:
        self._run.time.at(self._run.time.now_ms + wait_ms, functools.partial(act, *given))

    def _ask(self, delay_ms: int) -> None:
        request = SimulatedRequest(
            Partition(REQUESTS, 0), b"k", b"v", [], target="orders", target_key=b"k", delay_ms=delay_ms
        )
        request.headers = [("postdate-topic", b"orders"), ("postdate-delay", b"%d" % delay_ms)]
        self._traffic.append(request)

    def _stop(self, at_ms: float) -> None:
        """Kills all processes, mostly during a transaction."""
        if self._random.random() < 0.8:
            is_decided = self._random.random() < 0.7
            step = self._random.choice(_ABORTED if is_decided else _UNKNOWN)
            if not is_decided:
                self._may_halt()
            self._at(at_ms - 2_000.0, self._lie_in_wait, step)
        self._at(at_ms, self._kill_all)

    def _lie_in_wait(self, step: str) -> None:
        self._run.ambushes[step, self._run.reached[step] + 1] = "kill"
        self._ask(100)

    def _kill_all(self) -> None:
        for process in list(self._run.processes):
            self._run.kill(process)
        self._run.ambushes.clear()

    def _may_halt(self) -> None:
        self._losses.kind = LOG_EXPIRED

    def _expire(self) -> None:
        run = self._run
        run.reached["log expired, fates missed" if self._losses.kind else "log expired, no fate missed"] += 1
        run.broker.skew_ms += _AWAY_MS
        run.expire()
        run.check_index = lambda *_: None  # only a disk has the pending requests, so I5 does not hold
