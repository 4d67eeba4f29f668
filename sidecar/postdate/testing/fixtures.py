"""Fixtures for pytest: `pytest_plugins = ["postdate.testing.fixtures"]` in your top-level conftest.py.

`POSTDATE_TEST_BOOTSTRAP` names a running broker; without it, the fixture starts a broker for the session.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from postdate.testing.local_postdate import LocalPostdate


@pytest.fixture(scope="session")
def postdate() -> Iterator[LocalPostdate]:
    """A request topic and a sidecar that serves it, for the whole session. Each test must use separate targets and
    ids."""
    with LocalPostdate(os.environ.get("POSTDATE_TEST_BOOTSTRAP")) as running:
        yield running
