"""Goal: the poll thread tells each delivering shard how far its partition has been read, also past what is no record.

Method: the real poller and the simulated cluster; where a shard's thread would be stands its inbox, and a state. The
test makes the rounds and moves the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from postdate.connectors.kafka.seam import Partition
from postdate.connectors.kafka.sim import SimBroker, SimKafka
from postdate.sidecar import poller as poller_module
from postdate.sidecar.holds import Held
from postdate.sidecar.inbox import Inbox
from postdate.sidecar.poller import Poller
from postdate.sidecar.shard_thread import ShardThread
from postdate.sidecar.states import State
from support.kafka_steps import abort_values, commit_values, new_topic, open_producer


class _Bench:
    """One partition, its inbox, and the poller between them; `looks` counts the questions for a position."""

    def __init__(self) -> None:
        self.kafka = SimKafka(SimBroker())
        self.part = Partition(new_topic(self.kafka), 0)
        self.inbox = Inbox()
        self.shard = SimpleNamespace(
            state=State.RUNNING, next_request=0, foreign=False, ctx=SimpleNamespace(held=Held())
        )
        self.looks = 0
        consumer = self.kafka.group_consumer("group")
        positions = consumer.positions

        def counted(parts: Sequence[Partition]) -> dict[Partition, int]:
            self.looks += len(parts)
            return positions(parts)

        consumer.positions = counted  # type: ignore[method-assign]
        self.thread_looks = 0
        self.thread = SimpleNamespace(inbox=self.inbox, shard=self.shard, look=self._looked, is_resting=False)
        thread = cast(ShardThread, self.thread)
        self.poller = Poller(consumer, lambda _: thread, lambda _: None)
        consumer.subscribe([self.part.topic], self.poller)
        self.inbox.restart(0)

    def _looked(self) -> None:
        self.thread_looks += 1

    def monotonic(self) -> float:
        return self.kafka.broker.time.now_ms / 1000

    def rounds_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(1_000):
            self.poller._serve()
            if condition():
                return
        raise AssertionError("a thousand rounds were not enough")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> _Bench:
    bench = _Bench()
    monkeypatch.setattr(poller_module, "time", bench)
    return bench


@pytest.mark.parametrize("state", [State.CATCHING_UP, State.RUNNING])
def test_a_delivering_shard_learns_of_markers_and_aborted_records_behind_its_last_request(
    bench: _Bench, state: State
) -> None:
    bench.shard.state = state
    producer = open_producer(bench.kafka)
    commit_values(producer, bench.part.topic, [b"a", b"b"])
    bench.rounds_until(lambda: bench.inbox.position >= 2)
    assert [record.value for record in bench.inbox.take()] == [b"a", b"b"]
    abort_values(producer, bench.part.topic, [b"x"] * 3)
    bench.rounds_until(lambda: bench.inbox.position_if_empty() == 7)


def test_a_position_is_asked_for_now_and_then_only(bench: _Bench) -> None:
    bench.rounds_until(lambda: bench.looks > 0)
    looks, since = bench.looks, bench.monotonic()
    for _ in range(100):
        commit_values(producer := open_producer(bench.kafka), bench.part.topic, [b"a"])  # so that no round waits
        producer.destroy()
        bench.poller._serve()
    passed_s = bench.monotonic() - since
    assert bench.looks - looks <= passed_s / 0.2 + 1 < 50


def test_a_shard_that_does_not_deliver_is_told_nothing(bench: _Bench) -> None:
    bench.shard.state = State.RECOVERING
    producer = open_producer(bench.kafka)
    commit_values(producer, bench.part.topic, [b"a"])
    for _ in range(50):
        bench.poller._serve()
    assert bench.looks == 0


def test_who_holds_shards_is_a_member_and_who_holds_none_asks(bench: _Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def member_id() -> str:
        asked.append("member")
        return answer

    answer = ""
    monkeypatch.setattr(bench.poller._consumer, "member_id", member_id)
    bench.rounds_until(lambda: bench.poller.is_member)
    bench.rounds_until(lambda: bench.monotonic() > 5)
    assert bench.poller.shards
    assert not asked
    bench.poller.shards.clear()
    bench.rounds_until(lambda: not bench.poller.is_member)
    answer = "member-1"
    bench.rounds_until(lambda: bench.poller.is_member)


def test_a_shard_at_rest_is_asked_for_once_a_second(bench: _Bench) -> None:
    bench.rounds_until(lambda: bench.looks > 0)
    bench.thread.is_resting = True
    looks, thread_looks, since = bench.looks, bench.thread_looks, bench.monotonic()
    bench.rounds_until(lambda: bench.monotonic() > since + 10)
    assert 8 <= bench.looks - looks <= 11
    assert 8 <= bench.thread_looks - thread_looks <= 11
    bench.thread.is_resting = False
    looks, since = bench.looks, bench.monotonic()
    bench.rounds_until(lambda: bench.monotonic() > since + 2)
    assert bench.looks - looks >= 6
