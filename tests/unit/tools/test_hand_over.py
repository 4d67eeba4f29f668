"""Goal: the bench case `hand-over` stops and kills the members as documented, while the other member serves.

Method: an environment whose sidecars record their events. The measurement of lateness is substituted; the substitute
disturbs the members, and returns a literal value.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from postdate.tools.bench import hand_over
from postdate.tools.bench.environment import BenchEnvironment, BenchSidecar


class _RecordedSidecar:
    """Records its events in a list that all sidecars of the environment share."""

    def __init__(self, name: str, events: list[str]) -> None:
        self._name, self._events = name, events

    def start(self) -> None:
        self._events.append(f"start {self._name}")

    def start_and_wait(self) -> None:
        self.start()

    def wait_for_shards(self) -> None:
        self._events.append(f"wait {self._name}")

    def stop(self) -> None:
        self._events.append(f"stop {self._name}")

    def kill(self) -> None:
        self._events.append(f"kill {self._name}")


class _RecordedEnvironment:
    def __init__(self) -> None:
        self.events: list[str] = []

    def new_topics(self) -> tuple[str, tuple[str]]:
        return "requests", ("target",)

    def sidecar(self, *_: Any, member: str = "static") -> _RecordedSidecar:
        return _RecordedSidecar(member, self.events)


def test_each_case_disturbs_its_member_while_the_other_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    environment, results = _RecordedEnvironment(), iter((1.0, 2.0, 3.0))

    def lateness(*arguments: Any) -> float:
        environment.events.append("disturb")
        arguments[-1]()
        environment.events.append(f"serving {arguments[-2]._name}")
        return next(results)

    monkeypatch.setattr(hand_over, "_lateness", lateness)
    monkeypatch.setattr(BenchSidecar, "stop", _RecordedSidecar.stop)
    monkeypatch.setattr(BenchSidecar, "kill", _RecordedSidecar.kill)
    assert hand_over.hand_over(cast(BenchEnvironment, environment)) == {
        "planned_late_most_ms": 1.0,
        "crash_late_most_ms": 2.0,
        "static_restart_late_most_ms": 3.0,
    }
    started = ["start one", "start two", "wait one", "wait two", "disturb"]
    assert environment.events == [
        *(*started, "stop one", "serving two", "stop two"),
        *(*started, "kill one", "serving two", "stop two"),
        *("start static", "disturb", "kill static", "start static", "serving static", "stop static"),
    ]
