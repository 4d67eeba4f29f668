"""Fixtures of the integration tests.

Each test gets an environment on the real broker of the session. The report of a failed test contains the end of the log
of each of its sidecars.
"""

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
        used = (getattr(fixture, "deployment", fixture) for fixture in fixtures)  # some fixtures contain a deployment
        sidecars = [
            sidecar
            for deployment in used
            if isinstance(deployment, SidecarDeployment)
            for sidecar in deployment.sidecars
        ]
        report.sections += [(f"end of the log of {sidecar.name}", sidecar.state_and_log_end()) for sidecar in sidecars]
    return report


@pytest.fixture
def deployment(broker: RunningBroker, tmp_path: Path) -> Iterator[SidecarDeployment]:
    """A deployment whose topics no other test uses. Its processes end with the test."""
    with new_deployment(broker.bootstrap_servers, tmp_path) as environment:
        yield environment
