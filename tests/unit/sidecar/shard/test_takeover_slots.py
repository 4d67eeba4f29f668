"""Goal: stuck takeovers delay other takeovers by seconds only, and the number of takeovers that handle records never
exceeds the bound.

Method: real threads run stubs instead of shards; the takeover of a stub ends when the test allows it. The tests of
readers use the simulated cluster, with one thread at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from postdate.kafka.interface import Isolation, Partition
from postdate.sidecar.clock import SystemClock
from postdate.sidecar.config.settings import Config, RequestTopicConfig
from postdate.sidecar.context.pacing import TransactionBudget, TransactionThrottle
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.ingest.request_rules import rules_of
from postdate.sidecar.shard import shard_thread, takeover_slots
from postdate.sidecar.shard.limits import TAKEOVERS_AT_ONCE_MAX
from postdate.sidecar.shard.shard_thread import ShardThread
from postdate.sidecar.shard.takeover_slots import Slot, SlottedKafka, TakeoverSlots
from postdate.sidecar.states import State
from postdate.wire.topics import OwnTopics
from support.brokers.kafka_steps import append, new_topic
from support.deployments.sidecars import wait_until
from support.kafka_simulator import SimBroker, SimKafka
from support.waiting.timeouts import WAIT_TIMEOUT_S

IDLE_S = 0.3


class _Stub:
    """A shard whose takeover lasts until `may_end`."""

    may_end = threading.Event()

    def __init__(self, ctx: ShardContext, inbox: object, pace: object) -> None:
        self.ctx = ctx
        self.state = State.OPENING
        self.began = threading.Event()

    def turn(self) -> float:
        self.began.set()
        if self.state is State.OPENING and self.ctx.partition < TAKEOVERS_AT_ONCE_MAX:
            self.may_end.wait(WAIT_TIMEOUT_S)
        self.state = State.RUNNING
        return 60_000.0

    def close(self) -> None:
        self.state = State.UNASSIGNED


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replaces shards by stubs. A slot counts as idle after `IDLE_S`."""
    monkeypatch.setattr(_Stub, "may_end", threading.Event())
    monkeypatch.setattr(shard_thread, "Shard", _Stub)
    monkeypatch.setattr(shard_thread, "_slots", TakeoverSlots(TAKEOVERS_AT_ONCE_MAX, IDLE_S), raising=False)
    yield
    _Stub.may_end.set()


def _thread(directory: Path, partition: int) -> ShardThread:
    config, kafka, released = (
        Config(request_topics=(RequestTopicConfig("r"),)),
        SimKafka(SimBroker()),
        threading.Event(),
    )
    ctx = ShardContext(
        config=config,
        topic=config.request_topic("r"),
        own=OwnTopics.of("r"),
        rules=rules_of(config, "r", -1),
        partition=partition,
        cluster_id="cluster",
        directory=directory,
        kafka=kafka,
        admin=kafka.admin(),
        clock=SystemClock(),
        instance="here",
        stopping=released.is_set,
    )
    return ShardThread(ctx, TransactionThrottle(TransactionBudget(100), 1.0), released)


def test_stuck_takeovers_in_all_slots_do_not_block_the_next_one(stuck: None, tmp_path: Path) -> None:
    threads = [_thread(tmp_path, number) for number in range(TAKEOVERS_AT_ONCE_MAX)]
    for thread in threads:
        assert cast(_Stub, thread.shard).began.wait(WAIT_TIMEOUT_S)
    others = [_thread(tmp_path, TAKEOVERS_AT_ONCE_MAX + number) for number in range(3)]
    try:
        wait_until(
            lambda: all(thread.shard.state is State.RUNNING for thread in others),
            "the others take over",
            WAIT_TIMEOUT_S / 8,
        )
    finally:
        _Stub.may_end.set()
        for thread in [*threads, *others]:
            thread.release()
            assert thread.join(WAIT_TIMEOUT_S)


def test_a_shard_that_waits_for_a_slot_can_be_released(
    stuck: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_thread, "_slots", TakeoverSlots(1, WAIT_TIMEOUT_S), raising=False)
    first = _thread(tmp_path, 0)
    assert cast(_Stub, first.shard).began.wait(WAIT_TIMEOUT_S)
    second = _thread(tmp_path, 1)
    second.release()
    assert second.join(WAIT_TIMEOUT_S)
    assert not cast(_Stub, second.shard).began.is_set()
    _Stub.may_end.set()
    first.release()
    assert first.join(WAIT_TIMEOUT_S)


class _Readers:
    """Two takeovers that share one slot, and a clock that the test moves. `opened`: the number of open readers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(takeover_slots, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.kafka = SimKafka(SimBroker())
        self.part = Partition(new_topic(self.kafka), 0)
        self.is_stopping = False
        slots = TakeoverSlots(1, IDLE_S)
        self.slots = [Slot(slots, lambda: self.is_stopping) for _ in range(2)]
        self.readers = [
            SlottedKafka(self.kafka, slot, lambda: True).log_reader(self.part, 0, Isolation.READ_COMMITTED)
            for slot in self.slots
        ]


def test_an_idle_reader_gives_its_slot_to_a_waiting_one_and_resumes_at_its_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = _Readers(monkeypatch)
    first, second = bench.readers
    append(bench.kafka, bench.part.topic, b"a")
    assert [record.value for record in first.read(10, 0)] == [b"a"]
    assert first.read(10, 0) == []
    bench.now += 10 * IDLE_S
    assert first.read(10, 0) == []
    assert bench.slots[0].is_held, "nobody waits for it"
    assert [record.value for record in second.read(10, 0)] == [b"a"]
    assert [slot.is_held for slot in bench.slots] == [False, True]
    append(bench.kafka, bench.part.topic, b"b")
    bench.slots[1].release()
    assert [record.value for record in first.read(10, 0)] == [b"b"], "it reads on, and nothing twice"
    assert first.position() == 2


def test_a_takeover_that_makes_progress_keeps_its_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = _Readers(monkeypatch)
    first, second = bench.readers
    append(bench.kafka, bench.part.topic, b"a")
    assert len(first.read(10, 0)) == 1
    bench.now += 1_000
    bench.is_stopping = True
    assert second.read(10, 0) == [], "it waits until it is released"
    assert bench.slots[0].is_held
    bench.is_stopping = False
    first.close()
    bench.now += 2 * IDLE_S
    assert len(second.read(10, 0)) == 1


def test_slots_go_to_takeovers_in_the_order_in_which_they_came() -> None:
    slots, order = TakeoverSlots(1, WAIT_TIMEOUT_S), list[int]()
    holder = Slot(slots, lambda: False)
    assert holder.acquire()

    def take(number: int) -> None:
        slot = Slot(slots, lambda: False)
        assert slot.acquire()
        order.append(number)
        slot.release()

    threads = []
    for number in range(5):
        threads.append(threading.Thread(target=take, args=(number,)))
        threads[-1].start()
        wait_until(lambda count=number + 1: len(slots._waiting) == count, "it waits")  # type: ignore[misc]
    holder.release()
    for thread in threads:
        thread.join(WAIT_TIMEOUT_S)
    assert order == [0, 1, 2, 3, 4]
