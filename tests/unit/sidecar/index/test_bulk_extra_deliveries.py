"""Goal: a bulk control with a due range also selects a schedule that has only extra deliveries left. All code that
selects entries compares the range with the timestamp of the first control whose extra deliveries are pending.

Method: as `test_recurrences_backfills`. The schedule has one occurrence, at FIRST_MS, and a backfill with the timestamp
AT_MS.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from postdate.kafka.interface import Record
from postdate.sidecar.dispatch.after_commit import finish
from postdate.sidecar.dispatch.due.due_reader import Due
from postdate.sidecar.dispatch.due.own_topics_filter import OwnTopicsFilter
from postdate.sidecar.dispatch.limits import SURPLUS_FATES_MAX
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.wheel.entry import Next
from postdate.wheel.timer_log import changes
from postdate.wire.dispatch_log import CANCELLED, OCCURRED, BulkCancelled, ExtraFate, Occurred
from postdate.wire.stored import decode_stored
from support.shards.long_delays import BASE_MS, OWN, LongDelayShard, Make, new_shards, request, timed, verdict_texts
from support.shards.second_schedule import FIRST_MS, control, drained, nominal_ms, state, stored

AT_MS = BASE_MS + 500
OCCURRED_ONCE = Occurred(0, FIRST_MS, OCCURRED, 1, FIRST_MS, 0)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with new_shards(tmp_path, "all", format_version=3) as make:
        yield make


def backfill(offset: int, count: int, at_ms: int = AT_MS) -> Record:
    """Returns a backfill of `count` nominal times."""
    return control(offset, "backfill", at_ms, id="c", start=nominal_ms(1 - count), end=nominal_ms(0))


def bulk(offset: int, from_ms: int, until_ms: int) -> Record:
    """Returns a bulk cancel of messages that are due in [`from_ms`, `until_ms`)."""
    times = {"select-from": from_ms, "select-until": until_ms}
    return timed(request(offset, action="cancel", **times), AT_MS + 200)


def cancelled(by: int) -> BulkCancelled:
    return BulkCancelled(0, FIRST_MS, CANCELLED, by)


def with_backfill(make: Make, count: int = 3) -> LongDelayShard:
    """Returns a shard with the schedule and its backfill, the request at offset 1, before any delivery."""
    shard = stored(make(), count=1)
    shard.feed(backfill(1, count))
    shard.commit(AT_MS)
    return shard


def only_extras_left(make: Make) -> LongDelayShard:
    """Returns the same shard after the occurrence and a part of the backfill have left."""
    shard = with_backfill(make, SURPLUS_FATES_MAX + 5)
    assert shard.commit(FIRST_MS + 1).fates[0] == OCCURRED_ONCE
    pending = (1, SURPLUS_FATES_MAX + 1, nominal_ms(-4), nominal_ms(0), AT_MS)
    assert state(shard)[1:] == (AT_MS, Next(2, 0, (), (pending,)))
    return shard


def test_a_message_that_falls_due_during_a_sweep_ends_with_its_verdict_and_its_deferred_choice(make: Make) -> None:
    shard = make()
    shard.feed(request(0, topic="orders", at=AT_MS, id="a", window="1s", spread="even"), now_ms=-1)
    assert len(shard.index.deferred(10)) == 1
    shard.feed(bulk(1, AT_MS, AT_MS + 1))
    batch = shard.commit(AT_MS + 1_001)
    assert verdict_texts(batch) == [("cancelled", "requests/0/0", None, None)]
    assert shard.index.deferred(10) == []


def test_a_selected_message_between_those_that_leave_waits_with_the_sweep(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep waits while one of Postdate's own topics is isolated. Ended entries are deleted as a range of keys."""
    monkeypatch.setattr(changes, "SPAN_KEYS_MIN", 2)
    shard = make(mode="none")
    shard.feed(*(request(o, topic="orders", at=AT_MS, id=f"{'b' if o == 2 else 'a'}{o}") for o in range(5)))
    shard.feed(request(5, action="cancel", **{"select-id": "b"}))
    overlay = IndexOverlay(shard.index, BASE_MS)
    due = Due(*shard.index.scan_due(AT_MS + 1, 10), now_ms=AT_MS + 1, own_filter=OwnTopicsFilter((OWN.verdicts,)))
    finish(overlay, shard._builder.build(overlay, due, 0.0))
    overlay.write()
    assert list(shard.entries()) == [2]


@pytest.mark.parametrize(
    ("from_ms", "until_ms", "is_selected"),
    [(AT_MS, AT_MS + 1, True), (1, AT_MS, False), (AT_MS + 1, AT_MS + 9_000, False)],
)
def test_a_range_compares_the_timestamp_of_the_backfill(
    make: Make, from_ms: int, until_ms: int, is_selected: bool
) -> None:
    shard = only_extras_left(make)
    shard.feed(bulk(2, from_ms, until_ms))
    fates = drained(shard, FIRST_MS + 2)
    assert (cancelled(2) in fates) is is_selected
    assert sum(isinstance(fate, ExtraFate) for fate in fates) == (0 if is_selected else 5)


def test_a_later_control_finds_no_schedule(make: Make) -> None:
    shard = only_extras_left(make)
    shard.feed(bulk(2, AT_MS, AT_MS + 1), control(3, "trigger", AT_MS + 300, id="c"))
    assert ("not-found", "requests/0/3", None, None) in verdict_texts(shard.commit(FIRST_MS + 2))


def test_the_store_record_still_has_no_nominal_time(make: Make) -> None:
    shard = only_extras_left(make)
    (record,) = shard.store.values()
    assert record.value is not None
    assert decode_stored(record.key, record.value, record.headers).due_ms == 0
    rebuilt = make(begins=False)
    rebuilt.rebuild(shard, low=2)
    assert rebuilt.entries() == shard.entries()


def test_a_schedule_ends_with_its_last_occurrence_if_its_backfill_is_selected(make: Make) -> None:
    """The control does not select the schedule before its last occurrence. Both end in the same transaction."""
    shard = with_backfill(make)
    shard.feed(bulk(2, AT_MS, AT_MS + 1))
    assert [fate for fate in shard.commit(FIRST_MS + 1).fates if fate.offset == 0] == [OCCURRED_ONCE, cancelled(2)]
    assert shard.entries() == {}


def test_a_schedule_ends_when_the_next_control_of_its_extras_is_selected(make: Make) -> None:
    shard = with_backfill(make)
    shard.feed(control(2, "trigger", AT_MS + 100, id="c"))
    shard.commit(AT_MS)
    shard.feed(bulk(3, AT_MS + 100, AT_MS + 101))
    fates = [fate for fate in shard.commit(FIRST_MS + 1).fates if fate.offset == 0]
    assert fates[0] == OCCURRED_ONCE
    assert [fate.control for fate in fates if isinstance(fate, ExtraFate)] == [1, 1, 1]
    assert fates[-1] == cancelled(3)


def test_a_later_trigger_with_an_earlier_timestamp_does_not_come_first(make: Make) -> None:
    """By the time the trigger is read, the sweep may have passed the schedule."""
    shard = only_extras_left(make)
    shard.feed(bulk(2, AT_MS - 100, AT_MS), control(3, "trigger", AT_MS - 50, id="c"))
    fates = drained(shard, FIRST_MS + 2)
    assert [fate.control for fate in fates if isinstance(fate, ExtraFate)] == [1] * 5
    assert cancelled(2) in fates, "then it comes first"
