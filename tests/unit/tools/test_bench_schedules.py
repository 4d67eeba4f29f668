"""Goal: a machine that is too slow for the lead of the schedules gets a longer lead.

Method: a substituted sidecar that never accepts the schedules in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

import pytest

from postdate.sidecar.errors import TransientError
from postdate.tools.bench.environment import BenchEnvironment, Request
from postdate.tools.bench.figures import Figures
from postdate.tools.bench.schedules import schedules_once, steady_schedules


class _Late:
    """An environment and its sidecar, which accepts each schedule only after its due time."""

    def __init__(self) -> None:
        self.due_ms: list[int] = []
        self.running = 0

    def new_topics(self, count: int) -> tuple[str, list[str]]:
        return "requests", ["target"] * count

    def sidecar(self, _requests: str) -> _Late:
        return self

    def start_and_wait(self) -> None:
        self.running += 1

    def kill(self) -> None:
        self.running -= 1

    def cpu_s(self) -> float:
        return 0.0

    def report(self, _: str) -> None:
        """Ignores the report."""

    def fill(self, _requests: str, wanted: Iterable[Request]) -> int:
        return len([*wanted])

    def holds_before(self, _count: int, due_ms: int) -> bool:
        self.due_ms.append(due_ms)
        return False


@pytest.mark.parametrize(
    "case",
    [lambda environment: schedules_once(environment, 10), lambda environment: steady_schedules(environment, 2, 1.0)],
    ids=["once", "steady"],
)
def test_a_lead_that_is_too_short_is_doubled(case: Callable[[BenchEnvironment], Figures]) -> None:
    late = _Late()
    with pytest.raises(TransientError, match="10 schedules were not accepted before they were due"):
        case(cast(BenchEnvironment, late))
    first, *others = (due_ms - late.due_ms[0] for due_ms in late.due_ms)
    assert first == 0
    # The leads are 15, 30, 60 and 120 s, in whole seconds.
    assert all(found >= least for found, least in zip(others, (14_000, 44_000, 104_000), strict=True))
    assert not late.running
