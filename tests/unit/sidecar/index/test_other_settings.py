"""Goal: two owners that judge a request by different settings still end each request once (docs/protocol.md, Settings).

Method: an index ingests by one set of rules, and recovers fates that an owner with other rules has committed. The first
tests use `apply_fate` alone. In the last two, two shards with different settings and disks take turns on one simulated
cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from postdate.kafka.interface import Record
from postdate.sidecar.config.settings import RequestTopicConfig
from postdate.sidecar.dispatch.dispatcher import Dispatcher
from postdate.sidecar.errors import Contradicted
from postdate.sidecar.index.apply_fates import apply_fate
from postdate.sidecar.index.contradictions import check_causes
from postdate.sidecar.index.overlay import IndexOverlay, read_up_to
from postdate.sidecar.ingest.ingest import Intake, ingest
from postdate.sidecar.states import State
from postdate.wheel.entry import decode_entry
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import split_key
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.checkpoint import BulkRow
from postdate.wheel.timer_log.identity import Identity
from postdate.wire.dispatch_log import (
    APPLIED,
    CANCELLED,
    DEAD,
    DELIVERED,
    MOVED,
    REPLACED,
    STORED,
    SWEPT,
    BulkProgress,
    Fate,
    FateName,
    Moved,
    PlainFate,
)
from postdate.wire.headers import Headers
from postdate.wire.requests.rules import RequestRules
from support.shards.simulated_shard import R, ShardEnvironment

BASE_MS = 1_000_000_000_000
RULES = RequestRules(topic="requests", horizon_ms=86_400_000, forbidden=frozenset({"requests"}))
STRICT = replace(RULES, allow=("invoices",))
BULK = replace(RULES, format_version=2)
MINUTE_MS, HOUR_MS = 60_000, 3_600_000


@pytest.fixture
def index(tmp_path: Path) -> Iterator[TimerIndex]:
    timer_index = TimerIndex.open(tmp_path / "0", Identity("cluster", "requests", "log", 0), IndexOptions(), BASE_MS)
    overlay = IndexOverlay(timer_index)
    overlay.advance(next_request=0, next_dispatch=0, seq=0)
    overlay.write()
    yield timer_index
    timer_index.close()


def request(offset: int, **headers: str | int) -> Record:
    given: Headers = [(f"postdate-{name}", str(text).encode()) for name, text in headers.items()]
    return Record(offset, BASE_MS, True, b"key", b"body", given)


def feed(index: TimerIndex, *records: Record, rules: RequestRules = RULES) -> None:
    assert ingest(index, Intake(rules, 0), list(records)) == len(records)


def recover(index: TimerIndex, *fates: Fate, replaceable: bool = True) -> None:
    overlay = IndexOverlay(index, replaceable=replaceable)
    for fate in fates:
        apply_fate(overlay, fate, read_up_to(index))
    overlay.write()
    check_causes(IndexOverlay(index, replaceable=replaceable))


def held(index: TimerIndex) -> dict[int, int]:
    """Returns the current due time of each request."""
    keys, values = index.timer_log.scan(None, b"\xff" * 16, 1000)
    return {split_key(key)[1]: decode_entry(value).due for key, value in zip(keys, values, strict=True)}


@pytest.mark.parametrize("name", [DELIVERED, DEAD])
def test_a_final_fate_ends_an_entry_that_has_another_first_due_time_here(index: TimerIndex, name: FateName) -> None:
    feed(index, request(0, topic="orders", level=3))
    recover(index, PlainFate(0, BASE_MS + 777, name))
    assert held(index) == {}


def test_a_final_fate_ends_an_entry_that_was_refused_here(index: TimerIndex) -> None:
    feed(index, request(0, topic="orders", at=BASE_MS + 500), rules=STRICT)
    assert held(index) == {0: 0}
    recover(index, PlainFate(0, BASE_MS + 500, DELIVERED))
    assert held(index) == {}


def test_a_refusal_elsewhere_ends_an_entry_that_was_accepted_here(index: TimerIndex) -> None:
    feed(index, request(0, topic="orders", at=BASE_MS + 500))
    recover(index, PlainFate(0, 0, DEAD))
    assert held(index) == {}


def test_an_entry_stored_under_another_first_due_time_is_stored_here_too(index: TimerIndex) -> None:
    feed(index, request(0, topic="orders", at=BASE_MS + 500))
    recover(index, PlainFate(0, BASE_MS + 777, STORED))
    key = index.timer_log.find(0)
    assert key is not None
    raw = index.timer_log.entry(key)
    assert raw is not None
    assert decode_entry(raw).stored
    assert index.timer_log.low_water() == 1


def test_a_move_by_a_control_that_was_refused_here_contradicts_the_index(index: TimerIndex) -> None:
    feed(index, request(0, topic="orders", at=BASE_MS + 500))
    feed(index, request(1, action="reschedule", origin="requests/0/0", at=BASE_MS + 9_000_000_000))
    with pytest.raises(Contradicted, match="request 1 moved request 0"):
        recover(index, Moved(0, BASE_MS + 500, MOVED, BASE_MS + 9_000_000_000, 1), PlainFate(1, 0, APPLIED))
    assert held(index) == {0: BASE_MS + 500, 1: 0}


@pytest.mark.parametrize("named", [{"id": "a"}, {"origin": "requests/0/0"}])
@pytest.mark.parametrize(("name", "grace_ms"), [(APPLIED, 2_000), (DEAD, -1)])
def test_a_control_that_is_refused_here_gives_its_grace_if_it_was_carried_out(
    index: TimerIndex, named: dict[str, str], name: FateName, grace_ms: int
) -> None:
    feed(index, request(0, topic="orders", at=BASE_MS + 500, id="a"))
    far_ms = BASE_MS + 9_000_000_000
    moved = [Moved(0, BASE_MS + 500, MOVED, far_ms, 1)] if name == APPLIED else []
    recover(index, *moved, PlainFate(1, 0, name))
    feed(index, request(1, action="reschedule", at=far_ms, grace="2s", **named))
    key = index.timer_log.find(0)
    assert key is not None
    raw = index.timer_log.entry(key)
    assert raw is not None
    assert decode_entry(raw).grace_ms == grace_ms


@pytest.mark.parametrize("name", [DEAD, APPLIED])
def test_a_move_that_the_log_does_not_contain_contradicts_the_index(index: TimerIndex, name: FateName) -> None:
    feed(index, request(0, topic="orders", at=BASE_MS + 500))
    feed(index, request(1, action="reschedule", origin="requests/0/0", at=BASE_MS + 9_000))
    with pytest.raises(Contradicted, match="request 1 did not change request 0"):
        recover(index, PlainFate(1, 0, name))


def test_a_move_that_the_log_contains_contradicts_nothing(index: TimerIndex) -> None:
    feed(index, request(0, topic="orders", at=BASE_MS + 500))
    feed(index, request(1, action="reschedule", origin="requests/0/0", at=BASE_MS + 9_000))
    recover(index, Moved(0, BASE_MS + 500, MOVED, BASE_MS + 9_000, 1), PlainFate(1, 0, APPLIED))
    assert held(index) == {0: BASE_MS + 9_000}


def test_a_reschedule_that_came_too_late_contradicts_nothing(index: TimerIndex) -> None:
    feed(index, request(0, topic="orders", at=BASE_MS + 500))
    feed(index, request(1, action="reschedule", origin="requests/0/0", at=BASE_MS + 9_000))
    recover(index, PlainFate(0, BASE_MS + 500, DELIVERED), PlainFate(1, 0, APPLIED))
    feed(index, request(2, action="reschedule", origin="requests/0/0", at=BASE_MS + 9_000))
    recover(index, PlainFate(2, 0, APPLIED))
    assert held(index) == {}


def test_a_reschedule_that_found_nothing_contradicts_nothing(index: TimerIndex) -> None:
    feed(index, request(0, action="reschedule", id="nobody", at=BASE_MS + 500))
    recover(index, PlainFate(0, 0, APPLIED))
    assert held(index) == {}


def test_a_cancel_that_was_refused_elsewhere_contradicts_the_index(index: TimerIndex) -> None:
    feed(index, request(0, topic="orders", at=BASE_MS + 500), request(1, action="cancel", origin="requests/0/0"))
    with pytest.raises(Contradicted, match="request 1 has ended and was to end request 0"):
        recover(index, PlainFate(1, 0, DEAD))


def test_a_replacement_that_was_refused_elsewhere_contradicts_the_index(index: TimerIndex) -> None:
    feed(index, *(request(offset, topic="orders", at=BASE_MS + 500, id="a") for offset in range(2)))
    with pytest.raises(Contradicted, match="request 1 has ended and was to end request 0"):
        recover(index, PlainFate(1, 0, DEAD))


def test_entries_that_ended_together_contradict_nothing(index: TimerIndex) -> None:
    feed(index, *(request(offset, topic="orders", at=BASE_MS + 500, id="a") for offset in range(2)))
    recover(index, PlainFate(0, BASE_MS + 500, REPLACED))
    feed(index, request(2, action="cancel", id="a"))
    recover(index, PlainFate(1, BASE_MS + 500, CANCELLED), PlainFate(2, 0, APPLIED))
    assert held(index) == {}


def bulk_cancel(offset: int) -> Record:
    return request(offset, action="cancel", **{"select-topic": "orders"})


def test_the_progress_of_a_bulk_control_is_followed_and_replayed_without_effect(index: TimerIndex) -> None:
    feed(index, bulk_cancel(0), rules=BULK)
    assert [(row.offset, row.count) for row in index.timer_log.bulks] == [(0, -1)], "it has not begun"
    recover(index, BulkProgress(0, 0, SWEPT, 3))
    assert [(row.offset, row.count) for row in index.timer_log.bulks] == [(0, 3)]
    recover(index, BulkProgress(0, 0, APPLIED, 5))
    assert index.timer_log.bulks == ()
    recover(index, BulkProgress(0, 0, SWEPT, 3), BulkProgress(0, 0, APPLIED, 5))
    assert index.timer_log.bulks == ()


@pytest.mark.parametrize(
    ("rules", "fate"), [(RULES, BulkProgress(0, 0, SWEPT, 3)), (BULK, PlainFate(0, 0, DEAD))], ids=["here", "elsewhere"]
)
def test_a_bulk_control_that_only_one_owner_refused_contradicts_the_index(
    index: TimerIndex, rules: RequestRules, fate: Fate
) -> None:
    feed(index, bulk_cancel(0), rules=rules)
    with pytest.raises(Contradicted):
        recover(index, fate)


def test_fates_of_an_unread_bulk_control_contradict_nothing(index: TimerIndex) -> None:
    recover(index, BulkProgress(0, 0, SWEPT, 3))
    assert index.timer_log.bulks == (BulkRow(0, b"", 3),)
    recover(index, PlainFate(0, 0, DEAD))
    assert not index.timer_log.bulks


def test_a_bulk_control_that_has_ended_is_not_in_force_once_it_is_read(index: TimerIndex) -> None:
    """If the log has lost its end and has grown again, recovery reads the control's progress after its end."""
    recover(index, BulkProgress(0, 0, APPLIED, 5))
    recover(index, BulkProgress(0, 0, SWEPT, 3))
    feed(index, bulk_cancel(0), rules=BULK)
    assert index.timer_log.bulks == ()


@pytest.mark.parametrize(
    ("time", "is_later"),
    [({"by": 1}, True), ({"by": -1}, False), ({"at": BASE_MS + 1}, True), ({"at": BASE_MS}, False)],
)
def test_without_a_store_a_bulk_control_moves_nothing_to_a_later_time(
    index: TimerIndex, time: dict[str, int], is_later: bool
) -> None:
    feed(index, request(0, action="reschedule", **{"select-topic": "orders"}, **time), rules=BULK)
    assert (len(index.timer_log.bulks), len(held(index))) == ((0, 1) if is_later else (1, 0))


def test_an_index_that_only_the_disk_holds_follows_the_log(index: TimerIndex, caplog: pytest.LogCaptureFixture) -> None:
    feed(index, request(0, topic="orders", at=BASE_MS + 500))
    feed(index, request(1, action="reschedule", origin="requests/0/0", at=BASE_MS + 9_000_000_000))
    fates: tuple[Fate, ...] = Moved(0, BASE_MS + 500, MOVED, BASE_MS + 9_000_000_000, 1), PlainFate(1, 0, APPLIED)
    recover(index, *fates, replaceable=False)
    assert held(index) == {0: BASE_MS + 9_000_000_000}
    assert "contradicts" in caplog.text


def test_a_shard_rebuilds_an_index_whose_control_another_owner_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = ShardEnvironment(tmp_path)
    first = env.shard()
    due_ms = int(env.time.now_ms) + 10 * MINUTE_MS
    env.schedule(due_ms)
    env.until(first, lambda: first.next_request == 1)
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    env.ask(
        ("postdate-action", b"reschedule"),
        ("postdate-origin", b"requests/0/0"),
        ("postdate-at", b"%d" % (due_ms + HOUR_MS // 2)),
    )
    env.until(first, lambda: first.next_request == 2)
    first.close()
    monkeypatch.undo()
    strict = RequestTopicConfig(R, horizon_ms=15 * MINUTE_MS)
    second = env.new_shard(strict, place="other")
    env.until(second, lambda: env.ended() == 1)
    assert env.dead_letters()[0][0] == b"beyond-horizon"
    second.close()
    third = env.shard()
    assert [path.name for path in tmp_path.glob("0.*")] == ["0.old-1"]
    env.until(third, lambda: len(env.read("orders")) == 1, HOUR_MS)
    assert dict(env.read("orders")[0].headers or [])["postdate-due"] == b"%d" % due_ms
    assert env.fates() == [[(1, DEAD)], [(0, DELIVERED)]]
    third.close()


def test_two_owners_with_different_levels_deliver_once(tmp_path: Path) -> None:
    env = ShardEnvironment(tmp_path)
    slow, quick = RequestTopicConfig(R, levels_ms=(HOUR_MS // 2,)), RequestTopicConfig(R, levels_ms=(1_000,))
    first = env.shard(slow)
    env.ask(("postdate-topic", b"orders"), ("postdate-level", b"1"))
    env.until(first, lambda: first.next_request == 1)
    first.close()
    second = env.new_shard(quick, place="other")
    env.until(second, lambda: len(env.read("orders")) == 1)
    second.close()
    third = env.shard(slow)
    env.until(third, lambda: third.state is State.RUNNING)
    env.time.wait(HOUR_MS)
    env.ask(("postdate-topic", b"orders"), ("postdate-delay", b"1s"), value=b"later")
    env.until(third, lambda: env.ended() == 2)
    assert [record.value for record in env.read("orders")] == [b"v", b"later"]
    third.close()
