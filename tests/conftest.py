"""Fixtures and hooks for every kind of test.

With ``POSTDATE_FORBID_SKIPS=1``, as in CI, a skipped test fails: a machine that lacks a requirement must not look like
one on which the test passed.

Hypothesis has no deadline: properties are about results, not about the time to generate or run a case.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support.brokers.broker import RunningBroker, running_broker
from support.tidiness.lanes import lane_of, lanes

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

_SKIPS_FORBIDDEN = os.environ.get("POSTDATE_FORBID_SKIPS", "") not in ("", "0")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lane", choices=sorted({*lanes().values()}), help="only the tests of this lane (lanes.toml)")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    lane = config.getoption("--lane")
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if lane and is_test and lane_of(collection_path) != lane else None


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turns a skipped test into a failed one with the same reason, if skips are forbidden."""
    if not (_SKIPS_FORBIDDEN and report.skipped):
        return
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"skipped where skips are forbidden (POSTDATE_FORBID_SKIPS): {why}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.fixture(scope="session")
def broker() -> Iterator[RunningBroker]:
    """Yields the real broker of the session."""
    with running_broker() as running:
        yield running
