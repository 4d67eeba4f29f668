"""Runs in which Postdate's own topics are always isolated: the entries under key 0 leave in parts, separately from
messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from postdate.sidecar.dispatch.due.due_reader import Due, DueReader
from postdate.sidecar.dispatch.targets.isolated_targets import OWN
from postdate.wheel.index import TimerIndex
from support.simulation.requests.traffic import REQUESTS
from support.simulation.runtime.simulated_run import SimulatedRun

_TOPICS = frozenset(f"{REQUESTS}.{name}" for name in ("store", "dead-letters", "verdicts"))


@contextmanager
def key_zero_in_pieces(_: SimulatedRun) -> Iterator[None]:
    """Limits each part of key 0 to one to three entries while the context lasts; entries that belong together stay in
    one part."""
    honest = DueReader.read

    def read(self: DueReader, index: TimerIndex, steady_ms: float, before_ms: int) -> Due:
        own = self._faults.get(OWN) or self._faults._isolate(OWN, 1, None, steady_ms)
        own.messages_max, own.waits = 1 + int(steady_ms) % 3, own.waits or index.ending_count > 0
        own.topics |= _TOPICS
        return honest(self, index, steady_ms, before_ms)

    with patch.object(DueReader, "read", read):
        yield
