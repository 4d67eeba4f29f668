"""Goal: the topic that transactions wait for is isolated, and no other topic, even on a busy machine.

Method: `FaultAttribution` alone gets made-up reports of transactions, on a clock that the test advances.
"""

from __future__ import annotations

import random

import pytest

from postdate.sidecar.context.limits import LARGE_TRANSACTION_FATES
from postdate.sidecar.dispatch.limits import (
    AFTER_FAULT_ENTRIES_MAX,
    PROBATION_MS,
    REPORTED_ENTRIES_MAX,
)
from postdate.sidecar.dispatch.targets.fault_attribution import FaultAttribution, Finding
from postdate.sidecar.transaction.transaction import TopicOutcome
from support.shards.fault_attempts import (
    STORE,
    StepClock,
    finished,
    isolate,
    isolated_target,
    outcome,
    quick,
)


def _waited(faults: FaultAttribution, bad_ms: float, slow: int = 1, first_ms: float = 3.0, name: str = "bad") -> None:
    """Commits a common transaction that waited `bad_ms` for `slow` records of the topic `name`."""
    outcomes = {"good": TopicOutcome(10), name: TopicOutcome(10, [bad_ms / slow] * slow if slow else [])}
    faults.committed(finished(None, 20, {"good": 10, name: 10}, outcomes, bad_ms + 15), first_ms, 2.0)


def test_the_topic_that_transactions_wait_for_is_slow(faults: FaultAttribution) -> None:
    quick(faults)
    for _ in range(3):
        _waited(faults, 80.0)
    _waited(faults, 15.0, slow=0)
    for _ in range(3):
        _waited(faults, 80.0)
    assert not faults.any  # not enough in a row: a coincidence
    _waited(faults, 80.0)
    assert faults.get("good") is None
    assert isolated_target(faults).messages_max == 2


def test_transactions_stay_small_while_a_topic_is_suspected(faults: FaultAttribution) -> None:
    quick(faults)
    isolate(faults, 1)
    for _ in range(3):
        _waited(faults, 60.0, name="slow")
        assert faults.entries_max(5_000) == AFTER_FAULT_ENTRIES_MAX
    _waited(faults, 60.0, name="slow")
    assert faults.get("slow") is not None
    assert faults.entries_max(5_000) == 2 * AFTER_FAULT_ENTRIES_MAX


def test_far_brokers_make_no_topic_slow(faults: FaultAttribution) -> None:
    """With a round trip of 24 ms, the first acknowledgement takes two round trips, and the sixth request of a
    connection takes a third round trip."""
    quick(faults, 48.0)
    for _ in range(10):
        _waited(faults, 96.0, slow=4, first_ms=48.0)
    assert not faults.any
    _waited(faults, 400.0, slow=4, first_ms=48.0)
    _waited(faults, 400.0, slow=4, first_ms=48.0)
    assert isolated_target(faults).messages_max == 2


def _on_a_busy_machine(faults: FaultAttribution, clock: StepClock, transactions: int, slow: str = "") -> int:
    """Commits transactions for two or three of ten topics, each of which is slow in two of five transactions; one topic
    may always be slow. Returns the number of transactions until a topic was isolated."""
    chance = random.Random(7)
    names = [f"topic-{number}" for number in range(10)]
    for count in range(transactions):
        clock.now += 100
        outcomes = {}
        for name in chance.sample(names, chance.randint(2, 3)):
            is_slow = name == slow or chance.random() < 0.4
            outcomes[name] = TopicOutcome(1, [chance.uniform(20, 120)] if is_slow else [])
        faults.committed(finished(None, 3, dict.fromkeys(outcomes, 1), outcomes, 100.0), 3.0, 0.0)
        if faults.any:
            return count
    return transactions


def test_topics_that_are_all_slow_at_times_are_not_isolated(faults: FaultAttribution, clock: StepClock) -> None:
    assert _on_a_busy_machine(faults, clock, 5_000) == 5_000


def test_a_long_wait_on_a_busy_machine_keeps_transactions_large(faults: FaultAttribution, clock: StepClock) -> None:
    _on_a_busy_machine(faults, clock, 100)
    _waited(faults, 400.0)
    assert not faults.is_attributing


def test_a_topic_that_is_always_slow_is_isolated_on_a_busy_machine_too(
    faults: FaultAttribution, clock: StepClock
) -> None:
    assert _on_a_busy_machine(faults, clock, 5_000, slow="topic-3") < 1_000
    assert faults.get("topic-3") is not None


def test_a_short_transaction_for_the_slow_topic_alone_does_not_count(faults: FaultAttribution) -> None:
    for _ in range(3):
        _waited(faults, 60.0)
        faults.committed(finished(None, 1, {"bad": 1}, {"bad": TopicOutcome(1, [60.0])}, 65.0), 3.0, 0.0)
    assert not faults.any
    _waited(faults, 60.0)
    assert faults.get("bad") is not None


def _waited_for(
    faults: FaultAttribution, slow_topic: str, topics: tuple[str, ...], transactions: int = 1, waited_ms: float = 400.0
) -> None:
    """Commits transactions with ten records for each topic; each transaction waits for one record of the slow topic."""
    for _ in range(transactions):
        outcomes = {name: TopicOutcome(10, [waited_ms] if name == slow_topic else []) for name in topics}
        counts, targets = dict.fromkeys(topics, 10), [name for name in topics if name != STORE]
        size, took_ms = 10 * len(topics), waited_ms + 15
        faults.committed(finished(None, size, counts, outcomes, took_ms, targets=targets), 3.0, 2.0)


@pytest.mark.parametrize("topics", [("bad", STORE), ("bad",)])
@pytest.mark.parametrize("waited_ms", [290.0, 2_000.0])
def test_a_target_is_not_isolated_while_no_message_for_another_waits(
    faults: FaultAttribution, topics: tuple[str, ...], waited_ms: float
) -> None:
    """An isolation would only delay the target's messages. The records for Postdate's own topics belong to these
    messages."""
    quick(faults)
    _waited_for(faults, "bad", topics, 50, waited_ms)
    assert not faults.any
    assert not faults.is_attributing  # its transactions are not small, either


def test_a_target_beside_a_rare_one_is_isolated_if_all_its_transactions_are_slow(faults: FaultAttribution) -> None:
    """Transactions without messages for other targets neither blame nor clear it."""
    quick(faults)
    for _ in range(4):
        assert not faults.any
        _waited_for(faults, "bad", ("bad", "rare"), 1, 60.0)
        _waited_for(faults, "bad", ("bad", STORE), 5, 60.0)
        _waited_for(faults, "bad", ("bad",), 5, 60.0)
    assert faults.get("bad") is not None


@pytest.mark.parametrize("topics", [("bad", STORE), ("bad",)])
def test_a_transaction_without_others_clears_a_target_that_it_did_not_wait_for(
    faults: FaultAttribution, topics: tuple[str, ...]
) -> None:
    """The machine stalls at times, and few transactions have messages for another target."""
    quick(faults)
    for _ in range(10):
        _waited_for(faults, "bad", ("bad", "rare"), 1, 200.0)
        _waited_for(faults, "", topics)
    assert not faults.any


def test_a_stall_beside_a_rare_target_isolates_nothing(faults: FaultAttribution) -> None:
    quick(faults)
    for _ in range(10):
        _waited_for(faults, "bad", ("bad", "rare"), 1, 200.0)
        _waited_for(faults, "bad", ("bad", STORE), 3, 200.0)
        _waited_for(faults, "", ("bad", STORE))
    assert not faults.any


def _reported(faults: FaultAttribution, counts: dict[str, int], slow: str, waited_ms: float = 60.0) -> None:
    """Commits a common transaction with `counts` messages for each topic, which waited for a record of the topic
    `slow`."""
    outcomes = {name: TopicOutcome(count, [waited_ms] if name == slow else []) for name, count in counts.items()}
    targets = [name for name in counts if name != STORE]
    size = sum(counts.values())
    faults.committed(finished(None, size, counts, outcomes, waited_ms + 15, targets=targets), 3.0, 2.0)


@pytest.mark.parametrize(
    ("others", "bad", "records"),
    [
        ({"rare": 10}, 5, 4),
        ({"rare": 10}, 10, 4),
        ({"rare": 10}, 20, 8),
        ({"rare": 10, "rarer": 10}, 40, 8),
        ({"rare": 10}, 80, 32),
        ({"rare": 10, STORE: 70}, 80, 32),
        ({"rare": 10}, 10_000, 32),
    ],
)
def test_the_fewer_messages_wait_for_a_target_the_more_slow_records_it_takes(
    faults: FaultAttribution, clock: StepClock, others: dict[str, int], bad: int, records: int
) -> None:
    """An isolation helps the few messages for other targets, and delays the many messages for the slow target."""
    quick(faults)
    for _ in range(records):
        assert not faults.any
        clock.now += PROBATION_MS - 1  # a suspicion ends this long after the last slow transaction
        _reported(faults, others | {"bad": bad}, "bad")
    assert faults.get("bad") is not None


@pytest.mark.parametrize(("bad", "transactions"), [(10, 2), (20, 2), (40, 4), (80, 8), (10_000, 8)])
def test_long_waits_count_less_if_few_messages_wait(faults: FaultAttribution, bad: int, transactions: int) -> None:
    quick(faults)
    for _ in range(transactions):
        assert not faults.any
        _reported(faults, {"rare": 10, "bad": bad}, "bad", 300.0)
    assert faults.get("bad") is not None


def test_each_transaction_counts_with_its_own_weight(faults: FaultAttribution) -> None:
    quick(faults)
    for counts in [{"rare": 10, "bad": 10}] * 2 + [{"rare": 10, "bad": 80}] * 16:
        assert not faults.any
        _reported(faults, counts, "bad")
    assert faults.get("bad") is not None


def test_a_topic_of_postdate_is_isolated_regardless_of_the_number_of_messages(faults: FaultAttribution) -> None:
    quick(faults)
    for _ in range(4):
        assert not faults.any
        _reported(faults, {"bad": 10, STORE: 100}, STORE)
    assert faults.any


def test_a_transaction_that_waited_longer_for_its_log_record_blames_no_target(faults: FaultAttribution) -> None:
    quick(faults)
    for log_waited_ms in [61.0] * 10 + [60.0] * 4:
        assert not faults.any
        outcomes = {"good": TopicOutcome(10), "bad": TopicOutcome(10, [60.0])}
        faults.committed(finished(None, 20, dict.fromkeys(outcomes, 10), outcomes, 140.0), 3.0, log_waited_ms)
    assert faults.get("bad") is not None


def test_a_suspicion_ends_some_time_after_the_last_slow_transaction(faults: FaultAttribution, clock: StepClock) -> None:
    quick(faults)
    for _ in range(3):
        _reported(faults, {"rare": 10, "bad": 10}, "bad")
    clock.now += PROBATION_MS
    for _ in range(4):
        assert not faults.any
        _reported(faults, {"rare": 10, "bad": 10}, "bad")
    assert faults.get("bad") is not None


def test_a_target_that_answers_first_and_late_without_others_is_not_cleared(faults: FaultAttribution) -> None:
    """The first acknowledgements of the target do not define the usual wait."""
    quick(faults)
    for _ in range(4):
        assert not faults.any
        for _ in range(70):
            alone = {"bad": TopicOutcome(10, is_first=True)}
            faults.committed(finished(None, 10, {"bad": 10}, alone, 65.0), 60.0, 2.0)
        _reported(faults, {"rare": 10, "bad": 10}, "bad")
    assert faults.get("bad") is not None


def test_a_slow_transaction_without_others_keeps_a_suspicion(faults: FaultAttribution, clock: StepClock) -> None:
    quick(faults)
    for _ in range(4):
        assert not faults.any
        _reported(faults, {"rare": 10, "bad": 10}, "bad")
        for _ in range(3):
            clock.now += PROBATION_MS - 1
            _reported(faults, {"bad": 10, STORE: 10}, "bad")
    assert faults.get("bad") is not None


def test_the_usual_wait_is_forgotten_if_no_transaction_has_shown_it_for_long(
    faults: FaultAttribution, clock: StepClock
) -> None:
    """The machine has become busy. Until now, transactions had one topic only, or were too large for delivery
    reports."""
    for _ in range(64):
        _waited(faults, 0.0, slow=0)
    clock.now += PROBATION_MS
    for _ in range(10):
        _waited(faults, 80.0, first_ms=60.0)
    assert not faults.any


def test_transactions_for_a_slow_target_alone_make_no_other_target_harder_to_find(faults: FaultAttribution) -> None:
    quick(faults)
    for _ in range(50):
        _reported(faults, {"good": 10}, "good")
    for _ in range(4):
        assert not faults.any
        _reported(faults, {"good": 10, "bad": 10}, "bad")
    assert faults.get("bad") is not None


@pytest.mark.parametrize(("bad", "grows"), [(20, False), (21, True)])
def test_transactions_stay_small_only_if_many_messages_wait_for_a_suspected_target(
    faults: FaultAttribution, bad: int, grows: bool
) -> None:
    """Small transactions would fall behind with its messages, and messages for other targets would wait behind them."""
    quick(faults)
    isolate(faults, 1, target="missing")
    _reported(faults, {"rare": 10, "bad": bad}, "bad")
    assert faults.entries_max(5_000) == (2 if grows else 1) * AFTER_FAULT_ENTRIES_MAX


def test_another_suspicion_ends_although_a_target_is_slow(faults: FaultAttribution) -> None:
    quick(faults)
    _waited_for(faults, STORE, ("bad", STORE), 3, 60.0)
    _waited_for(faults, "bad", ("bad", STORE), 1, 60.0)
    _waited_for(faults, STORE, ("bad", STORE), 1, 60.0)
    assert not faults.any


@pytest.mark.parametrize("topics", [("bad", STORE), (STORE,)])
def test_a_slow_topic_of_postdate_is_isolated_without_other_targets(
    faults: FaultAttribution, topics: tuple[str, ...]
) -> None:
    """Messages for any target may become due during the wait."""
    quick(faults)
    _waited_for(faults, STORE, topics, 2)
    assert faults.any
    assert faults.get("bad") is None


@pytest.mark.parametrize(
    ("suspect", "topics", "grows"),
    [
        ("bad", ("bad",), True),
        ("bad", ("bad", STORE), True),
        ("bad", ("bad", "good"), False),
        (STORE, ("bad", STORE), False),
        (STORE, ("bad", "good"), True),
    ],
)
def test_only_transactions_in_which_others_wait_for_a_suspected_topic_stay_small(
    faults: FaultAttribution, suspect: str, topics: tuple[str, ...], grows: bool
) -> None:
    quick(faults)
    _waited_for(faults, suspect, (suspect, "good"), 1)
    assert faults.entries_max(5_000) == AFTER_FAULT_ENTRIES_MAX
    outcomes = {name: TopicOutcome(10, [60.0] if name == suspect else []) for name in topics}
    counts = dict.fromkeys(topics, 10)
    faults.committed(finished(None, 20, counts, outcomes, 80.0), 60.0, 2.0)  # proves nothing
    assert faults.entries_max(5_000) == (2 if grows else 1) * AFTER_FAULT_ENTRIES_MAX


def test_a_target_counts_as_slow_regardless_of_the_transaction_size(faults: FaultAttribution) -> None:
    """With 3,000 messages a second and a target that takes 0.4 s, each transaction after the first has 1,200
    entries."""
    sizes = [30, *([1_200] * 4)]
    for size in sizes:
        outcomes = {"good": TopicOutcome(size - 1), "bad": TopicOutcome(1, [395.0])}
        reported = outcomes if faults.must_report(None, size) else {}
        faults.committed(finished(None, size, {"good": size - 1, "bad": 1}, reported, 400.0), 3.0, 0.0)
    assert faults.get("bad") is not None


def test_slow_large_transactions_report_by_turns(faults: FaultAttribution) -> None:
    """So a target is found even if it becomes slow while all transactions are large."""
    size = LARGE_TRANSACTION_FATES
    faults.committed(finished(None, size, {"good": size}, {}, 299.0), 3.0, 0.0)
    assert not faults.must_report(None, size)
    faults.committed(finished(None, size, {"good": size}, {}, 300.0), 3.0, 0.0)
    assert faults.must_report(None, size)
    faults.committed(finished(None, size, {"good": size}, {"good": outcome(size)}, 300.0), 3.0, 0.0)
    assert not faults.must_report(None, size)


def test_after_an_abort_without_a_cause_each_message_reports(faults: FaultAttribution) -> None:
    assert faults.aborted(finished(None, 5_000, {}, {}, 2_000.0), 0) is Finding.BACK_OFF
    assert faults.must_report(None, 5_000)
    assert faults.entries_max(5_000) == REPORTED_ENTRIES_MAX


def test_a_topic_is_slow_after_two_records_that_took_long(faults: FaultAttribution) -> None:
    quick(faults)
    _waited(faults, 299.0)
    assert not faults.any
    assert not faults.is_attributing
    _waited(faults, 400.0)
    assert isolated_target(faults).messages_max == 1


def test_the_transaction_after_a_long_wait_is_small(faults: FaultAttribution) -> None:
    quick(faults)
    _waited(faults, 300.0)
    assert not faults.any
    assert faults.entries_max(5_000) == AFTER_FAULT_ENTRIES_MAX


def test_a_long_wait_for_the_first_acknowledgement_blames_no_topic(faults: FaultAttribution) -> None:
    """The records of the slow topic were acknowledged first. Such a transaction neither blames nor clears any topic."""
    quick(faults)
    for _ in range(3):
        _waited(faults, 80.0)
        _waited(faults, 10.0, slow=0, first_ms=80.0)
    assert not faults.any
    _waited(faults, 80.0)
    assert isolated_target(faults).messages_max == 2


@pytest.mark.parametrize(("bad_ms", "slow"), [(80.0, 4), (400.0, 4), (400.0, 2)])
def test_two_transactions_that_wait_for_several_records_of_a_topic_are_enough(
    faults: FaultAttribution, bad_ms: float, slow: int
) -> None:
    """One transaction alone may have met a stall of the machine."""
    quick(faults)
    _waited(faults, bad_ms, slow)
    assert not faults.any
    _waited(faults, bad_ms, slow)
    assert isolated_target(faults).messages_max == max(1, int(10 * 20 / bad_ms))


def _answered(faults: FaultAttribution, first: str, second: str) -> None:
    """Commits a common transaction that waited for its first acknowledgement, from the topic `first`, and longer for
    the topic `second`. It did not wait for ten other topics."""
    outcomes = {first: TopicOutcome(10, is_first=True), second: TopicOutcome(10, [80.0])}
    outcomes |= {f"good-{number}": TopicOutcome(10) for number in range(10)}
    faults.committed(finished(None, 120, dict.fromkeys(outcomes, 10), outcomes, 150.0), 60.0, 2.0)


def test_two_slow_topics_that_answer_by_turns_are_both_isolated(faults: FaultAttribution) -> None:
    """The topic that answers first is neither blamed nor cleared."""
    quick(faults)
    for _ in range(4):
        assert not faults.any
        _answered(faults, "bad", "worse")
        _answered(faults, "worse", "bad")
    assert faults.get("bad") is not None
    assert faults.get("worse") is not None


def test_a_topic_that_answers_first_and_fast_is_cleared(faults: FaultAttribution) -> None:
    quick(faults)
    for _ in range(3):
        _waited(faults, 60.0)
    outcomes = {"bad": TopicOutcome(10, is_first=True), "good": TopicOutcome(10)}
    faults.committed(finished(None, 20, {"bad": 10, "good": 10}, outcomes, 8.0), 3.0, 2.0)
    _waited(faults, 60.0)
    assert not faults.any


def test_a_suspected_topic_that_gets_no_more_messages_makes_no_other_wait(
    faults: FaultAttribution, clock: StepClock
) -> None:
    quick(faults)
    _waited(faults, 300.0, name="slow")
    assert faults.entries_max(5_000) == AFTER_FAULT_ENTRIES_MAX
    for _ in range(7):
        quick(faults)
    assert not faults.is_attributing
    assert faults.must_report(None, LARGE_TRANSACTION_FATES)
    clock.now += PROBATION_MS
    quick(faults)
    assert not faults.must_report(None, LARGE_TRANSACTION_FATES)
