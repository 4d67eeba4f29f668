"""Goal: the report of a soak counts each fault, and never calls a run with an error clean.

Method: handwritten runs: a clean one, and copies with one error in each possible place.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from support.faults.fault import FAULTS
from support.faults.judgement import SoakJudgement
from support.faults.report import Run, markdown
from support.faults.request_ledger import RequestLedger
from support.faults.sequence import FaultStep


def _step(name: str, what: str, recovery_ms: int) -> FaultStep:
    return FaultStep(FAULTS[name], what, 1.0, recovery_ms, recovery_ms + 1_000, (0, 0))


def _run() -> Run:
    steps = [_step("kill", "4 kills", 700), _step("kill", "3 kills", 300), _step("long cut", "12.0 s, both ways", 900)]
    judgement = SoakJudgement(requests=2_000, delivered=1_990, dead=10, late_ms={"p50": 7, "p99.9": 1_900})
    return Run(
        5, 30.0, 2, 1_000, 1_800.0, steps, RequestLedger("requests"), judgement, {"p50": 6}, "v", "2026-01-31", "clean"
    )


def test_a_clean_run_prints_a_bound_on_the_failure_rate() -> None:
    page = markdown(_run())
    assert "With 3 clean steps the rate of failure per step is below 3/3 = 100.00% at 95 %." in page
    assert "| sidecars killed in these steps (SIGKILL at random moments) | 7 |" in page
    assert "| kill | 2 | 500 | 700 | 1700 |" in page, "two steps of several kills each, and the median of two"
    assert "| long cut | 1 | 900 | 900 | 1900 |" in page
    assert "`make soak MINUTES=30 EACH=2 SEED=5 RATE=1000`" in page
    assert "## Wrong" not in page


def test_clients_of_the_load_that_were_replaced_are_named() -> None:
    run = _run()
    assert "losing all brokers" not in markdown(run)
    run.clients_lost, run.given_up = 1, 321
    assert "losing all brokers (librdkafka issue 5301) | 1 |" in markdown(run)
    assert "gave up, on the topic or not | 321 |" in markdown(run)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda run: run.wrong.append("the audit: it"), id="at the end"),
        pytest.param(lambda run: run.judgement.wrong.append("O1: it"), id="by the judge"),
        pytest.param(lambda run: run.steps[1].wrong.append("it"), id="in a step"),
    ],
)
def test_a_run_with_any_error_is_not_clean(spoil: Callable[[Run], None]) -> None:
    run = _run()
    spoil(run)
    page = markdown(run)
    assert not run.clean
    assert "**not clean**" in page
    assert "95 %" not in page
    assert re.search(r"^- .*it$", page.partition("## Wrong")[2], re.MULTILINE)
