"""Goal: an audit exits with the most severe code that applies, and refuses bad bounds on lateness before Spark starts.

Method: builds outcomes by hand with every combination of the conditions for a code. Passes valid and invalid bounds
through the options and through the command line.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace
from itertools import product

import pytest
from click.testing import CliRunner

from postdate.cli import postdate
from postdate.spark import audit_main
from postdate.spark.audit.continuous import FollowOptions
from postdate.spark.audit.options import AuditOptions
from postdate.spark.audit.output import AuditOutcome, Hole, write_outcome
from postdate.spark.errors import JobUsageError
from postdate.spark.job.bounds import Range
from postdate.spark.job.cluster_queries import TopicPartition
from postdate.spark.judging.summary import Outcomes, Summary
from postdate.spark.output.lateness import LatenessBound
from postdate.spark.rules.verdicts import INFORMATION, OUTSIDE_WINDOW, VERDICTS

_SPAN = Range("requests", TopicPartition("r", 0), 0, 0, 10, 10, False, -1)
_LATE = {"p50": 4, "p90": 10, "p99": 312, "p99_9": 900, "max": 5_000}
_BOUND = LatenessBound("p99", 250)


def outcome(violations: int = 0, **changes: object) -> AuditOutcome:
    counts = {**dict.fromkeys(VERDICTS, 0), "delivered": 10, "missing": violations}
    summary = Summary(10, counts, _LATE, {}, Outcomes(10 - violations, violations))
    return replace(AuditOutcome(("r",), 0, None, None, summary, (_SPAN,)), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("violated", "blind", "unverified", "late"), [*product((False, True), repeat=4)])
def test_the_exit_code_is_the_first_one_that_applies(violated: bool, blind: bool, unverified: bool, late: bool) -> None:
    found = outcome(
        int(violated),
        holes=(Hole("r", 0, 1, 2, 2),) if blind else (),
        strict=True,
        ranges=(replace(_SPAN, outside=2 if unverified else 0),),
        lateness_bounds=(_BOUND,) if late else (),
    )
    assert found.exit_code == (4 if violated else 1 if blind else 5 if unverified else 3 if late else 0)


@pytest.mark.parametrize("reason", [*INFORMATION, OUTSIDE_WINDOW])
def test_a_strict_audit_refuses_reasons_that_another_audit_would_avoid(reason: str) -> None:
    found = outcome()
    summary = replace(found.summary, outcomes=Outcomes(9, 0, {reason: 1}))
    expected = 0 if reason in ("request-expired", "target-expired", "target-recreated", "overtaken") else 5
    for is_strict, exit_code in ((True, expected), (False, 0)):
        assert replace(found, summary=summary, strict=is_strict).exit_code == exit_code


def said(found: AuditOutcome, form: str) -> str:
    stream = io.StringIO()
    write_outcome(found, form, stream)
    return stream.getvalue()


def test_each_figure_above_its_bound_is_named_with_it() -> None:
    bounds = (_BOUND, LatenessBound("p99_9", 900), LatenessBound("max", 4_999))
    found = outcome(lateness_bounds=bounds)
    text = said(found, "text")
    assert "TOO LATE: p99 of the lateness is 312ms, and --fail-on-lateness allows 250ms" in text
    assert "TOO LATE: max of the lateness is 5s, and --fail-on-lateness allows 4.999s" in text
    assert text.count("TOO LATE") == 2, "a figure at its bound does not exceed it"
    told = json.loads(said(found, "json"))
    assert told["exit"] == 3
    assert told["lateness_exceeded"] == [
        {"figure": "p99", "bound_ms": 250, "value_ms": 312},
        {"figure": "max", "bound_ms": 4_999, "value_ms": 5_000},
    ]


def test_a_run_without_deliveries_exceeds_no_bound() -> None:
    found = outcome(lateness_bounds=(LatenessBound("max", 0),))
    assert found.exit_code == 3
    none = replace(found, summary=replace(found.summary, lateness_ms={}))
    assert (none.exit_code, none.exceeded) == (0, ())
    assert "TOO LATE" not in said(none, "text")


def test_bounds_are_read() -> None:
    texts = ("p50=5ms", "p90=1.5s", "p99=2m", "p99.9=250ms", "max=0ms")
    bounds = AuditOptions("b:1", fail_on_lateness=texts).lateness_bounds
    assert {one.figure: one.bound_ms for one in bounds} == {
        **{"p50": 5, "p90": 1_500, "p99": 120_000, "p99_9": 250, "max": 0}
    }


@pytest.mark.parametrize("text", ["p95=1s", "p99", "p99=", "=1s", "p99=fast", "p99=250", "p99=-1s", "p99_9=1s", ""])
def test_a_bad_bound_is_refused_with_the_right_form(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    remedy = "write FIGURE=DURATION with one of the figures p50, p90, p99, p99.9, max"
    with pytest.raises(JobUsageError, match=remedy) as caught:
        AuditOptions("b:1", fail_on_lateness=(text,))
    assert str(caught.value).startswith(repr(text))
    assert audit_main.main(["-b", "b:1", "--fail-on-lateness", text]) == 2
    assert remedy in capsys.readouterr().err
    called = CliRunner().invoke(postdate, ["audit", "-b", "b:1", f"--fail-on-lateness={text}"])
    assert (called.exit_code, called.stdout) == (2, "")
    assert remedy in called.stderr


@pytest.mark.parametrize(
    "option", [{"html": "f"}, {"openmetrics": "f"}, {"fail_on_lateness": ("p99=1s",)}, {"trend": True}]
)
def test_a_continuous_audit_refuses_options_for_a_single_run(option: dict[str, object]) -> None:
    audit = AuditOptions("b:1", state="state", **option)  # type: ignore[arg-type]
    with pytest.raises(JobUsageError, match="is for a single run, not for --follow"):
        FollowOptions(audit)


@pytest.mark.parametrize("window", [{"from_ms": 0}, {"to_ms": 0}, {"from_ms": 1}, {"to_ms": 1}])
def test_with_a_state_a_window_is_refused(window: dict[str, int]) -> None:
    with pytest.raises(JobUsageError, match="no window"):
        AuditOptions("b:1", state="state", **window)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--trend"], "name one with --state"),
        (["--state", "s", "--trend-days", "0"], "between 1 and 366 days"),
        (["--state", "s", "--follow", "--openmetrics", "f"], "--openmetrics is for a single run"),
    ],
)
def test_both_programs_pass_the_options_on(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit_main.main(["-b", "b:1", *given]) == 2
    assert said in capsys.readouterr().err
    called = CliRunner().invoke(postdate, ["audit", "-b", "b:1", *given])
    assert (called.exit_code, called.stdout) == (2, "")
    assert said in called.stderr
