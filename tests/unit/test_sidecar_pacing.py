"""Goal: transactions keep the distance that their broker needs, and no more; a process keeps to its budget.

Method: the pace of one shard, told what a broker answered; times are numbers of the test's own.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

from postdate.sidecar.limits import LARGE_TRANSACTION_FATES, MADE_TO_WAIT_MS, PACE_MS_MAX, PACE_MS_MIN
from postdate.sidecar.pacing import LargeTurns, TransactionBudget, TransactionPace
from support.patience import PATIENCE_S

_QUICK_MS = 4.0


def test_a_small_transaction_is_followed_by_a_pause_and_a_large_one_is_not() -> None:
    pace = TransactionPace(TransactionBudget(10_000), 3.0)
    pace.note(1_000.0, 1, _QUICK_MS)
    assert 2.5 < pace.wait_ms(1_000.0) <= 3.0
    assert pace.wait_ms(1_003.0) <= 0
    pace.note(2_000.0, LARGE_TRANSACTION_FATES, _QUICK_MS)
    assert pace.wait_ms(2_000.0) < 0.2


def test_the_pause_settles_where_about_one_transaction_in_a_hundred_is_made_to_wait() -> None:
    """A broker that needs 3 ms between two transactions, and makes who comes sooner wait."""
    pace = TransactionPace(TransactionBudget(10_000), 1.0)
    waited = 0
    for number in range(5_000):
        made_to_wait = pace.pace_ms < 3.0
        waited += made_to_wait and number >= 1_000
        pace.note(number * 20.0, 1, MADE_TO_WAIT_MS + 1 if made_to_wait else _QUICK_MS)
    assert 2.5 < pace.pace_ms < 4.5
    assert 20 <= waited <= 80


def test_the_pause_stays_within_its_bounds_and_none_stays_none() -> None:
    pace, none = TransactionPace(TransactionBudget(10_000), 3.0), TransactionPace(TransactionBudget(10_000), 0.0)
    for number in range(1_000):
        pace.note(number * 20.0, 1, _QUICK_MS)
        none.note(number * 20.0, 1, MADE_TO_WAIT_MS + 1)
    assert pace.pace_ms == PACE_MS_MIN
    assert none.wait_ms(999 * 20.0) < 0.2
    for number in range(100):
        pace.note(number * 20.0, 1, MADE_TO_WAIT_MS + 1)
    assert pace.pace_ms == PACE_MS_MAX


def test_shards_of_one_process_share_its_budget() -> None:
    budget = TransactionBudget(100)
    first, second = TransactionPace(budget, 0.0), TransactionPace(budget, 0.0)
    first.note(1_000.0, 1, _QUICK_MS)
    second.note(1_000.0, 1, _QUICK_MS)
    assert first.wait_ms(1_000.0) == 10.0
    assert second.wait_ms(1_000.0) == 20.0


def test_large_transactions_take_turns_and_small_ones_do_not() -> None:
    turns = LargeTurns(at_once=1)
    with turns.turn(LARGE_TRANSACTION_FATES, timeout_s=0.0) as first:
        assert first
        with turns.turn(LARGE_TRANSACTION_FATES - 1, timeout_s=PATIENCE_S), _at_once(turns) as second:
            assert not second
    with _at_once(turns) as again:
        assert again


def test_a_turn_ends_with_its_transaction_however_that_ends() -> None:
    turns = LargeTurns(at_once=1)
    with pytest.raises(ValueError, match="aborted"), turns.turn(LARGE_TRANSACTION_FATES):
        raise ValueError("aborted")
    with _at_once(turns) as again:
        assert again


def test_whose_turn_does_not_come_goes_all_the_same_and_takes_nobody_elses() -> None:
    turns = LargeTurns(at_once=1)
    with turns.turn(LARGE_TRANSACTION_FATES):
        with turns.turn(LARGE_TRANSACTION_FATES, timeout_s=0.01):
            pass
        with _at_once(turns) as another:
            assert not another


def _at_once(turns: LargeTurns) -> AbstractContextManager[bool]:
    return turns.turn(LARGE_TRANSACTION_FATES, timeout_s=0.0)
