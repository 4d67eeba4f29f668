"""Goal: a bulk control acts on every pending message that it selects, and on no other. The next owner continues where
the last one stopped, and the verdict has the exact count.

Method: one owner after the other on a simulated cluster (`support.shards.simulated_shard`). The tests read their fates
from the dispatch log. Small pieces let a test stop an owner in the middle of a sweep.
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
from postdate.wire.verdicts import Verdict, VerdictRecord, decode_verdict
from support.shards.simulated_shard import OWN, R, ShardEnvironment

HOUR_MS = 3_600_000
CANCEL = ("postdate-action", b"cancel")


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShardEnvironment:
    made = ShardEnvironment(tmp_path)
    made.format_version = 2
    monkeypatch.setattr(bulk_sweep, "SWEPT_ENTRIES_MAX", 3)
    return made


def fates(env: ShardEnvironment) -> list[Fate]:
    return [fate for record in env.log() for fate in record.fates]


def swept(env: ShardEnvironment) -> dict[int, int]:
    """Returns the bulk control that cancelled each request."""
    return {fate.offset: fate.control for fate in fates(env) if isinstance(fate, BulkCancelled)}


def progress(env: ShardEnvironment, control: int) -> list[tuple[str, int]]:
    return [(fate.name, fate.count) for fate in fates(env) if isinstance(fate, BulkProgress) and fate.offset == control]


def answers(env: ShardEnvironment) -> list[VerdictRecord]:
    return [decode_verdict(record.value) for record in env.read(OWN.verdicts)]


def far(env: ShardEnvironment, *headers: tuple[str, bytes], target: bytes = b"orders", in_ms: int = HOUR_MS) -> int:
    return env.schedule(env.broker.now_ms() + in_ms, *headers, target=target)


def select(env: ShardEnvironment, **selectors: bytes) -> int:
    return env.ask(CANCEL, *((f"postdate-select-{name}", value) for name, value in selectors.items()))


def ends(env: ShardEnvironment, shard: Shard, control: int) -> None:
    env.until(shard, lambda: "applied" in dict(progress(env, control)))


def test_all_selected_messages_are_cancelled_in_pieces_and_counted(env: ShardEnvironment) -> None:
    shard = env.shard()
    chosen = [far(env, in_ms=HOUR_MS + n) for n in range(8)]
    others = [far(env, target=b"mails") for _ in range(3)]
    control = select(env, topic=b"orders")
    after = far(env)
    ends(env, shard, control)
    assert swept(env) == dict.fromkeys(chosen, control)
    counts = progress(env, control)
    assert counts[0] == ("swept", 0)
    assert counts[-1] == ("applied", 8)
    assert [count for _, count in counts] == [0, 3, 6, 8]
    (answer,) = answers(env)
    assert (answer.origin, answer.verdict, answer.count) == (f"{R}/0/{control}", Verdict.APPLIED, 8)
    assert shard._index is not None
    assert shard._index.count == len(others) + 1
    assert shard._index.timer_log.bulks == ()
    assert shard._index.timer_log.find(after) is not None


def test_the_id_of_a_cancelled_message_is_free_again(env: ShardEnvironment) -> None:
    shard = env.shard()
    far(env, ("postdate-id", b"a"))
    ends(env, shard, select(env, topic=b"orders"))
    env.schedule(1, ("postdate-id", b"a"))
    env.until(shard, lambda: len(env.read("orders")) == 1)
    shard.close()


def test_a_cancelled_message_hides_the_earlier_message_of_its_id(env: ShardEnvironment) -> None:
    shard = env.shard()
    env.schedule(1, ("postdate-id", b"a"))
    env.until(shard, lambda: len(env.read("orders")) == 1)
    far(env, ("postdate-id", b"a"))
    ends(env, shard, select(env, topic=b"orders"))
    late = env.ask(CANCEL, ("postdate-id", b"a"))
    env.until(shard, lambda: len(answers(env)) == 2)
    assert (answers(env)[-1].origin, answers(env)[-1].verdict) == (f"{R}/0/{late}", Verdict.NOT_FOUND)
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
def test_each_selector_selects_its_messages(
    env: ShardEnvironment, selectors: dict[str, bytes], expected: list[int]
) -> None:
    shard, now = env.shard(), env.broker.now_ms()
    sent = [
        far(env, ("postdate-id", b"customer-7-a")),
        far(env, ("postdate-id", b"customer-7-b")),
        far(env, ("postdate-key", b"k7")),
        far(env, in_ms=5 * HOUR_MS),
        far(env, target=b"mails"),
        far(env, ("postdate-id", b"customer-70")),
    ]
    bounds = {b"from": now + 4 * HOUR_MS, b"until": now + 6 * HOUR_MS}
    chosen = {name: value % bounds[name.encode()] if b"%" in value else value for name, value in selectors.items()}
    control = select(env, **chosen)
    ends(env, shard, control)
    assert sorted(swept(env)) == [sent[n] for n in expected]
    assert progress(env, control)[-1] == ("applied", len(expected))


def test_a_return_is_selected_by_the_id_with_which_it_is_delivered(env: ShardEnvironment) -> None:
    """The index does not register the id of a return, so a control by id does not find it. A stored return is selected,
    too."""
    shard = env.shard(RequestTopicConfig(R, store_after_ms=HOUR_MS))
    back = [("postdate-topic", b"orders"), ("postdate-id", b"customer-7/a")]
    returns = [env.ask(*back, ("postdate-retry", b"max=3h, base=" + base)) for base in (b"10m", b"2h")]
    other = env.ask(("postdate-topic", b"orders"), ("postdate-retry", b"base=10m"))
    control = select(env, id=b"customer-7/")
    ends(env, shard, control)
    assert swept(env) == dict.fromkeys(returns, control)
    assert shard._index is not None
    assert shard._index.timer_log.find(other) is not None


@pytest.mark.parametrize("disk", ["same", "empty", "old"])
def test_the_next_owner_goes_on(env: ShardEnvironment, disk: str) -> None:
    if disk == "old":
        env.shard().close()
    first = env.new_shard(place="a" if disk == "old" else "0")
    env.until(first, lambda: first.state is State.RUNNING)
    chosen = [far(env, in_ms=HOUR_MS + n) for n in range(8)]
    control = select(env, topic=b"orders")
    env.until(first, lambda: len(swept(env)) >= 3)
    assert len(swept(env)) < 8
    first.close()
    second = env.new_shard(place={"same": "0", "empty": "b", "old": "0"}[disk])
    ends(env, second, control)
    assert swept(env) == dict.fromkeys(chosen, control)
    assert progress(env, control)[-1] == ("applied", 8)
    assert second._index is not None
    assert second._index.count == 0


def test_an_owner_with_an_old_disk_delivers_nothing_that_is_selected(env: ShardEnvironment) -> None:
    """The trace: owner A sweeps half of the messages. Owner B has read none of this, and all messages are due when it
    takes over."""
    env.shard().close()
    first = env.new_shard(place="a")
    env.until(first, lambda: first.state is State.RUNNING)
    chosen = [far(env, in_ms=2_000) for n in range(8)]
    control = select(env, topic=b"orders")
    env.until(first, lambda: len(swept(env)) >= 3)
    first.close()
    env.time.wait(5_000)
    second = env.new_shard(RequestTopicConfig(R, cancel_gate="off"))
    ends(env, second, control)
    assert swept(env) == dict.fromkeys(chosen, control)
    assert env.read("orders") == []


def test_no_message_leaves_before_a_bulk_control_that_has_begun_is_read(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trace: owner B has read the messages, but not the control that owner A begins. B takes over, and its reads
    are slow."""
    second = env.new_shard(place="b")
    chosen = [far(env, in_ms=2_000) for n in range(8)]
    env.until(second, lambda: second.next_request == 8)
    second.close()
    first = env.new_shard(place="a")
    control = select(env, topic=b"orders")
    env.until(first, lambda: len(swept(env)) >= 3)
    first.close()
    env.time.wait(5_000)
    second = env.new_shard(RequestTopicConfig(R, cancel_gate="off"), place="b")
    with monkeypatch.context() as slow:
        slow.setattr(second.inbox, "drain", list)
        until_ms = env.time.now_ms + 3_000
        env.until(second, lambda: env.time.now_ms > until_ms)
    ends(env, second, control)
    assert swept(env) == dict.fromkeys(chosen, control)
    assert env.read("orders") == []


def test_a_sweep_shrinks_while_its_transactions_cannot_be_committed(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of Postdate's own topics is so slow that no transaction of more than 50 entries ends in time."""
    monkeypatch.setattr(bulk_sweep, "SWEPT_ENTRIES_MAX", 200)
    honest, tried = ShardOwnership.run, list[int]()

    def run(self: ShardOwnership, content: Content, *more: Any, **options: Any) -> int:
        tried.append(sum(isinstance(fate, BulkCancelled) for fate in content.fates))
        if tried[-1] > 50:
            raise AbortRequired("the records were not acknowledged in time")
        return honest(self, content, *more, **options)

    shard = env.shard()
    for number in range(400):
        far(env, in_ms=HOUR_MS + number)
    control = select(env, topic=b"orders")
    monkeypatch.setattr(ShardOwnership, "run", run)
    ends(env, shard, control)
    assert progress(env, control)[-1] == ("applied", 400)
    assert tried[2:4] == [200, 200]
    smallest = min(tried[2:-1])
    assert smallest <= 50
    assert max(tried[tried.index(smallest) :]) > smallest, "it grows again once transactions end in time"


def test_a_bulk_control_goes_on_after_the_isolation_of_key_0(env: ShardEnvironment) -> None:
    """The control waits while Postdate's own topics are isolated. It continues even if no entry writes to these
    topics."""
    shard = env.shard()
    shard._dispatcher._faults._isolate("", 1, None, shard.ctx.clock.steady_ms())
    chosen = far(env)
    control = select(env, topic=b"orders")
    ends(env, shard, control)
    assert swept(env) == {chosen: control}


def test_no_message_is_cancelled_while_own_topics_are_isolated(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The selected messages are not delivered in this time, either."""
    monkeypatch.setattr(bulk_sweep.BulkSweep, "may_run", lambda *_: False)
    shard = env.shard()
    faults = shard._dispatcher._faults
    chosen = far(env, in_ms=2_000)
    control = select(env, topic=b"orders")
    env.until(shard, lambda: bool(progress(env, control)))
    faults._isolate("", 1, None, shard.ctx.clock.steady_ms()).retry_at = 1e12
    until_ms = env.time.now_ms + 3_000
    env.until(shard, lambda: env.time.now_ms > until_ms)
    assert swept(env) == {}
    faults._isolated.clear()
    env.until(shard, lambda: swept(env) == {chosen: control})
    assert env.read("orders") == []


def test_a_selected_message_that_arrives_during_the_sweep_is_cancelled_too(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_sweep.BulkSweep, "may_run", lambda *_: False)
    shard = env.shard()
    chosen = [far(env, in_ms=500) for _ in range(3)]
    control = select(env, topic=b"orders")
    env.until(shard, lambda: len(swept(env)) == 3)
    assert swept(env) == dict.fromkeys(chosen, control)
    assert progress(env, control) == [("swept", 0), ("swept", 3)]
    assert env.read("orders") == []


def test_later_controls_do_not_find_selected_messages(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = env.shard()
    for number in range(7):
        far(env, in_ms=HOUR_MS + number)
    last = far(env, ("postdate-id", b"order-9"), in_ms=2 * HOUR_MS)
    control = select(env, topic=b"orders")
    moves = env.ask(("postdate-action", b"reschedule"), ("postdate-id", b"order-9"), ("postdate-delay", b"0s"))
    again = far(env, ("postdate-id", b"order-9"))
    ends(env, shard, control)
    assert swept(env)[last] == control
    words = {answer.origin: answer.verdict for answer in answers(env)}
    assert words[f"{R}/0/{moves}"] == Verdict.NOT_FOUND
    assert f"{R}/0/{again}" not in words, "nothing was replaced"
    assert shard._index is not None
    assert shard._index.timer_log.find(again) is not None
    assert shard._index.timer_log.id_key(b"order-9") == shard._index.timer_log.find(again)


def test_a_bulk_control_that_has_begun_ends_under_format_1_as_well(env: ShardEnvironment) -> None:
    first = env.shard()
    chosen = [far(env, in_ms=HOUR_MS + n) for n in range(8)]
    control = select(env, topic=b"orders")
    env.until(first, lambda: len(swept(env)) >= 3)
    first.close()
    env.format_version = 1
    second = env.new_shard(place="b")
    ends(env, second, control)
    assert swept(env) == dict.fromkeys(chosen, control)


def test_a_bulk_control_that_has_begun_ends_under_a_dialect_with_its_headers(env: ShardEnvironment) -> None:
    first = env.shard()
    chosen = [far(env, in_ms=HOUR_MS + n) for n in range(8)]
    control = env.ask(CANCEL, ("postdate-select-topic", b"orders"), ("x-delay", b"1"))
    env.until(first, lambda: len(swept(env)) >= 3)
    first.close()
    second = env.new_shard(RequestTopicConfig(R, dialects=("rabbitmq",)), place="b")
    ends(env, second, control)
    assert swept(env) == dict.fromkeys(chosen, control)
    assert env.dead_letters() == []


def test_the_last_request_of_an_id_decides_if_a_control_is_too_late(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trace: request q has the id of p, which is selected. q is delivered before the sweep reaches p. An owner with
    an old disk replays both ends in this order."""
    honest = bulk_sweep.BulkSweep.may_run
    monkeypatch.setattr(bulk_sweep.BulkSweep, "may_run", lambda *_: False)
    first = env.shard()
    far(env, ("postdate-id", b"order-9"))
    control = select(env, topic=b"orders")
    again = far(env, ("postdate-id", b"order-9"), in_ms=5_000)
    env.until(first, lambda: first.next_request == again + 1)
    assert env.read("orders") == []
    first.close()
    second = env.new_shard(place="a")
    env.until(second, lambda: len(env.read("orders")) == 1)
    monkeypatch.setattr(bulk_sweep.BulkSweep, "may_run", honest)
    ends(env, second, control)
    second.close()
    third = env.new_shard(place="0")
    late = f"{R}/0/{env.ask(CANCEL, ('postdate-id', b'order-9'))}"
    env.until(third, lambda: any(answer.origin == late for answer in answers(env)))
    assert {answer.origin: (answer.verdict, answer.of) for answer in answers(env)}[late] == (
        Verdict.TOO_LATE,
        f"{R}/0/{again}",
    )


def test_format_1_refuses_a_new_bulk_control(env: ShardEnvironment) -> None:
    env.format_version = 1
    shard = env.shard()
    far(env)
    select(env, topic=b"orders")
    env.until(shard, lambda: bool(env.dead_letters()))
    assert env.dead_letters()[0][0] == b"unknown-header"


@pytest.mark.parametrize("disk", ["same", "empty"])
def test_a_schedule_that_comes_into_the_due_range_behind_the_sweep_ends(env: ShardEnvironment, disk: str) -> None:
    """The sweep has passed the schedule when its next occurrence, which is due before the range, is delivered."""
    env.format_version = 3
    shard = env.shard()
    every = [("postdate-id", b"c"), ("postdate-every", b"1s"), ("postdate-topic", b"orders")]
    schedule = env.ask(*every)
    first_ms = env.broker.now_ms() // 1_000 * 1_000 + 1_000
    fillers = [far(env, target=b"mails", in_ms=HOUR_MS + number) for number in range(7)]
    env.until(shard, lambda: "stored" in {fate.name for fate in fates(env)})
    control = select(env, **{"from": b"%d" % (first_ms + 2_000)})
    env.until(shard, lambda: len(swept(env)) >= 3)
    assert schedule not in swept(env), "it is due before the range"
    env.time.wait(10_000)
    if disk == "empty":
        shard.close()
        shard = env.new_shard(place="b")
    ends(env, shard, control)
    assert swept(env) == dict.fromkeys([schedule, *fillers], control)
    assert progress(env, control)[-1] == ("applied", 8)
    occurred = [fate.nominal_ms for fate in fates(env) if isinstance(fate, Occurred)]
    assert occurred == [first_ms, first_ms + 1_000]
    assert shard._index is not None
    assert shard._index.count == 0
    assert env.read(OWN.store)[-1].value is None


def test_two_bulk_controls_run_one_after_the_other(env: ShardEnvironment) -> None:
    shard = env.shard()
    orders = [far(env, in_ms=HOUR_MS + n) for n in range(4)]
    mails = [far(env, target=b"mails") for _ in range(4)]
    first, second = select(env, topic=b"orders"), select(env, topic=b"mails")
    ends(env, shard, second)
    assert swept(env) == dict.fromkeys(orders, first) | dict.fromkeys(mails, second)
    assert progress(env, first)[-1] == progress(env, second)[-1] == ("applied", 4)


def test_a_request_keeps_no_message_that_a_waiting_bulk_control_may_end(env: ShardEnvironment) -> None:
    """The trace: bulk control `second` waits for `first`. If a request kept a message that `second` later cancels, no
    message would be delivered for its id."""
    shard = env.shard()
    for number in range(8):
        far(env, in_ms=HOUR_MS + number)
    pending = far(env, ("postdate-id", b"order-9"), target=b"mails")
    first, second = select(env, topic=b"orders"), select(env, topic=b"mails")
    again = far(env, ("postdate-id", b"order-9"), ("postdate-if-pending", b"keep"), target=b"mails")
    ends(env, shard, second)
    env.until(shard, lambda: shard.next_request == again + 1)
    assert swept(env)[pending] == second
    assert progress(env, first)[-1] == ("applied", 8)
    assert not any(fate.name == "kept" for fate in fates(env))
    assert shard._index is not None
    assert shard._index.timer_log.id_key(b"order-9") == shard._index.timer_log.find(again)


def move(env: ShardEnvironment, by: bytes = b"", **selectors: bytes) -> int:
    """Sends a bulk reschedule by a time, or to the time of the request."""
    time = ("postdate-by", by) if by else ("postdate-delay", b"0s")
    chosen = ((f"postdate-select-{name}", value) for name, value in selectors.items())
    return env.ask(("postdate-action", b"reschedule"), time, *chosen)


def moved(env: ShardEnvironment) -> dict[int, tuple[int, int]]:
    """Returns for each request the control that moved it, and its new due time."""
    return {fate.offset: (fate.control, fate.due_ms) for fate in fates(env) if isinstance(fate, Moved)}


@pytest.mark.parametrize(("by", "by_ms"), [(b"2h", 2 * HOUR_MS), (b"-30m", -HOUR_MS // 2)])
def test_each_selected_message_moves_once(env: ShardEnvironment, by: bytes, by_ms: int) -> None:
    first = env.shard(RequestTopicConfig(R, store_after_ms=90 * 60_000))
    due_ms = env.broker.now_ms() + HOUR_MS
    chosen = {env.schedule(due_ms + n): due_ms + n for n in range(8)}
    control = move(env, by, topic=b"orders")
    env.until(first, lambda: len(moved(env)) >= 3)
    first.close()
    second = env.new_shard(RequestTopicConfig(R, store_after_ms=90 * 60_000), place="b")
    ends(env, second, control)
    assert moved(env) == {offset: (control, at_ms + by_ms) for offset, at_ms in chosen.items()}
    assert progress(env, control)[-1] == ("applied", 8)
    assert len([fate for fate in fates(env) if isinstance(fate, Moved)]) == 8, "each once"
    stored = [fate.offset for fate in fates(env) if fate.name == "stored"]
    assert stored == (sorted(chosen) if by_ms > 0 else [])


@pytest.mark.parametrize("window", [b"", b"10m"])
def test_all_selected_messages_can_be_delivered_now(env: ShardEnvironment, window: bytes) -> None:
    shard = env.shard()
    given = [("postdate-window", window)] if window else []
    chosen = [far(env, *given, in_ms=HOUR_MS + n) for n in range(8)]
    kept = far(env, target=b"mails")
    control = move(env, topic=b"orders")
    ends(env, shard, control)
    env.until(shard, lambda: len(env.read("orders")) == 8, within_ms=11 * 60_000)
    assert sorted(moved(env)) == chosen
    assert shard._index is not None
    assert shard._index.timer_log.find(kept) is not None


def test_a_move_to_a_later_time_needs_the_store(env: ShardEnvironment) -> None:
    shard = env.shard(RequestTopicConfig(R, store_after_ms=0))
    far(env)
    move(env, b"1h", topic=b"orders")
    env.until(shard, lambda: bool(env.dead_letters()))
    assert env.dead_letters()[0][0] == b"beyond-horizon"


@pytest.mark.parametrize("by", [b"", b"-30m"])
def test_a_move_to_an_earlier_time_needs_no_store(env: ShardEnvironment, by: bytes) -> None:
    shard = env.shard(RequestTopicConfig(R, store_after_ms=0))
    chosen = far(env)
    control = move(env, by, topic=b"orders")
    ends(env, shard, control)
    assert list(moved(env)) == [chosen]
    assert env.dead_letters() == []


def test_a_move_that_has_begun_goes_on_without_a_store(env: ShardEnvironment) -> None:
    """The next owner has other settings. Moves that have begun continue."""
    first = env.shard(RequestTopicConfig(R, store_after_ms=24 * HOUR_MS))
    chosen = [far(env, in_ms=HOUR_MS + n) for n in range(8)]
    control = move(env, b"1h", topic=b"orders")
    env.until(first, lambda: len(moved(env)) >= 3)
    first.close()
    second = env.new_shard(RequestTopicConfig(R, store_after_ms=0), place="b")
    ends(env, second, control)
    assert sorted(moved(env)) == chosen
    assert env.dead_letters() == []


def test_a_later_reschedule_counts_whether_a_move_has_reached_its_message(env: ShardEnvironment) -> None:
    shard, now = env.shard(), env.broker.now_ms()
    for number in range(4):
        far(env, in_ms=HOUR_MS + number)
    last = far(env, ("postdate-id", b"order-9"), in_ms=2 * HOUR_MS)
    control = move(env, topic=b"orders")
    at = ("postdate-at", b"%d" % (now + 3 * HOUR_MS))
    later = env.ask(("postdate-action", b"reschedule"), ("postdate-id", b"order-9"), at)
    ends(env, shard, control)
    env.until(shard, lambda: moved(env).get(last, (0, 0))[0] == later)
    assert moved(env)[last] == (later, now + 3 * HOUR_MS)
