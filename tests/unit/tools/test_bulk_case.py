"""Goal: the bench case `bulk` sends one control to each partition, computes its figures from the right fates, and fails
unless every message is cancelled.

Method: an environment that records the sent requests, a clock with literal times, and dispatch logs with literal fates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import Any, cast

import numpy as np
import pytest

from postdate.sidecar.errors import PostdateError
from postdate.tools.bench import bulk as bulk_case
from postdate.tools.bench.environment import BenchEnvironment, Request
from postdate.tools.bench.figures import Lateness
from postdate.tools.bench.limits import PARTITIONS
from postdate.wire.dispatch_log import APPLIED, DELIVERED, BulkProgress
from postdate.wire.headers import ACTION, SELECT_TOPIC

#: Milliseconds: the times at which the first request is made, the load begins, and the controls are sent.
_TIMES_MS = (0, 1_000, 20_000)
#: Lateness by due time, both in milliseconds. The warm-up ends at 11,000, and the last control is applied at 22,000.
_LATE_MS = {11_000: 500.0, 12_000: 10.0, 20_000: 15.0, 22_001: 900.0}


class _Environment:
    """An environment and its sidecar. `sent`: the requests of each call of `fill`."""

    kafka = None
    format_version = 1

    def __init__(self) -> None:
        self.sent: list[list[Request]] = []

    def new_topics(self, _count: int) -> tuple[str, list[str]]:
        return "requests", ["target", "other"]

    def sidecar(self, _requests: str) -> _Environment:
        return self

    def report(self, _: str) -> None:
        """Ignores the report."""

    def fill(self, _requests: str, wanted: Iterable[Request]) -> None:
        self.sent.append([*wanted])

    def start_and_wait(self) -> None:
        assert self.format_version == 2, "earlier formats have no bulk controls"

    def wait_for_pending(self, _count: int) -> None:
        """Every request is pending at once."""

    def stop(self) -> None:
        """There is no process."""


class _Journal:
    """A dispatch log whose fates have been read already."""

    def __init__(self, progress: list[tuple[int, int]]) -> None:
        self._progress = progress

    def follow(self, _count: int, _check: Callable[[], None]) -> None:
        """There is nothing to wait for."""

    def lateness(self, is_meant: Callable[[int], bool]) -> Lateness:
        return np.array([late_ms for due_ms, late_ms in _LATE_MS.items() if is_meant(due_ms)], dtype=np.float64)

    def fates(self) -> Iterator[tuple[int, BulkProgress]]:
        for offset, (at_ms, count) in enumerate(self._progress):
            yield at_ms, BulkProgress(offset, 0, "applied", count)

    def close(self) -> None:
        """There is no client."""


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> _Environment:
    """Returns the environment of a case in which ten messages are cancelled."""
    journals = {DELIVERED: _Journal([]), APPLIED: _Journal([(21_000, 4), (22_000, 6)])}

    def journal(_kafka: Any, _requests: str, fate: str = DELIVERED) -> _Journal:
        return journals[fate]

    times = iter(_TIMES_MS)
    monkeypatch.setattr(bulk_case, "Journal", journal)
    monkeypatch.setattr(bulk_case, "LoadGenerator", lambda *_: nullcontext())
    monkeypatch.setattr(bulk_case, "checks", lambda *_: None)
    monkeypatch.setattr(bulk_case, "_now_ms", lambda: next(times))
    return _Environment()


def test_the_figures_are_those_of_the_cancelled_messages_and_of_the_others(environment: _Environment) -> None:
    figures = bulk_case.bulk(cast(BenchEnvironment, environment), 10, 100, 1.0)
    requested, controls = environment.sent
    assert len(requested) == 10
    assert controls == [(b"", [(ACTION, b"cancel"), (SELECT_TOPIC, b"target")])] * PARTITIONS
    assert figures["cancelled_per_s"] == 5.0, "ten messages from 20,000 to 22,000 ms"
    assert (figures["undisturbed_p99_ms"], figures["disturbed_p99_ms"]) == (10.0, 15.0)
    assert figures["disturbed_of_undisturbed_p99_share"] == 1.5


def test_a_message_that_was_not_cancelled_fails_the_case(environment: _Environment) -> None:
    with pytest.raises(PostdateError, match="10 of 11 messages were cancelled"):
        bulk_case.bulk(cast(BenchEnvironment, environment), 11, 100, 1.0)
