"""Goal: the pauses between transactions are as long as their broker needs, and no longer. A process stays within its
budget.

Method: the throttle of one shard gets made-up durations of transactions; the test supplies all times as numbers.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

import pytest

from postdate.sidecar.context.limits import (
    LARGE_TRANSACTION_FATES,
    MADE_TO_WAIT_MS,
    PACE_MS_MAX,
    PACE_MS_MIN,
    WINDOW_MAX,
    WINDOW_MIN,
)
from postdate.sidecar.context.pacing import LargeTransactionSemaphore, TransactionBudget, TransactionThrottle
from support.waiting.timeouts import WAIT_TIMEOUT_S

_QUICK_MS = 4.0


def test_a_small_transaction_is_followed_by_a_pause_and_a_large_one_is_not() -> None:
    pace = TransactionThrottle(TransactionBudget(10_000), 3.0)
    pace.observe(1_000.0, 1, _QUICK_MS)
    assert 2.5 < pace.wait_ms(1_000.0) <= 3.0
    assert pace.wait_ms(1_003.0) <= 0
    pace.observe(2_000.0, LARGE_TRANSACTION_FATES, _QUICK_MS)
    assert pace.wait_ms(2_000.0) < 0.2


def test_the_pause_keeps_about_one_transaction_in_a_hundred_waiting() -> None:
    """The broker needs 3 ms between two transactions; a transaction that begins sooner has to wait."""
    pace = TransactionThrottle(TransactionBudget(10_000), 1.0)
    waited = 0
    for number in range(5_000):
        made_to_wait = pace.pace_ms < 3.0
        waited += made_to_wait and number >= 1_000
        pace.observe(number * 20.0, 1, MADE_TO_WAIT_MS + 1 if made_to_wait else _QUICK_MS)
    assert 2.5 < pace.pace_ms < 4.5
    assert 20 <= waited <= 80


def test_a_trial_changes_neither_the_pause_nor_the_budget() -> None:
    """A trial waits for its target, not for the markers of the previous transaction."""
    budget = TransactionBudget(10_000)
    pace = TransactionThrottle(budget, 3.0)
    for number in range(100):
        pace.observe(number * 20.0, 1, MADE_TO_WAIT_MS + 1, is_trial=True)
        assert 2.5 < pace.wait_ms(number * 20.0) <= 3.0
    assert (pace.pace_ms, budget.window) == (3.0, WINDOW_MIN)


def test_the_pause_stays_within_its_bounds_and_a_pause_of_0_stays_0() -> None:
    pace, none = (
        TransactionThrottle(TransactionBudget(10_000), 3.0),
        TransactionThrottle(TransactionBudget(10_000), 0.0),
    )
    for number in range(1_000):
        pace.observe(number * 20.0, 1, _QUICK_MS)
        none.observe(number * 20.0, 1, MADE_TO_WAIT_MS + 1)
    assert pace.pace_ms == PACE_MS_MIN
    assert none.wait_ms(999 * 20.0) < 0.2
    for number in range(100):
        pace.observe(number * 20.0, 1, MADE_TO_WAIT_MS + 1)
    assert pace.pace_ms == PACE_MS_MAX


def test_shards_of_one_process_share_its_budget() -> None:
    budget = TransactionBudget(100)
    first, second = TransactionThrottle(budget, 0.0), TransactionThrottle(budget, 0.0)
    first.observe(1_000.0, 1, _QUICK_MS)
    second.observe(1_000.0, 1, _QUICK_MS)
    assert first.wait_ms(1_000.0) == 10.0
    assert second.wait_ms(1_000.0) == 20.0


class _Run(NamedTuple):
    """The result of a run of the shards of one process: transactions a second, their average duration, the average
    number in progress, and the longest wait of a shard from the end of one transaction to the start of the next."""

    per_second: float
    took_ms: float
    at_a_time: float
    apart_ms_max: float


def _run(
    shards: int, took_ms: Callable[[int], float], fates: int = 1, seconds: float = 20.0, trial_every: int = 0
) -> _Run:
    """Runs `shards` shards that always have messages to send. A transaction takes `took_ms(n)` while n are in progress.
    `trial_every`: one transaction in this many is a trial."""
    budget = TransactionBudget(400)
    paces = [TransactionThrottle(budget, 3.0) for _ in range(shards)]
    events = [(number * 0.1, number, 0.0) for number in range(shards)]  # (time, shard, duration; 0: begins)
    running, ended, count, total_ms, apart_ms_max = 0, 0, 0, 0.0, 0.0
    while events[0][0] < seconds * 1000:
        now_ms, number, took = heapq.heappop(events)
        if not took:
            running += 1
            took = took_ms(running)
            heapq.heappush(events, (now_ms + took, number, took))
            continue
        running -= 1
        if now_ms > 5_000:
            count, total_ms = count + 1, total_ms + took
        ended += 1
        is_trial = trial_every > 0 and ended % trial_every == 0
        paces[number].observe(now_ms, fates, took, is_trial=is_trial)
        wait_ms = max(paces[number].wait_ms(now_ms), 0.0)
        apart_ms_max = max(apart_ms_max, wait_ms)
        heapq.heappush(events, (now_ms + wait_ms, number, 0.0))
    return _Run(count / (seconds - 5), total_ms / count, total_ms / (seconds - 5) / 1000, apart_ms_max)


@pytest.mark.parametrize("trial_every", [0, 4])
def test_many_shards_on_a_slow_machine_run_few_transactions_at_a_time(trial_every: int) -> None:
    """A single transaction takes 5 ms, and the machine completes 180 a second. If more ran at a time, they would only
    wait for each other."""
    run = _run(64, lambda running: max(5.0, running / 0.18), trial_every=trial_every)
    assert 150 < run.per_second <= 181
    assert run.at_a_time < WINDOW_MIN + 2
    assert run.took_ms < 60


def test_many_shards_on_distant_idle_brokers_use_the_whole_budget() -> None:
    run = _run(64, lambda _: 40.0)
    assert run.per_second > 360
    assert run.took_ms == pytest.approx(40.0)


def test_a_few_shards_are_not_slowed_on_a_busy_machine() -> None:
    run = _run(4, lambda running: max(5.0, running / 0.18))
    alone = _run(4, lambda running: 5.0)
    assert run.apart_ms_max <= 4 * 5.6
    assert alone.apart_ms_max <= 10.1
    assert run.at_a_time > 2


def test_large_transactions_have_the_whole_budget_and_do_not_affect_small_ones() -> None:
    budget = TransactionBudget(400)
    pace = TransactionThrottle(budget, 3.0)
    for number in range(100):
        pace.observe(number * 100.0, LARGE_TRANSACTION_FATES, 95.0)
    assert pace.wait_ms(9_900.0) <= 2.5
    assert budget.window == WINDOW_MIN


def test_a_large_transaction_does_not_queue_behind_the_small_ones_that_wait() -> None:
    budget = TransactionBudget(400)
    small, large = TransactionThrottle(budget, 3.0), TransactionThrottle(budget, 3.0)
    for _ in range(63):
        small.observe(1_000.0, 1, 90.0)
    assert small.wait_ms(1_000.0) > 500
    large.observe(1_000.0, LARGE_TRANSACTION_FATES, 40.0)
    assert large.wait_ms(1_000.0) <= 64 * 2.5


def test_the_fastest_transaction_is_measured_again() -> None:
    """Otherwise brokers that have become permanently slower would always count as busy."""
    budget = TransactionBudget(400)
    for number in range(10_000):
        budget.reserve(number * 5.0, 4.0)
    assert budget.window == WINDOW_MAX
    for number in range(2_000):
        budget.reserve(50_000 + number * 5.0, 30.0)
    assert budget.window < WINDOW_MAX
    for number in range(12_000):
        budget.reserve(60_000 + number * 5.0, 30.0)
    assert budget.window > WINDOW_MAX / 2


def test_a_transaction_that_waited_for_a_broker_does_not_slow_down_others() -> None:
    budget = TransactionBudget(400)
    pace = TransactionThrottle(budget, 3.0)
    pace.observe(1_000.0, 1, 8_000.0)
    assert pace.wait_ms(1_000.0) < 15
    pace.observe(2_000.0, 1, _QUICK_MS)
    assert pace.wait_ms(2_000.0) < 10


def test_large_transactions_take_turns_and_small_ones_do_not() -> None:
    semaphore = LargeTransactionSemaphore(at_once=1)
    with semaphore.slot(LARGE_TRANSACTION_FATES, timeout_s=0.0) as first:
        assert first
        with semaphore.slot(LARGE_TRANSACTION_FATES - 1, timeout_s=WAIT_TIMEOUT_S), _at_once(semaphore) as second:
            assert not second
    with _at_once(semaphore) as again:
        assert again


def test_a_slot_ends_with_its_transaction_even_if_it_fails() -> None:
    semaphore = LargeTransactionSemaphore(at_once=1)
    with pytest.raises(ValueError, match="aborted"), semaphore.slot(LARGE_TRANSACTION_FATES):
        raise ValueError("aborted")
    with _at_once(semaphore) as again:
        assert again


def test_a_transaction_that_times_out_proceeds_without_a_slot() -> None:
    semaphore = LargeTransactionSemaphore(at_once=1)
    with semaphore.slot(LARGE_TRANSACTION_FATES):
        with semaphore.slot(LARGE_TRANSACTION_FATES, timeout_s=0.01):
            pass
        with _at_once(semaphore) as another:
            assert not another


def _at_once(semaphore: LargeTransactionSemaphore) -> AbstractContextManager[bool]:
    return semaphore.slot(LARGE_TRANSACTION_FATES, timeout_s=0.0)
