"""Goal: a target that refuses records, is slow or is missing delays only the messages for it. The same holds for
Postdate's own topics and for metadata requests.

Method: one shard on the simulated cluster. The broker refuses the records of a topic, accepts only a few at a time, or
does not answer admin requests. The test reads from the topics which messages were delivered, and when.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from math import inf
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from postdate.kafka.errors import Unreachable
from postdate.kafka.interface import LookedUp, NewTopic, TopicInfo
from postdate.sidecar.config.settings import DispatchConfig, RequestTopicConfig
from postdate.sidecar.context.holds import Holds
from postdate.sidecar.context.pacing import TransactionThrottle
from postdate.sidecar.dispatch import parking
from postdate.sidecar.dispatch.due.due_reader import Due, DueReader
from postdate.sidecar.dispatch.limits import MAINTENANCE_INTERVAL_MS, TARGET_LOOKUP_WAIT_MS, TRIAL_LOOKED_AHEAD_MAX
from postdate.sidecar.shard.housekeeping import Housekeeping
from postdate.sidecar.shard.shard import Shard
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import split_key
from postdate.wheel.timer_log import changes
from postdate.wheel.timer_log.timer_log import TimerLogReader
from support.kafka_simulator.admin import SimAdmin
from support.oracles.order import check_order
from support.shards.simulated_shard import OWN, R, ShardEnvironment, parts, refuse, slow_down

HOUR_MS = 3_600_000


@pytest.fixture
def env(tmp_path: Path) -> ShardEnvironment:
    """A cluster with the targets `orders` and `mails`."""
    made = ShardEnvironment(tmp_path)
    made.admin.create_topics([NewTopic("mails", 1, 1, {})])
    made.dispatch = DispatchConfig(retry_budget_ms=30_000)
    return made


def _time_until_delivered(env: ShardEnvironment, shard: Shard, topic: str, count: int, within_ms: float) -> float:
    """Returns the time in ms until `count` messages have been delivered to a topic."""
    began = env.time.now_ms
    env.until(shard, lambda: len(env.read(topic)) >= count, within_ms)
    return env.time.now_ms - began


def _is_any_isolated(env: ShardEnvironment, shard: Shard) -> Callable[[], bool]:
    return lambda: shard._dispatcher._faults.any


@pytest.mark.parametrize("rates", [(), ("mails=50",)], ids=["no rates", "a rate for the other"])
def test_a_slow_target_gets_all_its_messages_and_delays_no_other(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, rates: tuple[str, ...]
) -> None:
    slow_down(monkeypatch, "orders", 100)
    shard = env.shard(RequestTopicConfig(R, messages_per_second_max=rates))
    for _ in range(300):
        env.schedule(1)
    env.until(shard, _is_any_isolated(env, shard))
    env.schedule(1, target=b"mails")
    assert _time_until_delivered(env, shard, "mails", 1, 10_000) < 3_000
    env.until(shard, lambda: len(env.read("orders")) == 300, 60_000)
    assert env.dead_letters() == []
    assert shard._dispatcher._faults.any
    ends = env.time.now_ms + 2_000
    env.until(shard, lambda: env.time.now_ms > ends)
    assert shard._dispatcher.parked_in_ms() == inf  # still isolated, but no trial is due while no message waits
    shard.close()


@pytest.mark.parametrize("seed", [1, 26, 27, 29])
def test_a_slow_target_gets_its_messages_in_order(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Messages that arrive while later messages for the target are already parked also keep the order."""
    slow_down(monkeypatch, "orders", 100)
    shard, chance = env.shard(), random.Random(seed)
    for _ in range(200):
        env.schedule(env.time.now_ms)

    def schedule_some() -> bool:
        for _ in range(chance.randrange(1, 6) if chance.random() < 0.05 else 0):
            env.schedule(env.time.now_ms + chance.randrange(-300, 300))
        return env.ended() >= 450

    env.until(shard, schedule_some, 200_000)
    assert shard._dispatcher._faults.any
    check_order(env, ("orders",))
    shard.close()


@pytest.mark.parametrize("why", ["slow", "held", "missing"])
def test_new_messages_do_not_overtake_parked_ones(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """This holds after a restart, which forgets the isolation, and while the parked messages are moved back in
    parts."""
    monkeypatch.setattr(parking, "UNPARK_ENTRIES_MAX", 40)
    target = "later" if why == "missing" else "orders"
    with monkeypatch.context() as fault:
        if why == "slow":
            slow_down(fault, target, 100)
        shard = env.shard()
        if why == "held":
            shard.ctx.held.current = Holds(targets=frozenset({target}))
        for _ in range(300):
            env.schedule(env.time.now_ms, target=target.encode())
        index = shard._index
        assert index is not None
        env.until(shard, lambda: index.parked_count > 0 and env.ended() + index.parked_count == 300)
        shard.close()
    if why == "missing":
        env.admin.create_topics([NewTopic(target, 1, 1, {})])
    shard = env.shard()

    scheduled, until_ms = 300, env.time.now_ms + 6_000

    def schedule_more() -> bool:
        nonlocal scheduled
        if env.time.now_ms >= until_ms:
            return env.ended() == scheduled
        env.schedule(env.time.now_ms, target=target.encode())
        scheduled += 1
        return False

    env.until(shard, schedule_more)
    check_order(env, (target,))
    shard.close()


def test_messages_that_are_parked_in_each_turn_delay_no_other(env: ShardEnvironment) -> None:
    """In each turn, a message for a held target becomes due and is parked."""
    shard = env.shard()
    env.schedule(1)
    env.schedule(1, target=b"mails")
    env.until(shard, lambda: env.ended() == 2)  # both targets are known
    shard.ctx.held.current = Holds(targets=frozenset({"orders"}))
    env.schedule(env.time.now_ms, target=b"mails")

    def schedule_another() -> bool:
        env.schedule(env.time.now_ms)
        return len(env.read("mails")) == 2

    env.until(shard, schedule_another, within_ms=200)
    assert len(env.read("orders")) == 1
    shard.close()


def test_a_backlog_of_others_does_not_stop_the_trials_of_a_slow_target(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds even if the backlog is older than all parked messages and no message of it leaves."""
    slow_down(monkeypatch, "orders", 100)
    shard = env.shard()
    for _ in range(300):
        env.schedule(env.time.now_ms)
    env.until(shard, _is_any_isolated(env, shard))
    index = shard._index
    assert index is not None
    env.until(shard, lambda: env.ended() > 0 and env.ended() + index.parked_count == 300)
    monkeypatch.setattr(DueReader, "_common", lambda *_: Due([], []))
    for _ in range(2 * TRIAL_LOOKED_AHEAD_MAX):
        env.schedule(1, target=b"mails")
    env.until(shard, lambda: len(env.read("orders")) == 300)
    shard.close()


def test_a_target_that_refuses_everything_stops_no_other(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.dispatch = DispatchConfig(retry_budget_ms=1_000)
    refuse(monkeypatch, lambda topic, _: topic == "orders")
    shard = env.shard()
    for _ in range(1_500):
        env.schedule(1)
    for _ in range(20):
        env.schedule(1, target=b"mails")
    assert _time_until_delivered(env, shard, "mails", 20, 10_000) < 500
    assert len(env.dead_letters()) == 0
    env.until(shard, lambda: len(env.read(OWN.dead_letters)) == 1_500, 200_000)
    assert Counter(env.dead_letters()) == {(b"record-refused", b"v"): 1_500}
    assert max(len(fates) for fates in env.fates()) > 1  # condemned entries leave together
    shard.close()


def test_the_search_for_spent_messages_reads_no_waiting_messages(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of messages may wait for a target, and the shard searches twice a second."""
    refuse(monkeypatch, lambda topic, value: topic == "orders", KafkaError.MSG_SIZE_TOO_LARGE)
    shard = env.shard()
    for _ in range(500):
        env.schedule(1)
    env.until(shard, lambda: shard._index is not None and shard._index.parked_count > 400, 60_000)
    read, honest = list[int](), TimerLogReader.scan_parked

    def scan(self: TimerLogReader, *given: Any, **more: Any) -> tuple[list[bytes], list[bytes]]:
        keys, values = honest(self, *given, **more)
        read.append(len(keys))
        return keys, values

    monkeypatch.setattr(TimerLogReader, "scan_parked", scan)
    assert shard._index is not None
    assert not shard._dispatcher.maintain(shard._index, env.broker.now_ms())
    assert sum(read) == 0, read
    shard.close()


def test_only_messages_whose_budget_is_used_up_are_moved_back(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard, moved = env.shard(), list[tuple[int, int]]()
    honest = parking.Parking._move_back

    def move(self: parking.Parking, index: TimerIndex, keys: list[bytes], values: list[bytes]) -> bool:
        moved.extend((split_key(key)[0], env.broker.now_ms()) for key in keys)
        return honest(self, index, keys, values)

    monkeypatch.setattr(parking.Parking, "_move_back", move)
    for second in range(10):
        env.schedule(env.time.now_ms + second * 1_000, target=b"missing")
    env.until(shard, lambda: len(env.dead_letters()) == 10, 120_000)
    assert len(moved) == 10
    assert all(30_000 <= moved_at - due_ms <= 30_000 + 2 * MAINTENANCE_INTERVAL_MS for due_ms, moved_at in moved), moved
    shard.close()


@pytest.mark.parametrize("has_slow", [False, True])
def test_the_throttle_learns_which_transactions_are_trials(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, has_slow: bool
) -> None:
    if has_slow:
        slow_down(monkeypatch, "orders", 100)
    shard = env.shard()
    trial_flags: list[bool] = []
    monkeypatch.setattr(TransactionThrottle, "observe", lambda *_, is_trial: trial_flags.append(is_trial))
    for _ in range(200):
        env.schedule(1)
    env.until(shard, lambda: len(env.read("orders")) == 200, 60_000)
    assert any(trial_flags) == has_slow
    env.schedule(1, target=b"mails")
    env.until(shard, lambda: len(env.read("mails")) == 1, 60_000)
    assert not trial_flags[-1]
    shard.close()


def test_a_permanently_refused_record_is_a_dead_letter_at_once(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, lambda topic, value: topic == "orders" and value == b"bad", KafkaError.INVALID_RECORD)
    shard = env.shard()
    for number in range(100):
        env.schedule(1, value=b"bad" if number == 50 else b"v")
    began = env.time.now_ms
    env.until(shard, lambda: env.ended() == 100)
    assert env.time.now_ms - began < 2_000  # the retry budget is 30 s
    assert env.dead_letters() == [(b"record-refused", b"bad")]
    assert shard._dispatcher.parked_in_ms() > 0  # no work is due immediately
    shard.close()


def test_a_target_that_takes_records_again_closes_its_breaker(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_away = [True]
    refuse(monkeypatch, lambda topic, _: topic == "orders" and is_away[0])
    shard = env.shard()
    for _ in range(2_000):
        env.schedule(1)
    env.until(shard, _is_any_isolated(env, shard))
    env.time.wait(1_000)
    is_away[0] = False
    assert _time_until_delivered(env, shard, "orders", 2_000, 30_000) < 5_000
    assert env.dead_letters() == []
    shard.close()


def test_one_refused_record_in_a_hundred_hardly_delays_the_others(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, lambda topic, value: topic == "orders" and value == b"bad")
    shard = env.shard()
    for number in range(1_000):
        env.schedule(1, value=b"bad" if number % 100 == 50 else b"v")
    assert _time_until_delivered(env, shard, "orders", 990, 30_000) < 5_000
    env.until(shard, lambda: len(env.dead_letters()) == 10)
    assert set(env.dead_letters()) == {(b"record-refused", b"bad")}
    shard.close()


def test_refused_messages_are_tried_although_controls_keep_coming(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_away = [True]
    refuse(monkeypatch, lambda topic, _: topic == "orders" and is_away[0])
    shard = env.shard()
    env.schedule(1)
    env.until(shard, _is_any_isolated(env, shard))
    controls, ends = 0, env.time.now_ms + 500

    def is_delivered() -> bool:
        nonlocal controls
        controls += 1
        is_away[0] = env.time.now_ms < ends
        env.ask(("postdate-action", b"cancel"), ("postdate-id", b"nobody"))
        return len(env.read("orders")) == 1

    env.until(shard, is_delivered, 5_000)
    assert controls > 50
    assert env.dead_letters() == []
    shard.close()


def test_a_slow_store_does_not_delay_messages(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_down(monkeypatch, OWN.store, 100)
    shard = env.shard(RequestTopicConfig(R, store_after_ms=1_000))
    for _ in range(300):
        env.schedule(env.time.now_ms + HOUR_MS)
    env.until(shard, _is_any_isolated(env, shard))
    assert len(env.read(OWN.store)) == 0
    env.schedule(1, target=b"mails")
    assert _time_until_delivered(env, shard, "mails", 1, 10_000) < 3_000
    assert len(env.read(OWN.store)) < 300
    env.until(shard, lambda: len(env.read(OWN.store)) == 300, 60_000)
    assert env.dead_letters() == []
    shard.close()


def test_messages_behind_those_that_wait_for_a_slow_store_are_delivered(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More entries may wait for STORE than the first, small transaction after a fault may have."""
    shard, count = env.shard(RequestTopicConfig(R, store_after_ms=1_000)), 300
    due_ms = env.time.now_ms + 60_000
    for _ in range(count):
        env.schedule(due_ms)
    env.until(shard, lambda: len(env.read(OWN.store)) == count)
    slow_down(monkeypatch, OWN.store, 1)
    env.until(shard, _is_any_isolated(env, shard), 90_000)
    for _ in range(50):
        env.schedule(due_ms + 1_000, target=b"mails")
    assert _time_until_delivered(env, shard, "mails", 50, 20_000) < 10_000
    assert len(env.read("orders")) < count / 2
    shard.close()


def test_a_control_and_its_entry_stay_together_in_a_slow_store(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 1: an entry and its cancel are in the same transaction, even if a piece may have only one entry. The entries
    between them stay, even though the timer index removes runs of entries as ranges."""
    monkeypatch.setattr(changes, "SPAN_KEYS_MIN", 2)
    slow_down(monkeypatch, OWN.store, 4)
    shard = env.shard(RequestTopicConfig(R, store_after_ms=1_000))
    stored = [env.schedule(env.time.now_ms + HOUR_MS) for _ in range(12)]
    cancels = {}
    for offset in stored[::3]:
        origin = b"%s/0/%d" % (R.encode(), offset)
        cancels[offset] = env.ask(("postdate-action", b"cancel"), ("postdate-origin", origin))
    env.until(shard, lambda: env.ended() == 16, 120_000)
    transactions = [dict(fates) for fates in env.fates()]
    assert len(transactions) > 2
    for offset, cancel in cancels.items():
        assert [fates for fates in transactions if fates.get(offset) == "cancelled" and fates.get(cancel) == "applied"]
    shard.close()


def _unanswered(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, ends: float) -> list[float]:
    """Leaves look-ups unanswered before `ends`, as if the controller hung. Returns a list that collects how long each
    poll blocked the shard, in ms."""
    waits: list[float] = []
    honest = SimAdmin.look_up

    def look_up(self: SimAdmin, topics: list[str], config: list[str]) -> Callable[[float], LookedUp]:
        late_at, answer_to = env.time.now_ms + 15_000, honest(self, topics, config)

        def poll(wait_s: float) -> LookedUp:
            if env.time.now_ms >= ends:
                return answer_to(wait_s)
            waits.append(wait_s * 1_000)
            env.time.wait(wait_s * 1_000)
            if env.time.now_ms >= late_at:
                raise Unreachable("Could not describe topics: no answer in time")
            return None

        return poll

    monkeypatch.setattr(SimAdmin, "look_up", look_up)
    return waits


def test_a_controller_that_does_not_answer_delays_no_message_for_a_known_target(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = env.shard()
    env.schedule(1, target=b"mails")
    _time_until_delivered(env, shard, "mails", 1, 1_000)
    ends = env.time.now_ms + 100_000
    waits = _unanswered(env, monkeypatch, ends)
    late = []
    for number in range(80):
        env.schedule(1)  # this target has never been looked up
        env.schedule(1, target=b"mails")
        late.append(_time_until_delivered(env, shard, "mails", number + 2, 10_000))
        env.until(shard, lambda: env.time.now_ms > ends - 100_000 + 1_000 * (number + 1))  # noqa: B023
    assert max(late) < 2 * TARGET_LOOKUP_WAIT_MS
    assert sum(waits) < 80 * TARGET_LOOKUP_WAIT_MS / 4
    assert env.read("orders") == []
    assert _time_until_delivered(env, shard, "orders", 80, 60_000) < 40_000
    assert env.dead_letters() == []
    shard.close()


def test_a_housekeeping_duty_that_fails_in_kafka_delays_no_message(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = env.shard(RequestTopicConfig(R, cancel_gate="always"))
    tried = []

    def fail(self: Housekeeping, *_: object) -> None:
        tried.append(env.time.now_ms)
        env.time.wait(15_000)
        raise Unreachable("no answer in time")

    monkeypatch.setattr(Housekeeping, "_open_gate", fail)
    for number in range(20):
        env.schedule(env.time.now_ms - 60_000)
        env.until(shard, lambda: len(env.read("orders")) == number + 1, 20_000)  # noqa: B023
        env.until(shard, lambda: env.time.now_ms > 0)
        env.time.wait(3_000)
    assert 2 <= len(tried) < 8
    shard.close()


def test_a_message_for_a_target_that_was_created_does_not_wait_for_the_next_probe(env: ShardEnvironment) -> None:
    """A target that has been missing for some time is looked up every ten seconds."""
    shard = env.shard()
    env.schedule(env.broker.now_ms(), target=b"late")
    began = env.time.now_ms
    env.until(shard, lambda: env.time.now_ms - began > 17_000)
    assert shard.turn() <= MAINTENANCE_INTERVAL_MS, "it looks for answers about parked targets that often"
    env.admin.create_topics([NewTopic("late", 1, 1, {})])
    env.schedule(env.broker.now_ms(), target=b"late")
    assert _time_until_delivered(env, shard, "late", 2, 30_000) < 2_500
    shard.close()


def test_a_message_whose_budget_is_used_up_waits_for_a_look_up_of_its_target(env: ShardEnvironment) -> None:
    """The message is overdue, as after `dead-letters requeue` of a message with an absolute due time."""
    shard = env.shard()
    env.schedule(1, target=b"late")
    env.until(shard, lambda: len(env.dead_letters()) == 1)
    env.admin.create_topics([NewTopic("late", 1, 1, {})])
    env.schedule(1, target=b"late")
    assert _time_until_delivered(env, shard, "late", 1, 30_000) < 2_500
    assert len(env.dead_letters()) == 1
    env.admin.delete_topics(["late"])
    env.schedule(1, target=b"late")
    env.until(shard, lambda: len(env.dead_letters()) == 2, 120_000)
    shard.close()


@pytest.mark.parametrize("budget_ms", [0, 2_000])
def test_a_look_up_before_the_end_of_the_budget_ends_no_message(env: ShardEnvironment, budget_ms: int) -> None:
    """The target was missing at its last look-up, and exists when the message becomes due. The shard does not run for
    the rest of the budget, as if its machine were suspended."""
    env.dispatch = DispatchConfig(retry_budget_ms=budget_ms)
    shard = env.shard()
    env.schedule(1, target=b"late")
    due_ms = env.time.now_ms + 60_000
    env.schedule(due_ms, target=b"late")
    env.until(shard, lambda: len(env.dead_letters()) == 1)
    env.until(shard, lambda: env.time.now_ms >= due_ms - 1_000)
    env.admin.create_topics([NewTopic("late", 1, 1, {})])
    env.time.wait(1_000 + budget_ms)
    assert _time_until_delivered(env, shard, "late", 1, 30_000) < 2_500
    assert len(env.dead_letters()) == 1
    shard.close()


def test_the_time_without_an_answer_from_the_cluster_does_not_use_the_retry_budget(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All brokers shut down cleanly, and start five minutes later: their first answers contain no leader for the
    target."""
    began_ms = env.time.now_ms
    honest = SimAdmin.look_up

    def look_up(self: SimAdmin, topics: Iterable[str], config: Iterable[str] = ()) -> Callable[[float], LookedUp]:
        elapsed_ms = env.time.now_ms - began_ms
        if 3_000 <= elapsed_ms < 300_000:
            raise Unreachable("all brokers are away")
        if elapsed_ms >= 310_000:
            return honest(self, topics, config)
        return lambda _: {name: TopicInfo(name, "id", {0: False}, {}) for name in topics}

    monkeypatch.setattr(SimAdmin, "look_up", look_up)
    env.dispatch = DispatchConfig(retry_budget_ms=60_000)
    shard = env.shard()
    for due_ms in (began_ms + 1_000, began_ms + 200_000, began_ms + 301_000):
        env.schedule(due_ms, target=b"orders")
    assert _time_until_delivered(env, shard, "orders", 3, 340_000) < 340_000
    assert env.dead_letters() == []
    shard.close()


def test_a_topic_whose_look_up_fails_does_not_keep_messages_for_a_missing_target(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look-up of the failing topic begins as soon as the look-up of the missing target is answered."""
    honest = SimAdmin.look_up

    def look_up(self: SimAdmin, topics: Iterable[str], config: Iterable[str] = ()) -> Callable[[float], LookedUp]:
        if "mails" not in (names := [*topics]):
            return honest(self, names, config)

        def fail(_: float) -> LookedUp:
            raise Unreachable("no answer in time")

        return fail

    monkeypatch.setattr(SimAdmin, "look_up", look_up)
    env.dispatch = DispatchConfig(retry_budget_ms=2_000)
    shard = env.shard()
    env.schedule(1, target=b"missing")
    env.until(shard, lambda: parts(shard)[0].parked_count == 1)
    env.schedule(1, target=b"mails")
    env.until(shard, lambda: len(env.dead_letters()) == 1, 300_000)
    shard.close()


def test_metadata_that_is_older_than_a_message_ends_no_message(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shard requests the metadata before the topic is created. The answer arrives after a message for the topic was
    accepted."""
    shard = env.shard()
    env.schedule(1, target=b"late")
    env.until(shard, lambda: len(env.dead_letters()) == 1)
    is_held, honest = [True], SimAdmin.look_up
    answers: list[LookedUp] = []

    def look_up(self: SimAdmin, topics: list[str], config: list[str]) -> Callable[[float], LookedUp]:
        answer = honest(self, topics, config)(1.0)
        answers.append(answer)
        return lambda _: None if is_held[0] else answer

    monkeypatch.setattr(SimAdmin, "look_up", look_up)
    env.until(shard, lambda: bool(answers))
    env.admin.create_topics([NewTopic("late", 1, 1, {})])
    env.schedule(1, target=b"late")
    is_held[0] = False
    assert _time_until_delivered(env, shard, "late", 1, 30_000) < 2_500
    assert len(env.dead_letters()) == 1
    shard.close()


def test_a_deleted_target_is_found_while_its_transaction_waits(env: ShardEnvironment) -> None:
    shard = env.shard()
    env.schedule(1)
    env.schedule(1, target=b"mails")
    env.until(shard, lambda: env.ended() == 2)
    env.admin.delete_topics(["orders"])
    env.schedule(1)
    env.schedule(1, target=b"mails")
    assert _time_until_delivered(env, shard, "mails", 2, 5_000) < 200
    env.admin.create_topics([NewTopic("orders", 1, 1, {})])
    assert _time_until_delivered(env, shard, "orders", 1, 30_000) < 5_000
    assert env.dead_letters() == []
    shard.close()
