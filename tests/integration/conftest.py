"""The fixtures of integration tests: each test gets an environment on the real broker of the session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.brokers.broker import RunningBroker
from support.deployments.environment import Environment, new_env


@pytest.fixture
def env(broker: RunningBroker, tmp_path: Path) -> Iterator[Environment]:
    """Topics and processes of the test's own; its processes end with it."""
    with new_env(broker.bootstrap_servers, tmp_path) as made:
        yield made
