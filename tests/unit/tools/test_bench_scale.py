"""Goal: a burst counts only if all of it was accepted before it was due. A slow machine gets more time, up to a bound.

Method: substituted bursts, which report whether they were accepted in time.
"""

from __future__ import annotations

from typing import cast

import pytest

from postdate.sidecar.errors import TransientError
from postdate.tools.bench import scale
from postdate.tools.bench.environment import BenchEnvironment


class _QuietBed:
    def report(self, _: str) -> None:
        """Ignores the report."""


def _leads(monkeypatch: pytest.MonkeyPatch, in_time_from_ms: float) -> list[int]:
    """Substitutes bursts that are accepted in time if the lead is at least `in_time_from_ms`. Returns the list of their
    leads."""
    leads: list[int] = []

    def burst(_: BenchEnvironment, messages: int, processes: int, lead_ms: int) -> float | None:
        leads.append(lead_ms)
        return messages * processes if lead_ms >= in_time_from_ms else None

    monkeypatch.setattr(scale, "_burst_after", burst)
    return leads


def test_a_burst_that_was_due_too_early_is_sent_again_and_due_later(monkeypatch: pytest.MonkeyPatch) -> None:
    leads = _leads(monkeypatch, 10_000)
    assert scale._burst(cast(BenchEnvironment, _QuietBed()), 1_000, 2) == 2_000
    assert leads == [4_060, 8_120, 16_240]


def test_a_burst_that_is_never_accepted_in_time_fails_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    leads = _leads(monkeypatch, float("inf"))
    with pytest.raises(TransientError, match="try fewer"):
        scale._burst(cast(BenchEnvironment, _QuietBed()), 1_000, 1)
    assert len(leads) == 7
    assert leads[-1] == 64 * leads[0]
