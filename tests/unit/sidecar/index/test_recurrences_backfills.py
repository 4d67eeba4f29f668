"""Goal: a backfill delivers the message of its schedule once for each requested nominal time, in bounded transactions,
for every owner, disk and order of records; and its verdict is true.

Method: as `test_recurrences_triggers`, whose rules hold for a backfill, too. These tests cover the difference: several
past times, each published by the fate before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from postdate.kafka.interface import Record
from postdate.sidecar.dispatch.limits import SURPLUS_FATES_MAX
from postdate.sidecar.errors import Contradicted
from postdate.sidecar.index import recurrences
from postdate.sidecar.index.recurrences import PAUSED_MS
from postdate.wheel.entry import Kind, Next
from postdate.wire.delivered import extra_headers, record_size_bytes
from postdate.wire.dispatch_log import (
    BACKFILLED,
    CANCELLED,
    COMPLETED,
    DEAD,
    EXTRA,
    EXTRA_DEAD,
    Backfilled,
    Completed,
    DispatchRecord,
    ExtraFate,
    Fate,
    PlainFate,
    decode_record,
    encode_record,
)
from postdate.wire.errors import FormatError
from postdate.wire.limits import BACKFILL_MAX, EXTRAS_MAX
from postdate.wire.schedules import extras as extras_of_a_schedule
from support.shards.long_delays import BASE_MS, OWN, Make, new_shards, request, verdict_texts
from support.shards.second_schedule import (
    FIRST_MS,
    IS_STORED,
    applied,
    control,
    drained,
    nominal_ms,
    recovered_twice,
    refusal,
    state,
    stored,
)

AT_MS = BASE_MS + 500


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with new_shards(tmp_path, "all", format_version=3) as make:
        yield make


def backfill(offset: int, first: int, last: int, at_ms: int = AT_MS, **headers: str | int) -> Record:
    """Returns a backfill of the nominal times `first` to `last`, which may lie before the first occurrence."""
    times = {"start": nominal_ms(first), "end": nominal_ms(last)}
    return control(offset, "backfill", at_ms, **{"id": "c", **times, **headers})


def filled(control: int, first: int, last: int, at_ms: int = AT_MS) -> Backfilled:
    return Backfilled(0, FIRST_MS, BACKFILLED, at_ms, control, nominal_ms(first), nominal_ms(last))


def extras(control: int, first: int, last: int, *, number: int = 1, until: int | None = None) -> list[ExtraFate]:
    """Returns the deliveries of the nominal times `first` to `last` of a backfill that ends at `until`."""
    until = last if until is None else until
    return [
        ExtraFate(
            0, FIRST_MS, EXTRA, control, number + at, nominal_ms(each), nominal_ms(each + 1) if each < until else 0
        )
        for at, each in enumerate(range(first, last + 1))
    ]


def test_a_backfill_is_stored_and_answered_and_delivers_each_time_once(make: Make) -> None:
    shard = stored(make())
    shard.feed(backfill(1, -2, 0))
    batch = shard.commit(AT_MS)
    assert batch.fates == [IS_STORED, filled(1, -2, 0), applied(1)]
    assert verdict_texts(batch) == [("backfilled", "requests/0/1", "requests/0/0", None)]
    pending = (1, 1, nominal_ms(-2), nominal_ms(0), AT_MS)
    assert state(shard) == (Kind.DELIVER, AT_MS, Next(1, FIRST_MS, (), (pending,)))
    batch = shard.commit(AT_MS + 1)
    assert batch.fates == extras(1, -2, 0)
    sent = [dict(message[5]) for message in batch.messages if message[1] == "orders"]
    assert [headers["postdate-due"] for headers in sent] == [b"%d" % nominal_ms(each) for each in (-2, -1, 0)]
    assert [headers["postdate-extra"] for headers in sent] == [b"requests/0/1/%d" % number for number in (1, 2, 3)]
    assert not any({"postdate-occurrence", "postdate-next"} & headers.keys() for headers in sent)
    assert batch.dues_ms == [AT_MS] * 3, "lateness counts from the request"
    assert state(shard) == (Kind.DELIVER, FIRST_MS, Next(1, FIRST_MS))


def test_the_size_of_a_schedule_counts_the_longest_origin_of_its_extra_deliveries(make: Make) -> None:
    """After the last occurrence, its extra deliveries are the largest records."""
    shard = stored(make())
    shard.feed(backfill(1, -2, 0))
    shard.commit(AT_MS)
    entry, origin = shard.entries()[0][1], b"requests/0/" + b"9" * 19
    assert entry.next is not None
    entry = msgspec.structs.replace(entry, next=msgspec.structs.replace(entry.next, nominal_ms=0))
    headers = extra_headers(entry.headers, origin, b"c", origin + b"/%d" % BACKFILL_MAX, nominal_ms(-2))
    size_bytes = record_size_bytes(entry.key, entry.value, headers)
    assert shard._builder._rules.delivered_size_bytes(entry) == size_bytes


def test_a_backfill_leaves_in_bounded_transactions(make: Make) -> None:
    shard, count = stored(make()), 2 * SURPLUS_FATES_MAX + 7
    shard.feed(backfill(1, 1 - count, 0))
    shard.commit(AT_MS)
    sizes, all_fates = [], []
    while fates := shard.commit(AT_MS + 1).fates:
        sizes.append(len(fates))
        all_fates += fates
        rebuilt = make(begins=False)
        rebuilt.rebuild(shard, low=2)
        assert rebuilt.entries() == shard.entries()
    assert max(sizes) <= SURPLUS_FATES_MAX + 1
    assert all_fates == extras(1, 1 - count, 0)


def test_occurrences_leave_before_a_backfill(make: Make) -> None:
    shard = stored(make())
    shard.feed(backfill(1, -3, 0))
    shard.commit(AT_MS)
    batch = shard.commit(nominal_ms(2) + 1)
    assert [fate.name for fate in batch.fates] == ["occurred"] * 2 + ["extra"] * 4
    assert batch.dues_ms == [FIRST_MS, nominal_ms(2), *[AT_MS] * 4]


def test_a_paused_schedule_is_backfilled_for_the_times_of_its_pause(make: Make) -> None:
    shard, at_ms = stored(make()), nominal_ms(3) + 500
    shard.feed(control(1, "pause", BASE_MS))
    shard.commit()
    shard.feed(backfill(2, 1, 3, at_ms))
    assert drained(shard, nominal_ms(9))[3:] == extras(2, 1, 3)
    assert state(shard)[:2] == (Kind.DELIVER, PAUSED_MS)


def test_the_last_occurrence_leaves_the_backfill(make: Make) -> None:
    shard, at_ms = stored(make(), count=1), nominal_ms(3)
    shard.feed(backfill(1, 1, 2, at_ms))
    assert [fate.name for fate in drained(shard, nominal_ms(2))[3:]] == ["occurred"]
    assert state(shard)[1:] == (at_ms, Next(2, 0, (), ((1, 1, nominal_ms(1), nominal_ms(2), at_ms),)))
    rebuilt = make(begins=False)
    rebuilt.rebuild(shard, low=2)
    assert rebuilt.entries() == shard.entries()
    assert drained(shard, at_ms + 1) == [*extras(1, 1, 2), Completed(0, FIRST_MS, COMPLETED)]
    assert (shard.entries(), shard.kept()) == ({}, set())


def test_a_refused_message_becomes_a_dead_letter_for_one_time(make: Make) -> None:
    shard = stored(make(), partition=17)
    shard.feed(backfill(1, -1, 0))
    shard.commit(AT_MS)
    for number, next_ms in ((1, nominal_ms(0)), (2, 0)):
        batch = shard.commit(AT_MS + 1)
        assert batch.fates == [ExtraFate(0, FIRST_MS, EXTRA_DEAD, 1, number, nominal_ms(number - 2), next_ms)]
        (dead_letter,) = [message for message in batch.messages if message[1] == OWN.dead_letters]
        assert dict(dead_letter[5])["postdate-at"] == b"%d" % nominal_ms(number - 2)
    assert state(shard) == (Kind.DELIVER, FIRST_MS, Next(1, FIRST_MS))


def test_two_backfills_and_a_trigger_of_the_same_time_each_deliver(make: Make) -> None:
    shard = stored(make())
    shard.feed(backfill(1, -1, 0), control(2, "trigger", AT_MS), backfill(3, -1, 0))
    shard.commit(AT_MS)
    assert drained(shard, AT_MS + 1) == [
        *extras(1, -1, 0),
        ExtraFate(0, FIRST_MS, EXTRA, 2, 1, AT_MS, 0),
        *extras(3, -1, 0),
    ]


# ---- other owners and older disks ------------------------------------------------------------------------------------

_ASKED: list[Fate] = [IS_STORED, filled(1, -2, 0), applied(1)]


def test_fates_that_are_applied_twice_have_one_effect(make: Make) -> None:
    traces: list[list[Fate]] = [[*_ASKED, *extras(1, -2, last, until=0)] for last in (-3, -2, -1, 0)]
    for fates in traces:
        recovered_twice(stored(make()), fates)


@pytest.mark.parametrize("is_ahead", [False, True])
@pytest.mark.parametrize("done", [0, 1, 3])
def test_an_owner_with_an_older_disk_goes_on(make: Make, is_ahead: bool, done: int) -> None:
    """This owner has not read the backfill nor, if `is_ahead`, the schedule."""
    shard = make()
    if not is_ahead:
        stored(shard)
    shard.recover(*_ASKED, *extras(1, -2, 0)[:done])
    if is_ahead:
        shard.feed(request(0, topic="orders", every="1s", id="c"))
    shard.feed(backfill(1, -2, 0))
    assert drained(shard, AT_MS + 1) == extras(1, -2, 0)[done:]
    assert state(shard) == (Kind.DELIVER, FIRST_MS, Next(1, FIRST_MS))


def test_a_transaction_that_was_committed_and_not_written(make: Make) -> None:
    shard = stored(make())
    shard.feed(backfill(1, -2, 0))
    shard.recover(*shard.commit(AT_MS, locally=False).fates)
    shard.recover(*shard.commit(AT_MS + 1, locally=False).fates[:2])
    assert drained(shard, AT_MS + 1) == extras(1, 0, 0, number=3)


def test_a_published_time_is_final(make: Make) -> None:
    """An owner with other time zone rules has published the second time, which differs from the one computed here."""
    shard, other_ms = stored(make()), nominal_ms(-1) + 300
    shard.recover(*_ASKED, ExtraFate(0, FIRST_MS, EXTRA, 1, 1, nominal_ms(-2), other_ms))
    shard.feed(backfill(1, -2, 0))
    assert drained(shard, AT_MS + 1) == [
        ExtraFate(0, FIRST_MS, EXTRA, 1, 2, other_ms, nominal_ms(0)),
        *extras(1, 0, 0, number=3),
    ]


def test_another_first_time_in_the_log_contradicts_it(make: Make) -> None:
    shard = stored(make())
    shard.feed(backfill(1, -2, 0))
    with pytest.raises(Contradicted, match="judged otherwise"):
        shard.recover(filled(1, -1, 0))


def test_a_backfill_that_the_log_shows_refused_contradicts_it(make: Make) -> None:
    shard = stored(make())
    shard.feed(backfill(1, -2, 0))
    for fate in (applied(1), PlainFate(1, 0, DEAD)):
        with pytest.raises(Contradicted, match="did not change request 0"):
            shard.recover(fate)


def test_a_backfill_that_was_refused_here_contradicts_the_log(make: Make) -> None:
    shard = stored(make(), end=nominal_ms(1))
    shard.feed(backfill(1, 2, 3, nominal_ms(3)))
    with pytest.raises(Contradicted, match="judged otherwise"):
        shard.recover(filled(1, 2, 3), applied(1))


# ---- refusals and other controls -------------------------------------------------------------------------------------


def test_the_start_and_the_end_of_a_schedule_limit_a_backfill_and_its_count_does_not(make: Make) -> None:
    shard = stored(make(), start=nominal_ms(1), end=nominal_ms(4), count=2)
    shard.feed(backfill(1, -5, 9, nominal_ms(9)))
    deliveries = [fate for fate in drained(shard, nominal_ms(9) + 1) if isinstance(fate, ExtraFate)]
    assert [fate.nominal_ms for fate in deliveries] == [nominal_ms(number) for number in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("first", "last", "reason"),
    [(5, 9, b"bad-schedule"), (-BACKFILL_MAX, 0, b"limit-exceeded"), (1, 0, b"bad-time"), (10, 11, b"bad-time")],
)
def test_times_that_cannot_be_backfilled_are_refused(make: Make, first: int, last: int, reason: bytes) -> None:
    shard = stored(make(), end=nominal_ms(4))
    shard.feed(backfill(1, first, last, nominal_ms(10)))
    before = shard.entries()[0]
    assert refusal(shard) == (reason, ["rejected"])
    assert shard.entries()[0] == before


def test_a_backfill_may_have_the_maximum_number_of_times(make: Make) -> None:
    shard = stored(make())
    shard.feed(backfill(1, 1 - BACKFILL_MAX, 0))
    assert shard.commit().fates == [IS_STORED, filled(1, 1 - BACKFILL_MAX, 0), applied(1)]


def test_only_a_schedule_is_backfilled(make: Make) -> None:
    shard = make()
    shard.feed(request(0, topic="orders", id="c", delay="1h"), backfill(1, -1, 0))
    assert refusal(shard) == (b"bad-action", ["accepted", "rejected"])


def test_a_backfill_without_a_pending_schedule_is_answered(make: Make) -> None:
    shard = stored(make(), count=1)
    shard.feed(backfill(1, -1, 0, id="other"))
    assert verdict_texts(shard.commit()) == [("not-found", "requests/0/1", None, None)]
    drained(shard, nominal_ms(2))
    shard.feed(backfill(2, -1, 0))
    assert verdict_texts(shard.commit()) == [("too-late", "requests/0/2", "requests/0/0", None)]


def test_a_cancel_ends_a_backfill_between_two_transactions(make: Make) -> None:
    shard = stored(make())
    shard.feed(backfill(1, -SURPLUS_FATES_MAX - 9, 0))
    shard.commit(AT_MS)
    assert len(shard.commit(AT_MS + 1).fates) == SURPLUS_FATES_MAX + 1
    shard.feed(control(2, "cancel", BASE_MS))
    assert drained(shard, nominal_ms(0)) == [PlainFate(0, FIRST_MS, CANCELLED), applied(2)]
    assert (shard.entries(), shard.kept()) == ({}, set())


def test_triggers_and_backfills_share_a_bound(make: Make) -> None:
    shard = stored(make())
    shard.feed(*(control(at, "trigger", BASE_MS) for at in range(1, EXTRAS_MAX + 1)))
    shard.commit(BASE_MS - 1)
    shard.feed(backfill(EXTRAS_MAX + 1, -1, 0))
    assert refusal(shard) == (b"limit-exceeded", ["rejected"])


def test_members_without_the_setting_refuse_a_backfill(make: Make) -> None:
    shard = stored(make())
    shard.rules = replace(shard.rules, format_version=2)
    shard.feed(backfill(1, -1, 0))
    assert refusal(shard) == (b"unknown-header", ["rejected"])


def test_a_backfill_computes_only_the_times_that_leave(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backfill whose target takes one message at a time costs one search per transaction."""
    shard, searched = stored(make()), list[Any]()
    shard.feed(backfill(1, -900, 0))
    shard.commit(AT_MS)

    def next_filled(*asked: Any) -> int:
        searched.append(asked)
        return extras_of_a_schedule.next_filled(*asked)

    monkeypatch.setattr(recurrences, "next_filled", next_filled)
    (_, entry) = shard.entries()[0]
    assert len(recurrences.decide_due(entry, 0, b"requests/0/0", AT_MS, AT_MS, 0).fates) == len(searched) == 1


# ---- the record ------------------------------------------------------------------------------------------------------


def test_fates_of_backfills_have_version_3() -> None:
    common = {"seq": 1, "takeover": 1, "instance": "i", "group": "g", "at": 1, "next_request": 4, "low_water": 0}
    record = DispatchRecord(**common, fates=[Backfilled(0, 5, BACKFILLED, 9, 3, 6, 8)])  # type: ignore[arg-type]
    written = encode_record(record)
    assert written.startswith(b'{"v":3')
    assert written.endswith(b'"fates":[[0,5,"backfilled",9,3,6,8]]}')
    assert decode_record(written) == record
    for bad in (
        written.replace(b"3,6,8]", b"0,6,8]"),
        written.replace(b"3,6,8]", b"3,6,5]"),
        written.replace(b"6,8]", b"6]"),
        written.replace(b"6,8]", b'6,"8"]'),
        written.replace(b'"v":3', b'"v":2'),
    ):
        with pytest.raises(FormatError):
            decode_record(bad)
