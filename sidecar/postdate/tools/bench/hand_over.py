"""The case that measures how long a partition delivers nothing while it moves to another process, or while its process
restarts.

A message is due every few milliseconds, in each partition in turn. So the time without deliveries is the highest
lateness of the messages that are due after a member left. Thread rule: main thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

from postdate.tools.bench.environment import BenchEnvironment, BenchSidecar, request
from postdate.tools.bench.figures import Figures
from postdate.tools.bench.journal import Journal
from postdate.tools.bench.limits import PARTITIONS, WARM_UP_S

_APART_MS = 10
#: Milliseconds from the beginning of filling to the first due time.
_LEAD_MS = 4_000
#: Seconds during which messages fall due after a member left: after a planned stop or the restart of a static member,
#: and after a crash, which waits for the session time-out.
_PLANNED_S = 10.0
_CRASH_S = 30.0
_MEMBERS = ("one", "two")


def hand_over(environment: BenchEnvironment) -> Figures:
    """Returns the longest time without deliveries, ms, in three cases.

    One of two members stops gracefully; one is killed, and the other serves its partitions from the disk that both
    share; a static member is killed and started again.
    """
    return {
        "planned_late_most_ms": _one_of_two(environment, BenchSidecar.stop, _PLANNED_S),
        "crash_late_most_ms": _one_of_two(environment, BenchSidecar.kill, _CRASH_S),
        "static_restart_late_most_ms": _restarted(environment),
    }


def _one_of_two(environment: BenchEnvironment, end: Callable[[BenchSidecar], None], seconds: float) -> float:
    requests, (target,) = environment.new_topics()
    going, staying = (environment.sidecar(requests, PARTITIONS // len(_MEMBERS), member=name) for name in _MEMBERS)
    going.start()
    staying.start()
    for sidecar in (going, staying):
        sidecar.wait_for_shards()
    late_ms = _lateness(environment, requests, target, seconds, staying, lambda: end(going))
    staying.stop()
    return late_ms


def _restarted(environment: BenchEnvironment) -> float:
    requests, (target,) = environment.new_topics()
    sidecar = environment.sidecar(requests)
    sidecar.start_and_wait()

    def restart() -> None:
        sidecar.kill()
        sidecar.start()

    late_ms = _lateness(environment, requests, target, _PLANNED_S, sidecar, restart)
    sidecar.stop()
    return late_ms


def _lateness(
    environment: BenchEnvironment,
    requests: str,
    target: str,
    seconds: float,
    serving: BenchSidecar,
    disturb: Callable[[], None],
) -> float:
    """Calls `disturb` while messages fall due. Returns the highest lateness of the messages due from that call on,
    ms."""
    count = round((WARM_UP_S + seconds) * 1000 / _APART_MS)
    first_ms = time.time_ns() // 1_000_000 + _LEAD_MS
    environment.fill(requests, (request(number, target, first_ms + _APART_MS * number) for number in range(count)))
    time.sleep(max(0.0, first_ms / 1000 + WARM_UP_S - time.time()))
    since_ms = time.time_ns() // 1_000_000
    disturb()
    with closing(Journal(environment.kafka, requests)) as journal:
        journal.follow(count, serving.check)
        return float(journal.lateness(lambda due_ms: due_ms >= since_ms).max())
