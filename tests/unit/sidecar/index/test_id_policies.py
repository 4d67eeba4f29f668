"""Goal: by its id policy, a request keeps or replaces the message that is pending according to the dispatch log, and a
series of debounced requests has one start. Both hold for every owner, with any disk.

Method: traces on a real timer index and the STORE that its transactions write (`support.shards.long_delays`). The test
applies fates of other owners to play their decisions.
"""

from __future__ import annotations

import pytest

from postdate.kafka.interface import Record
from postdate.sidecar.errors import Contradicted
from postdate.sidecar.index.contradictions import check_causes
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.wheel.entry import Kind
from postdate.wheel.keys import split_key
from postdate.wire.dispatch_log import (
    APPLIED,
    CANCELLED,
    DEAD,
    DELIVERED,
    KEPT,
    REPLACED,
    STORED,
    Fate,
    PlainFate,
    SeriesFate,
    SurvivorFate,
)
from support.shards.long_delays import (
    BASE_MS,
    FAR_MS,
    FARTHER_MS,
    OWN,
    SOON_MS,
    LongDelayShard,
    Make,
    request,
    schedule,
    timed,
    verdict_texts,
    verdicts,
)

LATEST_MS = 1_000
#: Due times within the limit of a series that begins at BASE_MS, and after it.
WITHIN_MS, BEHIND_MS = BASE_MS + 900, BASE_MS + 1_500
LIMIT_MS = BASE_MS + LATEST_MS


def debounced(offset: int, due_ms: int, at_ms: int = BASE_MS) -> Record:
    """Returns a request of a series, written at `at_ms`."""
    return timed(schedule(offset, due_ms, id="a", latest=LATEST_MS), at_ms)


def check(shard: LongDelayShard) -> None:
    """Runs the last step of a recovery."""
    check_causes(IndexOverlay(shard.index))


def pending(shard: LongDelayShard) -> int | None:
    """Returns the request to which the id refers."""
    key = shard.index.timer_log.id_key(b"a")
    return None if key is None else split_key(key)[1]


def test_a_request_that_keeps_ends_while_its_id_is_pending(make: Make) -> None:
    shard = make(mode="control")
    shard.feed(schedule(0, SOON_MS, id="a"), schedule(1, SOON_MS, id="a", **{"if-pending": "keep"}))
    assert pending(shard) == 0
    batch = shard.commit(BASE_MS)
    assert batch.fates == [SurvivorFate(1, SOON_MS, KEPT, 0)]
    assert verdict_texts(batch) == [("kept", "requests/0/1", None, "requests/0/0")]
    assert [fate.name for fate in shard.commit(SOON_MS + 1).fates] == [DELIVERED]
    shard.feed(schedule(2, SOON_MS, id="a", **{"if-pending": "keep"}))
    assert shard.commit(SOON_MS + 1).fates == [PlainFate(2, SOON_MS, DELIVERED)]
    assert shard.entries() == {}
    assert shard.families()["places"] == []


def test_replace_is_the_default_and_names_its_survivor(make: Make) -> None:
    shard = make(mode="all")
    shard.feed(schedule(0, SOON_MS, id="a"), schedule(1, SOON_MS, id="a", **{"if-pending": "replace"}))
    batch = shard.commit(BASE_MS)
    assert batch.fates == [SurvivorFate(0, SOON_MS, REPLACED, 1)]
    assert verdict_texts(batch) == [
        ("replaced", "requests/0/0", None, "requests/0/1"),
        ("replaced", "requests/0/1", "requests/0/0", None),
    ]


def test_a_member_of_version_1_names_no_survivor(make: Make) -> None:
    shard = make(format_version=1)
    shard.feed(schedule(0, SOON_MS, id="a"), schedule(1, SOON_MS, id="a"))
    assert shard.commit(BASE_MS).fates == [PlainFate(0, SOON_MS, REPLACED)]
    shard.feed(schedule(2, SOON_MS, id="a", **{"if-pending": "keep"}), schedule(3, SOON_MS, id="a", latest=LATEST_MS))
    assert [entry.reason for _, entry in shard.entries().values() if entry.kind == Kind.DEAD] == ["unknown-header"] * 2


def test_a_kept_request_waits_for_no_message_and_leaves_before_its_survivor(make: Make) -> None:
    """A kept request lies under key 0 and acts on its survivor. A transaction without key 0 leaves the survivor out."""
    shard = make()
    shard.feed(schedule(0, SOON_MS, id="a"), schedule(1, SOON_MS, id="a", **{"if-pending": "keep"}))
    entry = shard.entries()[1][1]
    assert (entry.kind, entry.acts_on, entry.value, entry.headers) == (Kind.KEPT, 0, None, [])
    assert [fate.offset for fate in shard.commit(SOON_MS + 1).fates] == [1, 0]


def test_a_keep_decided_against_an_entry_that_another_owner_delivered_contradicts_the_log(make: Make) -> None:
    shard = make()
    shard.feed(schedule(0, SOON_MS, id="a"), schedule(1, SOON_MS, id="a", **{"if-pending": "keep"}))
    shard.recover(PlainFate(0, SOON_MS, DELIVERED))
    with pytest.raises(Contradicted):
        check(shard)


def test_a_keep_that_the_log_has_committed_before_the_delivery_is_no_contradiction(make: Make) -> None:
    shard = make()
    shard.feed(schedule(0, SOON_MS, id="a"), schedule(1, SOON_MS, id="a", **{"if-pending": "keep"}))
    shard.recover(SurvivorFate(1, SOON_MS, KEPT, 0), PlainFate(0, SOON_MS, DELIVERED))
    check(shard)
    assert shard.entries() == {}


def test_a_rebuild_accepts_a_request_that_the_log_has_not_kept(make: Make) -> None:
    shard = make()
    shard.recover(PlainFate(0, SOON_MS, DELIVERED))
    shard.feed(schedule(0, SOON_MS, id="a"), schedule(1, SOON_MS, id="a", **{"if-pending": "keep"}))
    assert shard.commit(SOON_MS + 1).fates == [PlainFate(1, SOON_MS, DELIVERED)]


def test_a_rebuild_keeps_in_favour_of_a_stored_message(make: Make) -> None:
    shard, rebuilt = make(), make(begins=False)
    shard.feed(schedule(0, FAR_MS, id="a"))
    shard.commit(BASE_MS)
    rebuilt.rebuild(shard, low=1)
    rebuilt.feed(schedule(1, SOON_MS, id="a", **{"if-pending": "keep"}))
    assert rebuilt.commit(BASE_MS).fates == [SurvivorFate(1, SOON_MS, KEPT, 0)]
    assert rebuilt.kept() == set()
    assert pending(rebuilt) == 0


def test_a_request_that_an_earlier_owner_has_stored_keeps_no_message(make: Make) -> None:
    """Rule 5: its mark is not final, so it was accepted, regardless of pending entries here."""
    shard = make()
    shard.feed(schedule(0, SOON_MS, id="a"))
    shard.recover(PlainFate(1, FAR_MS, STORED))
    shard.feed(schedule(1, FAR_MS, id="a", **{"if-pending": "keep"}))
    assert pending(shard) == 1
    assert shard.held()[1] == (Kind.DELIVER, FAR_MS, True)


@pytest.mark.parametrize("by_log", [False, True])
def test_a_kept_request_hides_no_end_of_its_id(make: Make, by_log: bool) -> None:
    """A later cancel is too late, since the survivor was delivered. The test plays both orders of recovery."""
    shard = make(mode="control")
    shard.feed(schedule(0, SOON_MS, id="a"))
    keep = schedule(1, SOON_MS, id="a", **{"if-pending": "keep"})
    if by_log:
        shard.recover(SurvivorFate(1, SOON_MS, KEPT, 0), PlainFate(0, SOON_MS, DELIVERED))
        shard.feed(keep)
    else:
        shard.feed(keep)
        shard.commit(SOON_MS + 1)
    shard.feed(request(2, action="cancel", id="a"))
    assert verdicts(shard.commit(SOON_MS + 1)) == [("too-late", 2)]


def test_a_cancel_by_origin_finds_no_kept_request(make: Make) -> None:
    shard = make(mode="control")
    shard.feed(schedule(0, SOON_MS, id="a"), schedule(1, SOON_MS, id="a", **{"if-pending": "keep"}))
    shard.feed(request(2, action="cancel", origin="requests/0/1"))
    assert verdicts(shard.commit(BASE_MS)) == [("kept", 1), ("not-found", 2)]
    shard.feed(request(3, action="cancel", origin="requests/0/1"))
    assert verdicts(shard.commit(BASE_MS)) == [("not-found", 3)]


def test_a_series_is_due_at_the_latest_after_its_first_request(make: Make) -> None:
    shard = make()
    shard.feed(debounced(0, WITHIN_MS), debounced(1, BEHIND_MS, BASE_MS + 300), debounced(2, WITHIN_MS, BASE_MS + 600))
    assert shard.commit(BASE_MS).fates == [
        SeriesFate(0, WITHIN_MS, REPLACED, 1, BASE_MS),
        SeriesFate(1, LIMIT_MS, REPLACED, 2, BASE_MS),
    ]
    shard.feed(debounced(3, BEHIND_MS, BASE_MS + 700))
    shard.commit(BASE_MS)
    batch = shard.commit(LIMIT_MS + 1)
    assert batch.fates == [PlainFate(3, LIMIT_MS, DELIVERED)]
    assert dict(batch.messages[0][5])["postdate-due"] == b"%d" % LIMIT_MS
    shard.feed(debounced(4, BEHIND_MS, LIMIT_MS + 100))
    assert shard.commit(BEHIND_MS + 1).fates == [PlainFate(4, BEHIND_MS, DELIVERED)]


def test_the_first_request_of_a_series_is_limited_too(make: Make) -> None:
    shard = make()
    shard.feed(debounced(0, BEHIND_MS))
    assert shard.commit(LIMIT_MS + 1).fates == [PlainFate(0, LIMIT_MS, DELIVERED)]


def test_a_request_without_a_limit_ends_the_series(make: Make) -> None:
    shard = make()
    shard.feed(debounced(0, WITHIN_MS), timed(schedule(1, BEHIND_MS, id="a"), BASE_MS + 300))
    shard.feed(debounced(2, BASE_MS + 5_000, BASE_MS + 600))
    assert shard.commit(BASE_MS).fates == [
        SurvivorFate(0, WITHIN_MS, REPLACED, 1),
        SurvivorFate(1, BEHIND_MS, REPLACED, 2),
    ]
    assert shard.held()[2][1] == BASE_MS + 600 + LATEST_MS


def test_an_empty_disk_learns_the_start_from_the_fate_of_the_replaced_request(make: Make) -> None:
    """The first requests of the series have expired, or lie below the offset at which the empty start begins to
    read."""
    shard = make(begins=False)
    shard.begin(next_request=2)
    shard.recover(SeriesFate(0, WITHIN_MS, REPLACED, 1, BASE_MS), SeriesFate(1, LIMIT_MS, REPLACED, 2, BASE_MS))
    shard.feed(debounced(2, BEHIND_MS, BASE_MS + 600))
    assert shard.held()[2][1] == LIMIT_MS


@pytest.mark.parametrize(
    "between", [PlainFate(1, LIMIT_MS, STORED), PlainFate(5, 0, APPLIED)], ids=["stored", "nothing of it"]
)
def test_a_mark_keeps_the_start_beside_other_fates(make: Make, between: Fate) -> None:
    shard = make()
    shard.recover(SeriesFate(0, WITHIN_MS, REPLACED, 1, BASE_MS), between)
    shard.feed(timed(schedule(0, WITHIN_MS, id="a", latest=LATEST_MS), BASE_MS), debounced(1, BEHIND_MS, BASE_MS + 600))
    assert shard.held()[1][1] == LIMIT_MS


def test_a_stored_message_keeps_the_start_of_its_series(make: Make) -> None:
    shard, rebuilt = make(), make(begins=False)
    long_ms = FAR_MS - BASE_MS
    for offset in (0, 1):
        shard.feed(timed(schedule(offset, FARTHER_MS, id="a", latest=long_ms), BASE_MS + offset * 100))
        shard.commit(BASE_MS)
    assert shard.kept() == {1}
    assert shard.held()[1] == (Kind.DELIVER, FAR_MS, True)
    rebuilt.rebuild(shard, low=2)
    assert rebuilt.held() == shard.held()
    for each in (shard, rebuilt):
        each.feed(timed(schedule(2, FARTHER_MS, id="a", latest=long_ms), BASE_MS + 500))
        assert each.commit(BASE_MS).fates[0] == SeriesFate(1, FAR_MS, REPLACED, 2, BASE_MS)


def test_a_reschedule_sets_exactly_its_time_and_the_series_continues(make: Make) -> None:
    shard = make()
    shard.feed(debounced(0, WITHIN_MS), request(1, action="reschedule", id="a", at=BASE_MS + 4_000))
    shard.commit(BASE_MS)
    assert shard.held()[0][1] == BASE_MS + 4_000
    shard.feed(debounced(2, BEHIND_MS, BASE_MS + 600))
    assert shard.held()[2][1] == LIMIT_MS


@pytest.mark.parametrize(
    "fates",
    [
        (PlainFate(0, WITHIN_MS, DELIVERED),),
        (PlainFate(0, WITHIN_MS, CANCELLED), PlainFate(9, 0, APPLIED)),
        (PlainFate(0, 0, DEAD),),
        (SeriesFate(0, WITHIN_MS, REPLACED, 1, BASE_MS - 1),),
        (SurvivorFate(0, WITHIN_MS, REPLACED, 1),),
    ],
    ids=["delivered", "cancelled", "refused", "another start", "no series"],
)
def test_a_series_that_the_log_has_ended_contradicts_it(make: Make, fates: tuple[Fate, ...]) -> None:
    shard = make()
    shard.feed(debounced(0, WITHIN_MS), debounced(1, BEHIND_MS, BASE_MS + 300))
    with pytest.raises(Contradicted):
        shard.recover(*fates)


def test_a_series_that_the_log_confirms_is_no_contradiction(make: Make) -> None:
    shard = make()
    shard.feed(debounced(0, WITHIN_MS), debounced(1, BEHIND_MS, BASE_MS + 300), debounced(2, BEHIND_MS, BASE_MS + 400))
    shard.recover(SeriesFate(0, WITHIN_MS, REPLACED, 1, BASE_MS))
    check(shard)
    shard.recover(SeriesFate(1, LIMIT_MS, REPLACED, 2, BASE_MS), PlainFate(2, LIMIT_MS, DELIVERED))
    check(shard)
    assert shard.entries() == {}


def test_a_survivor_that_has_another_start_here_contradicts_the_log(make: Make) -> None:
    """Here request 0 was delivered first; for another owner it was replaced."""
    shard = make()
    shard.feed(debounced(0, WITHIN_MS))
    shard.commit(LIMIT_MS + 1, locally=True)
    shard.feed(debounced(1, BEHIND_MS, BASE_MS + 300))
    with pytest.raises(Contradicted):
        shard.recover(SeriesFate(0, WITHIN_MS, REPLACED, 1, BASE_MS))


def test_a_series_may_begin_at_time_0(make: Make) -> None:
    """The timestamp 0 is a valid time."""
    shard = make()
    shard.feed(debounced(0, 900, at_ms=0), debounced(1, 1_500, at_ms=300))
    assert shard.held()[1][1] == LATEST_MS
    assert shard.commit(1).fates == [SeriesFate(0, 900, REPLACED, 1, 0)]
    for fate in (PlainFate(0, 900, DELIVERED), SeriesFate(0, 900, REPLACED, 1, 100)):
        other = make()
        other.feed(debounced(0, 900, at_ms=0), debounced(1, 1_500, at_ms=300))
        with pytest.raises(Contradicted):
            other.recover(fate)
    empty = make(begins=False)
    empty.begin(next_request=1)
    empty.recover(SeriesFate(0, 900, REPLACED, 1, 0))
    empty.feed(debounced(1, 1_500, at_ms=300))
    assert empty.held()[1][1] == LATEST_MS


def test_a_window_begins_at_the_limited_due_time(make: Make) -> None:
    shard = make()
    shard.feed(
        debounced(0, WITHIN_MS), timed(schedule(1, BEHIND_MS, id="a", latest=LATEST_MS, window=400), BASE_MS + 1)
    )
    window = shard.entries()[1][1].window
    assert window is not None
    assert (window.due, window.length_ms) == (LIMIT_MS, 400)
    assert LIMIT_MS <= window.first <= LIMIT_MS + 400


def test_dead_letters_keep_the_headers_of_the_policies(make: Make) -> None:
    shard = make()
    shard.feed(schedule(0, SOON_MS, id="a", grace=0, latest="1s", **{"if-pending": "replace"}))
    (dead_letter,) = [message for message in shard.commit(FAR_MS).messages if message[1] == OWN.dead_letters]
    assert {("postdate-latest", b"1s"), ("postdate-if-pending", b"replace")} <= set(dead_letter[5])
