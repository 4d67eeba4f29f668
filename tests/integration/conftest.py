"""The fixtures of integration tests: each test gets an environment on the real broker of the session. The report of a
failed test contains the end of the log of each of its sidecars."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from support.brokers.broker import RunningBroker
from support.deployments.sidecar_deployment import SidecarDeployment, new_deployment


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        fixtures = getattr(item, "funcargs", {}).values()
        used = (getattr(each, "env", each) for each in fixtures)  # some fixtures have an environment
        sidecars = [sidecar for each in used if isinstance(each, SidecarDeployment) for sidecar in each.sidecars]
        report.sections += [(f"end of the log of {each.name}", each.state_and_log_end()) for each in sidecars]
    return report


@pytest.fixture
def env(broker: RunningBroker, tmp_path: Path) -> Iterator[SidecarDeployment]:
    """Topics and processes of the test's own; its processes end with it."""
    with new_deployment(broker.bootstrap_servers, tmp_path) as made:
        yield made
