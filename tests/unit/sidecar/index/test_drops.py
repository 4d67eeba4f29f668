"""Goal: a request with `postdate-if-ended: drop` ends without a delivery if and only if the dispatch log shows that a
message of its id was delivered within the window, whichever owner reads it.

Method: traces on a real timer index (`support.shards.long_delays`). The records of another owner stand for its
decisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from postdate.kafka.interface import Record
from postdate.sidecar.dispatch import batch
from postdate.sidecar.errors import Contradicted
from postdate.sidecar.index.contradictions import check_causes
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.wheel import limits
from postdate.wheel.entry import Kind
from postdate.wheel.keys import split_key
from postdate.wire.dispatch_log import (
    CANCELLED,
    DEAD,
    DELIVERED,
    DROPPED,
    KEPT,
    REPLACED,
    STORED,
    Fate,
    Moved,
    PlainFate,
    SurvivorFate,
)
from postdate.wire.values.id_digests import id_digest
from support.shards.long_delays import (
    BASE_MS,
    FAR_MS,
    SOON_MS,
    LongDelayShard,
    request,
    schedule,
    timed,
    verdict_texts,
    verdicts,
)

#: The time for which a shard remembers a delivered id; and an hour.
WINDOW_MS, HOUR_MS = 60_000, 3_600_000
#: The time at which a message was delivered, by the dispatch log.
ENDED_MS = SOON_MS + 10
ROW = (0, id_digest(b"a"))


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[LongDelayShard]:
    """A shard that has read no requests."""
    one = LongDelayShard(tmp_path, mode="control")
    one.begin()
    yield one
    one.index.close()


def dropping(offset: int, at_ms: int = BASE_MS, due_ms: int = SOON_MS, grace: str = "1d") -> Record:
    """Returns a request with `postdate-if-ended: drop`, written at `at_ms`."""
    return timed(schedule(offset, due_ms, id="a", grace=grace, **{"if-ended": "drop"}), at_ms)


def delivered(shard: LongDelayShard, record: Record, at_ms: int = ENDED_MS) -> None:
    """Ingests a request and delivers it; the broker stamps the record of its fate with `at_ms`."""
    shard.feed(record)
    shard.commit(SOON_MS + 1, logged_ms=at_ms)
    assert shard.entries() == {}


def kinds(shard: LongDelayShard) -> dict[int, Kind]:
    """Returns the kind of the entry of each request."""
    return {offset: kind for offset, (kind, _, _) in shard.held().items()}


def test_a_repetition_of_a_delivered_message_is_dropped_and_names_it(shard: LongDelayShard) -> None:
    shard.feed(dropping(0))
    done = shard.commit(SOON_MS + 1, logged_ms=ENDED_MS)
    assert (done.fates, done.ids) == ([PlainFate(0, SOON_MS, DELIVERED)], [ROW])
    shard.feed(dropping(1, ENDED_MS + 1))
    entry = shard.entries()[1][1]
    assert (entry.kind, entry.acts_on, entry.value, entry.headers) == (Kind.DROPPED, 0, None, [])
    done = shard.commit(BASE_MS)
    assert (done.fates, done.ids) == ([SurvivorFate(1, SOON_MS, DROPPED, 0)], [])
    assert verdict_texts(done) == [("dropped", "requests/0/1", None, "requests/0/0")]
    assert shard.entries() == {}
    assert shard.families()["places"] == []


@pytest.mark.parametrize(
    ("at_ms", "is_dropped"),
    [(BASE_MS, True), (ENDED_MS + WINDOW_MS, True), (ENDED_MS + WINDOW_MS + 1, False)],
    ids=["written before the delivery", "at the end of the window", "behind it"],
)
def test_the_timestamp_of_the_request_and_that_of_the_record_decide(
    shard: LongDelayShard, at_ms: int, is_dropped: bool
) -> None:
    delivered(shard, dropping(0))
    shard.feed(dropping(1, at_ms, due_ms=at_ms + 500))
    assert kinds(shard) == {1: Kind.DROPPED if is_dropped else Kind.DELIVER}


def test_the_last_delivery_of_an_id_counts(shard: LongDelayShard) -> None:
    """The window of the first delivery is over, and the second delivery is in another hour."""
    delivered(shard, dropping(0))
    delivered(shard, dropping(1, ENDED_MS + WINDOW_MS + 1), ENDED_MS + HOUR_MS)
    shard.feed(dropping(2, ENDED_MS + HOUR_MS))
    assert shard.entries()[2][1].acts_on == 1


def test_a_later_delivery_of_the_same_hour_hides_no_earlier_one(shard: LongDelayShard) -> None:
    """The previous owner dropped request 1 without a commit; request 2, after the window, was delivered."""
    shard.recover(PlainFate(0, SOON_MS, DELIVERED), ids=[ROW], at_ms=ENDED_MS)
    late = dropping(2, ENDED_MS + WINDOW_MS + 1)
    shard.recover(PlainFate(2, SOON_MS, DELIVERED), ids=[(2, ROW[1])], at_ms=ENDED_MS + 2 * WINDOW_MS)
    shard.feed(dropping(0), dropping(1, ENDED_MS + 1), late)
    assert shard.entries()[1][1].acts_on == 0


@pytest.mark.parametrize("first", [True, False], ids=["the first", "the second"])
def test_both_requests_need_the_header(shard: LongDelayShard, first: bool) -> None:
    plain = schedule(1, SOON_MS, id="a") if first else schedule(0, SOON_MS, id="a")
    delivered(shard, dropping(0) if first else plain)
    shard.feed(plain if first else dropping(1))
    assert kinds(shard) == {1: Kind.DELIVER}


def test_another_id_or_a_message_that_was_not_delivered_drops_no_request(shard: LongDelayShard) -> None:
    delivered(shard, timed(schedule(0, SOON_MS, id="b", **{"if-ended": "drop"}), BASE_MS))
    shard.feed(dropping(1), request(2, action="cancel", id="a"))
    shard.commit(BASE_MS)
    shard.feed(dropping(3, grace="0s"))
    shard.commit(FAR_MS, logged_ms=FAR_MS)
    shard.feed(dropping(4))
    assert kinds(shard) == {4: Kind.DELIVER}


def test_a_pending_message_is_replaced_unless_it_was_to_be_kept(shard: LongDelayShard) -> None:
    keeping = schedule(2, SOON_MS, id="a", **{"if-ended": "drop", "if-pending": "keep"})
    shard.feed(dropping(0), dropping(1), keeping)
    assert [fate.name for fate in shard.commit(BASE_MS).fates] == [REPLACED, KEPT]
    assert kinds(shard) == {1: Kind.DELIVER}


def test_a_dropped_request_does_not_change_a_pending_one(shard: LongDelayShard) -> None:
    delivered(shard, dropping(0))
    shard.feed(schedule(1, SOON_MS, id="a"), dropping(2, ENDED_MS + 1))
    assert kinds(shard) == {1: Kind.DELIVER, 2: Kind.DROPPED}
    shard.commit(BASE_MS)
    shard.feed(request(3, action="cancel", id="a"))
    assert verdicts(shard.commit(BASE_MS)) == [("cancelled", 3)]


@pytest.mark.parametrize("by_log", [False, True])
def test_a_dropped_request_hides_no_end_of_its_id(shard: LongDelayShard, by_log: bool) -> None:
    delivered(shard, dropping(0))
    if by_log:
        shard.recover(SurvivorFate(1, SOON_MS, DROPPED, 0))
    shard.feed(dropping(1, ENDED_MS + 1))
    shard.commit(BASE_MS)
    shard.feed(request(2, action="cancel", id="a"), request(3, action="cancel", origin="requests/0/1"))
    assert verdicts(shard.commit(BASE_MS)) == [("too-late", 2), ("not-found", 3)]


def test_an_owner_learns_the_ids_from_records_of_requests_that_it_has_not_read(shard: LongDelayShard) -> None:
    shard.recover(PlainFate(0, SOON_MS, DELIVERED), ids=[ROW], at_ms=ENDED_MS)
    shard.feed(dropping(0), dropping(1))
    assert kinds(shard) == {1: Kind.DROPPED}


def test_the_ids_of_an_empty_disk_are_those_of_requests_below_its_first(tmp_path: Path) -> None:
    shard = LongDelayShard(tmp_path)
    shard.begin(next_request=7)
    shard.recover(PlainFate(0, SOON_MS, DELIVERED), ids=[ROW], at_ms=ENDED_MS)
    shard.feed(dropping(7))
    assert shard.entries()[7][1].acts_on == 0
    shard.index.close()


@pytest.mark.parametrize(
    "fate", [PlainFate(1, FAR_MS, STORED), Moved(1, SOON_MS, "moved", FAR_MS, 9)], ids=["stored", "moved"]
)
def test_a_request_that_an_earlier_owner_has_accepted_is_not_dropped(shard: LongDelayShard, fate: Fate) -> None:
    """Rule 5: its mark is not final."""
    delivered(shard, dropping(0))
    shard.recover(fate)
    shard.feed(dropping(1, due_ms=FAR_MS))
    assert Kind.DROPPED not in kinds(shard).values()


def test_a_stored_message_is_remembered_after_a_rebuild(shard: LongDelayShard, tmp_path: Path) -> None:
    shard.feed(dropping(0, due_ms=FAR_MS))
    shard.commit(BASE_MS)
    rebuilt = LongDelayShard(tmp_path / "other")
    rebuilt.rebuild(shard, low=1)
    assert rebuilt.commit(FAR_MS + 1, logged_ms=FAR_MS + 5).ids == [ROW]
    rebuilt.index.close()


def test_a_member_of_version_1_writes_no_ids(shard: LongDelayShard, tmp_path: Path) -> None:
    shard.feed(dropping(0, due_ms=FAR_MS))
    shard.commit(BASE_MS)
    old = LongDelayShard(tmp_path / "other", format_version=1)
    old.rebuild(shard, low=1)
    assert old.commit(FAR_MS + 1).ids == []
    old.feed(dropping(1))
    assert shard_reasons(old) == ["unknown-header"]
    old.index.close()


def shard_reasons(shard: LongDelayShard) -> list[str]:
    """Returns the reasons of the requests that end as dead letters."""
    return [entry.reason for _, entry in shard.entries().values() if entry.kind == Kind.DEAD]


@pytest.mark.parametrize("at_ms", [BASE_MS, ENDED_MS + WINDOW_MS], ids=["before the delivery", "end of the window"])
@pytest.mark.parametrize("second", [[], [request(1, action="cancel", id="a")]], ids=["replaced", "cancelled"])
def test_a_pending_request_that_the_log_drops_contradicts_it(
    shard: LongDelayShard, second: list[Record], at_ms: int
) -> None:
    """Another owner, with an older disk, has delivered request 0, so it drops request 2, which is pending here."""
    shard.feed(dropping(0), *second, dropping(2, at_ms))
    with pytest.raises(Contradicted, match="request 2 was accepted here, though request 0"):
        shard.recover(PlainFate(0, SOON_MS, DELIVERED), ids=[ROW], at_ms=ENDED_MS)


@pytest.mark.parametrize(
    "later",
    [schedule(1, SOON_MS, id="a"), dropping(1, ENDED_MS + WINDOW_MS + 1)],
    ids=["without the header", "behind the window"],
)
def test_a_pending_request_that_the_log_does_not_drop_is_no_contradiction(shard: LongDelayShard, later: Record) -> None:
    shard.feed(dropping(0), later)
    shard.recover(PlainFate(0, SOON_MS, DELIVERED), ids=[ROW], at_ms=ENDED_MS)
    check_causes(IndexOverlay(shard.index))
    assert kinds(shard) == {1: Kind.DELIVER}


def test_a_request_is_not_dropped_for_its_own_delivery(shard: LongDelayShard) -> None:
    shard.feed(dropping(0))
    shard.recover(PlainFate(0, SOON_MS, DELIVERED), ids=[ROW], at_ms=ENDED_MS)
    assert kinds(shard) == {}


@pytest.mark.parametrize("name", [CANCELLED, DEAD])
def test_a_dropped_request_that_another_owner_ended_otherwise_is_gone(shard: LongDelayShard, name: str) -> None:
    delivered(shard, dropping(0))
    shard.feed(dropping(1))
    shard.recover(PlainFate(1, SOON_MS, name))  # type: ignore[arg-type]
    check_causes(IndexOverlay(shard.index))
    assert shard.entries() == {}


def test_ids_are_forgotten_by_the_requests_that_were_read_and_not_by_the_clock(shard: LongDelayShard) -> None:
    delivered(shard, dropping(0))
    shard.index.forget_outcomes(BASE_MS + 100 * HOUR_MS, ENDED_MS + WINDOW_MS)
    shard.feed(dropping(1, ENDED_MS + WINDOW_MS))
    assert kinds(shard) == {1: Kind.DROPPED}
    shard.index.forget_outcomes(BASE_MS + 4 * HOUR_MS, BASE_MS + 4 * HOUR_MS)
    assert [key for key, _ in shard.families()["ended"] if key.startswith(b"d")] == []
    shard.feed(dropping(2))
    assert kinds(shard)[2] == Kind.DELIVER


def test_a_reopened_index_knows_the_ids(tmp_path: Path) -> None:
    shard = LongDelayShard(tmp_path)
    shard.begin()
    delivered(shard, dropping(0))
    shard.index.close()
    shard = LongDelayShard(tmp_path)
    shard.feed(dropping(1))
    assert kinds(shard) == {1: Kind.DROPPED}
    shard.index.close()


def test_without_room_a_repetition_is_delivered_and_counted(shard: LongDelayShard) -> None:
    with patch.object(limits, "DELIVERED_IDS_PER_HOUR_MAX", 1):
        rows = [(0, id_digest(b"a")), (1, id_digest(b"b"))]
        assert shard.recover(ids=rows, at_ms=ENDED_MS) == 1
        assert shard.recover(ids=[(2, id_digest(b"c"))], at_ms=ENDED_MS + HOUR_MS) == 0
    assert [split_key(key[1:17])[0] for key, _ in shard.families()["ended"]] == [
        ENDED_MS // HOUR_MS,
        ENDED_MS // HOUR_MS + 1,
    ]


def test_a_transaction_names_a_bounded_number_of_ids(shard: LongDelayShard) -> None:
    """Beyond that number, a message waits for the next transaction, with all later messages."""
    with patch.object(batch, "IDS_MAX", 2):
        shard.feed(*(timed(schedule(n, SOON_MS, id=f"{n}", **{"if-ended": "drop"}), BASE_MS) for n in range(5)))
        sizes = [(len(done.fates), len(done.ids)) for done in (shard.commit(SOON_MS + 1) for _ in range(3))]
    assert sizes == [(2, 2), (2, 2), (1, 1)]


def test_the_memory_of_delivered_ids_is_bounded(shard: LongDelayShard) -> None:
    for hour in range(limits.DELIVERED_HOURS_MAX + 5):
        shard.recover(ids=[ROW], at_ms=ENDED_MS + hour * HOUR_MS)
    shard.index.forget_outcomes(ENDED_MS, ENDED_MS)
    assert len(shard.families()["ended"]) == limits.DELIVERED_HOURS_MAX
