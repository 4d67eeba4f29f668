"""Goal: a slow target is isolated even if its transactions have no messages for other targets, provided that messages
for other targets wait for these transactions. Stalls of the machine isolate no target by this rule.

Method: as `test_slow_topics`. After each slow transaction comes one with messages for other targets.
"""

from __future__ import annotations

from typing import Any

import pytest

from postdate.sidecar.context.limits import LARGE_TRANSACTION_FATES
from postdate.sidecar.dispatch.limits import SLOW_WAIT_MS
from postdate.sidecar.dispatch.targets.fault_attribution import FaultAttribution
from postdate.sidecar.transaction.limits import SLOW_RECORD_MS
from postdate.sidecar.transaction.transaction import TopicOutcome
from support.shards.fault_attempts import (
    StepClock,
    finished,
    isolate,
    isolated_target,
    outcome,
    quick,
)


def _together(faults: FaultAttribution, slow: str, waited_ms: float) -> None:
    """Commits a transaction with messages for the slow target and for another target."""
    outcomes = {"good": TopicOutcome(10), slow: TopicOutcome(10, [waited_ms])}
    faults.committed(finished(None, 20, dict.fromkeys(outcomes, 10), outcomes, waited_ms + 15), 3.0, 2.0)


def _alone(
    faults: FaultAttribution,
    clock: StepClock,
    waits_ms: tuple[float, ...] = (900.0,),
    messages: int = 1,
    first_ms: float = 3.0,
) -> None:
    """Commits a transaction for the slow target only."""
    took_ms = sum(waits_ms) + 5
    clock.now += took_ms
    outcomes = {"bad": TopicOutcome(messages, [*waits_ms])}
    faults.committed(finished(None, messages, {"bad": messages}, outcomes, took_ms), first_ms, 0.0)


def _after(
    faults: FaultAttribution,
    clock: StepClock,
    waited_ms: float = 500.0,
    pause_ms: float = 0.0,
    first_ms: float = 3.0,
    took_ms: float = 10.0,
    **outcomes: TopicOutcome,
) -> None:
    """Commits the next transaction after a pause. Its first message had been due for `waited_ms` when the previous
    transaction ended."""
    clock.now += pause_ms + took_ms
    counts = {name: outcome.acknowledged for name, outcome in outcomes.items()}
    late_ms = waited_ms + pause_ms
    faults.committed(finished(None, 20, counts, outcomes, took_ms, late_ms=late_ms), first_ms, 0.0)


def test_a_slow_target_with_few_messages_is_found_if_others_wait_although_no_transaction_has_both(
    faults: FaultAttribution, clock: StepClock
) -> None:
    """The target gets one message every 3 s, which takes 900 ms; other targets get 20 a second. Messages that become
    due during those 900 ms are in the next transaction, which has delivery reports even if it is large."""
    for count in range(4):
        assert not faults.any
        _alone(faults, clock)
        assert faults.must_report(None, LARGE_TRANSACTION_FATES)
        assert faults.needs_late_ms
        _after(faults, clock, took_ms=700.0, good=TopicOutcome(18))
        assert not faults.is_attributing  # the small transactions would contain none of its messages
        for _ in range(40 if count < 3 else 0):
            clock.now += 50
            quick(faults)
    assert isolated_target(faults).messages_max == 1


@pytest.mark.parametrize(
    "next_one",
    [
        {"waited_ms": SLOW_RECORD_MS - 1, "good": TopicOutcome(18)},
        {"waited_ms": -50.0, "pause_ms": 100.0, "good": TopicOutcome(18)},
        {"pause_ms": SLOW_WAIT_MS, "good": TopicOutcome(18)},
        {"good": TopicOutcome(18), "bad": TopicOutcome(1)},
        {"good": TopicOutcome(18), "bad": TopicOutcome(1, is_first=True), "first_ms": 60.0},
        {"bad": TopicOutcome(18)},
        {},
    ],
    ids=["did not wait", "fell due later", "waited long", "both", "both, late", "no others", "no reports"],
)
def test_a_slow_transaction_alone_does_not_count_if_no_others_waited_for_it(
    faults: FaultAttribution, clock: StepClock, next_one: dict[str, Any]
) -> None:
    for _ in range(20):
        _alone(faults, clock)
        _after(faults, clock, **next_one)
        clock.now += 100
        quick(faults)
    assert not faults.any


@pytest.mark.parametrize(
    ("messages", "others", "transactions"), [(16, 160, 4), (16, 16, 4), (16, 8, 8), (16, 2, 32), (16, 1, 99)]
)
def test_a_slow_transaction_alone_counts_less_if_few_others_waited(
    faults: FaultAttribution, clock: StepClock, messages: int, others: int, transactions: int
) -> None:
    """An isolation would do more harm than good if the messages for other targets are fewer than an eighth of the
    target's."""
    for _ in range(transactions):
        assert not faults.any
        _alone(faults, clock, (600.0,), messages)
        _after(faults, clock, good=TopicOutcome(others))
    assert faults.any is (transactions < 99)


def test_a_slow_transaction_alone_counts_once(faults: FaultAttribution, clock: StepClock) -> None:
    _alone(faults, clock)
    assert not faults.any
    for _ in range(5):
        _after(faults, clock, good=TopicOutcome(18))
    assert not faults.any
    assert not faults.needs_late_ms


def test_a_slow_transaction_alone_counts_only_if_it_was_long(faults: FaultAttribution, clock: StepClock) -> None:
    for _ in range(20):
        _alone(faults, clock, (SLOW_WAIT_MS - 1,))
        _after(faults, clock, good=TopicOutcome(18))
    assert not faults.any
    for _ in range(4):
        _alone(faults, clock, (SLOW_WAIT_MS,))
        _after(faults, clock, good=TopicOutcome(18))
    assert faults.any


def test_the_times_of_slow_transactions_alone_do_not_count(faults: FaultAttribution, clock: StepClock) -> None:
    """A stall of the machine takes as long. If the transaction also has messages for another target, two such records
    are enough."""
    for _ in range(3):
        _alone(faults, clock)
        _after(faults, clock, good=TopicOutcome(18))
    _together(faults, "bad", SLOW_WAIT_MS - 1)
    assert isolated_target(faults).messages_max == 1  # the fourth slow record
    assert not faults.is_attributing


def test_after_a_trial_or_an_abort_the_next_transaction_shows_nothing(
    faults: FaultAttribution, clock: StepClock
) -> None:
    """The messages of the next transaction waited for the trial or the abort as well."""
    other = isolate(faults, 4, target="missing")
    for _ in range(10):
        _alone(faults, clock)
        faults.committed(finished(other, 4, {"missing": 4}, {"missing": outcome(4)}, 10.0), 3.0, 0.0)
        assert not faults._slow_topics.awaits_next
        _alone(faults, clock)
        faults.aborted(finished(None, 20, {}, {}, 10.0), 0)
        assert not faults._slow_topics.awaits_next
        _after(faults, clock, good=TopicOutcome(18))
    assert faults.get("bad") is None


def test_transactions_for_one_target_each_show_how_far_the_brokers_are(
    faults: FaultAttribution, clock: StepClock
) -> None:
    """With a round trip of 150 ms, the first acknowledgement takes two round trips, and every five further requests
    take one more."""
    for _ in range(20):
        _alone(faults, clock, (150.0, 150.0, 150.0), first_ms=300.0)
        _after(faults, clock, first_ms=300.0, good=TopicOutcome(18))
    assert not faults.any


def test_stalls_of_the_machine_blame_no_target_that_is_alone_in_its_transactions(
    faults: FaultAttribution, clock: StepClock
) -> None:
    """The machine also stalls during the next transaction."""
    for _ in range(6):
        _alone(faults, clock)
        _after(faults, clock, good=TopicOutcome(18, [400.0]))
    assert not faults.any


def test_slow_transactions_for_one_target_show_that_the_machine_stalls(
    faults: FaultAttribution, clock: StepClock
) -> None:
    """After that, four slow records do not isolate another target."""
    quick(faults)
    for _ in range(3):
        _alone(faults, clock)
        _after(faults, clock, good=TopicOutcome(18))
    for _ in range(4):
        _together(faults, "slow", 60.0)
    assert faults.get("slow") is None
