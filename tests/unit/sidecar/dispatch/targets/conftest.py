"""Fixtures for the unit tests of fault attribution. A test file may override them."""

from __future__ import annotations

import pytest

from postdate.sidecar.dispatch.targets.fault_attribution import FaultAttribution
from support.shards.fault_attempts import BUDGET_MS, STORE, StepClock


@pytest.fixture
def clock() -> StepClock:
    """A clock that the test moves."""
    return StepClock()


@pytest.fixture
def faults(clock: StepClock) -> FaultAttribution:
    """The state of a shard in which no target has failed."""
    return FaultAttribution(clock, BUDGET_MS, {STORE})
