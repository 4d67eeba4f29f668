"""Goal: the poll thread reports to each delivering shard how far its partition has been read, markers included. It
sends one request to confirm all fenced shards, and never waits for the answer.

Method: the real poller runs over the simulated cluster, with an inbox and a state instead of each shard's thread. The
test calls the rounds and moves the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from postdate.kafka.interface import Partition
from postdate.sidecar.context.holds import HoldState
from postdate.sidecar.counts import ShardCounts
from postdate.sidecar.group import poller as poller_module
from postdate.sidecar.group.poller import Poller
from postdate.sidecar.shard.inbox import Inbox
from postdate.sidecar.shard.shard_thread import ShardThread
from postdate.sidecar.states import State
from support.brokers.kafka_steps import abort_values, commit_values, new_topic, open_producer
from support.kafka_simulator import SimBroker, SimKafka


class _PolledPartition:
    """One partition, its inbox, and the poller between them. `position_queries`: the number of queries for a
    position."""

    def __init__(self) -> None:
        self.kafka = SimKafka(SimBroker())
        self.part = Partition(new_topic(self.kafka), 0)
        self.inbox = Inbox()
        self.shard = SimpleNamespace(
            state=State.RUNNING, next_request=0, foreign=False, ctx=SimpleNamespace(held=HoldState())
        )
        self.position_queries = 0
        consumer = self.kafka.group_consumer("group")
        positions = consumer.positions

        def counted(parts: Sequence[Partition]) -> dict[Partition, int]:
            self.position_queries += len(parts)
            return positions(parts)

        consumer.positions = counted  # type: ignore[method-assign]
        self.wake_checks = 0
        self.thread = SimpleNamespace(
            inbox=self.inbox, shard=self.shard, wake_if_needed=self._count_wake_check, is_resting=False
        )
        thread = cast(ShardThread, self.thread)
        self.reported: list[int] = []
        self.poller = Poller(consumer, lambda _: thread, self.reported.append)
        consumer.subscribe([self.part.topic], self.poller)
        self.inbox.restart(0)

    def _count_wake_check(self) -> None:
        self.wake_checks += 1

    def monotonic(self) -> float:
        return self.kafka.broker.time.now_ms / 1000

    def rounds_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(1_000):
            self.poller._serve()
            if condition():
                return
        raise AssertionError("a thousand rounds were not enough")


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> _PolledPartition:
    env = _PolledPartition()
    monkeypatch.setattr(poller_module, "time", env)
    return env


def test_the_number_of_shards_is_reported_once_it_is_not_zero(env: _PolledPartition) -> None:
    env.shard.state = State.RECOVERING
    env.rounds_until(lambda: bool(env.poller.shards))
    env.poller._serve()
    assert env.reported == []
    for state in (State.RUNNING, State.FENCED):
        env.shard.state = state
        env.poller._serve()
    assert env.reported == [1, 0]


@pytest.mark.parametrize("state", [State.CATCHING_UP, State.RUNNING])
def test_a_shard_passes_markers_and_aborted_records_at_the_end_of_its_requests(
    env: _PolledPartition, state: State
) -> None:
    env.shard.state = state
    producer = open_producer(env.kafka)
    commit_values(producer, env.part.topic, [b"a", b"b"])
    env.rounds_until(lambda: env.inbox.position >= 2)
    assert [record.value for record in env.inbox.drain()] == [b"a", b"b"]
    abort_values(producer, env.part.topic, [b"x"] * 3)
    env.rounds_until(lambda: env.inbox.position_if_empty() == 7)


def test_positions_are_requested_at_an_interval(env: _PolledPartition) -> None:
    env.rounds_until(lambda: env.position_queries > 0)
    queries_before, since = env.position_queries, env.monotonic()
    for _ in range(100):
        commit_values(producer := open_producer(env.kafka), env.part.topic, [b"a"])  # so that no round waits
        producer.destroy()
        env.poller._serve()
    passed_s = env.monotonic() - since
    assert env.position_queries - queries_before <= passed_s / 0.2 + 1 < 50


def test_a_shard_that_does_not_deliver_gets_no_positions(env: _PolledPartition) -> None:
    env.shard.state = State.RECOVERING
    producer = open_producer(env.kafka)
    commit_values(producer, env.part.topic, [b"a"])
    for _ in range(50):
        env.poller._serve()
    assert env.position_queries == 0


def test_a_process_without_shards_queries_its_membership_every_second(
    env: _PolledPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: list[str] = []

    def member_id() -> str:
        queries.append("member")
        return answer

    answer = "member-0"
    monkeypatch.setattr(env.poller._consumer, "member_id", member_id)
    env.rounds_until(lambda: env.poller.is_member)
    env.rounds_until(lambda: env.monotonic() > 5)
    assert env.poller.shards
    assert len(queries) <= 1
    env.poller.shards.clear()
    answer = ""
    env.rounds_until(lambda: not env.poller.is_member)
    answer = "member-1"
    env.rounds_until(lambda: env.poller.is_member)


def test_a_resting_shard_is_checked_once_a_second(env: _PolledPartition) -> None:
    env.rounds_until(lambda: env.position_queries > 0)
    env.thread.is_resting = True
    queries_before, wake_checks_before, since = env.position_queries, env.wake_checks, env.monotonic()
    env.rounds_until(lambda: env.monotonic() > since + 10)
    assert 8 <= env.position_queries - queries_before <= 11
    assert 8 <= env.wake_checks - wake_checks_before <= 11
    env.thread.is_resting = False
    queries_before, since = env.position_queries, env.monotonic()
    env.rounds_until(lambda: env.monotonic() > since + 2)
    assert env.position_queries - queries_before >= 6


class _Fenced:
    """A poller with two fenced shards and a running one. The test answers in place of the coordinator."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.env = _PolledPartition()
        monkeypatch.setattr(poller_module, "time", self.env)
        self.confirmed: list[frozenset[Partition]] = []
        self.waiting: list[Callable[[], None]] = []
        self.noted: list[Partition] = []
        consumer = self.env.kafka.group_consumer("another")
        consumer.confirm = self._confirm  # type: ignore[method-assign]
        self.poller = Poller(consumer, lambda _: self.env.thread, lambda _: None, self.waiting.append)  # type: ignore[arg-type, return-value]
        self.parts = [Partition(self.env.part.topic, index) for index in range(3)]
        for part, state in zip(self.parts, (State.FENCED, State.FENCED, State.RUNNING), strict=True):
            self.poller.shards[part] = cast(ShardThread, self._thread(part, state))

    def _thread(self, part: Partition, state: State) -> SimpleNamespace:
        counts = ShardCounts()
        counts.states.entered[State.FENCED] = 1
        ctx = SimpleNamespace(held=HoldState(), counts=counts)
        shard = SimpleNamespace(state=state, foreign=False, next_request=0, ctx=ctx)
        shard.note_ownership_confirmed = lambda: self.noted.append(part)
        return SimpleNamespace(inbox=Inbox(), shard=shard, wake_if_needed=lambda: None, is_resting=False)

    def _confirm(self, parts: Sequence[Partition], timeout_s: float) -> frozenset[Partition]:
        self.confirmed.append(frozenset(parts))
        return frozenset(parts)

    def serve_for(self, seconds: float) -> None:
        until = self.env.monotonic() + seconds
        while self.env.monotonic() < until:
            self.poller._serve()


@pytest.fixture
def fenced(monkeypatch: pytest.MonkeyPatch) -> _Fenced:
    return _Fenced(monkeypatch)


def test_all_fenced_shards_are_confirmed_by_one_background_request(fenced: _Fenced) -> None:
    fenced.serve_for(20)
    assert len(fenced.waiting) == 1, "one question at a time, and the rounds go on without its answer"
    assert fenced.noted == []
    fenced.waiting.pop()()
    assert fenced.confirmed == [frozenset(fenced.parts[:2])]
    fenced.serve_for(1)
    assert sorted(fenced.noted) == fenced.parts[:2]


def test_a_confirmation_counts_only_for_the_fence_that_it_was_requested_for(fenced: _Fenced) -> None:
    fenced.serve_for(6)
    fenced.poller.shards[fenced.parts[0]].shard.ctx.counts.states.entered[State.FENCED] += 1
    fenced.waiting.pop()()
    fenced.serve_for(1)
    assert fenced.noted == fenced.parts[1:2]
