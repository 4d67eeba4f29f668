"""The real broker, once a session, for the contract suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.broker import RunningBroker, running_broker


@pytest.fixture(scope="session")
def broker() -> Iterator[RunningBroker]:
    with running_broker() as running:
        yield running
