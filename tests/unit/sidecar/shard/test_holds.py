"""Goal: a shard does nothing that is held and everything that is not held, without a busy loop. It knows its holds
before it delivers, and only its present owner changes them.

Method: the real `Shard` over the simulated cluster, and the real part of the poll thread over a simulated group. Only
the test moves the time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import cast

import pytest

from postdate.kafka.errors import KafkaFault, Unreachable
from postdate.kafka.interface import GroupConsumer, NewTopic, Partition
from postdate.sidecar.context.holds import DELIVERY, INTAKE, NOTHING, TARGET, Holds, HoldState
from postdate.sidecar.context.pacing import LargeTransactionSemaphore
from postdate.sidecar.dispatch.batch_content import Batch
from postdate.sidecar.group.hold_requests import HoldRequests
from postdate.sidecar.shard.inbox import Inbox
from postdate.sidecar.shard.shard import Shard
from postdate.sidecar.shard.shard_thread import ShardThread
from postdate.sidecar.states import State
from postdate.wheel.index import TimerIndex
from support.shards.simulated_shard import BUDGET_MS, R, ShardEnvironment, takeovers

PART = Partition(R, 0)


def pass_ms(env: ShardEnvironment, shard: Shard, time_ms: float) -> None:
    until_ms = env.time.now_ms + time_ms
    env.until(shard, lambda: env.time.now_ms >= until_ms)


def test_held_messages_stay_and_a_cancel_still_works(env: ShardEnvironment) -> None:
    shard = env.shard()
    shard.ctx.held.current = Holds(delivery=True)
    kept = env.schedule(1)
    stopped = env.schedule(1, ("postdate-id", b"stop-me"))
    env.until(shard, lambda: shard.next_request == 2)
    env.ask(("postdate-action", b"cancel"), ("postdate-id", b"stop-me"))
    env.until(shard, lambda: env.ended() == 2)
    pass_ms(env, shard, 5_000)
    assert [dict(fates) for fates in env.fates()] == [{stopped: "cancelled", 2: "applied"}]
    assert shard.turn() >= 1_000, "a shard whose hand rests has nothing to do"
    shard.ctx.held.current = NOTHING
    env.until(shard, lambda: env.ended() == 3)
    assert env.fates()[-1] == [(kept, "delivered")]
    shard.close()


def test_a_hold_during_the_wait_for_a_slot_takes_effect(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = env.shard()

    @contextmanager
    def hold_meanwhile(semaphore: LargeTransactionSemaphore, fates: int) -> Iterator[bool]:
        shard.ctx.held.current = Holds(delivery=True)
        yield True

    with monkeypatch.context() as patched:
        patched.setattr(LargeTransactionSemaphore, "slot", hold_meanwhile)
        kept = env.schedule(1)
        pass_ms(env, shard, 2_000)
    assert env.fates() == []
    shard.ctx.held.current = NOTHING
    env.until(shard, lambda: env.ended() == 1)
    assert env.fates() == [[(kept, "delivered")]]
    shard.close()


def test_a_held_target_is_parked_beyond_its_budget_and_delays_no_other(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.admin.create_topics([NewTopic("mails", 1, 1, {})])
    shard = env.shard()
    shard.ctx.held.current = Holds(targets=frozenset({"mails"}))
    parked: list[int] = []
    park = shard._dispatcher._parking.park

    def counted(index: TimerIndex, batch: Batch) -> None:
        parked.append(len(batch.park))
        park(index, batch)

    monkeypatch.setattr(shard._dispatcher._parking, "park", counted)
    held = [env.schedule(1, target=b"mails") for _ in range(3)]
    free = env.schedule(1)
    env.until(shard, lambda: env.ended() == 1)
    pass_ms(env, shard, BUDGET_MS * 3)
    assert env.fates() == [[(free, "delivered")]]
    assert shard._index is not None
    assert shard._index.parked_count == 3
    assert sum(parked) == 3, "what is parked stays there, and is not moved to and fro"
    shard.ctx.held.current = NOTHING
    env.until(shard, lambda: env.ended() == 4)
    assert env.fates()[-1] == [(offset, "delivered") for offset in held]
    assert env.dead_letters() == []
    shard.close()


def test_with_the_intake_held_nothing_is_read_and_present_messages_leave(env: ShardEnvironment) -> None:
    shard = env.shard()
    env.schedule(env.time.now_ms + 2_000)
    env.until(shard, lambda: shard.next_request == 1)
    shard.ctx.held.current = Holds(intake=True)
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 1)
    assert shard.next_request == 1
    assert not shard.inbox.empty
    assert shard.turn() > 0, "requests that wait are no reason to turn again at once"
    shard.ctx.held.current = NOTHING
    env.until(shard, lambda: env.ended() == 2)
    shard.close()


def test_the_next_owner_reads_the_holds_before_it_delivers(env: ShardEnvironment) -> None:
    note = Holds(delivery=True, targets=frozenset({"mails"})).encode()
    env.shard().close()
    env.broker.groups.commit("postdate", PART, 0, note)
    shard = env.shard()
    assert shard.ctx.held.current.words() == ["delivery", "target mails"]
    env.schedule(1)
    env.until(shard, lambda: shard.next_request == 1)
    pass_ms(env, shard, 2_000)
    assert env.fates() == []
    shard.close()


def test_a_shard_does_not_take_over_without_its_holds(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> str:
        raise Unreachable("no answer")

    monkeypatch.setattr(env.admin, "group_note", silent)
    shard = env.new_shard()
    for _ in range(5):
        shard.turn()
        env.time.wait(1_000)
    assert (shard.state, takeovers(shard), len(env.log())) == (State.FENCING, 0, 0)
    monkeypatch.undo()
    env.until(shard, lambda: shard.state is State.RUNNING)
    shard.close()


@pytest.mark.parametrize("note", ["somebody else's", '{"v":2,"holds":{}}', "[]"])
def test_foreign_offset_metadata_holds_nothing(
    env: ShardEnvironment, note: str, caplog: pytest.LogCaptureFixture
) -> None:
    env.broker.groups.commit("postdate", PART, 0, note)
    held = HoldState()
    held.load(env.admin, "postdate", PART)
    assert held.current == NOTHING
    assert "is not Postdate's" in caplog.text


def test_holds_are_encoded_as_documented() -> None:
    assert NOTHING.encode() == ""
    assert Holds(delivery=True).encode() == '{"v":1,"holds":{"delivery":true}}'
    some = (
        NOTHING.changed(INTAKE, True).changed(TARGET, True, "a").changed(TARGET, True, "b").changed(TARGET, False, "a")
    )
    assert some.encode() == '{"v":1,"holds":{"intake":true,"targets":["b"]}}'
    assert some.changed(INTAKE, False).changed(TARGET, False, "b") == NOTHING


# ---- the poll thread's part ------------------------------------------------------------------------------------------


class Keeper:
    """A group consumer that only keeps notes, or fails."""

    def __init__(self, fault: KafkaFault | None = None) -> None:
        self.notes: list[tuple[Partition, int, str]] = []
        self._fault = fault

    def commit_note(self, part: Partition, offset: int, note: str) -> None:
        if self._fault is not None:
            raise self._fault
        self.notes.append((part, offset, note))


def held_shard(state: State = State.RUNNING) -> ShardThread:
    shard = SimpleNamespace(state=state, next_request=7, ctx=SimpleNamespace(held=HoldState(), name="r/0"))
    return cast(ShardThread, SimpleNamespace(shard=shard, inbox=Inbox()))


def changed_holds(keeper: Keeper, thread: ShardThread | None, change: Callable[[Holds], Holds]) -> dict[Partition, str]:
    """Requests a change from another thread, as operators do, and serves requests until the answer is there."""
    requests, answers = HoldRequests(), list[dict[Partition, str]]()
    asker = threading.Thread(target=lambda: answers.append(requests.submit([PART], change, 60.0)))
    asker.start()
    while asker.is_alive():
        requests.serve(cast(GroupConsumer, keeper), {PART: thread} if thread is not None else {})
        asker.join(0.005)
    return answers[0]


def test_a_change_is_kept_by_kafka_before_it_counts() -> None:
    keeper, thread = Keeper(), held_shard()
    assert changed_holds(keeper, thread, lambda holds: holds.changed(DELIVERY, True)) == {}
    assert keeper.notes == [(PART, 7, '{"v":1,"holds":{"delivery":true}}')]
    assert thread.shard.ctx.held.current.delivery
    assert changed_holds(keeper, thread, lambda holds: holds.changed(DELIVERY, True)) == {}
    assert len(keeper.notes) == 1, "what is so already is not written again"


def test_a_change_is_refused_if_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postdate.sidecar.group.hold_requests.HOLD_REQUESTS_MAX", 1)
    requests, keeper, thread = HoldRequests(), Keeper(), held_shard()
    assert "no answer" in requests.submit([PART], lambda holds: holds.changed(DELIVERY, True), 0.0)[PART]
    refusals = requests.submit([PART], lambda holds: holds.changed(INTAKE, True), 0.0)
    assert refusals == {PART: "1 changes wait for the poll loop: request this again"}
    requests.serve(cast(GroupConsumer, keeper), {PART: thread})
    assert thread.shard.ctx.held.current == Holds(delivery=True), "the oldest change is kept"


@pytest.mark.parametrize(
    ("keeper", "thread", "why"),
    [
        (Keeper(Unreachable("no coordinator")), held_shard(), "no coordinator"),
        (Keeper(), held_shard(State.RECOVERING), "it is RECOVERING"),
        (Keeper(), None, "no longer holds it"),
    ],
)
def test_a_change_that_is_not_kept_does_not_count(keeper: Keeper, thread: ShardThread | None, why: str) -> None:
    assert why in changed_holds(keeper, thread, lambda holds: holds.changed(INTAKE, True))[PART]
    assert keeper.notes == []
    assert thread is None or thread.shard.ctx.held.current == NOTHING


def test_more_targets_than_kafka_keeps_are_refused() -> None:
    many = frozenset(f"{number:0>200}" for number in range(25))
    thread = held_shard()
    assert "too many targets" in changed_holds(Keeper(), thread, lambda _: Holds(targets=many))[PART]
    assert thread.shard.ctx.held.current == NOTHING
