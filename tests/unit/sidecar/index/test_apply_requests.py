"""Goal: requests and fates change a shard's state as docs/protocol.md describes, rule by rule and trace by trace.

Method: each test plays one trace with `apply_request` and `apply_fate` on a real timer index in a temporary directory.
The tests include the rows of the crash table that need no broker: each starts from a state of the index, and then reads
fates.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from postdate.kafka.interface import Record
from postdate.sidecar.index.apply_fates import apply_fate
from postdate.sidecar.index.apply_requests import apply_request, refused_entry
from postdate.sidecar.index.overlay import IndexOverlay, read_up_to
from postdate.sidecar.ingest.ingest import Intake, ingest
from postdate.wheel.entry import Kind, decode_entry
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import ENDING_DUE, entry_key, split_key
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.ended import RecentOutcome
from postdate.wheel.timer_log.identity import Identity
from postdate.wire.dispatch_log import (
    APPLIED,
    CANCELLED,
    DEAD,
    DELIVERED,
    MOVED,
    REPLACED,
    STORED,
    Fate,
    Moved,
    PlainFate,
)
from postdate.wire.errors import RequestRefused
from postdate.wire.headers import Headers
from postdate.wire.reasons import Reason
from postdate.wire.requests.parser import parse_request
from postdate.wire.requests.rules import RequestRules
from support.shards.long_delays import timed

BASE_MS = 1_000_000_000_000
RULES = RequestRules(topic="requests", horizon_ms=86_400_000, forbidden=frozenset({"requests"}))
IDENTITY = Identity("cluster", "requests-id", "log-id", 0)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[TimerIndex]:
    timer_index = TimerIndex.open(tmp_path / "0", IDENTITY, IndexOptions(), BASE_MS)
    overlay = IndexOverlay(timer_index)
    overlay.advance(next_request=0, next_dispatch=0, seq=0)
    overlay.write()
    yield timer_index
    timer_index.close()


def request(offset: int, **headers: str | int) -> Record:
    given: Headers = [(f"postdate-{name}", str(text).encode()) for name, text in headers.items()]
    return Record(offset, BASE_MS, True, b"key", b"body", given)


def schedule(offset: int, due_ms: int, **headers: str | int) -> Record:
    return request(offset, topic="orders", at=due_ms, **headers)


def feed(index: TimerIndex, *records: Record) -> None:
    assert ingest(index, Intake(RULES, 0), list(records)) == len(records)


def recover(index: TimerIndex, *fates: Fate) -> None:
    overlay = IndexOverlay(index)
    for fate in fates:
        apply_fate(overlay, fate, read_up_to(index))
    overlay.write()


def held(index: TimerIndex) -> dict[int, tuple[Kind, int, int]]:
    """Returns for each request: (kind, due time of its key, first due time)."""
    keys, values = index.timer_log.scan(None, b"\xff" * 16, 1000)
    entries = {}
    for key, value in zip(keys, values, strict=True):
        due_ms, offset = split_key(key)
        entry = decode_entry(value)
        entries[offset] = (Kind(entry.kind), due_ms, entry.first_due)
    return entries


def test_a_scheduled_request_is_held_under_its_due_time(index: TimerIndex) -> None:
    feed(index, schedule(0, BASE_MS + 500))
    assert held(index) == {0: (Kind.DELIVER, BASE_MS + 500, BASE_MS + 500)}
    assert index.checkpoint.next_request == 1


def test_a_final_fate_ends_the_entry_and_frees_its_id(index: TimerIndex) -> None:
    feed(index, schedule(0, BASE_MS + 500, id="a"))
    recover(index, PlainFate(0, BASE_MS + 500, DELIVERED))
    assert held(index) == {}
    assert index.timer_log.id_key(b"a") is None


def test_an_older_local_state_does_not_deliver_ended_messages_again(index: TimerIndex) -> None:
    """Without the mark, the request would be ingested after recovery and delivered a second time."""
    recover(index, PlainFate(0, BASE_MS + 500, DELIVERED))
    feed(index, schedule(0, BASE_MS + 500), schedule(1, BASE_MS + 600))
    assert list(held(index)) == [1]


def test_marks_add_up_and_a_final_one_wins(index: TimerIndex) -> None:
    recover(index, Moved(0, BASE_MS + 500, MOVED, BASE_MS + 900, 3), PlainFate(0, BASE_MS + 500, STORED))
    recover(index, PlainFate(1, BASE_MS + 500, DELIVERED), PlainFate(1, BASE_MS + 500, STORED))
    feed(index, schedule(0, BASE_MS + 500), schedule(1, BASE_MS + 500))
    assert held(index) == {0: (Kind.DELIVER, BASE_MS + 900, BASE_MS + 500)}
    key = index.timer_log.find(0)
    assert key is not None
    raw = index.timer_log.entry(key)
    assert raw is not None
    assert decode_entry(raw).stored


def test_a_cancel_rewrites_the_pending_entry_and_both_end_together(index: TimerIndex) -> None:
    feed(index, schedule(0, BASE_MS + 500, id="a"), request(1, action="cancel", id="a"))
    assert held(index) == {0: (Kind.CANCELLED, 0, BASE_MS + 500), 1: (Kind.APPLIED, 0, 0)}
    recover(index, PlainFate(0, BASE_MS + 500, CANCELLED), PlainFate(1, 0, APPLIED))
    assert held(index) == {}
    assert index.timer_log.place(0) is None


def test_a_cancel_names_its_entry_by_origin_in_the_same_and_in_an_earlier_batch(index: TimerIndex) -> None:
    feed(index, schedule(0, BASE_MS + 500), schedule(1, BASE_MS + 600))
    feed(index, request(2, action="cancel", origin="requests/0/0"))
    feed(index, schedule(3, BASE_MS + 700), request(4, action="cancel", origin="requests/0/3"))
    kinds = {offset: kind for offset, (kind, _, _) in held(index).items()}
    assert kinds == {
        0: Kind.CANCELLED,
        1: Kind.DELIVER,
        2: Kind.APPLIED,
        3: Kind.CANCELLED,
        4: Kind.APPLIED,
    }


def test_a_cancel_without_a_pending_message_only_applies(index: TimerIndex) -> None:
    feed(index, request(0, action="cancel", id="nobody"))
    assert held(index) == {0: (Kind.APPLIED, 0, 0)}


def test_scheduling_a_pending_id_replaces_the_pending_entry(index: TimerIndex) -> None:
    feed(index, schedule(0, BASE_MS + 500, id="a"), schedule(1, BASE_MS + 900, id="a"))
    assert held(index) == {0: (Kind.REPLACED, 0, BASE_MS + 500), 1: (Kind.DELIVER, BASE_MS + 900, BASE_MS + 900)}
    recover(index, PlainFate(0, BASE_MS + 500, REPLACED))
    assert index.timer_log.id_key(b"a") == entry_key(BASE_MS + 900, 1)


def test_a_reschedule_moves_the_entry_and_keeps_its_first_due_time(index: TimerIndex) -> None:
    feed(index, schedule(0, BASE_MS + 500, id="a"), request(1, action="reschedule", id="a", at=BASE_MS + 100))
    assert held(index) == {0: (Kind.DELIVER, BASE_MS + 100, BASE_MS + 500), 1: (Kind.APPLIED, 0, 0)}
    assert index.timer_log.id_key(b"a") == entry_key(BASE_MS + 100, 0)


def test_an_owner_that_was_frozen_finds_an_entry_that_it_moved_and_a_successor_delivered(index: TimerIndex) -> None:
    """The trace behind `places`: the fate contains the first due time, but the key has changed since."""
    feed(index, schedule(0, BASE_MS + 500, id="a"), request(1, action="reschedule", id="a", at=BASE_MS + 9_000))
    recover(index, PlainFate(0, BASE_MS + 500, DELIVERED))
    assert list(held(index)) == [1]
    assert index.timer_log.place(0) is None


def test_an_earlier_reschedule_does_not_undo_a_later_one(index: TimerIndex) -> None:
    """Rule 3: if the control is already ingested here, its ingest has carried out the `moved` fate."""
    feed(
        index,
        schedule(0, BASE_MS + 500, id="a"),
        request(1, action="reschedule", id="a", at=BASE_MS + 600),
        request(2, action="reschedule", id="a", at=BASE_MS + 700),
    )
    recover(index, Moved(0, BASE_MS + 500, MOVED, BASE_MS + 600, 1), PlainFate(1, 0, APPLIED))
    assert held(index)[0] == (Kind.DELIVER, BASE_MS + 700, BASE_MS + 500)


def test_moved_by_a_control_not_ingested_yet_moves_the_entry_and_skips_the_control(index: TimerIndex) -> None:
    feed(index, schedule(0, BASE_MS + 500, id="a"))
    recover(index, Moved(0, BASE_MS + 500, MOVED, BASE_MS + 800, 1), PlainFate(1, 0, APPLIED))
    assert held(index) == {0: (Kind.DELIVER, BASE_MS + 800, BASE_MS + 500)}
    feed(index, request(1, action="reschedule", id="a", at=BASE_MS + 800))
    assert held(index) == {0: (Kind.DELIVER, BASE_MS + 800, BASE_MS + 500)}


def test_a_move_of_a_cancelled_entry_does_not_take_its_id_back(index: TimerIndex) -> None:
    """A later request has the id by then."""
    feed(index, schedule(0, BASE_MS + 500, id="a"), request(1, action="cancel", id="a"))
    feed(index, schedule(2, BASE_MS + 700, id="a"))
    recover(index, Moved(0, BASE_MS + 500, MOVED, BASE_MS + 900, 3))
    assert index.timer_log.id_key(b"a") == entry_key(BASE_MS + 700, 2)


def test_a_refused_request_is_held_as_a_dead_letter_with_all_its_headers(index: TimerIndex) -> None:
    feed(index, request(0, topic="orders", delay="soon"))
    assert held(index) == {0: (Kind.DEAD, 0, 0)}
    raw = index.timer_log.entry(entry_key(0, 0))
    assert raw is not None
    entry = decode_entry(raw)
    assert entry.reason == "bad-time"
    assert [name for name, _ in entry.headers] == ["postdate-topic", "postdate-delay"]


def test_the_same_records_and_fates_twice_leave_the_same_state(index: TimerIndex) -> None:
    records = [schedule(0, BASE_MS + 500, id="a"), schedule(1, BASE_MS + 600), request(2, action="cancel", id="a")]
    feed(index, *records)
    once = held(index)
    assert ingest(index, Intake(RULES, 0), records) == len(records)
    assert held(index) == once
    recover(index, PlainFate(0, BASE_MS + 500, CANCELLED), PlainFate(2, 0, APPLIED))
    recover(index, PlainFate(0, BASE_MS + 500, CANCELLED), PlainFate(2, 0, APPLIED))
    assert list(held(index)) == [1]


def test_a_fate_of_a_request_that_is_long_gone_changes_nothing(index: TimerIndex) -> None:
    feed(index, schedule(0, BASE_MS + 500))
    recover(index, PlainFate(0, BASE_MS + 500, DELIVERED))
    recover(index, PlainFate(0, BASE_MS + 500, DELIVERED))
    assert held(index) == {}
    assert index.timer_log.marks_end == 0


def test_distant_offsets_cost_no_memory_in_between(index: TimerIndex) -> None:
    far = 5_000_000
    records = [schedule(3, BASE_MS + 5), schedule(5, BASE_MS + 6), schedule(far, BASE_MS + 7), request(far + 2)]
    tracemalloc.start()
    try:
        feed(index, *records, request(far + 3, action="cancel", origin=f"requests/0/{far}"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
    first_dues = [
        (offset, index.timer_log.first_due(offset)) for offset in (2, 3, 4, 5, 6, far - 1, far, far + 1, far + 2)
    ]
    dues = {3: BASE_MS + 5, 5: BASE_MS + 6, far: BASE_MS + 7, far + 2: 0}
    assert first_dues == [(offset, dues.get(offset)) for offset, _ in first_dues]
    ended = index.timer_log.entry(entry_key(0, far))
    assert ended is not None
    assert decode_entry(ended).kind == Kind.CANCELLED, "within the batch the control found it by its offset"


@pytest.mark.parametrize("named", [1, 2], ids=["itself", "the next one"])
def test_a_control_acts_on_no_later_request(index: TimerIndex, named: int) -> None:
    """Rule 2 decides at dispatch. By then a later request may exist, but the control must not act on it."""
    control = request(1, action="reschedule", at=BASE_MS + 900, origin=f"requests/0/{named}")
    feed(index, schedule(0, BASE_MS + 500), control, schedule(2, BASE_MS + 700))
    assert IndexOverlay(index).entry(entry_key(0, 1)).acts_on == -1


@pytest.mark.parametrize(("first_due", "sent"), [(BASE_MS + 500, True), (ENDING_DUE, False)])
def test_a_request_that_another_owner_refused_does_not_count_as_sent(
    index: TimerIndex, first_due: int, sent: bool
) -> None:
    """The dead letter has no first due time. A later control on the request's id is answered not-found, not
    too-late."""
    recover(index, PlainFate(0, first_due, DEAD))
    feed(index, schedule(0, BASE_MS + 500, id="a"))
    assert IndexOverlay(index).outcome(b"a") == RecentOutcome(0, sent)


def test_an_overlay_counts_key_zero_as_the_index_will(index: TimerIndex) -> None:
    """Ingest stops by these counts, so that all entries under key 0 fit into one transaction (rule 1)."""

    def written(overlay: IndexOverlay) -> int:
        overlay.write()
        totals = index.checkpoint.totals
        assert (overlay.ending_count, overlay.ending_bytes) == (totals.ending, totals.ending_bytes)
        return index.ending_count

    far_ms = BASE_MS + 40_000_000
    records = [
        schedule(0, BASE_MS + 500, id="a"),
        schedule(1, BASE_MS + 600, id="a"),  # replaces 0
        schedule(2, far_ms, id="b"),  # to be stored
        request(3, action="cancel", id="b"),
        schedule(4, far_ms),
        request(5, action="reschedule", at=far_ms + 1, origin="requests/0/4"),
    ]
    overlay = IndexOverlay(index, BASE_MS, store_after_ms=1_000)
    for record in records:
        parsed = parse_request(RULES, 0, record.timestamp_ms, record.key, record.headers)
        overlay.note_first_due(record.offset, apply_request(overlay, record, parsed))
    overlay.note_first_dues()
    overlay.advance(next_request=6)
    assert written(overlay) == 5
    fates = [
        PlainFate(0, BASE_MS + 500, REPLACED),
        PlainFate(2, far_ms, CANCELLED),
        PlainFate(3, 0, APPLIED),
        PlainFate(4, far_ms, STORED),
    ]
    for left, fate in zip((4, 3, 2, 1), fates, strict=True):
        overlay = IndexOverlay(index)
        apply_fate(overlay, fate, 6)
        assert written(overlay) == left


def test_a_request_that_became_no_entry_has_no_first_due_time(index: TimerIndex) -> None:
    recover(index, PlainFate(1, BASE_MS + 500, DELIVERED))
    feed(index, schedule(0, BASE_MS + 400), schedule(1, BASE_MS + 500))
    assert (index.timer_log.first_due(0), index.timer_log.first_due(1)) == (BASE_MS + 400, None)


@pytest.mark.parametrize(("given", "left"), [({"grace": "0s"}, 0), ({"grace": "5s"}, 5_000), ({}, 60_000)])
def test_a_reschedule_without_a_grace_keeps_that_of_its_message(
    index: TimerIndex, given: dict[str, str], left: int
) -> None:
    feed(index, schedule(0, BASE_MS + 500, id="a", grace="60s"))
    feed(index, request(1, action="reschedule", id="a", at=BASE_MS + 900, **given))
    assert IndexOverlay(index).entry(entry_key(BASE_MS + 900, 0)).grace_ms == left


def test_only_a_delay_above_the_limit_is_stored(index: TimerIndex) -> None:
    records = [schedule(0, BASE_MS + 1_000), schedule(1, BASE_MS + 1_001)]
    assert ingest(index, Intake(RULES, 0, store_after_ms=1_000), records) == 2
    overlay = IndexOverlay(index)
    kinds = [overlay.entry(key).kind for key in index.timer_log.scan_keys(entry_key(ENDING_DUE, 0), None, 10)]
    assert kinds == [Kind.STORE, Kind.DELIVER]


@pytest.mark.parametrize(
    ("is_pending", "given", "grace_ms"),
    [(True, {"grace": "2s"}, 2_000), (True, {"grace": "0s"}, 0), (True, {}, 60_000), (False, {"grace": "2s"}, None)],
)
def test_a_reschedule_that_another_owner_has_ended_still_gives_its_grace(
    index: TimerIndex, is_pending: bool, given: dict[str, str], grace_ms: int | None
) -> None:
    feed(index, schedule(0, BASE_MS + 500, grace="60s"))
    recover(index, PlainFate(1, 0, APPLIED))
    if not is_pending:
        recover(index, PlainFate(0, BASE_MS + 500, DELIVERED))
    feed(index, request(1, action="reschedule", origin="requests/0/0", at=BASE_MS + 900, **given))
    raw = index.timer_log.entry(entry_key(BASE_MS + 500, 0))
    assert (None if raw is None else decode_entry(raw).grace_ms) == grace_ms


def test_a_number_that_a_request_does_not_give_is_minus_1(index: TimerIndex) -> None:
    feed(index, schedule(0, BASE_MS + 500, id="a"))
    entry = IndexOverlay(index).entry(entry_key(BASE_MS + 500, 0))
    assert (entry.partition, entry.grace_ms, entry.acts_on, entry.new_due) == (-1,) * 4
    assert (entry.moved_by, entry.series_ms) == (-1,) * 2


def test_a_reschedule_that_another_owner_has_refused_gives_no_grace(index: TimerIndex) -> None:
    feed(index, schedule(0, BASE_MS + 500))
    recover(index, PlainFate(1, 0, DEAD))
    feed(index, request(1, action="reschedule", origin="requests/0/0", at=BASE_MS + 900, grace="2s"))
    raw = index.timer_log.entry(entry_key(BASE_MS + 500, 0))
    assert raw is not None
    assert decode_entry(raw).grace_ms == -1


@pytest.mark.parametrize(("beyond_ms", "is_refused"), [(0, False), (1, True)])
def test_a_reschedule_may_use_the_whole_horizon_of_the_request_that_it_moves(
    index: TimerIndex, beyond_ms: int, is_refused: bool
) -> None:
    """No entries are stored, so the message must be rebuilt from that request."""
    due_ms = BASE_MS + RULES.horizon_ms + beyond_ms
    moving = request(1, action="reschedule", id="a", at=due_ms)
    feed(index, schedule(0, BASE_MS + 500, id="a"), timed(moving, BASE_MS + 100))
    assert held(index)[0][1] == (BASE_MS + 500 if is_refused else due_ms)
    assert held(index)[1][0] == (Kind.DEAD if is_refused else Kind.APPLIED)


def test_an_entry_that_is_due_at_the_earliest_time_is_no_control(index: TimerIndex) -> None:
    feed(index, schedule(0, 1), request(1, action="cancel", id="nobody"))
    assert [offset for offset, _ in IndexOverlay(index).controls()] == [1]


def test_an_offset_behind_a_row_of_first_due_times_has_none(index: TimerIndex) -> None:
    overlay = IndexOverlay(index)
    overlay.note_first_due(0, BASE_MS)
    overlay.note_first_due(1, BASE_MS + 1)
    overlay.note_first_due(100_000, BASE_MS + 2)
    overlay.put(1, BASE_MS + 1, refused_entry(request(1), RequestRefused(Reason.BAD_ID, "")))
    assert overlay.find(1) == entry_key(BASE_MS + 1, 1)
    assert [overlay.find(offset) for offset in (2, 3, 99_999, 100_001)] == [None] * 4
