"""Goal: the counts of a shard are correct: values in their classes, transactions by outcome, time by state.

Method: the tests call the counters directly, with a clock that the test moves. Counting a batch must give the same
result as counting its values one by one.
"""

from __future__ import annotations

import random

import pytest

from postdate.kafka.errors import AbortRequired, FatalClient, Fenced, KafkaFault, UnknownOutcome
from postdate.sidecar.clock import BrokerClock
from postdate.sidecar.counts import (
    ABORTED,
    CANCEL,
    COMMITTED,
    FAILED,
    FENCED,
    LATENESS_BOUNDS_MS,
    REFUSED,
    SCHEDULE,
    UNKNOWN,
    Histogram,
    ShardCounts,
)
from postdate.sidecar.states import State, Stateful, StateTimes
from postdate.wire.dispatch_log import APPLIED, CANCELLED, DEAD, DELIVERED, Fate, PlainFate


class Hand:
    """A clock that the test moves; the wall clock is 250 ms ahead of the broker's."""

    def __init__(self) -> None:
        self.ms = 0.0

    def steady_ms(self) -> float:
        return self.ms

    def wall_ms(self) -> int:
        return int(1_000_250 + self.ms)

    def sleep(self, wait_ms: float) -> None:
        self.ms += wait_ms

    def broker(self) -> BrokerClock:
        clock = BrokerClock(self)
        clock.sample(1_000_000, 0.0)
        return clock


@pytest.mark.parametrize("values", [0, 1, 199, 200, 5_000])
def test_a_batch_is_counted_as_its_values_one_by_one(values: int) -> None:
    chance = random.Random(values)
    now_ms = 10_000_000
    starts = [now_ms - chance.choice([-3, 0, 1, 5, 6, chance.randrange(5_000_000)]) for _ in range(values)]
    together, alone = Histogram(LATENESS_BOUNDS_MS), Histogram(LATENESS_BOUNDS_MS)
    together.add_since(starts, now_ms)
    for start in starts:
        alone.add(max(now_ms - start, 0))
    assert together.buckets == alone.buckets
    assert together.total == alone.total
    assert sum(together.buckets) == values


def test_a_bound_belongs_to_the_class_below_it() -> None:
    histogram = Histogram((5, 10))
    for value in (0, 5, 6, 10, 11):
        histogram.add(value)
    assert histogram.buckets == [2, 2, 1]


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (None, COMMITTED),
        (AbortRequired("x"), ABORTED),
        (UnknownOutcome("x"), UNKNOWN),
        (Fenced("x"), FENCED),
        (FatalClient("x"), FAILED),
    ],
)
def test_a_transaction_is_counted_by_its_outcome_and_its_error_propagates(
    fault: KafkaFault | None, outcome: str
) -> None:
    counts, clock = ShardCounts(), Hand()

    def run() -> None:
        with counts.transaction(clock):
            clock.ms += 12
            if fault is not None:
                raise fault

    if fault is None:
        run()
    else:
        with pytest.raises(type(fault)):
            run()
    assert {name: count for name, count in counts.transactions.items() if count} == {outcome: 1}
    assert counts.transaction_ms.total == 12


def test_fates_dead_letters_and_lateness_of_a_commit() -> None:
    counts, clock = ShardCounts(), Hand()
    clock.ms = 500
    fates: list[Fate] = [
        PlainFate(7, 0, CANCELLED),
        PlainFate(8, 0, APPLIED),
        PlainFate(5, 999_900, DELIVERED),
        PlainFate(6, 999_800, DEAD),
    ]
    counts.committed(fates, [999_900], ["expired"], clock.broker())
    counts.committed([PlainFate(9, 1_000_400, DELIVERED)], [1_000_400], [], clock.broker())
    assert {fate: count for fate, count in counts.fates.items() if count} == {
        CANCELLED: 1,
        APPLIED: 1,
        DELIVERED: 2,
        DEAD: 1,
    }
    assert dict(counts.dead) == {"expired": 1}
    assert counts.lateness.total == 600 + 100
    assert counts.skew_ms == 250


def test_requests_that_do_not_schedule_are_recognized() -> None:
    counts = ShardCounts()
    counts.read(10, [REFUSED, CANCEL, REFUSED])
    assert {name: count for name, count in counts.requests.items() if count} == {SCHEDULE: 7, REFUSED: 2, CANCEL: 1}


def test_time_is_added_up_by_state_and_a_takeover_lasts_until_delivery() -> None:
    times, clock = StateTimes(), Hand()
    shard = Stateful(times, clock)
    clock.ms = 1_000
    for state, ms in [(State.OPENING, 10), (State.FENCING, 20), (State.RECOVERING, 5), (State.CATCHING_UP, 7)]:
        shard.state = state
        clock.ms += ms
    shard.state = State.RUNNING
    assert times.takeover_ms == 35
    assert times.silent_ms(clock.ms) == 0
    clock.ms += 100
    shard.state = State.FENCING
    clock.ms += 40
    assert times.silent_ms(clock.ms) == 40
    spent = times.spent_ms(clock.ms)
    assert (spent[State.FENCING], spent[State.CATCHING_UP], spent[State.RUNNING]) == (60, 7, 100)
    shard.state = State.RUNNING
    assert times.takeover_ms == 40
    assert times.entered[State.CATCHING_UP] == 1


def test_state_changes_of_a_thread_that_outlives_its_shard_do_not_count() -> None:
    times, clock = StateTimes(), Hand()
    stuck = Stateful(times, clock)
    stuck.state = State.RUNNING
    shard = Stateful(times, clock)
    shard.state = State.OPENING
    shard.state = State.RUNNING
    stuck.state = State.UNASSIGNED
    assert (stuck.state, times.state) == (State.UNASSIGNED, State.RUNNING)
