"""Goal: the records of another scheduler have the same effect in a shard as in that scheduler: they schedule, replace,
and cancel by tombstone.

Method: the test ingests batches of records, as the clients of those systems write them, into a real timer index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from postdate.kafka.interface import Record
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.index.recurrences import decide_due, single_delivery_headers
from postdate.sidecar.ingest.ingest import Intake, ingest
from postdate.wheel.entry import Entry, Kind, Next, decode_entry, stripped_of
from postdate.wheel.index import TimerIndex
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.identity import Identity
from postdate.wire.dialects.table import DIALECTS
from postdate.wire.headers import Headers
from postdate.wire.requests.parser import parse_request, restore_headers
from postdate.wire.requests.rules import RequestRules
from support.clients.dialect_examples import DEFAULT_TARGET, EXAMPLES, Example

BASE_MS = 1_795_258_284_000
RULES = RequestRules(
    topic="requests", horizon_ms=3_660 * 86_400_000, dialects=tuple(DIALECTS), default_target=DEFAULT_TARGET
)
CANCELLABLE = [example for example in EXAMPLES if example.cancel is not None]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[TimerIndex]:
    timer_index = TimerIndex.open(tmp_path / "0", Identity("cluster", "r", "l", 0), IndexOptions(), BASE_MS)
    overlay = IndexOverlay(timer_index)
    overlay.advance(next_request=0, next_dispatch=0, seq=0)
    overlay.write()
    yield timer_index
    timer_index.close()


def scheduled(offset: int, example: Example) -> Record:
    return Record(offset, BASE_MS, True, example.key, example.value, list(example.headers))


def cancelled(offset: int, example: Example) -> Record:
    assert example.cancel is not None
    return Record(offset, BASE_MS, True, example.cancel.key, None, list(example.cancel.headers))


def entries(index: TimerIndex) -> list[Entry]:
    """Returns the entries of the shard; entries that end without a delivery come first."""
    _, values = index.scan_due(2**63 - 1, 100, 1 << 20)
    return [decode_entry(value) for value in values]


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.name for example in EXAMPLES])
def test_an_example_is_held_with_all_its_headers(index: TimerIndex, example: Example) -> None:
    assert ingest(index, Intake(RULES, 0), [scheduled(0, example)]) == 1
    (entry,) = entries(index)
    due_ms = example.due_ms if example.due_ms >= 0 else BASE_MS + example.delay_ms
    assert (entry.kind, entry.due, entry.target, entry.id) == (Kind.DELIVER, due_ms, example.target, example.id)
    assert (entry.key, entry.value, entry.headers) == (example.target_key, example.value, example.delivered)
    assert restore_headers(entry.headers, stripped_of(entry)) == example.headers
    assert (entry.own_key[0] if entry.own_key else entry.key) == example.key


@pytest.mark.parametrize("example", CANCELLABLE, ids=[example.name for example in CANCELLABLE])
@pytest.mark.parametrize("batches", [1, 2])
def test_the_cancel_of_an_example_ends_it(index: TimerIndex, example: Example, batches: int) -> None:
    records = [scheduled(0, example), cancelled(1, example)]
    for batch in [records] if batches == 1 else [records[:1], records[1:]]:
        assert ingest(index, Intake(RULES, 0), batch) == len(batch)
    assert [(entry.kind, entry.acts_on) for entry in entries(index)] == [(Kind.CANCELLED, 1), (Kind.APPLIED, 0)]


@pytest.mark.parametrize("example", CANCELLABLE, ids=[example.name for example in CANCELLABLE])
def test_an_example_that_is_scheduled_again_is_replaced(index: TimerIndex, example: Example) -> None:
    assert ingest(index, Intake(RULES, 0), [scheduled(0, example), scheduled(1, example)]) == 2
    assert sorted((entry.kind, entry.acts_on) for entry in entries(index)) == [(Kind.DELIVER, -1), (Kind.REPLACED, 1)]


RECURRING: list[Headers] = [
    [("Nats-Schedule", b"@every 1s"), ("Nats-Schedule-Target", b"orders"), ("a", b"1")],
    [
        *(("x-scheduler-action", b"CRON_ADD"), ("x-scheduler-request-id", b"k"), ("a", b"1")),
        *(("x-scheduler-deliver-to", b"orders"), ("x-scheduler-cron-expr", b"* * * * * *")),
    ],
]


@pytest.mark.parametrize("headers", RECURRING, ids=["nats", "kaspr"])
def test_a_recurring_schedule_is_held_like_a_schedule_of_postdate(index: TimerIndex, headers: Headers) -> None:
    intake = Intake(replace(RULES, format_version=3), 0, store_after_ms=3_600_000)
    assert ingest(index, intake, [Record(0, BASE_MS, True, b"k", b"v", headers)]) == 1
    (entry,) = entries(index)
    assert (entry.kind, entry.id, entry.next, entry.headers) == (
        *(Kind.STORE, b"k", Next(1, BASE_MS + 1_000), [("a", b"1")]),
    )
    assert decide_due(entry, 0, b"requests/0/0", BASE_MS + 1_000, BASE_MS + 1_000, 0).following == Next(
        2, BASE_MS + 2_000
    )
    single = single_delivery_headers(entry, BASE_MS + 1_000)
    request = parse_request(RULES, 0, BASE_MS, b"k", single)
    assert (request.due_ms, request.target, request.headers) == (BASE_MS + 1_000, "orders", [("a", b"1")])


def test_a_pause_of_another_scheduler_pauses_its_schedule(index: TimerIndex) -> None:
    intake = Intake(replace(RULES, format_version=3), 0, store_after_ms=3_600_000)
    pause: Headers = [("x-scheduler-action", b"CRON_PAUSE"), ("x-scheduler-request-id", b"k")]
    records = [Record(0, BASE_MS, True, b"k", b"v", RECURRING[1]), Record(1, BASE_MS + 500, True, b"k", b"", pause)]
    assert ingest(index, intake, records) == 2
    schedule, control = entries(index)
    assert schedule.next == Next(1, BASE_MS + 1_000, ((1, BASE_MS + 500, True),))
    assert (control.kind, control.acts_on, control.reason) == (Kind.APPLIED, 0, "pause")


def test_a_tombstone_without_a_pending_message_has_no_effect(index: TimerIndex) -> None:
    assert ingest(index, Intake(RULES, 0), [Record(0, BASE_MS, True, b"nobody", None, [])]) == 1
    assert [(entry.kind, entry.acts_on) for entry in entries(index)] == [(Kind.APPLIED, -1)]
