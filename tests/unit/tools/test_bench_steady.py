"""Goal: the raw counterpart counts with its best pause, even if the load is too high with another pause.

Method: substituted runs of the raw counterpart, of which some fail.
"""

from __future__ import annotations

from typing import cast

import pytest

from postdate.sidecar.errors import TransientError
from postdate.tools.bench import steady
from postdate.tools.bench.environment import BenchEnvironment
from postdate.tools.bench.figures import Figures
from postdate.tools.bench.steady import RawLoad, beside_raw

_LOAD = RawLoad(4, 1_000, 1.0, (3, 12, 40))


class _QuietBed:
    def report(self, _: str) -> None:
        """Ignores the report."""


def _measured(monkeypatch: pytest.MonkeyPatch, p99_ms: dict[int, float]) -> Figures:
    """Returns the figures of a case with a p99 of 60 ms. `p99_ms`: the p99 of the raw counterpart by its pause, ms."""

    def raw(_: BenchEnvironment, _load: RawLoad, pause_ms: int) -> Figures:
        if pause_ms not in p99_ms:
            raise TransientError(f"too many with {pause_ms}")
        return {"raw_arrival_p50_ms": 10.0, "raw_arrival_p99_ms": p99_ms[pause_ms]}

    monkeypatch.setattr(steady, "_raw", raw)
    late = {"arrival_p50_ms": 20.0, "arrival_p99_ms": 60.0}
    return beside_raw(cast(BenchEnvironment, _QuietBed()), _LOAD, late)


@pytest.mark.parametrize("p99_ms", [{3: 50.0, 12: 30.0, 40: 45.0}, {12: 30.0}])
def test_the_best_pause_counts_whatever_fails(monkeypatch: pytest.MonkeyPatch, p99_ms: dict[int, float]) -> None:
    found = _measured(monkeypatch, p99_ms)
    assert (found["raw_pause_ms"], found["arrival_p50_of_raw_share"], found["arrival_p99_of_raw_share"]) == (12, 2, 2)


def test_a_raw_counterpart_that_always_fails_fails_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TransientError, match="too many with 40"):
        _measured(monkeypatch, {})
