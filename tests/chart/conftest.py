"""Fixtures of the chart's tests: Helm in a separate process, and the objects of each values file in ci/."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.deployments.helm import Helm, ci_values, running_helm


@pytest.fixture(scope="session")
def helm() -> Iterator[Helm]:
    """Yields Helm, one process for the session."""
    with running_helm() as running:
        yield running


@pytest.fixture(scope="session", params=ci_values())
def rendered(request: pytest.FixtureRequest, helm: Helm) -> list[dict[str, Any]]:
    """Returns the objects of a release with one of the values files in ci/."""
    return helm.render(ci_values()[request.param])
