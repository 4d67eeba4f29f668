"""Mutations: policies for ids.

The table in `mutation` includes these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from unittest.mock import patch

import msgspec

from postdate.sidecar.index import apply_fates, apply_requests, contradictions
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.takeover import store_reading
from postdate.sidecar.transaction import store_records
from postdate.wheel.entry import Entry, Kind
from postdate.wire.dispatch_log import IdRow, SeriesFate
from postdate.wire.requests import parser
from postdate.wire.stored import StoredRequest
from support.simulation.plan import IDS
from support.simulation.runtime.simulated_run import SimulatedRun

Mutation = Callable[[SimulatedRun], AbstractContextManager[object]]


def _keep_replaces(_: SimulatedRun) -> AbstractContextManager[object]:
    """A request with `keep` replaces the pending message."""
    return patch.object(parser, "_keeps", lambda said: False)


def _kept_by_the_ended(_: SimulatedRun) -> AbstractContextManager[object]:
    """A request is kept although the log shows that its survivor had already ended."""
    return patch.object(contradictions, "_ENDED_BY_ANOTHER", frozenset({Kind.CANCELLED, Kind.REPLACED}))


def _start_not_marked(_: SimulatedRun) -> AbstractContextManager[object]:
    """Recovery forgets the start of a series whose survivor is not read yet."""
    honest = apply_fates._continue_series

    def continue_series(overlay: IndexOverlay, fate: SeriesFate, next_request: int) -> None:
        if fate.survivor < next_request:
            honest(overlay, fate, next_request)

    return patch.object(apply_fates, "_continue_series", continue_series)


def _start_not_stored(_: SimulatedRun) -> AbstractContextManager[object]:
    """A record of STORE lacks the start of the series."""
    honest = store_records.stored_of

    def stored_of(entry: Entry, offset: int) -> StoredRequest:
        return msgspec.structs.replace(honest(entry, offset), series_ms=-1)

    return patch.object(store_records, "stored_of", stored_of)


def _each_request_begins_a_series(_: SimulatedRun) -> AbstractContextManager[object]:
    """The start of a series is the timestamp of its last request, so the series may never become due."""
    return patch.object(apply_requests, "_series_ms", lambda overlay, record, request, mark: record.timestamp_ms)


def _ids_forgotten(_: SimulatedRun) -> AbstractContextManager[object]:
    """No delivered id is remembered."""
    return patch.object(IndexOverlay, "remember_ids", _nothing_remembered)


def _nothing_remembered(overlay: IndexOverlay, rows: Iterable[IdRow], at_ms: int) -> int:
    return 0


def _window_without_end(_: SimulatedRun) -> AbstractContextManager[object]:
    """A delivered id is remembered without a time limit, so it drops later requests at any time."""
    honest = IndexOverlay.delivered

    def delivered(self: IndexOverlay, caller_id: bytes, offset: int, at_ms: int) -> int:
        return honest(self, caller_id, offset, 0)

    return patch.object(IndexOverlay, "delivered", delivered)


def _header_not_stored(_: SimulatedRun) -> AbstractContextManager[object]:
    """A stored message loses its header `postdate-if-ended`, so its delivery is not remembered."""
    honest = store_records.entry_of

    def entry_of(stored: StoredRequest) -> Entry:
        return msgspec.structs.replace(honest(stored), drops=False)

    return patch.object(store_reading, "entry_of", entry_of)


ID_MUTATIONS: dict[str, tuple[Mutation, str]] = {
    "a request that keeps replaces": (_keep_replaces, IDS),
    "kept by a message that has ended": (_kept_by_the_ended, IDS),
    "the start of a series is not marked": (_start_not_marked, IDS),
    "the start of a series is not stored": (_start_not_stored, IDS),
    "each request begins a series": (_each_request_begins_a_series, IDS),
    "delivered ids are forgotten": (_ids_forgotten, IDS),
    "ids are remembered for ever": (_window_without_end, IDS),
    "a stored message is not remembered": (_header_not_stored, IDS),
}
