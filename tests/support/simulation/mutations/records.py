"""Mutations: the content of delivered records, and the interpretation of requests.

The table in `mutation` includes these.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import msgspec

from postdate.kafka.interface import Headers
from postdate.sidecar.dispatch import batch
from postdate.sidecar.dispatch.batch import BatchBuilder
from postdate.sidecar.dispatch.batch_content import Batch
from postdate.sidecar.index import apply_requests
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.ingest import ingest
from postdate.wheel.entry import Entry
from postdate.wheel.keys import entry_key, split_key
from postdate.wheel.timer_log.checkpoint import PolicyRows
from postdate.wire.delivered import delivered_headers
from postdate.wire.requests import returns
from postdate.wire.requests.request import Request
from postdate.wire.requests.retry_policies import NamedPolicies
from support.simulation.runtime.simulated_run import SimulatedRun
from support.simulation.themes import BROKERS

Mutation = Callable[[SimulatedRun], AbstractContextManager[object]]


def _with_headers(change: Callable[[Headers], Headers]) -> Mutation:
    honest = delivered_headers

    def headers(own: Headers, origin: bytes, due_ms: int, id: bytes) -> Headers:
        return honest(change(own), origin, due_ms, id)

    return lambda _: patch.object(batch, "delivered_headers", headers)


def _partition_ignored(_: SimulatedRun) -> AbstractContextManager[object]:
    """Every message goes to the first partition of its target, independently of its key."""
    honest = BatchBuilder._deliver

    def deliver(self: BatchBuilder, batch: Batch, entry: Entry, offset: int) -> bool:
        return honest(self, batch, msgspec.structs.replace(entry, partition=0), offset)

    return patch.object(BatchBuilder, "_deliver", deliver)


def _stored_overtaken(_: SimulatedRun) -> AbstractContextManager[object]:
    """A transaction that stores a due message delivers later messages of its target."""
    honest = Batch.store

    def store(self: Batch, key: bytes, size_bytes: int, entry: Entry) -> None:
        honest(self, key, size_bytes, entry)
        self.stored_late.clear()

    return patch.object(Batch, "store", store)


def _reversed(_: SimulatedRun) -> AbstractContextManager[object]:
    """The messages of a transaction leave in reverse order."""
    honest = BatchBuilder.build

    def build(self: BatchBuilder, *arguments: Any, **more: Any) -> Batch:
        built = honest(self, *arguments, **more)
        built.messages.reverse()
        return built

    return patch.object(BatchBuilder, "build", build)


def _fates_by_first_due(_: SimulatedRun) -> AbstractContextManager[object]:
    """A fate finds its entry only under the first due time that the writer of the fate saw, or in `places`."""
    honest = IndexOverlay.find

    def find(
        self: IndexOverlay, offset: int, hint_due_ms: int | None = None, hint_key: bytes | None = None
    ) -> bytes | None:
        if hint_due_ms is None:
            return honest(self, offset, hint_due_ms, hint_key)
        places = self._changes.places
        place = places[offset] if offset in places else self._index.timer_log.place(offset)
        if place is not None:
            return place
        key = entry_key(hint_due_ms, offset)
        return key if self.raw(key) is not None else None

    return patch.object(IndexOverlay, "find", find)


def _acts_on_what_follows(_: SimulatedRun) -> AbstractContextManager[object]:
    """A control may act on requests that come after it."""

    def acts_on(overlay: IndexOverlay, offset: int, request: Request) -> tuple[int, bytes | None]:
        at = overlay.pending_id(request.id) if request.id else None
        return (split_key(at)[1] if at is not None else request.acts_on), at

    return patch.object(apply_requests, "_acts_on", acts_on)


def _attempt_not_raised(_: SimulatedRun) -> AbstractContextManager[object]:
    """The redelivery of a return has the attempt number of the return, not the next one."""
    honest = returns.schedule_return

    def schedule(rules: Any, request: Request, *more: Any) -> Request:
        retry = request.retry
        assert retry is not None
        same = msgspec.structs.replace(retry, attempt=max(retry.attempt - 1, 1))
        return honest(rules, msgspec.structs.replace(request, retry=same), *more)

    return patch.object(ingest, "schedule_return", schedule)


def _last_policy_counts(_: SimulatedRun) -> AbstractContextManager[object]:
    """A return uses the newest policy of its name, not the policy that applied when the return was accepted."""

    def newest(rows: PolicyRows) -> NamedPolicies:
        return NamedPolicies((0, name, text) for name, text in {name: text for _, name, text in rows}.items())

    return patch.object(ingest, "NamedPolicies", newest)


def _policies_not_replayed(_: SimulatedRun) -> AbstractContextManager[object]:
    """Recovery does not apply the policies in the log."""
    return patch.object(IndexOverlay, "learn_policies", lambda self, rows: None)


#: Name -> the mutation, and the theme of the runs that must detect it.
RECORD_MUTATIONS: dict[str, tuple[Mutation, str]] = {
    "all headers of messages dropped": (_with_headers(lambda own: []), ""),
    "two headers swapped": (_with_headers(lambda own: [*own[1::-1], *own[2:]]), ""),
    "partitions by no key": (_partition_ignored, ""),
    "a transaction in the opposite order": (_reversed, ""),
    "a message that is stored late is overtaken": (_stored_overtaken, "store"),
    "fates found under their writer's due time": (_fates_by_first_due, "settings, controls"),
    "controls act on what follows": (_acts_on_what_follows, "controls"),
    "the attempt is not raised": (_attempt_not_raised, ""),
    "the newest policy of a name counts": (_last_policy_counts, BROKERS),
    "policies are not replayed": (_policies_not_replayed, ""),
}
