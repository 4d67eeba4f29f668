"""Goal: a stored entry ends once and at its time, after any control, with fates of any owner, and from STORE alone.

Method: each test plays one trace over a real timer index and the STORE that its transactions leave
(`support.shards.long_delays`). The traces are those on which `docs/protocol.md`, "Long delays", relies: without one of
its rules, the trace of that rule fails.
"""

from __future__ import annotations

import msgspec
import pytest

from postdate.kafka.interface import Partition, Record
from postdate.sidecar.config.settings import RequestTopicConfig
from postdate.sidecar.context.shard_context import LongDelays
from postdate.sidecar.dispatch.due.sweep import Sweep
from postdate.sidecar.errors import Halted, HaltReason
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.ingest.ingest import Intake, ingest
from postdate.sidecar.ingest.limits import ENDING_SIZE_BYTES_MAX
from postdate.sidecar.takeover.store_reading import apply_stored
from postdate.wheel import limits
from postdate.wheel.entry import Entry, Kind
from postdate.wire.delivered import record_size_bytes
from postdate.wire.dispatch_log import (
    APPLIED,
    CANCELLED,
    DEAD,
    DELIVERED,
    MOVED,
    REPLACED,
    STORED,
    Moved,
    PlainFate,
    SurvivorFate,
)
from postdate.wire.requests.rules import RequestRules
from support.shards.long_delays import (
    BASE_MS,
    FAR_MS,
    FARTHER_MS,
    OWN,
    SOON_MS,
    STORE_AFTER_MS,
    LongDelayShard,
    Make,
    request,
    schedule,
    timed,
    verdicts,
)

CANCEL, MOVE = {"action": "cancel", "id": "a"}, {"action": "reschedule", "id": "a"}


def unmoved(shard: LongDelayShard) -> dict[int, tuple[int, Entry]]:
    """Returns the entries of a shard without the controls that moved them. STORE does not keep these controls, since
    the log has each one that still matters."""
    return {o: (due_ms, msgspec.structs.replace(entry, moved_by=-1)) for o, (due_ms, entry) in shard.entries().items()}


def test_a_long_delay_is_stored_once_and_no_longer_holds_the_low_water_mark(make: Make) -> None:
    shard = make()
    shard.feed(schedule(0, FAR_MS), schedule(1, BASE_MS + STORE_AFTER_MS))
    assert shard.held() == {0: (Kind.STORE, 0, False), 1: (Kind.DELIVER, BASE_MS + STORE_AFTER_MS, False)}
    assert shard.index.timer_log.low_water() == 0
    batch = shard.commit()
    assert batch.fates == [PlainFate(0, FAR_MS, STORED)]
    assert shard.held()[0] == (Kind.DELIVER, FAR_MS, True)
    assert shard.index.timer_log.unstored_from(0) == 0, "a range counts from the lowest offset ever put into it"
    shard.commit(BASE_MS + STORE_AFTER_MS + 1)
    assert shard.index.timer_log.low_water() == shard.index.checkpoint.next_request == 2
    assert shard.commit(FAR_MS).fates == []
    assert shard.commit(FAR_MS + 1).fates == [PlainFate(0, FAR_MS, DELIVERED)]
    assert shard.kept() == set()
    assert shard.held() == {}


def test_a_message_that_is_due_when_it_is_stored_leaves_before_later_ones_of_its_target(make: Make) -> None:
    shard = make()
    shard.feed(schedule(0, FAR_MS), schedule(1, FAR_MS - 1), timed(schedule(2, FAR_MS + 1), FAR_MS))
    batch = shard.commit(FAR_MS + 2)
    assert batch.fates == [PlainFate(0, FAR_MS, STORED), PlainFate(1, FAR_MS - 1, STORED)]
    assert batch.stayed == 1, "the shard must go on at once"
    assert [fate.offset for fate in shard.commit(FAR_MS + 2).fates] == [1, 0, 2]


def test_messages_that_are_stored_late_one_after_another_hold_up_no_earlier_one(make: Make) -> None:
    """Each transaction stores one more message."""
    shard = make()
    shard.feed(*(schedule(offset, FAR_MS, id=f"{offset}") for offset in range(9)), schedule(9, SOON_MS - 1))
    shard.commit(BASE_MS)
    delivered = []
    for number in range(9):
        at_ms = SOON_MS + 20 * number
        shard.feed(timed(request(10 + number, action="reschedule", id=f"{number}", delay="0s"), at_ms))
        fates = shard.commit(at_ms + 1).fates
        delivered.append([fate.offset for fate in fates if fate.name == DELIVERED])
    assert delivered == [[9], [0], [1], [2], [3], [4], [5], [6], [7]]


def test_a_message_that_is_stored_before_it_is_due_holds_up_no_other(make: Make) -> None:
    shard = make()
    shard.feed(schedule(0, FARTHER_MS), timed(schedule(1, FAR_MS - 1), FAR_MS - 2))
    assert shard.commit(FAR_MS).fates == [PlainFate(0, FARTHER_MS, STORED), PlainFate(1, FAR_MS - 1, DELIVERED)]


def test_a_rebuilt_entry_is_the_entry(make: Make) -> None:
    shard, rebuilt = make(), make(begins=False)
    null = msgspec.structs.replace(schedule(3, FAR_MS), value=None, key=None)
    own = Record(4, BASE_MS, True, b"key", b"", [("postdate-key", b""), *(schedule(4, FAR_MS).headers or [])])
    twice = Record(5, BASE_MS, True, None, b"v", [("t", b"1"), *(own.headers or []), ("t", None), ("t", b"")])
    shard.feed(schedule(0, FAR_MS, id="a", grace="5s", partition=2), request(1, **MOVE, at=FARTHER_MS, grace="7s"))
    shard.feed(schedule(2, FAR_MS), null, own, twice)
    shard.commit()
    rebuilt.rebuild(shard, low=6)
    assert rebuilt.entries() == unmoved(shard)
    assert rebuilt.index.timer_log.id_key(b"a") == shard.index.timer_log.id_key(b"a")
    assert rebuilt.index.timer_log.low_water() == 6
    assert rebuilt.entries()[0][1].grace_ms == 7_000
    assert rebuilt.entries()[3][1].value is None


def test_a_cancel_of_a_stored_entry_leaves_a_tombstone_in_its_transaction(make: Make) -> None:
    shard = make(mode="all")
    shard.feed(schedule(0, FAR_MS, id="a"))
    assert verdicts(shard.commit()) == [("accepted", 0)]
    assert shard.kept() == {0}
    shard.feed(request(1, **CANCEL))
    batch = shard.commit()
    assert batch.fates == [PlainFate(0, FAR_MS, CANCELLED), PlainFate(1, 0, APPLIED)]
    assert verdicts(batch) == [("cancelled", 0), ("cancelled", 1)]
    assert shard.kept() == set()
    assert shard.held() == {}


def test_a_cancel_by_origin_finds_a_stored_entry_without_its_first_due_time(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FIRSTS_TRIM_OFFSETS", 1)
    shard = make(mode="control")
    shard.feed(schedule(0, FAR_MS))
    shard.commit()
    shard.feed(*(request(offset, action="cancel", id="nobody") for offset in range(1, 10)))
    shard.commit()
    shard.feed(request(10, action="cancel", origin="requests/0/0"))
    assert shard.index.timer_log.first_due(0) is None, "the test proves nothing: the first due time is still known"
    assert verdicts(shard.commit()) == [("cancelled", 10)]
    assert shard.families()["ended"] == []


def test_a_control_acts_on_an_entry_that_is_to_be_stored(make: Make) -> None:
    shard = make(mode="control")
    shard.feed(
        schedule(0, FAR_MS, id="a"), request(1, **CANCEL), schedule(2, FAR_MS, id="b"), schedule(3, SOON_MS, id="b")
    )
    shard.feed(schedule(4, FAR_MS, id="c"), request(5, action="reschedule", id="c", at=SOON_MS))
    batch = shard.commit()
    assert batch.fates[:4] == [
        PlainFate(0, FAR_MS, CANCELLED),
        PlainFate(1, 0, APPLIED),
        SurvivorFate(2, FAR_MS, REPLACED, 3),
        Moved(4, FAR_MS, MOVED, SOON_MS, 5),
    ]
    assert verdicts(batch) == [("cancelled", 1), ("replaced", 3), ("rescheduled", 5)]
    assert shard.store == {}
    assert [(fate.offset, fate.name) for fate in shard.commit(SOON_MS + 1).fates] == [(3, DELIVERED), (4, DELIVERED)]


def test_a_stored_entry_replaced_by_a_stored_one_hands_over_in_one_transaction(make: Make) -> None:
    shard, rebuilt = make(), make(begins=False)
    shard.feed(schedule(0, FAR_MS, id="a"))
    shard.commit()
    shard.feed(schedule(1, FARTHER_MS, id="a"))
    assert shard.commit().fates == [SurvivorFate(0, FAR_MS, REPLACED, 1), PlainFate(1, FARTHER_MS, STORED)]
    assert shard.kept() == {1}
    rebuilt.rebuild(shard, low=2)
    rebuilt.feed(request(2, **CANCEL))
    assert rebuilt.commit().fates == [PlainFate(1, FARTHER_MS, CANCELLED), PlainFate(2, 0, APPLIED)]


@pytest.mark.parametrize("due_ms", [BASE_MS + 100, BASE_MS + 30_000, FARTHER_MS])
def test_a_rescheduled_stored_entry_is_stored_again_with_its_control(make: Make, due_ms: int) -> None:
    shard, rebuilt = make(mode="all"), make(begins=False)
    shard.feed(schedule(0, FAR_MS, id="a"))
    assert verdicts(shard.commit()) == [("accepted", 0)]
    shard.feed(request(1, **MOVE, at=FAR_MS + 1), request(2, **MOVE, at=due_ms))
    batch = shard.commit(BASE_MS)
    assert batch.fates == [
        PlainFate(0, FAR_MS, STORED),
        Moved(0, FAR_MS, MOVED, FAR_MS + 1, 1),
        PlainFate(1, 0, APPLIED),
        Moved(0, FAR_MS, MOVED, due_ms, 2),
        PlainFate(2, 0, APPLIED),
    ]
    assert verdicts(batch) == [("rescheduled", 1), ("rescheduled", 2)]
    assert shard.held() == {0: (Kind.DELIVER, due_ms, True)}
    rebuilt.rebuild(shard, low=3)
    assert rebuilt.entries() == unmoved(shard)
    assert shard.commit(due_ms + 1).fates == [PlainFate(0, FAR_MS, DELIVERED)]
    assert shard.kept() == set()


def test_a_short_delay_that_moves_far_is_stored(make: Make) -> None:
    shard = make(mode="all")
    shard.feed(schedule(0, SOON_MS, id="a"), request(1, **MOVE, at=FAR_MS))
    batch = shard.commit()
    assert batch.fates == [PlainFate(0, SOON_MS, STORED), Moved(0, SOON_MS, MOVED, FAR_MS, 1), PlainFate(1, 0, APPLIED)]
    assert verdicts(batch) == [("accepted", 0), ("rescheduled", 1)]
    assert shard.kept() == {0}
    assert shard.held() == {0: (Kind.DELIVER, FAR_MS, True)}


def test_a_stored_entry_that_cannot_be_delivered_leaves_a_tombstone_too(make: Make) -> None:
    shard = make()
    shard.feed(schedule(0, FAR_MS, partition=7))
    shard.commit()
    assert shard.commit(FAR_MS + 1).fates == [PlainFate(0, FAR_MS, DEAD)]
    assert shard.kept() == set()


def test_a_request_that_the_store_refuses_is_a_dead_letter(make: Make) -> None:
    shard = make()
    shard.targets[OWN.store].size_bytes_max = 800
    shard.feed(schedule(0, FAR_MS), request(1, b"v" * 800, topic="orders", at=FAR_MS))
    assert shard.commit().fates == [PlainFate(0, FAR_MS, STORED), PlainFate(1, FAR_MS, DEAD)]
    assert shard.kept() == {0}
    assert list(shard.held()) == [0]


def test_a_request_that_just_fits_the_store_is_stored(make: Make) -> None:
    shard = make()
    shard.feed(schedule(0, FAR_MS))
    shard.commit()
    (record,) = shard.store.values()
    size_bytes = record_size_bytes(record.key, record.value, record.headers or [])
    for offset, spare_bytes, fate in ((1, 0, STORED), (2, -1, DEAD)):
        shard.targets[OWN.store].size_bytes_max = size_bytes + spare_bytes
        shard.feed(schedule(offset, FAR_MS))
        assert [(ended.offset, ended.name) for ended in shard.commit().fates] == [(offset, fate)]


def test_a_message_that_a_bulk_control_moves_and_the_store_refuses_is_a_dead_letter(make: Make) -> None:
    shard = make()
    shard.feed(schedule(0, FAR_MS))
    shard.commit()
    shard.targets[OWN.store].size_bytes_max = 100
    shard.feed(request(1, action="reschedule", by="1m", **{"select-topic": "orders"}))
    fates = shard.commit(FAR_MS + 1).fates
    assert [fate.name for fate in fates if fate.offset == 0] == [MOVED, DEAD]
    assert shard.held() == {}


def test_a_control_comes_too_late_for_a_request_that_the_store_refuses(make: Make) -> None:
    shard = make(mode="control")
    shard.targets[OWN.store].size_bytes_max = 800
    shard.feed(request(0, b"v" * 800, topic="orders", id="a", at=FAR_MS), request(1, **MOVE, at=FARTHER_MS))
    batch = shard.commit()
    assert batch.fates == [PlainFate(0, FAR_MS, DEAD), PlainFate(1, 0, APPLIED)]
    assert verdicts(batch) == [("too-late", 1)]
    shard.feed(request(2, **MOVE, at=FARTHER_MS), request(3, **CANCEL))
    assert verdicts(shard.commit()) == [("too-late", 2), ("too-late", 3)]


_TRACES: dict[str, tuple[list[list[Record]], int]] = {
    "stored": ([[schedule(0, FAR_MS, id="a"), schedule(1, SOON_MS), schedule(2, FAR_MS)]], SOON_MS),
    "stored beside what ends": ([[schedule(0, FAR_MS), request(1, **CANCEL), schedule(2, FAR_MS, id="a")]], FAR_MS),
    "delivered": ([[schedule(0, FAR_MS, id="a"), schedule(1, FAR_MS)], []], FAR_MS + 1),
    "cancelled": ([[schedule(0, FAR_MS, id="a")], [request(1, **CANCEL)]], SOON_MS),
    "replaced": ([[schedule(0, FAR_MS, id="a")], [schedule(1, FAR_MS, id="a")]], SOON_MS),
    "moved sooner": ([[schedule(0, FAR_MS, id="a")], [request(1, **MOVE, at=SOON_MS)]], BASE_MS),
    "moved later": ([[schedule(0, FAR_MS, id="a")], [request(1, **MOVE, at=FARTHER_MS)]], SOON_MS),
    "moved far": ([[schedule(0, SOON_MS, id="a"), request(1, **MOVE, at=FAR_MS)]], SOON_MS),
    "moved, then cancelled": (
        [[schedule(0, FAR_MS, id="a")], [request(1, **MOVE, at=SOON_MS), request(2, **CANCEL)]],
        SOON_MS,
    ),
}


@pytest.mark.parametrize("name", _TRACES)
def test_a_commit_and_a_replay_of_its_fates_leave_the_same_state(make: Make, name: str) -> None:
    """After a crash between commit and local write, the dispatch log changes the index as `finish` would have done."""
    batches, now_ms = _TRACES[name]
    lived, crashed = make(), make()
    for records in batches[:-1]:
        for shard in (lived, crashed):
            shard.feed(*records)
            shard.commit(BASE_MS)
    for shard in (lived, crashed):
        shard.feed(*batches[-1])
    fates = lived.commit(now_ms).fates
    assert crashed.commit(now_ms, locally=False).fates == fates
    crashed.recover(*fates)
    assert crashed.families() == lived.families()
    assert crashed.index.timer_log.low_water() == lived.index.timer_log.low_water()
    assert (crashed.index.ending_count, crashed.index.count) == (lived.index.ending_count, lived.index.count)


@pytest.mark.parametrize("name", _TRACES)
def test_an_old_disk_reaches_the_same_state_by_marks(make: Make, name: str) -> None:
    """All fates are read before any request: rule 5. The comparison omits ended requests that both have forgotten."""
    batches, now_ms = _TRACES[name]
    lived, old = make(), make()
    for number, records in enumerate(batches):
        lived.feed(*records)
        old.recover(*lived.commit(BASE_MS if number < len(batches) - 1 else now_ms).fates)
    old.feed(*(record for records in batches for record in records))
    assert old.held() == lived.held()
    assert {offset: entry.due for offset, (_, entry) in old.entries().items()} == {
        offset: entry.due for offset, (_, entry) in lived.entries().items()
    }
    for family in ("ids", "ahead"):
        assert old.families()[family] == lived.families()[family]
    old.store = dict(lived.store)
    old.commit(FARTHER_MS + 1)
    assert old.kept() == set(), "an entry ended without its tombstone"


def test_a_stored_request_that_is_refused_when_read_again_still_leaves_a_tombstone(make: Make) -> None:
    """Otherwise a rebuild finds the request in STORE and delivers it, although it has ended as a dead letter."""
    shard, other = make(), make()
    shard.feed(schedule(0, FAR_MS))
    fates = shard.commit().fates
    other.rules = RequestRules(topic="requests", horizon_ms=86_400_000, allow=("nothing",))
    other.store = dict(shard.store)
    other.recover(*fates)
    other.feed(schedule(0, FAR_MS))
    assert [(fate.offset, fate.name) for fate in other.commit().fates] == [(0, DEAD)]
    assert other.kept() == set()


def test_a_move_that_was_committed_is_not_stored_again(make: Make) -> None:
    """The owner that committed the move has written the STORE record in the same transaction."""
    shard = make()
    shard.feed(schedule(0, FAR_MS, id="a"))
    shard.recover(PlainFate(0, FAR_MS, STORED), Moved(0, FAR_MS, MOVED, FARTHER_MS, 1), PlainFate(1, 0, APPLIED))
    assert shard.held() == {0: (Kind.DELIVER, FARTHER_MS, True)}
    shard.feed(request(1, **MOVE, at=FARTHER_MS))
    assert shard.commit().fates == []


def test_a_control_rewrites_an_entry_that_a_successor_stored_without_it(make: Make) -> None:
    """A paused owner has read the control; its successor has stored the entry under its first due time, and died."""
    woken, successor, rebuilt = make(), make(), make(begins=False)
    woken.feed(schedule(0, FAR_MS, id="a"), request(1, **MOVE, at=FARTHER_MS), request(2, **MOVE, at=FARTHER_MS + 1))
    successor.feed(schedule(0, FAR_MS, id="a"))
    woken.recover(*successor.commit().fates)
    woken.store = dict(successor.store)
    assert woken.held()[0] == (Kind.DELIVER, FARTHER_MS + 1, True)
    assert [message[1] for message in woken.commit().messages] == [OWN.store], "once for both controls"
    rebuilt.rebuild(woken, low=3)
    assert rebuilt.held() == {0: (Kind.DELIVER, FARTHER_MS + 1, True)}


def test_an_empty_start_takes_only_entries_below_the_low_water_mark(make: Make) -> None:
    """All other entries come from the request topic with their marks. If they also came from STORE, they would exist
    twice."""
    shard, rebuilt = make(), make(begins=False)
    shard.feed(schedule(0, FAR_MS, id="a"), schedule(1, FAR_MS, id="b"), schedule(2, FAR_MS, id="c"))
    fates = shard.commit().fates
    rebuilt.rebuild(shard, low=1)
    assert rebuilt.held() == {0: (Kind.DELIVER, FAR_MS, True)}
    rebuilt.recover(*fates)
    rebuilt.feed(schedule(1, FAR_MS, id="b"), schedule(2, FAR_MS, id="c"))
    assert rebuilt.held() == shard.held()
    assert rebuilt.index.count == 3


def test_the_last_record_of_a_key_counts_however_the_records_are_cut(make: Make) -> None:
    """Compaction may not have run: the topic has every record ever written, and they are read in pieces of any size."""
    shard = make()
    written: list[Record] = []
    steps = [[schedule(0, FAR_MS, id="a"), schedule(1, FAR_MS, id="b")], [request(2, **MOVE, at=FARTHER_MS)]]
    steps += [[schedule(3, FARTHER_MS, id="b")], [request(4, **CANCEL)], [schedule(5, FARTHER_MS, id="a")]]
    for records in steps:
        shard.feed(*records)
        before = dict(shard.store)
        shard.commit()
        written += [record for key, record in shard.store.items() if before.get(key) is not record]
    assert len(written) == 7
    for size in (1, 2, 3, 7):
        rebuilt = make(begins=False)
        for first in range(0, len(written), size):
            apply_stored(rebuilt.index, Partition(OWN.store, 0), written[first : first + size], 6, -1)
        rebuilt.begin(6)
        assert rebuilt.entries() == unmoved(shard)
        assert rebuilt.families()["ids"] == shard.families()["ids"]
        assert rebuilt.index.count == 2


def test_a_foreign_record_in_the_store_halts(make: Make) -> None:
    shard = make(begins=False)
    for key, value in ((b"x", b""), (b"0", b"{}")):
        with pytest.raises(Halted) as halted:
            apply_stored(shard.index, Partition(OWN.store, 0), [Record(0, 0, False, key, value, [])], 1, -1)
        assert halted.value.reason == HaltReason.FOREIGN_RECORD


def test_ingest_stops_while_entries_to_store_fill_a_transaction(make: Make) -> None:
    """Rule 1: all entries under key 0 must fit one transaction, and entries to be stored are as large as messages."""
    shard = make()
    value = bytes(1024 * 1024)
    records = [request(offset, value, topic="orders", at=FAR_MS) for offset in range(40)]
    used = ingest(shard.index, Intake(shard.rules, 0, store_after_ms=STORE_AFTER_MS), records, BASE_MS)
    assert used == 16
    assert ENDING_SIZE_BYTES_MAX <= shard.index.checkpoint.totals.ending_bytes < ENDING_SIZE_BYTES_MAX + len(value)
    shard.commit()
    moves = [request(40 + n, action="reschedule", origin=f"requests/0/{n % 16}", at=FARTHER_MS) for n in range(64)]
    used = ingest(shard.index, Intake(shard.rules, 0, store_after_ms=STORE_AFTER_MS), moves, BASE_MS)
    assert used == 16, "what moves is written again, so it counts again"


def test_the_sweep_stores_what_is_still_pending_at_half_of_the_retention(make: Make) -> None:
    shard = make()
    late = msgspec.structs.replace(schedule(3, SOON_MS), timestamp_ms=BASE_MS + 60)
    shard.feed(schedule(0, SOON_MS, id="a"), schedule(1, FAR_MS), request(2, **CANCEL), late)
    shard.commit(BASE_MS)
    sweep = Sweep(LongDelays.of(RequestTopicConfig(), 2_000).sweep_age_ms)
    assert sweep.step(shard.index, BASE_MS + 999) == 0
    assert sweep.step(shard.index, BASE_MS + 1_059) == 0
    shard.park(3)
    assert sweep.step(shard.index, BASE_MS + 1_059) == 0
    assert sweep.step(shard.index, BASE_MS + 1_060) == 1
    assert sweep.step(shard.index, BASE_MS + 1_060) == 0
    assert shard.index.parked_count == 0
    assert shard.commit(BASE_MS).fates == [PlainFate(3, SOON_MS, STORED)]
    assert shard.index.timer_log.low_water() == 4


def test_a_sweep_rests_at_a_young_request_that_is_about_to_be_stored(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, while requests with long delays arrive, each sweep looks up all requests that wait for their STORE
    record."""
    shard = make()
    shard.feed(schedule(0, FAR_MS), schedule(1, FAR_MS))
    find, looked = IndexOverlay.find, list[int]()

    def noted(overlay: IndexOverlay, offset: int) -> bytes | None:
        looked.append(offset)
        return find(overlay, offset)

    monkeypatch.setattr(IndexOverlay, "find", noted)
    sweep = Sweep(1_000)
    assert sweep.step(shard.index, BASE_MS) == 0
    assert sweep.step(shard.index, BASE_MS + 100) == 0
    assert looked == [0]
    assert [fate.name for fate in shard.commit().fates] == [STORED, STORED]


@pytest.mark.parametrize(
    ("configured_ms", "retention_ms", "expected"),
    [
        (3_600_000, 604_800_000, (3_600_000, 302_400_000)),
        (3_600_000, 1_000_000, (250_000, 500_000)),
        (3_600_000, -1, (3_600_000, 0)),
        (0, 604_800_000, (0, 0)),
        (2_000, 604_800_000, (2_000, 302_400_000)),
    ],
)
def test_when_an_entry_is_stored(configured_ms: int, retention_ms: int, expected: tuple[int, int]) -> None:
    rule = LongDelays.of(RequestTopicConfig(store_after_ms=configured_ms), retention_ms)
    assert (rule.store_after_ms, rule.sweep_age_ms) == expected
