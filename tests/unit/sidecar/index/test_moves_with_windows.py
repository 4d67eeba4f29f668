"""Goal: a message with a window leaves once, at its chosen time, even if it is moved or stored, or its index is
rebuilt. Its due time stays the requested one.

Method: traces on a real timer index and the STORE that its transactions write (`support.shards.long_delays`). The tests
compute the expected draw from the formula of docs/protocol.md.
"""

from __future__ import annotations

from collections import Counter
from zlib import crc32

import pytest

from postdate.sidecar.index import moves
from postdate.sidecar.index.moves import choose_deferred
from postdate.wheel.entry import Kind, Spread, Window
from postdate.wheel.keys import entry_key
from postdate.wire.dispatch_log import (
    APPLIED,
    CANCELLED,
    DEAD,
    DELIVERED,
    MOVED,
    STORED,
    SWEPT,
    BulkCancelled,
    BulkProgress,
    ChosenFate,
    DispatchRecord,
    Fate,
    Moved,
    PlainFate,
    decode_record,
    encode_record,
)
from support.shards.long_delays import (
    BASE_MS,
    FAR_MS,
    OWN,
    SOON_MS,
    STORE_AFTER_MS,
    LongDelayShard,
    Make,
    request,
    schedule,
)

WINDOW_MS = 4_000
LATER_MS = BASE_MS + 3_000


def drawn_ms(offset: int, window_ms: int = WINDOW_MS) -> int:
    """Returns the draw of request `offset` of partition 0 of `requests`."""
    return ((window_ms + 1) * (crc32(b"requests/0/%d" % offset) >> 8)) >> 24


def dues(shard: LongDelayShard) -> dict[int, tuple[int, int, Window | None]]:
    """Returns for each request: (due time of its key, due time of the entry, window)."""
    return {offset: (due_ms, entry.due, entry.window) for offset, (due_ms, entry) in shard.entries().items()}


def test_the_key_is_the_chosen_time_and_the_due_time_stays(make: Make) -> None:
    shard = make()
    shard.feed(*(schedule(offset, SOON_MS, window=f"{WINDOW_MS}ms") for offset in range(50)))
    chosen = {offset: SOON_MS + drawn_ms(offset) for offset in range(50)}
    assert len(set(chosen.values())) > 45
    assert dues(shard) == {offset: (at, at, Window(SOON_MS, WINDOW_MS, at)) for offset, at in chosen.items()}
    assert shard.families()["places"] == []
    assert [shard.index.timer_log.find(offset) for offset in range(50)] == [entry_key(chosen[o], o) for o in range(50)]
    assert shard.commit(min(chosen.values())).fates == []
    batch = shard.commit(SOON_MS + WINDOW_MS + 1)
    order = sorted(chosen, key=lambda offset: (chosen[offset], offset))
    assert batch.fates == [ChosenFate(offset, SOON_MS, DELIVERED, chosen[offset]) for offset in order]
    assert batch.due_max_ms == max(chosen.values())
    assert {dict(message[5])["postdate-due"] for message in batch.messages} == {b"%d" % SOON_MS}
    names = {name for message in batch.messages for name, _ in message[5]}
    assert names == {"trace", "postdate-origin", "postdate-due"}
    assert shard.entries() == {}
    assert shard.families()["places"] == []


def test_a_request_without_a_window_has_the_entry_and_the_fate_of_version_1(make: Make) -> None:
    shard = make()
    shard.feed(schedule(0, SOON_MS))
    (fate,) = shard.commit(SOON_MS + 1).fates
    assert fate == PlainFate(0, SOON_MS, DELIVERED)


@pytest.mark.parametrize(("grace_ms", "late_ms", "name"), [(100, 100, DELIVERED), (100, 101, DEAD)])
def test_grace_counts_from_the_chosen_time(make: Make, grace_ms: int, late_ms: int, name: str) -> None:
    shard = make()
    shard.feed(schedule(7, SOON_MS, window=WINDOW_MS, grace=grace_ms))
    chosen_ms = SOON_MS + drawn_ms(7)
    assert drawn_ms(7) > grace_ms, "the test proves nothing: the draw lies within the grace"
    batch = shard.commit(chosen_ms + late_ms)
    assert batch.fates == [ChosenFate(7, SOON_MS, name, chosen_ms)]  # type: ignore[arg-type]  # of two names
    assert batch.due_max_ms == chosen_ms + (grace_ms + 1 if name == DEAD else 0)


@pytest.mark.parametrize("by_log", [False, True])
def test_a_reschedule_draws_again_from_its_own_origin(make: Make, by_log: bool) -> None:
    """The owner may ingest the control, or read its fate before or after the request."""
    shard = make()
    chosen_ms = LATER_MS + drawn_ms(1)
    assert drawn_ms(1) != drawn_ms(0)
    shard.feed(schedule(0, SOON_MS, window=WINDOW_MS))
    if by_log:
        shard.recover(Moved(0, SOON_MS, MOVED, LATER_MS, 1), PlainFate(1, 0, APPLIED))
        assert dues(shard)[0] == (chosen_ms, chosen_ms, Window(LATER_MS, WINDOW_MS, SOON_MS + drawn_ms(0)))
    shard.feed(request(1, action="reschedule", origin="requests/0/0", at=LATER_MS))
    assert dues(shard)[0] == (chosen_ms, chosen_ms, Window(LATER_MS, WINDOW_MS, SOON_MS + drawn_ms(0)))
    if not by_log:
        assert shard.commit().fates == [Moved(0, SOON_MS, MOVED, LATER_MS, 1), PlainFate(1, 0, APPLIED)]
    batch = shard.commit(chosen_ms + 1)
    assert batch.fates == [ChosenFate(0, SOON_MS, DELIVERED, chosen_ms)]
    assert dict(batch.messages[0][5])["postdate-due"] == b"%d" % LATER_MS


def test_a_mark_keeps_the_control_that_moved_its_request(make: Make) -> None:
    """Recovery reads a `moved`, and then a `stored`, before the request itself."""
    shard = make()
    shard.recover(Moved(0, SOON_MS, MOVED, LATER_MS, 1), PlainFate(1, 0, APPLIED), PlainFate(0, SOON_MS, STORED))
    shard.feed(schedule(0, SOON_MS, window=WINDOW_MS))
    chosen_ms = LATER_MS + drawn_ms(1)
    assert dues(shard) == {0: (chosen_ms, chosen_ms, Window(LATER_MS, WINDOW_MS, SOON_MS + drawn_ms(0)))}


@pytest.mark.parametrize("is_read_first", [False, True])
def test_messages_that_a_bulk_control_has_moved_stay_spread_for_an_owner_that_has_not_read_it(
    make: Make, is_read_first: bool
) -> None:
    """Each message keeps its distance from the due time. A draw from the origin of the control would be the same for
    all messages."""
    shard, requests = make(), [schedule(offset, SOON_MS, window=WINDOW_MS) for offset in range(20)]
    log: list[Fate] = [
        BulkProgress(60, 0, SWEPT, 0),
        *(Moved(offset, SOON_MS, MOVED, LATER_MS, 60) for offset in range(20)),
    ]
    if is_read_first:
        shard.feed(*requests)
    shard.recover(*log, BulkProgress(60, 0, SWEPT, 20))
    if not is_read_first:
        shard.feed(*requests)
    assert {offset: at for offset, (at, _, _) in dues(shard).items()} == {
        offset: LATER_MS + drawn_ms(offset) for offset in range(20)
    }
    assert {window for _, _, window in dues(shard).values()} == {
        Window(LATER_MS, WINDOW_MS, SOON_MS + drawn_ms(offset)) for offset in range(20)
    }
    assert {entry.moved_by for _, entry in shard.entries().values()} == {60}


@pytest.mark.parametrize("is_read_first", [False, True])
def test_a_bulk_control_keeps_the_draw_of_a_reschedule_for_an_owner_that_has_not_read_it(
    make: Make, is_read_first: bool
) -> None:
    """If owners computed different times, a message could leave after a later message of its key."""
    shard, scheduled = make(), schedule(0, SOON_MS, window=WINDOW_MS)
    if is_read_first:
        shard.feed(scheduled)
    shard.recover(Moved(0, SOON_MS, MOVED, SOON_MS + 500, 1), PlainFate(1, 0, APPLIED))
    for due_ms, control in ((SOON_MS + 900, 60), (LATER_MS, 61)):
        shard.recover(BulkProgress(control, 0, SWEPT, 0), Moved(0, SOON_MS, MOVED, due_ms, control))
    if not is_read_first:
        shard.feed(scheduled)
    chosen_ms = LATER_MS + drawn_ms(1)
    assert dues(shard) == {0: (chosen_ms, chosen_ms, Window(LATER_MS, WINDOW_MS, SOON_MS + drawn_ms(0)))}
    assert shard.entries()[0][1].moved_by == 61


def test_a_later_reschedule_outlasts_the_replay_of_a_bulk_reschedule(make: Make) -> None:
    """This owner has read both controls. Another owner moved the message in bulk before it read the reschedule."""
    shard = make()
    shard.feed(schedule(0, SOON_MS, window=WINDOW_MS, id="a"))
    shard.feed(request(60, action="reschedule", by="1h", **{"select-topic": "orders"}))
    shard.feed(request(61, action="reschedule", at=str(LATER_MS), id="a"))
    at_ms = dues(shard)[0]
    shard.recover(BulkProgress(60, 0, SWEPT, 0))
    shard.recover(Moved(0, SOON_MS, MOVED, SOON_MS + 3_600_000, 60), BulkProgress(60, 0, SWEPT, 1))
    assert dues(shard)[0] == at_ms
    shard.recover(Moved(0, SOON_MS, MOVED, LATER_MS, 61), PlainFate(61, 0, APPLIED))
    assert dues(shard)[0] == at_ms
    assert at_ms[2] == Window(LATER_MS, WINDOW_MS, SOON_MS + drawn_ms(0))


def test_a_stored_entry_keeps_due_time_window_and_chosen_time(make: Make) -> None:
    shard, rebuilt = make(), make(begins=False)
    shard.feed(schedule(0, FAR_MS, window=WINDOW_MS, id="a"), schedule(2, FAR_MS, window=WINDOW_MS))
    assert {fate.name for fate in shard.commit().fates} == {STORED}
    shard.feed(request(3, action="reschedule", id="a", at=FAR_MS + 1))
    shard.commit()
    chosen_ms = FAR_MS + 1 + drawn_ms(3)
    assert dues(shard)[0] == (chosen_ms, chosen_ms, Window(FAR_MS + 1, WINDOW_MS, FAR_MS + drawn_ms(0)))
    rebuilt.rebuild(shard, low=4)
    assert dues(rebuilt).keys() == dues(shard).keys()
    assert {o: (at, e.window and (e.window.due, e.window.length_ms)) for o, (at, e) in rebuilt.entries().items()} == {
        o: (at, e.window and (e.window.due, e.window.length_ms)) for o, (at, e) in shard.entries().items()
    }
    assert rebuilt.index.timer_log.id_key(b"a") == entry_key(chosen_ms, 0)
    assert rebuilt.commit(FAR_MS + 2 * WINDOW_MS).fates == shard.commit(FAR_MS + 2 * WINDOW_MS).fates


def test_the_chosen_time_decides_whether_an_entry_is_stored(make: Make) -> None:
    shard = make()
    due_ms = BASE_MS + STORE_AFTER_MS - WINDOW_MS // 2
    shard.feed(*(schedule(offset, due_ms, window=WINDOW_MS) for offset in range(20)))
    kinds = {offset: entry.kind for offset, (_, entry) in shard.entries().items()}
    assert kinds == {o: Kind.STORE if due_ms + drawn_ms(o) > BASE_MS + STORE_AFTER_MS else Kind.DELIVER for o in kinds}
    assert len(set(kinds.values())) == 2


def test_an_accepted_request_has_the_same_entry_from_every_owner(make: Make) -> None:
    """The final fate of another owner finds the entry, even if that owner has chosen another time."""
    shard = make()
    shard.feed(schedule(0, SOON_MS, window=WINDOW_MS))
    shard.recover(ChosenFate(0, SOON_MS, DELIVERED, SOON_MS + drawn_ms(0) // 2))
    assert shard.entries() == {}
    assert shard.families()["places"] == []


def test_only_a_record_with_a_chosen_time_has_version_2() -> None:
    common = {"seq": 1, "takeover": 1, "instance": "i", "group": "g", "at": 1, "next_request": 2, "low_water": 0}
    plain = DispatchRecord(**common, fates=[PlainFate(0, 5, DELIVERED)])  # type: ignore[arg-type]
    chosen = DispatchRecord(**common, fates=[ChosenFate(0, 5, DELIVERED, 9), PlainFate(1, 5, DEAD)])  # type: ignore[arg-type]
    assert (plain.v, chosen.v) == (1, 2)
    assert encode_record(chosen).endswith(b'"fates":[[0,5,"delivered",9],[1,5,"dead"]]}')
    assert [decode_record(encode_record(record)) for record in (plain, chosen)] == [plain, chosen]


def test_dead_letters_keep_the_headers_of_the_window(make: Make) -> None:
    shard = make()
    shard.feed(schedule(0, SOON_MS, window=WINDOW_MS, grace=0))
    batch = shard.commit(SOON_MS + 2 * WINDOW_MS)
    (dead_letter,) = [message for message in batch.messages if message[1] == OWN.dead_letters]
    assert ("postdate-window", b"%d" % WINDOW_MS) in dead_letter[5]


EVEN = "even"
HOUR_MS = 3_600_000
LATE_MS = BASE_MS + 5 * HOUR_MS
KNOWN_MS = LATE_MS - HOUR_MS // 2  # from then on, the fine ring covers the ticks from LATE_MS on


def ticks(shard: LongDelayShard) -> Counter[int]:
    """Returns the number of entries in each tick of 100 ms, without those under key 0."""
    return Counter(due_ms // 100 for due_ms, _ in shard.entries().values() if due_ms)


def test_an_even_spread_fills_the_gaps_that_other_messages_leave(make: Make) -> None:
    shard = make()
    shard.feed(*(schedule(offset, SOON_MS + offset % 20 * 100) for offset in range(100)))
    shard.feed(*(schedule(offset, SOON_MS, window=f"{WINDOW_MS}ms", spread=EVEN) for offset in range(100, 300)))
    first = SOON_MS // 100
    counts = ticks(shard)
    assert counts.total() == 300
    assert {counts[tick] for tick in range(first, first + WINDOW_MS // 100)} <= {7, 8}
    windows = [entry.window for offset, (_, entry) in shard.entries().items() if offset >= 100]
    assert {window and window.spread for window in windows} == {Spread.CHOSEN}
    assert shard.families()["places"] == []
    batch = shard.commit(SOON_MS + WINDOW_MS + 1)
    fates = [fate for fate in batch.fates if isinstance(fate, ChosenFate)]
    assert len(fates) == 200
    assert all(SOON_MS <= fate.chosen_ms <= SOON_MS + WINDOW_MS for fate in fates)
    assert {dict(message[5])["postdate-due"] for message in batch.messages if message[0] >= 100} == {b"%d" % SOON_MS}
    assert shard.entries() == {}


def test_a_late_window_is_drawn_and_chosen_when_the_fine_ring_knows_it(make: Make) -> None:
    shard = make()
    shard.feed(*(schedule(offset, LATE_MS + 50) for offset in range(300)))  # all in the first tick
    shard.feed(
        *(
            schedule(offset, LATE_MS, window="1s", spread=EVEN, **({"id": f"id-{offset}"} if offset % 2 else {}))
            for offset in range(300, 600)
        )
    )
    while shard.commit().fates:
        pass
    assert {entry.stored for _, entry in shard.entries().values()} == {True}
    drawn = dues(shard)
    assert all(due_ms == LATE_MS + drawn_ms(offset, 1_000) for offset, (due_ms, _, _) in drawn.items() if offset >= 300)
    assert not choose_deferred(shard.index, BASE_MS)
    assert dues(shard) == drawn
    now_ms = KNOWN_MS
    while shard.index.load_step(now_ms):
        pass
    assert not choose_deferred(shard.index, now_ms)
    counts = ticks(shard)
    assert counts[LATE_MS // 100] == 300
    assert {counts[LATE_MS // 100 + tick] for tick in range(1, 10)} == {33, 34}
    for offset, (due_ms, entry) in shard.entries().items():
        assert shard.index.timer_log.find(offset) == entry_key(due_ms, offset)
        assert not entry.id or shard.index.timer_log.id_key(entry.id) == entry_key(due_ms, offset)
    chosen = dues(shard)
    assert not choose_deferred(shard.index, now_ms)
    assert dues(shard) == chosen
    assert len(shard.commit(LATE_MS + 2_000).fates) == 600
    assert shard.families()["places"] == shard.families()["ids"] == []


def test_a_time_is_chosen_once_the_time_of_the_broker_is_known(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "DEFERRED_ENTRIES_MAX", 60)
    shard = make()
    shard.feed(*(schedule(offset, SOON_MS + 50) for offset in range(100)))  # all in the first tick
    shard.feed(schedule(100, SOON_MS, window="1s"))
    assert shard.index.deferred(10) == [], "a time that is not spread evenly is final"
    shard.feed(*(schedule(offset, SOON_MS, window="1s", spread=EVEN) for offset in range(101, 201)), now_ms=-1)
    for offset, (due_ms, _, window) in dues(shard).items():
        assert window is None or due_ms == SOON_MS + drawn_ms(offset, 1_000)
    assert choose_deferred(shard.index, BASE_MS), "there are more"
    assert not choose_deferred(shard.index, BASE_MS)
    assert shard.index.deferred(1_000) == []
    counts = ticks(shard)
    assert counts[SOON_MS // 100] == 100
    assert {counts[SOON_MS // 100 + tick] for tick in range(1, 10)} <= {11, 12}


def test_a_time_moved_by_another_owner_is_drawn_again_and_chosen_later(make: Make) -> None:
    """The broker's time is unknown in a recovery."""
    shard = make()
    shard.feed(schedule(0, SOON_MS, window="1s", spread=EVEN))
    shard.recover(Moved(0, SOON_MS, MOVED, LATER_MS, 3))
    due_ms, _, window = dues(shard)[0]
    assert due_ms == LATER_MS + drawn_ms(3, 1_000)
    assert window is not None
    assert (window.due, window.spread) == (LATER_MS, Spread.DEFERRED)


def test_a_move_that_ingest_has_carried_out_is_not_drawn_again(make: Make) -> None:
    shard = make()
    shard.feed(schedule(0, SOON_MS, window="1s", spread=EVEN))
    shard.feed(request(1, action="reschedule", origin="requests/0/0", at=LATER_MS))
    at = dues(shard)[0]
    assert at[2] is not None
    assert at[2].spread == Spread.CHOSEN
    moved = Moved(0, SOON_MS, MOVED, LATER_MS, 1)
    shard.recover(moved, PlainFate(1, 0, APPLIED))
    assert dues(shard) == {0: at}
    shard.recover(moved)
    assert dues(shard) == {0: at}


def test_a_move_in_bulk_that_is_read_again_later_moves_nothing(make: Make) -> None:
    """The time of an even spread depends on the time up to which messages may have left."""
    shard, moved = make(), Moved(0, SOON_MS, MOVED, LATER_MS, 60)
    shard.feed(schedule(0, SOON_MS, window="1s", spread=EVEN))
    shard.recover(BulkProgress(60, 0, SWEPT, 0), moved)
    at = dues(shard)
    shard.recover(moved, logged_ms=LATER_MS + 990)
    assert dues(shard) == at


def test_a_deferred_choice_moves_nothing_that_may_leave_now(make: Make) -> None:
    shard = make()
    shard.feed(*(schedule(offset, LATE_MS + 50) for offset in range(100)))
    shard.feed(*(schedule(offset, LATE_MS, window="1s", spread=EVEN) for offset in range(100, 200)))
    while shard.commit().fates:
        pass
    drawn, now_ms = dues(shard), LATE_MS + 420
    while shard.index.load_step(now_ms):
        pass
    choose_deferred(shard.index, now_ms)
    moved = {offset for offset, at in dues(shard).items() if at != drawn[offset]}
    assert moved
    for offset in moved:
        assert drawn[offset][0] > now_ms
        assert dues(shard)[offset][0] > now_ms


def test_a_control_and_a_replacement_end_a_deferred_choice(make: Make) -> None:
    shard = make()
    shard.feed(*(schedule(offset, LATE_MS, window="1s", spread=EVEN, id=f"{offset}") for offset in range(3)))
    shard.commit()
    shard.feed(request(3, action="cancel", id="0"), request(4, action="reschedule", id="1", at=SOON_MS))
    shard.feed(schedule(5, SOON_MS, id="2"))
    shard.commit()
    assert dues(shard)[1] == (SOON_MS + drawn_ms(4, 1_000), SOON_MS + drawn_ms(4, 1_000), dues(shard)[1][2])
    while shard.index.load_step(KNOWN_MS):
        pass
    assert shard.index.deferred(10) in ([], [entry_key(SOON_MS + drawn_ms(4, 1_000), 1)])
    assert sorted(fate.offset for fate in shard.commit(LATE_MS).fates) == [1, 5]


@pytest.mark.parametrize(("now_ms", "chosen_ms"), [(SOON_MS + 900, SOON_MS + 901), (SOON_MS + 5_000, SOON_MS + 1_000)])
def test_an_even_spread_chooses_no_time_in_the_past(make: Make, now_ms: int, chosen_ms: int) -> None:
    shard = make()
    records = [schedule(offset, SOON_MS, window="1s", spread=EVEN) for offset in range(50)]
    shard.feed(*records, schedule(50, SOON_MS, window="1s"), now_ms=now_ms)
    behind = {offset: drawn_ms(offset, 1_000) for offset in range(50) if SOON_MS + drawn_ms(offset, 1_000) > chosen_ms}
    assert len(behind) < 10, "the test proves nothing"
    for offset, (due_ms, _, _) in dues(shard).items():
        assert due_ms >= chosen_ms if offset < 50 else due_ms == SOON_MS + drawn_ms(50, 1_000)
    assert [due_ms for due_ms, _, _ in dues(shard).values()].count(chosen_ms) >= 40


def test_a_rebuild_from_the_store_takes_no_time_before_the_last_record_of_the_log(make: Make) -> None:
    shard, rebuilt = make(), make(begins=False)
    shard.feed(*(schedule(offset, LATE_MS, window="1s", spread=EVEN) for offset in range(50)))
    shard.commit()
    logged_ms = LATE_MS + 600
    rebuilt.rebuild(shard, 50, logged_ms)
    assert {offset: due_ms for offset, (due_ms, _, _) in dues(rebuilt).items()} == {
        offset: max(LATE_MS + drawn_ms(offset, 1_000), logged_ms + 1) for offset in range(50)
    }
    rebuilt.recover(*shard.commit(LATE_MS + 2_000).fates)
    assert rebuilt.entries() == {}
    assert rebuilt.families()["places"] == []


def test_a_rebuild_from_the_store_chooses_again(make: Make) -> None:
    shard, rebuilt = make(), make(begins=False)
    shard.feed(*(schedule(offset, LATE_MS, window="1s", spread=EVEN) for offset in range(50)))
    shard.commit()
    while shard.index.load_step(KNOWN_MS):
        pass
    choose_deferred(shard.index, KNOWN_MS)
    rebuilt.rebuild(shard, low=50)
    assert all(at == LATE_MS + drawn_ms(offset, 1_000) for offset, (at, _, _) in dues(rebuilt).items())
    while rebuilt.index.load_step(KNOWN_MS):
        pass
    choose_deferred(rebuilt.index, KNOWN_MS)
    assert set(ticks(rebuilt).values()) == {5}
    # The end by the first owner finds the entry of the second owner, whatever place each has chosen.
    rebuilt.recover(*shard.commit(LATE_MS + 2_000).fates)
    assert rebuilt.entries() == {}
    assert rebuilt.families()["places"] == []


def test_deferred_choices_rest_while_a_bulk_control_runs(make: Make) -> None:
    """The sweep of the control visits each entry once. An entry that moved behind the sweep would be delivered."""
    shard = make()
    shard.feed(*(schedule(offset, LATE_MS + 50) for offset in range(100)))
    shard.feed(*(schedule(offset, LATE_MS, window="1s", spread=EVEN) for offset in range(100, 200)))
    while shard.commit().fates:
        pass
    while shard.index.load_step(KNOWN_MS):
        pass
    drawn = dues(shard)
    shard.feed(request(200, action="cancel", **{"select-topic": "orders"}))
    assert shard.index.timer_log.bulks
    assert not choose_deferred(shard.index, KNOWN_MS)
    assert dues(shard) == drawn


@pytest.mark.parametrize("by_log", [False, True])
def test_a_bulk_cancel_leaves_no_row_of_a_deferred_choice(make: Make, by_log: bool) -> None:
    """The times of deferred choices may be years ahead."""
    shard = make()
    shard.feed(*(schedule(offset, LATE_MS, window="1s", spread=EVEN) for offset in range(100, 110)))
    shard.commit()
    rows, behind = shard.index._log.deferred, entry_key(LATE_MS + 1_001, 0)
    assert len(rows(behind, 100)) == 10
    if by_log:
        shard.recover(BulkProgress(200, 0, SWEPT, 0))
        shard.recover(*(BulkCancelled(offset, LATE_MS, CANCELLED, 200) for offset in range(100, 110)))
    else:
        shard.feed(request(200, action="cancel", **{"select-topic": "orders"}))
        assert len(shard.commit(LATE_MS + 1_001).fates) == 11
    assert shard.entries() == {}
    assert rows(behind, 100) == []
