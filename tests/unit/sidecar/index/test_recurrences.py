"""Goal: a recurring schedule is one entry that is always stored, and each occurrence is decided once, in whatever order
an owner reads its request, its fates and its STORE record.

Method: traces on a real timer index and the STORE that its transactions write (`support.shards.long_delays`). The tests
compute nominal times by arithmetic. The rules are those of docs/protocol.md, "Schedules".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from postdate.sidecar.dispatch import batch as batch_module
from postdate.sidecar.dispatch.due.due_reader import Due
from postdate.sidecar.dispatch.targets.targets import Target
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.index.recurrences import decide_due, schedule_of
from postdate.sidecar.ingest.ingest import Intake, ingest
from postdate.wheel.entry import Kind, Next
from postdate.wheel.keys import entry_key
from postdate.wire.delivered import occurrence_headers, record_size_bytes
from postdate.wire.dispatch_log import (
    APPLIED,
    CANCELLED,
    COMPLETED,
    DEAD,
    OCCURRED,
    REPLACED,
    SKIPPED,
    STORED,
    Completed,
    DispatchRecord,
    Fate,
    Occurred,
    PlainFate,
    Skipped,
    SurvivorFate,
    decode_record,
    encode_record,
)
from postdate.wire.errors import FormatError
from postdate.wire.limits import FATES_MAX
from postdate.wire.schedules.schedule import Schedule
from support.shards.long_delays import BASE_MS, OWN, LongDelayShard, Make, new_shards, request
from support.shards.second_schedule import FIRST_MS, calendar, drawn_ms, nominal_ms


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with new_shards(tmp_path, "all", format_version=3) as make:
        yield make


def stored(shard: LongDelayShard, *records: object) -> LongDelayShard:
    """Returns a shard that has ingested and stored these schedules."""
    shard.feed(*records)  # type: ignore[arg-type]
    shard.commit()
    return shard


def occurred(offset: int, number: int, *, last: bool = False) -> Occurred:
    next_ms = 0 if last else nominal_ms(number + 1)
    return Occurred(offset, FIRST_MS, OCCURRED, number, nominal_ms(number), next_ms)


LAST_OF_TWO = occurred(0, 2, last=True)


def state(shard: LongDelayShard) -> dict[int, tuple[Kind, int, Next | None, bool]]:
    """Returns for each request: kind, due time of its key, next occurrence, True if it is stored."""
    return {o: (Kind(e.kind), due_ms, e.next, e.stored) for o, (due_ms, e) in shard.entries().items()}


def test_an_index_of_an_earlier_version_does_not_know_how_many_schedules_it_has(make: Make) -> None:
    shard = make()
    assert shard.index.checkpoint.schedules == 0
    log = shard.index._log
    log.checkpoint = msgspec.structs.replace(log.checkpoint, schedules=None)
    shard.feed(calendar(0))
    shard.commit(BASE_MS)
    assert shard.index.checkpoint.schedules is None
    log.checkpoint = msgspec.structs.replace(log.checkpoint, schedules=1)  # the fixture compares it with the entries


def test_a_schedule_is_stored_before_its_first_occurrence(make: Make) -> None:
    shard = make()
    shard.feed(calendar(0))
    assert state(shard) == {0: (Kind.STORE, 0, Next(1, FIRST_MS), False)}
    assert shard.commit().fates == [PlainFate(0, FIRST_MS, STORED)]
    assert state(shard) == {0: (Kind.DELIVER, FIRST_MS, Next(1, FIRST_MS), True)}
    assert shard.index.timer_log.id_key(b"c") == entry_key(FIRST_MS, 0)
    assert shard.commit(FIRST_MS).fates == []


def test_an_occurrence_writes_a_message_a_fate_and_a_store_record(make: Make) -> None:
    shard = stored(make(), calendar(0))
    batch = shard.commit(FIRST_MS + 1)
    assert batch.fates == [occurred(0, 1)]
    (message,) = [each for each in batch.messages if each[1] == "orders"]
    assert message[5] == [
        ("trace", b"1"),
        ("postdate-origin", b"requests/0/0"),
        ("postdate-due", b"%d" % FIRST_MS),
        ("postdate-id", b"c"),
        ("postdate-occurrence", b"1"),
        ("postdate-next", b"%d" % nominal_ms(2)),
    ]
    assert state(shard) == {0: (Kind.DELIVER, nominal_ms(2), Next(2, nominal_ms(2)), True)}
    assert shard.index.timer_log.id_key(b"c") == entry_key(nominal_ms(2), 0)
    assert shard.kept() == {0}


def test_the_last_occurrence_completes_the_schedule(make: Make) -> None:
    shard = stored(make(), calendar(0, count=2))
    shard.commit(FIRST_MS + 1)
    batch = shard.commit(nominal_ms(2) + 1)
    assert batch.fates == [occurred(0, 2, last=True), Completed(0, FIRST_MS, COMPLETED)]
    (message,) = [each for each in batch.messages if each[1] == "orders"]
    assert "postdate-next" not in dict(message[5])
    assert (shard.entries(), shard.kept(), shard.index.timer_log.id_key(b"c")) == ({}, set(), None)
    assert shard.families()["places"] == []


def test_missed_occurrences_leave_a_thousand_at_a_time(make: Make) -> None:
    shard = stored(make(), calendar(0), calendar(1, id="d"))
    now_ms = nominal_ms(1_500) + 1
    all_fates: list[Fate] = []
    sizes = []
    while fates := shard.commit(now_ms).fates:
        all_fates += fates
        sizes.append(len(fates))
    assert sizes == [2 + 1_000, 2 + 1_000, 996]
    for offset in (0, 1):
        assert [fate for fate in all_fates if fate.offset == offset] == [occurred(offset, n) for n in range(1, 1_501)]
    assert all(due_ms == nominal_ms(1_501) for _, due_ms, _, _ in state(shard).values())


@pytest.mark.parametrize("count", [3, 9])
def test_a_dispatch_log_record_has_space_for_all_its_fates(
    make: Make, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    assert batch_module._FATES_MAX + 2 + 1 <= FATES_MAX, "an entry may add two, and a bulk control its progress"
    monkeypatch.setattr(batch_module, "_FATES_MAX", 10)
    shard = stored(make(), *(calendar(o, id=f"i{o}", count=count) for o in range(8)))
    all_fates: list[Fate] = []
    while fates := shard.commit(nominal_ms(count + 2)).fates:
        assert len(fates) <= 10 + 2
        all_fates += fates
    assert {(f.offset, f.number) for f in all_fates if isinstance(f, Occurred)} == {
        (o, n) for o in range(8) for n in range(1, count + 1)
    }
    assert sorted(f.offset for f in all_fates if f.name == COMPLETED) == list(range(8))


def test_a_schedule_that_completes_leaves_less_space_for_messages(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The completion takes one more fate. Without schedules, the limit on entries also limits the fates."""
    monkeypatch.setattr(batch_module, "_FATES_MAX", 10)
    shard = stored(make(), calendar(0, count=1), *(request(o, topic="orders", at=FIRST_MS) for o in range(1, 14)))
    assert len(shard.commit(FIRST_MS + 1).fates) == 10 + 1
    shard.feed(*(request(o, topic="orders", at=FIRST_MS) for o in range(14, 24)))
    assert len(shard.commit(FIRST_MS + 1).fates) == 4 + 10


def test_key_0_is_never_cut_for_the_fates_of_schedules(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 1: the end of a message and the control that ends it are in one transaction."""
    monkeypatch.setattr(batch_module, "_FATES_MAX", 4)
    shard = make()
    pending = [request(o, topic="orders", at=nominal_ms(90), id=f"m{o}") for o in (0, 1)]
    moves = [request(o, action="reschedule", id="m1", at=nominal_ms(90 + o)) for o in (2, 3, 4)]
    shard.feed(*pending, *moves, calendar(5), request(6, action="cancel", id="m0"))
    fates = shard.commit().fates
    assert {fate.offset for fate in fates if fate.name in (APPLIED, CANCELLED)} == {0, 2, 3, 4, 6}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"missed": "last"}, [Skipped(0, FIRST_MS, SKIPPED, 1, 4, "missed", nominal_ms(5)), occurred(0, 5)]),
        ({"missed": "none"}, [occurred(0, n) for n in range(1, 6)]),
        (
            {"catch-up": "2500ms"},
            [Skipped(0, FIRST_MS, SKIPPED, 1, 2, "missed", nominal_ms(3)), *(occurred(0, n) for n in (3, 4, 5))],
        ),
        (
            {"grace": "1500ms"},
            [Skipped(0, FIRST_MS, SKIPPED, 1, 3, "grace", nominal_ms(4)), occurred(0, 4), occurred(0, 5)],
        ),
    ],
)
def test_skips_are_fates(make: Make, headers: dict[str, str], expected: list[Fate]) -> None:
    shard = stored(make(), calendar(0, **headers))
    batch = shard.commit(nominal_ms(5) + 1)
    assert batch.fates == expected
    assert batch.due_max_ms == nominal_ms(5) + 1


def test_a_transaction_ends_before_the_grace_of_its_occurrences(make: Make) -> None:
    """Occurrence 1 is skipped."""
    shard = stored(make(), calendar(0, grace="1500ms"), calendar(1, id="d"))
    batch = shard.commit(nominal_ms(3) + 1)
    assert [fate.number for fate in batch.fates if isinstance(fate, Occurred) and fate.offset == 0] == [2, 3]
    assert batch.grace_end_ms == nominal_ms(2) + 1_500


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, [occurred(0, 1), occurred(0, 2)]),
        ({"missed": "last"}, [Skipped(0, FIRST_MS, SKIPPED, 1, 2, "missed", nominal_ms(3))]),
        ({"missed": "last", "count": "2"}, [Skipped(0, FIRST_MS, SKIPPED, 1, 1, "missed", nominal_ms(2)), LAST_OF_TWO]),
        ({"catch-up": "2500ms"}, [Skipped(0, FIRST_MS, SKIPPED, 1, 2, "missed", nominal_ms(3))]),
        ({"grace": "3500ms"}, [Skipped(0, FIRST_MS, SKIPPED, 1, 1, "grace", nominal_ms(2)), occurred(0, 2)]),
    ],
)
def test_the_lateness_of_an_occurrence_counts_by_the_time_and_not_by_the_gate(
    make: Make, headers: dict[str, str], expected: list[Fate]
) -> None:
    """Occurrences 3, 4 and 5 are due as well, but wait for unread requests."""
    shard = stored(make(), calendar(0, **headers))
    fates = shard.commit(nominal_ms(5) + 1, behind_ms=nominal_ms(5) - nominal_ms(2)).fates
    assert [fate for fate in fates if fate.name != COMPLETED] == expected


def test_a_trial_takes_one_occurrence_at_a_time(make: Make) -> None:
    shard = stored(make(), calendar(0))
    overlay = IndexOverlay(shard.index, BASE_MS)
    due = Due(*shard.index.scan_due(nominal_ms(9), 10), now_ms=nominal_ms(9), surplus_max=0)
    assert shard._builder.build(overlay, due, 0.0).fates == [occurred(0, 1)]


@pytest.mark.parametrize(("surplus_max", "fates"), [(0, 2 + 1), (5, 2 + 5)])
def test_additional_fates_of_schedules_are_bounded(make: Make, surplus_max: int, fates: int) -> None:
    """The first schedule also completes, which cannot be postponed."""
    shard = stored(make(), calendar(0, count=1), calendar(1, id="d"))
    due = Due(*shard.index.scan_due(nominal_ms(9), 10), now_ms=nominal_ms(9), surplus_max=surplus_max)
    assert len(shard._builder.build(IndexOverlay(shard.index, BASE_MS), due, 0.0).fates) == fates


def test_a_target_of_small_batches_gets_one_occurrence_at_a_time(make: Make) -> None:
    shard = stored(make(), calendar(0))
    shard.targets["orders"] = Target("orders", partitions=3, size_bytes_max=2_000)
    assert shard.commit(nominal_ms(9)).fates == [occurred(0, 1)]


def test_missed_occurrences_of_all_schedules_share_the_bytes_of_a_transaction(make: Make) -> None:
    """A backlog of large messages must not fill the memory of the client."""
    body = bytes(1_000)
    shard = stored(make(), *(request(o, body, topic="orders", every="1s", id=f"i{o}") for o in range(3)))
    overlay = IndexOverlay(shard.index, BASE_MS)
    due = Due(*shard.index.scan_due(nominal_ms(9), 10), now_ms=nominal_ms(9), surplus_bytes_max=4_500)
    sent = Counter(fate.offset for fate in shard._builder.build(overlay, due, 0.0).fates)
    assert sum(sent.values()) == 3 + 4, "one of each schedule, and as many more as fit"


def test_an_entry_that_was_chosen_earlier_by_other_rules_still_leaves(make: Make) -> None:
    shard = stored(make(), calendar(0, window="500ms"))
    overlay = IndexOverlay(shard.index)
    key = overlay.find(0)
    assert key is not None
    old = overlay.entry(key)
    overlay.move(key, 0, old, msgspec.structs.replace(old, due=FIRST_MS))
    overlay.write()
    assert old.due > FIRST_MS
    assert shard.commit(FIRST_MS + 1).fates == [occurred(0, 1)]


def test_a_window_draws_for_each_occurrence(make: Make) -> None:
    shard = stored(make(), calendar(0, window="500ms"))
    chosen = [drawn_ms(n, 500) for n in range(1, 9)]
    assert len({at - nominal_ms(n) for n, at in enumerate(chosen, 1)}) > 6
    for number, at_ms in enumerate(chosen, 1):
        assert state(shard)[0][1:3] == (at_ms, Next(number, nominal_ms(number)))
        assert shard.commit(at_ms).fates == []
        assert shard.commit(at_ms + 1).fates == [occurred(0, number)]


# ---- fates of others -------------------------------------------------------------------------------------------------


def test_an_occurrence_is_late_from_its_drawn_time_and_a_missed_one_from_its_nominal_time(make: Make) -> None:
    shard = stored(make(), calendar(0, window="500ms"))
    drawn = shard.entries()[0][0]
    assert FIRST_MS < drawn <= FIRST_MS + 500
    assert shard.commit(nominal_ms(3) + 501).dues_ms == [drawn, nominal_ms(2), nominal_ms(3)]


def test_the_same_fates_twice_leave_the_same_state(make: Make) -> None:
    shard = stored(make(), calendar(0))
    fates: list[Fate] = [PlainFate(0, FIRST_MS, STORED), *(occurred(0, n) for n in range(1, 5))]
    shard.recover(*fates)
    once = shard.families()
    shard.recover(*fates)
    assert shard.families() == once
    shard.recover(occurred(0, 2))
    assert state(shard) == {0: (Kind.DELIVER, nominal_ms(5), Next(5, nominal_ms(5)), True)}


def test_a_mark_keeps_the_largest_number(make: Make) -> None:
    shard = make()
    shard.recover(
        PlainFate(0, FIRST_MS, STORED), occurred(0, 1), Skipped(0, FIRST_MS, SKIPPED, 2, 6, "missed", nominal_ms(7))
    )
    shard.recover(occurred(0, 1))
    shard.feed(calendar(0))
    assert state(shard) == {0: (Kind.DELIVER, nominal_ms(7), Next(7, nominal_ms(7)), True)}


def test_a_published_time_is_final(make: Make) -> None:
    """Another owner, with other time zone rules, has published times that this owner would not compute."""
    other_ms = FIRST_MS + 137
    for is_ahead in (False, True):
        shard = make()
        if not is_ahead:
            shard.feed(calendar(0))
        shard.recover(PlainFate(0, other_ms, STORED))
        if is_ahead:
            shard.feed(calendar(0))
        assert state(shard) == {0: (Kind.DELIVER, other_ms, Next(1, other_ms), True)}
        assert shard.commit(other_ms).fates == []
        assert shard.commit(other_ms + 1).fates == [Occurred(0, other_ms, OCCURRED, 1, other_ms, nominal_ms(2))]
        shard.recover(Occurred(0, other_ms, OCCURRED, 2, nominal_ms(2), nominal_ms(3) + 11))
        assert state(shard)[0][2] == Next(3, nominal_ms(3) + 11)


def test_a_rebuild_from_store_continues_at_the_same_number(make: Make) -> None:
    shard, rebuilt = stored(make(), calendar(0, window="400ms")), make(begins=False)
    for number in (1, 2, 3):
        shard.commit(nominal_ms(number) + 401)
    rebuilt.rebuild(shard, low=1)
    assert rebuilt.entries() == shard.entries()
    assert rebuilt.index.timer_log.id_key(b"c") == shard.index.timer_log.id_key(b"c")
    rebuilt.recover(occurred(0, 2), occurred(0, 3))
    assert rebuilt.entries() == shard.entries()


def test_an_occurrence_that_was_committed_and_not_written_is_not_repeated(make: Make) -> None:
    shard = stored(make(), calendar(0))
    fates = shard.commit(FIRST_MS + 1, locally=False).fates
    assert state(shard)[0][2] == Next(1, FIRST_MS)
    shard.recover(*fates)
    assert shard.commit(FIRST_MS + 1).fates == []


# ---- controls --------------------------------------------------------------------------------------------------------


def test_a_cancel_ends_a_schedule(make: Make) -> None:
    shard = stored(make(), calendar(0))
    shard.commit(FIRST_MS + 1)
    shard.feed(request(1, action="cancel", id="c"))
    assert shard.commit(nominal_ms(9)).fates == [PlainFate(0, FIRST_MS, CANCELLED), PlainFate(1, 0, APPLIED)]
    assert (shard.entries(), shard.kept()) == ({}, set())


def test_an_occurrence_of_another_owner_does_not_disturb_one_that_a_control_ends(make: Make) -> None:
    """This owner has read the cancel. The other owner had delivered an occurrence before it read the cancel."""
    shard = stored(make(), calendar(0))
    shard.feed(request(1, action="cancel", id="c"))
    shard.recover(occurred(0, 1))
    assert shard.commit(nominal_ms(9)).fates == [PlainFate(0, FIRST_MS, CANCELLED), PlainFate(1, 0, APPLIED)]
    assert (shard.entries(), shard.kept()) == ({}, set())


@pytest.mark.parametrize("by", ["schedule", "message"])
def test_a_request_with_the_same_id_replaces_a_schedule(make: Make, by: str) -> None:
    shard = stored(make(), calendar(0))
    shard.feed(calendar(1) if by == "schedule" else request(1, topic="orders", id="c", at=FIRST_MS))
    fates = shard.commit().fates
    assert fates[0] == SurvivorFate(0, FIRST_MS, REPLACED, 1)
    assert shard.entries().keys() == {1}
    assert shard.index.timer_log.id_key(b"c") == entry_key(FIRST_MS, 1)


def test_a_schedule_is_not_rescheduled(make: Make) -> None:
    shard = stored(make(), calendar(0))
    before = state(shard)
    shard.feed(request(1, action="reschedule", id="c", delay="1s"))
    batch = shard.commit()
    assert batch.fates == [PlainFate(1, 0, DEAD)]
    (dead_letter,) = [message for message in batch.messages if message[1] == OWN.dead_letters]
    assert dict(dead_letter[5])["postdate-dead-reason"] == b"bad-action"
    assert state(shard) == before


def test_without_a_store_a_schedule_is_refused(make: Make) -> None:
    shard = make()
    ingest(shard.index, Intake(shard.rules, 0, store_after_ms=0), [calendar(0)], BASE_MS)
    batch = shard.commit()
    assert batch.fates == [PlainFate(0, 0, DEAD)]
    (dead_letter,) = [message for message in batch.messages if message[1] == OWN.dead_letters]
    assert dict(dead_letter[5])["postdate-dead-reason"] == b"bad-schedule"
    assert b"store_after_ms" in (dict(dead_letter[5])["postdate-dead-detail"] or b"")


def test_an_occurrence_that_its_target_refuses_is_a_dead_letter_and_the_schedule_goes_on(make: Make) -> None:
    shard = stored(make(), calendar(0, partition=17))
    batch = shard.commit(FIRST_MS + 1)
    assert batch.fates == [Skipped(0, FIRST_MS, SKIPPED, 1, 1, "dead", nominal_ms(2))]
    (dead_letter,) = [message for message in batch.messages if message[1] == OWN.dead_letters]
    names = [name for name, _ in dead_letter[5]]
    assert names[:4] == ["trace", "postdate-topic", "postdate-partition", "postdate-at"]
    assert dict(dead_letter[5])["postdate-at"] == b"%d" % FIRST_MS
    assert dict(dead_letter[5])["postdate-dead-reason"] == b"bad-partition"
    assert state(shard)[0][2] == Next(2, nominal_ms(2))


@pytest.mark.parametrize("room", [0, -1])
def test_an_occurrence_that_is_too_large_for_its_target_is_a_dead_letter(make: Make, room: int) -> None:
    """The size check includes the occurrence number, with the digits of the largest number in the transaction."""
    shard = stored(make(), calendar(0))
    shard.recover(occurred(0, 999))
    entry = shard.entries()[0][1]
    origin = b"requests/0/" + b"9" * 19
    headers = occurrence_headers(entry.headers, origin, b"c", 1_000, (nominal_ms(1_000), nominal_ms(1_001)))
    size_bytes = record_size_bytes(entry.key, entry.value, headers)
    shard.targets["orders"] = Target("orders", partitions=3, size_bytes_max=size_bytes + room)
    batch = shard.commit(nominal_ms(1_000) + 1)
    assert batch.dead == (["too-large"] if room < 0 else [])


def test_a_skipped_occurrence_is_no_dead_letter_of_its_target(make: Make) -> None:
    shard = stored(make(), calendar(0, partition=17, missed="last"), calendar(1, partition=17, missed="none", id="d"))
    batch = shard.commit(nominal_ms(3) + 1)
    assert batch.fates[0] == Skipped(0, FIRST_MS, SKIPPED, 1, 2, "missed", nominal_ms(3))
    assert batch.fates[1] == Skipped(1, FIRST_MS, SKIPPED, 1, 1, "dead", nominal_ms(2))
    assert len(batch.dead) == 1
    assert Skipped(0, FIRST_MS, SKIPPED, 3, 3, "dead", nominal_ms(4)) in shard.commit(nominal_ms(3) + 1).fates


def test_an_occurrence_in_the_log_moves_a_parked_schedule_back(make: Make) -> None:
    shard = stored(make(), calendar(0))
    shard.park(0)
    shard.recover(occurred(0, 1))
    assert state(shard) == {0: (Kind.DELIVER, nominal_ms(2), Next(2, nominal_ms(2)), True)}
    assert IndexOverlay(shard.index).find(0) == entry_key(nominal_ms(2), 0)


@pytest.mark.parametrize(
    "end", [{}, {"count": 2}, {"end": f"{nominal_ms(2)}"}, {"cron": "* * * * * *", "zone": "Asia/Tokyo"}]
)
def test_a_schedule_without_policies_is_decided_as_one_with_them(
    make: Make, monkeypatch: pytest.MonkeyPatch, end: dict[str, str]
) -> None:
    shard = stored(make(), request(0, topic="orders", id="c", **({"every": "1s"} if "cron" not in end else {}), **end))
    entry, origin = shard.entries()[0][1], b"requests/0/0"
    assert schedule_of(entry.stripped).delivers_all
    times = [(now, until) for now in range(FIRST_MS, FIRST_MS + 3_000, 250) for until in (now, FIRST_MS)]
    short = [decide_due(entry, 0, origin, now_ms, until_ms, 5) for now_ms, until_ms in times]
    monkeypatch.setattr(Schedule, "delivers_all", False)
    assert [decide_due(entry, 0, origin, now_ms, until_ms, 5) for now_ms, until_ms in times] == short
    assert {len(each.fates) for each in short} == ({1, 2} if {"count", "end"} & set(end) else {1, 2, 3})


# ---- the record ------------------------------------------------------------------------------------------------------


def test_only_a_record_with_a_fate_of_a_schedule_has_version_3() -> None:
    common = {"seq": 1, "takeover": 1, "instance": "i", "group": "g", "at": 1, "next_request": 2, "low_water": 0}
    plain = DispatchRecord(**common, fates=[PlainFate(0, 5, STORED)])  # type: ignore[arg-type]
    recurs = DispatchRecord(**common, fates=[Occurred(0, 5, OCCURRED, 1, 5, 0), Completed(0, 5, COMPLETED)])  # type: ignore[arg-type]
    skips = DispatchRecord(**common, fates=[Skipped(0, 5, SKIPPED, 1, 9, "gap", 7)])  # type: ignore[arg-type]
    assert [each.v for each in (plain, recurs, skips)] == [1, 3, 3]
    assert encode_record(recurs).endswith(b'"fates":[[0,5,"occurred",1,5,0],[0,5,"completed"]]}')
    assert [decode_record(encode_record(each)) for each in (plain, recurs, skips)] == [plain, recurs, skips]
    with pytest.raises(FormatError, match="content of version 3"):
        decode_record(encode_record(recurs).replace(b'{"v":3', b'{"v":2'))


def test_an_owner_record_names_its_time_zones() -> None:
    common = {"seq": 1, "takeover": 1, "instance": "i", "group": "g", "at": 1, "next_request": 2, "low_water": 0}
    owner = DispatchRecord(**common, kind="owner", tz="2026f")  # type: ignore[arg-type]
    assert (owner.v, decode_record(encode_record(owner)).tz) == (1, "2026f")


def test_published_times_ascend(make: Make) -> None:
    shard = stored(make(), request(0, topic="orders", id="c", cron="*/7 * * * * *", zone="Europe/Berlin", count=50))
    nominals_ms: list[int] = []
    while fates := shard.commit(BASE_MS + 10 * 60_000).fates:
        nominals_ms += [fate.nominal_ms for fate in fates if isinstance(fate, Occurred)]
    assert len(nominals_ms) == 50
    assert all(0 < later - earlier <= 7_000 for earlier, later in pairwise(nominals_ms))
