"""Goal: a bulk cancel ends every pending message that it selects, and no other; it goes on where its owner died, and
its answer has the exact count.

Method: one shard after the other on a simulated cluster (`support.shards.simulated_shard`); what they did is read from
the dispatch log. Small pieces let a test stop an owner in the middle.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from postdate.kafka.errors import AbortRequired
from postdate.sidecar.config.settings import RequestTopicConfig
from postdate.sidecar.dispatch.due import bulk_sweep
from postdate.sidecar.shard.shard import Shard
from postdate.sidecar.states import State
from postdate.sidecar.transaction.transaction import Content, ShardOwnership
from postdate.wire.dispatch_log import BulkCancelled, BulkProgress, Fate, Moved, Occurred
from postdate.wire.verdicts import Answer, Verdict, decode_verdict
from support.shards.simulated_shard import OWN, Bench, R

HOUR_MS = 3_600_000
CANCEL = ("postdate-action", b"cancel")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path)
    made.format_version = 2
    monkeypatch.setattr(bulk_sweep, "SWEPT_ENTRIES_MAX", 3)
    return made


def fates(bench: Bench) -> list[Fate]:
    return [fate for said in bench.log() for fate in said.fates]


def swept(bench: Bench) -> dict[int, int]:
    """Request -> the bulk control that cancelled it."""
    return {fate.offset: fate.control for fate in fates(bench) if isinstance(fate, BulkCancelled)}


def progress(bench: Bench, control: int) -> list[tuple[str, int]]:
    return [
        (fate.name, fate.count) for fate in fates(bench) if isinstance(fate, BulkProgress) and fate.offset == control
    ]


def answers(bench: Bench) -> list[Answer]:
    return [decode_verdict(record.value) for record in bench.read(OWN.verdicts)]


def far(bench: Bench, *headers: tuple[str, bytes], target: bytes = b"orders", in_ms: int = HOUR_MS) -> int:
    return bench.schedule(bench.broker.now_ms() + in_ms, *headers, target=target)


def select(bench: Bench, **selectors: bytes) -> int:
    return bench.ask(CANCEL, *((f"postdate-select-{name}", value) for name, value in selectors.items()))


def ends(bench: Bench, shard: Shard, control: int) -> None:
    bench.until(shard, lambda: "applied" in dict(progress(bench, control)))


def test_all_that_is_selected_is_cancelled_in_pieces_and_counted(bench: Bench) -> None:
    shard = bench.shard()
    chosen = [far(bench, in_ms=HOUR_MS + n) for n in range(8)]
    others = [far(bench, target=b"mails") for _ in range(3)]
    control = select(bench, topic=b"orders")
    after = far(bench)
    ends(bench, shard, control)
    assert swept(bench) == dict.fromkeys(chosen, control)
    counts = progress(bench, control)
    assert counts[0] == ("swept", 0)
    assert counts[-1] == ("applied", 8)
    assert [count for _, count in counts] == [0, 3, 6, 8]
    (answer,) = answers(bench)
    assert (answer.origin, answer.verdict, answer.count) == (f"{R}/0/{control}", Verdict.APPLIED, 8)
    assert shard._index is not None
    assert shard._index.count == len(others) + 1
    assert shard._index.bulks == ()
    assert shard._index.find(after) is not None


def test_the_id_of_a_cancelled_message_is_free_again(bench: Bench) -> None:
    shard = bench.shard()
    far(bench, ("postdate-id", b"a"))
    ends(bench, shard, select(bench, topic=b"orders"))
    bench.schedule(1, ("postdate-id", b"a"))
    bench.until(shard, lambda: len(bench.read("orders")) == 1)
    shard.close()


def test_a_cancelled_message_hides_the_one_that_had_its_id_before(bench: Bench) -> None:
    shard = bench.shard()
    bench.schedule(1, ("postdate-id", b"a"))
    bench.until(shard, lambda: len(bench.read("orders")) == 1)
    far(bench, ("postdate-id", b"a"))
    ends(bench, shard, select(bench, topic=b"orders"))
    late = bench.ask(CANCEL, ("postdate-id", b"a"))
    bench.until(shard, lambda: len(answers(bench)) == 2)
    assert (answers(bench)[-1].origin, answers(bench)[-1].verdict) == (f"{R}/0/{late}", Verdict.NOT_FOUND)
    shard.close()


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        ({"id": b"customer-7-"}, [0, 1]),
        ({"key": b"k7"}, [2]),
        ({"from": b"%d", "until": b"%d"}, [3]),
        ({"topic": b"mails"}, [4]),
        ({"topic": b"mails", "id": b"customer-7-"}, []),
    ],
)
def test_selectors(bench: Bench, selectors: dict[str, bytes], expected: list[int]) -> None:
    shard, now = bench.shard(), bench.broker.now_ms()
    sent = [
        far(bench, ("postdate-id", b"customer-7-a")),
        far(bench, ("postdate-id", b"customer-7-b")),
        far(bench, ("postdate-key", b"k7")),
        far(bench, in_ms=5 * HOUR_MS),
        far(bench, target=b"mails"),
        far(bench, ("postdate-id", b"customer-70")),
    ]
    bounds = {b"from": now + 4 * HOUR_MS, b"until": now + 6 * HOUR_MS}
    asked = {name: value % bounds[name.encode()] if b"%" in value else value for name, value in selectors.items()}
    control = select(bench, **asked)
    ends(bench, shard, control)
    assert sorted(swept(bench)) == [sent[n] for n in expected]
    assert progress(bench, control)[-1] == ("applied", len(expected))


def test_a_return_is_selected_by_the_id_with_which_it_is_delivered(bench: Bench) -> None:
    """Its id is not registered, so a control of this id does not find it. A stored one is selected, too."""
    shard = bench.shard(RequestTopicConfig(R, store_after_ms=HOUR_MS))
    back = [("postdate-topic", b"orders"), ("postdate-id", b"customer-7/a")]
    returns = [bench.ask(*back, ("postdate-retry", b"max=3h, base=" + base)) for base in (b"10m", b"2h")]
    other = bench.ask(("postdate-topic", b"orders"), ("postdate-retry", b"base=10m"))
    control = select(bench, id=b"customer-7/")
    ends(bench, shard, control)
    assert swept(bench) == dict.fromkeys(returns, control)
    assert shard._index is not None
    assert shard._index.find(other) is not None


@pytest.mark.parametrize("disk", ["same", "empty", "old"])
def test_the_next_owner_goes_on(bench: Bench, disk: str) -> None:
    if disk == "old":
        bench.shard().close()
    first = bench.new_shard(place="a" if disk == "old" else "0")
    bench.until(first, lambda: first.state is State.RUNNING)
    chosen = [far(bench, in_ms=HOUR_MS + n) for n in range(8)]
    control = select(bench, topic=b"orders")
    bench.until(first, lambda: len(swept(bench)) >= 3)
    assert len(swept(bench)) < 8
    first.close()
    second = bench.new_shard(place={"same": "0", "empty": "b", "old": "0"}[disk])
    ends(bench, second, control)
    assert swept(bench) == dict.fromkeys(chosen, control)
    assert progress(bench, control)[-1] == ("applied", 8)
    assert second._index is not None
    assert second._index.count == 0


def test_an_owner_with_an_old_disk_delivers_nothing_that_is_selected(bench: Bench) -> None:
    """The trace: A sweeps half. B has read none of it, and everything is due when it takes over."""
    bench.shard().close()
    first = bench.new_shard(place="a")
    bench.until(first, lambda: first.state is State.RUNNING)
    chosen = [far(bench, in_ms=2_000) for n in range(8)]
    control = select(bench, topic=b"orders")
    bench.until(first, lambda: len(swept(bench)) >= 3)
    first.close()
    bench.time.wait(5_000)
    second = bench.new_shard(RequestTopicConfig(R, cancel_gate="off"))
    ends(bench, second, control)
    assert swept(bench) == dict.fromkeys(chosen, control)
    assert bench.read("orders") == []


def test_nothing_leaves_before_a_control_that_has_begun_is_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace: B has read the messages, but not the control that A begins. B takes over, and its reads are slow."""
    second = bench.new_shard(place="b")
    chosen = [far(bench, in_ms=2_000) for n in range(8)]
    bench.until(second, lambda: second.next_request == 8)
    second.close()
    first = bench.new_shard(place="a")
    control = select(bench, topic=b"orders")
    bench.until(first, lambda: len(swept(bench)) >= 3)
    first.close()
    bench.time.wait(5_000)
    second = bench.new_shard(RequestTopicConfig(R, cancel_gate="off"), place="b")
    with monkeypatch.context() as slow:
        slow.setattr(second.inbox, "take", list)
        until_ms = bench.time.now_ms + 3_000
        bench.until(second, lambda: bench.time.now_ms > until_ms)
    ends(bench, second, control)
    assert swept(bench) == dict.fromkeys(chosen, control)
    assert bench.read("orders") == []


def test_a_sweep_shrinks_while_its_transactions_cannot_be_committed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic of Postdate's own is so slow that no transaction of more than 50 entries ends in time."""
    monkeypatch.setattr(bulk_sweep, "SWEPT_ENTRIES_MAX", 200)
    honest, tried = ShardOwnership.run, list[int]()

    def run(self: ShardOwnership, content: Content, *more: Any, **options: Any) -> int:
        tried.append(sum(isinstance(fate, BulkCancelled) for fate in content.fates))
        if tried[-1] > 50:
            raise AbortRequired("the records were not acknowledged in time")
        return honest(self, content, *more, **options)

    shard = bench.shard()
    for number in range(400):
        far(bench, in_ms=HOUR_MS + number)
    control = select(bench, topic=b"orders")
    monkeypatch.setattr(ShardOwnership, "run", run)
    ends(bench, shard, control)
    assert progress(bench, control)[-1] == ("applied", 400)
    assert tried[2:4] == [200, 200]
    smallest = min(tried[2:-1])
    assert smallest <= 50
    assert max(tried[tried.index(smallest) :]) > smallest, "it grows again once transactions end in time"


def test_a_bulk_control_goes_on_after_the_isolation_of_key_0(bench: Bench) -> None:
    """It waits while Postdate's own topics are in trouble. Nothing else may ever write to them again."""
    shard = bench.shard()
    shard._dispatcher._faults._isolate("", 1, None, shard.ctx.clock.steady_ms())
    chosen = far(bench)
    control = select(bench, topic=b"orders")
    ends(bench, shard, control)
    assert swept(bench) == {chosen: control}


def test_nothing_is_cancelled_while_own_topics_are_isolated(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is selected is not delivered meanwhile, either."""
    monkeypatch.setattr(bulk_sweep.BulkSweep, "may_run", lambda *_: False)
    shard = bench.shard()
    faults = shard._dispatcher._faults
    chosen = far(bench, in_ms=2_000)
    control = select(bench, topic=b"orders")
    bench.until(shard, lambda: bool(progress(bench, control)))
    faults._isolate("", 1, None, shard.ctx.clock.steady_ms()).retry_at = 1e12
    until_ms = bench.time.now_ms + 3_000
    bench.until(shard, lambda: bench.time.now_ms > until_ms)
    assert swept(bench) == {}
    faults._isolated.clear()
    bench.until(shard, lambda: swept(bench) == {chosen: control})
    assert bench.read("orders") == []


def test_what_comes_up_while_the_sweep_runs_is_cancelled_too(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_sweep.BulkSweep, "may_run", lambda *_: False)
    shard = bench.shard()
    chosen = [far(bench, in_ms=500) for _ in range(3)]
    control = select(bench, topic=b"orders")
    bench.until(shard, lambda: len(swept(bench)) == 3)
    assert swept(bench) == dict.fromkeys(chosen, control)
    assert progress(bench, control) == [("swept", 0), ("swept", 3)]
    assert bench.read("orders") == []


def test_later_controls_find_what_is_selected_gone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = bench.shard()
    for number in range(7):
        far(bench, in_ms=HOUR_MS + number)
    last = far(bench, ("postdate-id", b"order-9"), in_ms=2 * HOUR_MS)
    control = select(bench, topic=b"orders")
    moves = bench.ask(("postdate-action", b"reschedule"), ("postdate-id", b"order-9"), ("postdate-delay", b"0s"))
    again = far(bench, ("postdate-id", b"order-9"))
    ends(bench, shard, control)
    assert swept(bench)[last] == control
    words = {answer.origin: answer.verdict for answer in answers(bench)}
    assert words[f"{R}/0/{moves}"] == Verdict.NOT_FOUND
    assert f"{R}/0/{again}" not in words, "nothing was replaced"
    assert shard._index is not None
    assert shard._index.find(again) is not None
    assert shard._index.id_key(b"order-9") == shard._index.find(again)


def test_one_that_was_begun_ends_under_format_1_as_well(bench: Bench) -> None:
    first = bench.shard()
    chosen = [far(bench, in_ms=HOUR_MS + n) for n in range(8)]
    control = select(bench, topic=b"orders")
    bench.until(first, lambda: len(swept(bench)) >= 3)
    first.close()
    bench.format_version = 1
    second = bench.new_shard(place="b")
    ends(bench, second, control)
    assert swept(bench) == dict.fromkeys(chosen, control)


def test_one_that_was_begun_ends_where_its_headers_are_those_of_a_dialect(bench: Bench) -> None:
    first = bench.shard()
    chosen = [far(bench, in_ms=HOUR_MS + n) for n in range(8)]
    control = bench.ask(CANCEL, ("postdate-select-topic", b"orders"), ("x-delay", b"1"))
    bench.until(first, lambda: len(swept(bench)) >= 3)
    first.close()
    second = bench.new_shard(RequestTopicConfig(R, dialects=("rabbitmq",)), place="b")
    ends(bench, second, control)
    assert swept(bench) == dict.fromkeys(chosen, control)
    assert bench.letters() == []


def test_a_later_request_of_the_same_id_decides_what_is_too_late(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace: q has the id of p, which is selected. q is delivered before the sweep reaches p. An owner with an old
    disk replays both ends in this order."""
    honest = bulk_sweep.BulkSweep.may_run
    monkeypatch.setattr(bulk_sweep.BulkSweep, "may_run", lambda *_: False)
    first = bench.shard()
    far(bench, ("postdate-id", b"order-9"))
    control = select(bench, topic=b"orders")
    again = far(bench, ("postdate-id", b"order-9"), in_ms=5_000)
    bench.until(first, lambda: first.next_request == again + 1)
    assert bench.read("orders") == []
    first.close()
    second = bench.new_shard(place="a")
    bench.until(second, lambda: len(bench.read("orders")) == 1)
    monkeypatch.setattr(bulk_sweep.BulkSweep, "may_run", honest)
    ends(bench, second, control)
    second.close()
    third = bench.new_shard(place="0")
    late = f"{R}/0/{bench.ask(CANCEL, ('postdate-id', b'order-9'))}"
    bench.until(third, lambda: any(answer.origin == late for answer in answers(bench)))
    assert {answer.origin: (answer.verdict, answer.of) for answer in answers(bench)}[late] == (
        Verdict.TOO_LATE,
        f"{R}/0/{again}",
    )


def test_format_1_refuses_a_new_one(bench: Bench) -> None:
    bench.format_version = 1
    shard = bench.shard()
    far(bench)
    select(bench, topic=b"orders")
    bench.until(shard, lambda: bool(bench.letters()))
    assert bench.letters()[0][0] == b"unknown-header"


@pytest.mark.parametrize("disk", ["same", "empty"])
def test_a_schedule_that_comes_into_the_due_range_behind_the_sweep_ends(bench: Bench, disk: str) -> None:
    """The sweep has passed its next occurrence, which is due before the range, when that occurrence is delivered."""
    bench.format_version = 3
    shard = bench.shard()
    every = [("postdate-id", b"c"), ("postdate-every", b"1s"), ("postdate-topic", b"orders")]
    schedule = bench.ask(*every)
    first_ms = bench.broker.now_ms() // 1_000 * 1_000 + 1_000
    fillers = [far(bench, target=b"mails", in_ms=HOUR_MS + number) for number in range(7)]
    bench.until(shard, lambda: "stored" in {fate.name for fate in fates(bench)})
    control = select(bench, **{"from": b"%d" % (first_ms + 2_000)})
    bench.until(shard, lambda: len(swept(bench)) >= 3)
    assert schedule not in swept(bench), "it is due before the range"
    bench.time.wait(10_000)
    if disk == "empty":
        shard.close()
        shard = bench.new_shard(place="b")
    ends(bench, shard, control)
    assert swept(bench) == dict.fromkeys([schedule, *fillers], control)
    assert progress(bench, control)[-1] == ("applied", 8)
    occurred = [fate.nominal_ms for fate in fates(bench) if isinstance(fate, Occurred)]
    assert occurred == [first_ms, first_ms + 1_000]
    assert shard._index is not None
    assert shard._index.count == 0
    assert bench.read(OWN.store)[-1].value is None


def test_two_run_one_after_the_other(bench: Bench) -> None:
    shard = bench.shard()
    ours = [far(bench, in_ms=HOUR_MS + n) for n in range(4)]
    mails = [far(bench, target=b"mails") for _ in range(4)]
    one, two = select(bench, topic=b"orders"), select(bench, topic=b"mails")
    ends(bench, shard, two)
    assert swept(bench) == dict.fromkeys(ours, one) | dict.fromkeys(mails, two)
    assert progress(bench, one)[-1] == progress(bench, two)[-1] == ("applied", 4)


def test_a_request_keeps_nothing_that_a_waiting_one_may_end(bench: Bench) -> None:
    """The trace: `two` waits for `one`. If a request kept a message that `two` then cancels, its id would get none."""
    shard = bench.shard()
    for number in range(8):
        far(bench, in_ms=HOUR_MS + number)
    pending = far(bench, ("postdate-id", b"order-9"), target=b"mails")
    one, two = select(bench, topic=b"orders"), select(bench, topic=b"mails")
    again = far(bench, ("postdate-id", b"order-9"), ("postdate-if-pending", b"keep"), target=b"mails")
    ends(bench, shard, two)
    bench.until(shard, lambda: shard.next_request == again + 1)
    assert swept(bench)[pending] == two
    assert progress(bench, one)[-1] == ("applied", 8)
    assert not any(fate.name == "kept" for fate in fates(bench))
    assert shard._index is not None
    assert shard._index.id_key(b"order-9") == shard._index.find(again)


def move(bench: Bench, by: bytes = b"", **selectors: bytes) -> int:
    """A bulk reschedule by a time, or to the time of the request."""
    how = ("postdate-by", by) if by else ("postdate-delay", b"0s")
    chosen = ((f"postdate-select-{name}", value) for name, value in selectors.items())
    return bench.ask(("postdate-action", b"reschedule"), how, *chosen)


def moved(bench: Bench) -> dict[int, tuple[int, int]]:
    """Request -> the control that moved it, and its new due time."""
    return {fate.offset: (fate.control, fate.due_ms) for fate in fates(bench) if isinstance(fate, Moved)}


@pytest.mark.parametrize(("by", "by_ms"), [(b"2h", 2 * HOUR_MS), (b"-30m", -HOUR_MS // 2)])
def test_all_that_is_selected_moves_once(bench: Bench, by: bytes, by_ms: int) -> None:
    first = bench.shard(RequestTopicConfig(R, store_after_ms=90 * 60_000))
    due_ms = bench.broker.now_ms() + HOUR_MS
    chosen = {bench.schedule(due_ms + n): due_ms + n for n in range(8)}
    control = move(bench, by, topic=b"orders")
    bench.until(first, lambda: len(moved(bench)) >= 3)
    first.close()
    second = bench.new_shard(RequestTopicConfig(R, store_after_ms=90 * 60_000), place="b")
    ends(bench, second, control)
    assert moved(bench) == {offset: (control, at_ms + by_ms) for offset, at_ms in chosen.items()}
    assert progress(bench, control)[-1] == ("applied", 8)
    assert len([fate for fate in fates(bench) if isinstance(fate, Moved)]) == 8, "each once"
    stored = [fate.offset for fate in fates(bench) if fate.name == "stored"]
    assert stored == (sorted(chosen) if by_ms > 0 else [])


@pytest.mark.parametrize("window", [b"", b"10m"])
def test_all_that_is_selected_is_delivered_now(bench: Bench, window: bytes) -> None:
    shard = bench.shard()
    given = [("postdate-window", window)] if window else []
    chosen = [far(bench, *given, in_ms=HOUR_MS + n) for n in range(8)]
    kept = far(bench, target=b"mails")
    control = move(bench, topic=b"orders")
    ends(bench, shard, control)
    bench.until(shard, lambda: len(bench.read("orders")) == 8, within_ms=11 * 60_000)
    assert sorted(moved(bench)) == chosen
    assert shard._index is not None
    assert shard._index.find(kept) is not None


def test_a_move_to_a_later_time_needs_the_store(bench: Bench) -> None:
    shard = bench.shard(RequestTopicConfig(R, store_after_ms=0))
    far(bench)
    move(bench, b"1h", topic=b"orders")
    bench.until(shard, lambda: bool(bench.letters()))
    assert bench.letters()[0][0] == b"beyond-horizon"


@pytest.mark.parametrize("by", [b"", b"-30m"])
def test_a_move_to_an_earlier_time_needs_no_store(bench: Bench, by: bytes) -> None:
    shard = bench.shard(RequestTopicConfig(R, store_after_ms=0))
    chosen = far(bench)
    control = move(bench, by, topic=b"orders")
    ends(bench, shard, control)
    assert list(moved(bench)) == [chosen]
    assert bench.letters() == []


def test_a_move_that_has_begun_goes_on_without_a_store(bench: Bench) -> None:
    """The next owner has other settings. What was decided before stays so."""
    first = bench.shard(RequestTopicConfig(R, store_after_ms=24 * HOUR_MS))
    chosen = [far(bench, in_ms=HOUR_MS + n) for n in range(8)]
    control = move(bench, b"1h", topic=b"orders")
    bench.until(first, lambda: len(moved(bench)) >= 3)
    first.close()
    second = bench.new_shard(RequestTopicConfig(R, store_after_ms=0), place="b")
    ends(bench, second, control)
    assert sorted(moved(bench)) == chosen
    assert bench.letters() == []


def test_a_later_reschedule_counts_whether_a_move_has_reached_its_message(bench: Bench) -> None:
    shard, now = bench.shard(), bench.broker.now_ms()
    for number in range(4):
        far(bench, in_ms=HOUR_MS + number)
    last = far(bench, ("postdate-id", b"order-9"), in_ms=2 * HOUR_MS)
    control = move(bench, topic=b"orders")
    at = ("postdate-at", b"%d" % (now + 3 * HOUR_MS))
    later = bench.ask(("postdate-action", b"reschedule"), ("postdate-id", b"order-9"), at)
    ends(bench, shard, control)
    bench.until(shard, lambda: moved(bench).get(last, (0, 0))[0] == later)
    assert moved(bench)[last] == (later, now + 3 * HOUR_MS)
