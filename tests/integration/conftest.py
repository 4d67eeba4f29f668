"""The fixtures of integration tests: each test gets a bed on the real broker of the session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.bed import Bed, new_bed
from support.broker import RunningBroker


@pytest.fixture
def bed(broker: RunningBroker, tmp_path: Path) -> Iterator[Bed]:
    """Topics and processes of the test's own; its processes end with it."""
    with new_bed(broker.bootstrap_servers, tmp_path) as made:
        yield made
