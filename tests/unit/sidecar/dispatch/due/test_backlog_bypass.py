"""Goal: a backlog delays only its own targets. No message is lost or leaves out of order, and transactions stay short.

Method: a shard on a simulated cluster with transactions of a few entries, so that a backlog needs few messages. The
tests read the deliveries and their order from the topics. One test compares a random schedule of targets, times and
controls with the order that docs/protocol.md promises. The tests of the batch limit pass it the durations of
transactions.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from postdate.kafka.interface import NewTopic
from postdate.sidecar.config.settings import DispatchConfig
from postdate.sidecar.context.limits import LARGE_TRANSACTION_FATES
from postdate.sidecar.dispatch.dispatcher import Dispatcher
from postdate.sidecar.dispatch.due import backlog_bypass
from postdate.sidecar.dispatch.due.batch_limit import FIRST_SHARE, BatchLimit
from postdate.sidecar.dispatch.limits import HELD_BACK_MS_MAX, SLOW_BATCH_SHARE_MIN
from postdate.sidecar.ingest.limits import ENDING_ENTRIES_MAX
from postdate.wheel.timer_log import changes
from postdate.wire.limits import FATES_MAX
from support.oracles.order import check_order, delivered
from support.shards.simulated_shard import BUDGET_MS, ShardEnvironment

_TARGETS = ("orders", *(f"light-{number}" for number in range(16)))


@pytest.fixture
def env(tmp_path: Path) -> ShardEnvironment:
    """A cluster with one heavy and many light targets, and transactions of at most ten entries."""
    made = ShardEnvironment(tmp_path)
    made.admin.create_topics([NewTopic(name, 1, 1, {}) for name in _TARGETS[1:]])
    made.dispatch = DispatchConfig(retry_budget_ms=BUDGET_MS, entries_max=10)
    return made


def test_a_backlog_of_one_target_does_not_hold_up_another(env: ShardEnvironment) -> None:
    shard = env.shard()
    now = env.time.now_ms
    for _ in range(400):
        env.schedule(now + 1_000)
    late = {env.schedule(now + 1_001 + n, target=b"light-0") for n in range(5)}
    env.until(shard, lambda: env.ended() == 405)
    transactions = env.fates()
    last_of_the_others = max(n for n, fates in enumerate(transactions) if late & {offset for offset, _ in fates})
    assert last_of_the_others < len(transactions) / 2
    assert delivered(env, "orders") == sorted(delivered(env, "orders"))
    assert delivered(env, "light-0") == sorted(delivered(env, "light-0"))
    shard.close()


@pytest.mark.parametrize("targets", [_TARGETS[:1], _TARGETS[:-1]], ids=["of one target", "of many"])
def test_the_first_transaction_of_a_backlog_is_small(env: ShardEnvironment, targets: tuple[str, ...]) -> None:
    """The second cursor searches behind the backlog after the first transaction, and takes messages there if a few
    targets make up the backlog."""
    env.dispatch = DispatchConfig(retry_budget_ms=BUDGET_MS, entries_max=200)
    shard = env.shard()
    due, beside = env.time.now_ms + 1_000, _TARGETS[-1].encode()
    for _ in range(3):  # many messages per transaction, but for none of the targets of the backlog
        env.schedule(due, target=beside)
    for number in range(1_000):
        env.schedule(due, target=targets[number % len(targets)].encode())
    late = env.schedule(due, target=beside)
    env.until(shard, lambda: env.ended() == 1_004)
    left = [{offset for offset, _ in fates} for fates in env.fates() if fates]
    full = 200 * FIRST_SHARE
    is_passed = len(targets) == 1
    assert [len(offsets) for offsets in left[:2]] == [full / 4, full / 4 + 1 if is_passed else full]
    assert (late in left[1]) == is_passed
    assert min(len(offsets) for offsets in left[2:-1]) >= full
    shard.close()


@pytest.mark.parametrize("seed", range(6))
def test_each_target_leaves_in_order_and_each_message_once(
    env: ShardEnvironment, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the backlog is worked off, controls and further messages arrive. Many of these messages are due at the same
    time, or already overdue."""
    choose = random.Random(seed)
    monkeypatch.setattr(backlog_bypass, "BYPASS_ENTRIES_MAX", choose.choice([3, 20, 1_000]))
    monkeypatch.setattr(changes, "SPAN_KEYS_MIN", 2)  # a wrong range would end other entries
    env.dispatch = DispatchConfig(retry_budget_ms=BUDGET_MS, entries_max=choose.choice([10, 40, 80]))
    shard = env.shard()
    now = env.time.now_ms
    target_of: dict[int, str] = {}
    ids = 0

    def schedule_some(count: int) -> None:
        nonlocal ids
        for _ in range(count):
            target = choose.choices(_TARGETS, [32] + 16 * [1])[0]
            ids += 1
            due = now + choose.choice(
                [1_000, choose.randrange(900, 1_100), env.time.now_ms - now - choose.randrange(50)]
            )
            target_of[env.schedule(due, ("postdate-id", b"%d" % ids), target=target.encode())] = target
            if choose.random() < 0.05:
                victim = b"%d" % choose.randrange(1, ids + 1)
                action = choose.choice([b"cancel", b"reschedule"])
                at = [("postdate-at", b"%d" % (now + 1_200))] if action == b"reschedule" else []
                env.ask(("postdate-action", action), ("postdate-id", victim), *at)

    schedule_some(500)
    env.time.wait(1_000)
    for _ in range(25):
        later = env.time.now_ms + choose.randrange(1, 20)
        env.until(shard, lambda later=later: env.time.now_ms >= later)  # type: ignore[misc]
        schedule_some(choose.randrange(10))
    finals = ("delivered", "cancelled", "dead", "replaced")
    env.until(shard, lambda: {o for fates in env.fates() for o, fate in fates if fate in finals} >= set(target_of))
    left = [(target, offset) for target in _TARGETS for _, offset in delivered(env, target)]
    delivered_offsets = [offset for fates in env.fates() for offset, fate in fates if fate == "delivered"]
    assert sorted(offset for _, offset in left) == sorted(delivered_offsets)
    assert len(delivered_offsets) == len(set(delivered_offsets))
    assert all(target_of[offset] == target for target, offset in left)
    check_order(env, _TARGETS)
    shard.close()


def test_a_slow_transaction_makes_the_next_ones_smaller_and_a_quick_one_larger() -> None:
    limit = BatchLimit(10_000, 16_000_000)
    for _ in range(20):
        limit.committed(full=True, took_ms=10.0)
    assert (limit.entries, limit.size_bytes) == (10_000, 16_000_000)
    limit.committed(full=False, took_ms=5_000.0)
    assert limit.entries == 10_000
    limit.committed(full=True, took_ms=HELD_BACK_MS_MAX + 10)
    assert limit.entries == 5_000
    for _ in range(50):
        limit.committed(full=True, took_ms=1_000.0)
    assert limit.entries == 10_000 * SLOW_BATCH_SHARE_MIN


def test_entries_that_leave_together_stay_within_a_transaction() -> None:
    limit = BatchLimit(10_000, 16_000_000)
    assert limit.ending == limit.entries == 10_000 * FIRST_SHARE
    for _ in range(20):
        limit.committed(full=True, took_ms=10.0)
    assert limit.ending == ENDING_ENTRIES_MAX
    for _ in range(20):
        limit.failed()
    assert limit.ending == LARGE_TRANSACTION_FATES


def test_controls_beyond_the_size_of_a_transaction_wait_for_the_next(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BatchLimit, "ending", 3)
    shard = env.shard()
    for number in range(10):
        env.ask(("postdate-action", b"cancel"), ("postdate-id", b"%d" % number))
    env.until(shard, lambda: env.ended() == 10)
    assert [len(fates) for fates in env.fates()] == [3, 3, 3, 1]
    shard.close()


def test_unfinished_transactions_are_retried_in_smaller_pieces() -> None:
    limit = BatchLimit(10_000, 16_000_000)
    sizes = []
    for _ in range(20):
        limit.failed()
        sizes.append(limit.entries)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1
    for _ in range(20):
        limit.committed(full=True, took_ms=10.0)
    assert limit.entries == 10_000


def test_reschedules_to_near_and_far_fit_one_dispatch_log_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reschedule takes two fates. If its message must be stored, it takes a third fate and another entry."""
    env = ShardEnvironment(tmp_path)
    shard = env.shard()
    shard._dispatcher._limit._share = 1.0
    for _ in range(2):
        env.schedule(env.time.now_ms + 600_000)
    env.until(shard, lambda: shard.next_request == 2)
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
    to = ("postdate-action", b"reschedule")
    for _ in range(4_999):
        env.ask(to, ("postdate-origin", b"requests/0/0"), ("postdate-delay", b"10m"))
    env.ask(to, ("postdate-origin", b"requests/0/1"), ("postdate-delay", b"5h"))
    env.until(shard, lambda: shard.next_request >= 5_001)
    monkeypatch.undo()
    env.until(shard, lambda: env.ended() == 10_001)
    assert 9_990 < max(len(fates) for fates in env.fates()) <= FATES_MAX
    shard.close()
