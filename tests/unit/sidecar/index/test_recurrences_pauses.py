"""Goal: a pause skips exactly the nominal times from its timestamp to that of the resume, for every owner, disk and
order of records; and its verdict is true.

Method: traces on a real timer index and the STORE that its transactions write (`support.shards.long_delays`), as in
`test_recurrences`. The rules are those of docs/protocol.md, "Pauses".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from postdate.kafka.interface import Record
from postdate.sidecar.errors import Contradicted
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.index.recurrences import PAUSED_MS
from postdate.sidecar.ingest.ingest import Intake, ingest
from postdate.wheel.entry import Kind, Next
from postdate.wheel.keys import entry_key
from postdate.wire.dispatch_log import (
    CANCELLED,
    COMPLETED,
    DEAD,
    OCCURRED,
    PAUSED,
    RESUMED,
    SKIPPED,
    Completed,
    DispatchRecord,
    Fate,
    Occurred,
    PausedOrResumed,
    PlainFate,
    Skipped,
    decode_record,
    encode_record,
)
from postdate.wire.errors import FormatError
from postdate.wire.limits import SWITCHES_MAX
from postdate.wire.requests.rules import RequestRules
from support.shards.long_delays import BASE_MS, Make, new_shards, request, verdict_texts
from support.shards.second_schedule import (
    FIRST_MS,
    IS_STORED,
    applied,
    calendar,
    control,
    drained,
    drawn_ms,
    nominal_ms,
    recovered_twice,
    refusal,
    state,
    stored,
)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with new_shards(tmp_path, "all", format_version=3) as make:
        yield make


def pause(offset: int, at_ms: int) -> Record:
    return control(offset, "pause", at_ms)


def resume(offset: int, at_ms: int) -> Record:
    return control(offset, "resume", at_ms)


def paused(control: int, at_ms: int) -> PausedOrResumed:
    return PausedOrResumed(0, FIRST_MS, PAUSED, at_ms, control)


def resumed(control: int, at_ms: int) -> PausedOrResumed:
    return PausedOrResumed(0, FIRST_MS, RESUMED, at_ms, control)


def occurred(number: int) -> Occurred:
    return Occurred(0, FIRST_MS, OCCURRED, number, nominal_ms(number), nominal_ms(number + 1))


def skipped(first: int, last: int, reason: str = "paused") -> Skipped:
    return Skipped(0, FIRST_MS, SKIPPED, first, last, reason, nominal_ms(last + 1))  # type: ignore[arg-type]


def test_a_pause_is_stored_and_answered_and_nothing_is_due(make: Make) -> None:
    shard = stored(make())
    shard.feed(pause(1, BASE_MS + 500))
    batch = shard.commit()
    assert batch.fates == [IS_STORED, paused(1, BASE_MS + 500), applied(1)]
    assert verdict_texts(batch) == [("paused", "requests/0/1", "requests/0/0", None)]
    following = Next(1, FIRST_MS, ((1, BASE_MS + 500, True),))
    assert state(shard) == (Kind.DELIVER, PAUSED_MS, following)
    assert shard.index.timer_log.id_key(b"c") == entry_key(PAUSED_MS, 0)
    assert drained(shard, nominal_ms(50)) == []


def test_a_resume_skips_what_lay_in_the_pause_and_goes_on(make: Make) -> None:
    shard = stored(make())
    shard.feed(pause(1, nominal_ms(3)))
    assert drained(shard, nominal_ms(7) + 1)[1:] == [paused(1, nominal_ms(3)), applied(1), occurred(1), occurred(2)]
    shard.feed(resume(2, nominal_ms(6)))
    batch = shard.commit(nominal_ms(7) + 1)
    assert batch.fates == [IS_STORED, resumed(2, nominal_ms(6)), applied(2)]
    assert verdict_texts(batch) == [("resumed", "requests/0/2", "requests/0/0", None)]
    assert drained(shard, nominal_ms(7) + 1) == [skipped(3, 5), occurred(6), occurred(7)]
    assert state(shard) == (Kind.DELIVER, nominal_ms(8), Next(8, nominal_ms(8)))


def test_the_pause_includes_its_start_and_not_its_end(make: Make) -> None:
    shard = stored(make())
    shard.feed(pause(1, nominal_ms(2)), resume(2, nominal_ms(4)))
    assert drained(shard, nominal_ms(4) + 1)[5:] == [occurred(1), skipped(2, 3), occurred(4)]


def test_a_pause_and_a_resume_may_be_in_one_transaction(make: Make) -> None:
    shard = stored(make())
    shard.feed(pause(1, nominal_ms(2)), resume(2, nominal_ms(4)))
    batch = shard.commit(nominal_ms(9))
    assert batch.fates == [IS_STORED, paused(1, nominal_ms(2)), applied(1), resumed(2, nominal_ms(4)), applied(2)]
    assert [verdict for verdict, *_ in verdict_texts(batch)] == ["paused", "resumed"]


def test_a_pause_that_ends_before_the_next_occurrence_is_forgotten(make: Make) -> None:
    shard = stored(make())
    for at in range(1, 200, 2):
        shard.feed(pause(at, BASE_MS + 100), resume(at + 1, BASE_MS + 900))
        shard.commit()
    assert state(shard) == (Kind.DELIVER, FIRST_MS, Next(1, FIRST_MS))


def test_a_second_pause_changes_nothing_and_is_answered(make: Make) -> None:
    shard = stored(make())
    shard.feed(pause(1, nominal_ms(1)), pause(2, nominal_ms(3)))
    batch = shard.commit()
    assert [verdict for verdict, *_ in verdict_texts(batch)] == ["paused", "paused"]
    shard.feed(resume(3, nominal_ms(4)), resume(4, nominal_ms(6)))
    shard.commit()
    assert drained(shard, nominal_ms(4) + 1) == [skipped(1, 3), occurred(4)]


def test_a_schedule_may_complete_within_its_pause(make: Make) -> None:
    shard = stored(make(), count=3)
    shard.feed(pause(1, nominal_ms(2)), resume(2, nominal_ms(9)))
    shard.commit()
    last = Skipped(0, FIRST_MS, SKIPPED, 2, 3, "paused", 0)
    assert drained(shard, nominal_ms(9)) == [occurred(1), last, Completed(0, FIRST_MS, COMPLETED)]
    assert (shard.entries(), shard.kept(), shard.index.timer_log.id_key(b"c")) == ({}, set(), None)


def test_of_missed_occurrences_the_newest_outside_of_pauses_is_delivered(make: Make) -> None:
    shard = stored(make(), missed="last")
    shard.feed(pause(1, nominal_ms(3)), resume(2, nominal_ms(5)), pause(3, nominal_ms(8)), resume(4, nominal_ms(10)))
    shard.commit()
    assert drained(shard, nominal_ms(9) + 1) == [
        skipped(1, 2, "missed"),
        skipped(3, 4),
        skipped(5, 6, "missed"),
        occurred(7),
        skipped(8, 9),
    ]


def test_thousands_of_paused_occurrences_are_skipped_in_pieces(make: Make) -> None:
    shard = stored(make())
    shard.feed(pause(1, nominal_ms(1)), resume(2, nominal_ms(2_501)))
    shard.commit()
    assert drained(shard, nominal_ms(2_501) + 1) == [
        skipped(1, 1_000),
        skipped(1_001, 2_000),
        skipped(2_001, 2_500),
        occurred(2_501),
    ]


def test_a_paused_occurrence_that_its_target_refuses_is_no_dead_letter(make: Make) -> None:
    shard = stored(make(), partition=17)
    shard.feed(pause(1, nominal_ms(1)), resume(2, nominal_ms(3)))
    shard.commit()
    batch = shard.commit(nominal_ms(3))
    assert batch.fates == [skipped(1, 2)]
    assert batch.dead == []
    assert shard.commit(nominal_ms(3) + 1).fates == [skipped(3, 3, "dead")]


def test_a_paused_schedule_with_a_window_resumes(make: Make) -> None:
    shard = stored(make(), window="500ms")
    shard.feed(pause(1, nominal_ms(2)))
    shard.commit()
    assert drained(shard, nominal_ms(9)) == [occurred(1)]
    assert state(shard)[1] == PAUSED_MS
    shard.feed(resume(2, nominal_ms(3)))
    shard.commit()
    assert state(shard)[1] == drawn_ms(2, 500)
    assert drained(shard, nominal_ms(4)) == [skipped(2, 2), occurred(3)]


# ---- other owners and disks ----------------------------------------------------------------------------------------


def test_the_same_fates_twice_leave_the_same_state(make: Make) -> None:
    traces: list[list[Fate]] = [
        [IS_STORED, paused(1, nominal_ms(3)), applied(1)],
        [IS_STORED, paused(1, nominal_ms(3)), applied(1), occurred(1), resumed(2, nominal_ms(6)), applied(2)],
        [IS_STORED, paused(1, nominal_ms(3)), applied(1), paused(2, nominal_ms(4)), applied(2)],
    ]
    for fates in traces:
        recovered_twice(stored(make()), fates)


def test_an_owner_with_an_older_disk_is_paused(make: Make) -> None:
    """This owner has not read the pause nor, if `is_ahead`, the schedule."""
    for is_ahead in (False, True):
        shard = make()
        if not is_ahead:
            shard.feed(calendar(0))
        shard.recover(IS_STORED, occurred(1), paused(1, nominal_ms(3)), applied(1))
        if is_ahead:
            shard.feed(calendar(0))
        shard.feed(pause(1, nominal_ms(3)))
        assert drained(shard, nominal_ms(9)) == [occurred(2)]
        assert state(shard)[1:] == (PAUSED_MS, Next(3, nominal_ms(3), ((1, nominal_ms(3), True),)))
        shard.feed(resume(2, nominal_ms(5)))
        assert drained(shard, nominal_ms(5) + 1)[3:] == [skipped(3, 4), occurred(5)]


def test_a_rebuild_from_store_is_paused(make: Make) -> None:
    shard, rebuilt = stored(make()), make(begins=False)
    shard.feed(pause(1, nominal_ms(3)))
    drained(shard, nominal_ms(9))
    rebuilt.rebuild(shard, low=2)
    assert rebuilt.entries() == shard.entries()
    assert rebuilt.index.timer_log.id_key(b"c") == shard.index.timer_log.id_key(b"c")
    rebuilt.recover(paused(1, nominal_ms(3)), applied(1), occurred(2))
    assert rebuilt.entries() == shard.entries()
    rebuilt.feed(resume(2, nominal_ms(5)))
    assert drained(rebuilt, nominal_ms(5) + 1)[3:] == [skipped(3, 4), occurred(5)]


def test_a_forgotten_pause_is_not_added_again(make: Make) -> None:
    """The trace of docs/protocol.md: this owner has read both controls; the other owner has committed only the
    pause."""
    shard = stored(make())
    shard.recover(occurred(1), occurred(2))
    shard.feed(pause(1, nominal_ms(2)), resume(2, nominal_ms(3)))
    shard.recover(IS_STORED, paused(1, nominal_ms(2)), applied(1))
    assert drained(shard, nominal_ms(3) + 1) == [resumed(2, nominal_ms(3)), applied(2), occurred(3)]


def test_a_transaction_that_was_committed_and_not_written(make: Make) -> None:
    shard = stored(make())
    shard.feed(pause(1, nominal_ms(2)), resume(2, nominal_ms(4)))
    shard.recover(*shard.commit(locally=False).fates)
    assert drained(shard, nominal_ms(4) + 1) == [occurred(1), skipped(2, 3), occurred(4)]


def test_an_occurrence_of_another_owner_before_the_pause_was_read(make: Make) -> None:
    shard = stored(make())
    shard.feed(pause(1, nominal_ms(1)))
    shard.recover(occurred(1))
    assert drained(shard, nominal_ms(9)) == [IS_STORED, paused(1, nominal_ms(1)), applied(1)]
    shard.feed(resume(2, nominal_ms(4)))
    assert drained(shard, nominal_ms(4) + 1)[3:] == [skipped(2, 3), occurred(4)]


def test_a_successor_that_stored_the_schedule_before_it_read_the_pause(make: Make) -> None:
    shard = make()
    shard.feed(calendar(0), pause(1, nominal_ms(1)))
    shard.recover(IS_STORED)
    assert shard.commit().fates == [paused(1, nominal_ms(1)), applied(1)]
    rebuilt = make(begins=False)
    rebuilt.rebuild(shard, low=2)
    assert rebuilt.entries() == shard.entries()
    assert state(rebuilt)[1] == PAUSED_MS


# ---- judged otherwise by another owner -----------------------------------------------------------------------------


def test_a_pause_that_the_log_shows_refused_contradicts_it(make: Make) -> None:
    shard = stored(make())
    shard.feed(pause(1, nominal_ms(1)))
    with pytest.raises(Contradicted, match="did not change request 0"):
        shard.recover(applied(1))
    with pytest.raises(Contradicted, match="did not change request 0"):
        shard.recover(PlainFate(1, 0, DEAD))


def test_a_pause_that_was_refused_here_contradicts_the_log(make: Make) -> None:
    shard = stored(make())
    older = RequestRules(topic="requests", format_version=2)
    ingest(shard.index, Intake(older, 0, store_after_ms=10_000), [pause(1, nominal_ms(1))], BASE_MS)
    with pytest.raises(Contradicted, match="judged otherwise"):
        shard.recover(paused(1, nominal_ms(1)), applied(1))


# ---- refusals and other controls -----------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["pause", "resume"])
def test_only_a_schedule_is_paused(make: Make, action: str) -> None:
    shard = make()
    shard.feed(request(0, topic="orders", id="c", delay="1h"), control(1, action, BASE_MS))
    shard.commit()
    before = shard.entries()
    shard.feed(control(2, action, BASE_MS, origin="requests/0/0"))
    assert refusal(shard) == (b"bad-action", ["rejected"])
    assert shard.entries() == before


@pytest.mark.parametrize("action", ["pause", "resume"])
def test_a_pause_without_a_pending_schedule_is_answered(make: Make, action: str) -> None:
    shard = stored(make(), count=1)
    shard.feed(control(1, action, BASE_MS, id="other"))
    assert verdict_texts(shard.commit()) == [("not-found", "requests/0/1", None, None)]
    drained(shard, nominal_ms(2))
    shard.feed(control(2, action, BASE_MS))
    assert verdict_texts(shard.commit()) == [("too-late", "requests/0/2", "requests/0/0", None)]


def test_a_schedule_that_a_cancel_ends_is_not_paused(make: Make) -> None:
    shard = stored(make())
    shard.feed(pause(1, nominal_ms(1)), control(2, "cancel", BASE_MS), resume(3, nominal_ms(2)))
    batch = shard.commit()
    assert batch.fates == [PlainFate(0, FIRST_MS, CANCELLED), applied(1), applied(2), applied(3)]
    assert [verdict for verdict, *_ in verdict_texts(batch)] == ["cancelled", "not-found", "cancelled", "not-found"]
    assert (shard.entries(), shard.kept()) == ({}, set())


def test_a_paused_schedule_is_cancelled_and_replaced(make: Make) -> None:
    for ender in (control(2, "cancel", BASE_MS), calendar(2)):
        shard = stored(make())
        shard.feed(pause(1, nominal_ms(1)))
        shard.commit()
        shard.feed(ender)
        shard.commit()
        assert 0 not in shard.entries()
        assert 0 not in shard.kept()


def test_switches_are_bounded_and_a_resume_is_never_refused(make: Make) -> None:
    shard = stored(make())
    for at in range(1, SWITCHES_MAX, 2):
        shard.feed(pause(at, nominal_ms(at)), resume(at + 1, nominal_ms(at + 1)))
        shard.commit()
    shard.feed(pause(SWITCHES_MAX + 1, nominal_ms(500)))
    assert refusal(shard) == (b"limit-exceeded", ["rejected"])
    shard.feed(resume(SWITCHES_MAX + 2, nominal_ms(501)))
    assert [verdict for verdict, *_ in verdict_texts(shard.commit())] == ["resumed"]


def test_members_without_the_setting_refuse_a_pause(make: Make) -> None:
    shard = stored(make())
    older = RequestRules(topic="requests", format_version=2)
    ingest(shard.index, Intake(older, 0, store_after_ms=10_000), [pause(1, nominal_ms(1))], BASE_MS)
    assert refusal(shard) == (b"bad-action", ["rejected"])


def test_a_parked_schedule_is_paused(make: Make) -> None:
    shard = stored(make())
    shard.park(0)
    shard.feed(pause(1, nominal_ms(1)))
    shard.commit()
    assert IndexOverlay(shard.index).find(0) == entry_key(PAUSED_MS, 0)


# ---- the record ------------------------------------------------------------------------------------------------------


def test_fates_of_pauses_have_version_3() -> None:
    common = {"seq": 1, "takeover": 1, "instance": "i", "group": "g", "at": 1, "next_request": 2, "low_water": 0}
    record = DispatchRecord(**common, fates=[paused(3, 7), resumed(4, 9)])  # type: ignore[arg-type]
    written = encode_record(record)
    assert written.startswith(b'{"v":3')
    assert written.endswith(b'"fates":[[0,%d,"paused",7,3],[0,%d,"resumed",9,4]]}' % (FIRST_MS, FIRST_MS))
    assert decode_record(written) == record
    for bad in (
        written.replace(b"7,3]", b"7,0]"),
        written.replace(b",7,3]", b",7]"),
        written.replace(b'"v":3', b'"v":2'),
    ):
        with pytest.raises(FormatError):
            decode_record(bad)
