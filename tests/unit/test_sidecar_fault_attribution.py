"""Goal: a fault is blamed on the target or the entry that causes it, and decides how much that target is sent.

Method: `FaultAttribution` alone, given the reports of transactions that never ran, on a clock that the test moves.
"""

from __future__ import annotations

import random

import pytest
from confluent_kafka import KafkaError

from postdate.kafka.errors import RecordRejected
from postdate.sidecar.context.limits import LARGE_TRANSACTION_FATES
from postdate.sidecar.dispatch.fault_attribution import OWN, Attempt, FaultAttribution, Finding, Isolated
from postdate.sidecar.dispatch.limits import (
    AFTER_FAULT_ENTRIES_MAX,
    ISOLATED_MAX,
    PROBATION_FORGOTTEN_MS,
    PROBATION_MS,
    REPORTED_ENTRIES_MAX,
)
from postdate.sidecar.dispatch.targets import Refusal
from postdate.sidecar.transaction.transaction import TopicOutcome
from postdate.wire.reasons import Reason

BUDGET_MS = 30_000
STORE = "requests.store"
TIMED_OUT = RecordRejected("timed out", KafkaError._MSG_TIMED_OUT)
REFUSED = RecordRejected("against the policy", KafkaError.POLICY_VIOLATION)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def steady_ms(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now)

    def sleep(self, wait_ms: float) -> None:
        self.now += wait_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def faults(clock: Clock) -> FaultAttribution:
    return FaultAttribution(clock, BUDGET_MS, {STORE})


def _outcome(acknowledged: int, *refused: int, why: RecordRejected = REFUSED) -> TopicOutcome:
    return TopicOutcome(acknowledged, faults=dict.fromkeys(refused, why))


def _common(counts: dict[str, int], **outcomes: TopicOutcome) -> Attempt:
    return Attempt(None, sum(counts.values()), counts, outcomes, 5.0, is_refused=True)


def _trial(isolated: Isolated, size: int, outcome: TopicOutcome, took_ms: float = 5.0, due_ms: int = 0) -> Attempt:
    dues = dict.fromkeys(outcome.faults, due_ms)
    return Attempt(isolated, size, {isolated.name: size}, {isolated.name: outcome}, took_ms, due_ms=dues)


def _isolated(faults: FaultAttribution, name: str = "bad") -> Isolated:
    isolated = faults.get(name)
    assert isolated is not None
    return isolated


def _isolate(faults: FaultAttribution, count: int, why: RecordRejected = TIMED_OUT) -> Isolated:
    offsets = range(count)
    assert faults.aborted(_common({"bad": count}, bad=_outcome(0, *offsets, why=why)), 0) is Finding.GO_ON
    return _isolated(faults)


def test_after_a_refusal_without_a_record_the_next_transaction_reports_each_message(faults: FaultAttribution) -> None:
    assert faults.must_report(None, 3)
    assert not faults.must_report(None, LARGE_TRANSACTION_FATES)
    assert faults.aborted(_common({"good": 3}), 0) is Finding.GO_ON
    assert faults.must_report(None, LARGE_TRANSACTION_FATES)
    assert faults.aborted(_common({"good": 3}), 0) is Finding.BACK_OFF


def test_only_the_target_whose_records_were_refused_is_isolated(faults: FaultAttribution) -> None:
    counts = {"good": 50, "bad": 50}
    assert faults.aborted(_common(counts, good=_outcome(50), bad=_outcome(0, *range(50))), 0) is Finding.GO_ON
    assert faults.get("good") is None
    assert _isolated(faults).window == 25


def test_transactions_after_a_fault_are_small_and_double(faults: FaultAttribution) -> None:
    assert faults.entries_max(5_000) == 5_000
    _isolate(faults, 1)
    assert faults.entries_max(10) == 10
    sizes = []
    while faults.is_attributing:
        sizes.append(faults.entries_max(5_000))
        _quick(faults)
    assert sizes == [20, 40, 80, 160, 320, 640, 1_280]
    assert faults.entries_max(5_000) == 5_000


def test_they_stay_small_while_a_topic_is_suspected(faults: FaultAttribution) -> None:
    _quick(faults)
    _isolate(faults, 1)
    for _ in range(3):
        _waited(faults, 60.0, name="slow")
        assert faults.entries_max(5_000) == AFTER_FAULT_ENTRIES_MAX
    _waited(faults, 60.0, name="slow")
    assert faults.get("slow") is not None
    assert faults.entries_max(5_000) == 2 * AFTER_FAULT_ENTRIES_MAX


def test_an_abort_without_a_cause_makes_transactions_no_larger(faults: FaultAttribution) -> None:
    _isolate(faults, 1)
    assert faults.aborted(Attempt(None, 20, {}, {}, 5.0), 0) is Finding.BACK_OFF
    assert faults.entries_max(5_000) == AFTER_FAULT_ENTRIES_MAX


def test_no_target_is_blamed_if_the_log_record_failed_too(faults: FaultAttribution) -> None:
    attempt = _common({"bad": 1}, bad=_outcome(0, 1, why=TIMED_OUT))
    attempt.log_failed = True
    assert faults.aborted(attempt, 0) is Finding.BACK_OFF
    assert not faults.any


def test_the_window_halves_down_to_one_and_grows_again(faults: FaultAttribution, clock: Clock) -> None:
    isolated = _isolate(faults, 64)
    windows = []
    for _ in range(6):
        faults.aborted(_trial(isolated, isolated.window, _outcome(0, 1, why=TIMED_OUT)), 0)
        windows.append(isolated.window)
    assert windows == [16, 8, 4, 2, 1, 1]
    while faults.get("bad") is not None:
        faults.committed(_trial(isolated, isolated.window, _outcome(isolated.window)), 0.0, 0.0)
        windows.append(isolated.window)
    assert windows[6:] == [2**power for power in range(1, 11)]
    assert windows[-1] >= LARGE_TRANSACTION_FATES


def test_a_slow_trial_makes_the_next_ones_smaller(faults: FaultAttribution) -> None:
    isolated = _isolate(faults, 200)
    faults.committed(_trial(isolated, 100, _outcome(100), took_ms=2_000.0), 0.0, 0.0)
    assert isolated.window == 1


def test_the_acknowledged_messages_of_a_trial_are_its_next_window(faults: FaultAttribution) -> None:
    isolated = _isolate(faults, 200)
    faults.aborted(_trial(isolated, 100, _outcome(7, *range(93), why=TIMED_OUT)), 0)
    assert isolated.window == 7


def test_trials_have_a_quarter_of_the_time(faults: FaultAttribution, clock: Clock) -> None:
    isolated = _isolate(faults, 4)
    assert faults.turns(clock.now) == [isolated]
    faults.committed(_trial(isolated, 1, _outcome(1), took_ms=100.0), 0.0, 0.0)
    assert faults.turns(clock.now + 299) == []
    assert faults.turns(clock.now + 300) == [isolated]


def _times_out(
    faults: FaultAttribution, isolated: Isolated, log_acknowledged: bool = True, acknowledged: int = 0
) -> None:
    """A trial is aborted, since a record timed out."""
    attempt = _trial(isolated, 2, _outcome(acknowledged, 1, why=TIMED_OUT), took_ms=2_000.0)
    attempt.log_acknowledged = log_acknowledged
    faults.aborted(attempt, 0)


@pytest.mark.parametrize(
    ("log_acknowledged", "acknowledged", "commits", "is_spent"),
    [(True, 0, False, True), (False, 0, True, True), (False, 0, False, False), (True, 1, True, False)],
)
def test_a_target_is_unavailable_if_only_its_trials_fail_for_the_budget(
    faults: FaultAttribution, clock: Clock, log_acknowledged: bool, acknowledged: int, commits: bool, is_spent: bool
) -> None:
    isolated = _isolate(faults, 2)
    for _ in range(BUDGET_MS // 1_000 + 1):
        assert faults.spent("bad", 0, BUDGET_MS) is None
        clock.now += 1_000
        if commits:
            _quick(faults)
        _times_out(faults, isolated, log_acknowledged, acknowledged)
    spent = faults.spent("bad", 0, BUDGET_MS)
    assert spent == (Refusal(Reason.TARGET_UNAVAILABLE, "timed out") if is_spent else None)
    assert faults.spent("bad", 1, BUDGET_MS) is None  # its own budget is not used up
    faults.committed(_trial(isolated, 1, _outcome(1)), 0.0, 0.0)
    assert faults.spent("bad", 0, BUDGET_MS) is None


def test_one_failed_trial_is_not_an_outage_however_long_it_took(faults: FaultAttribution, clock: Clock) -> None:
    """The target had no messages for an hour, and a cut of the network hits the next trial."""
    isolated = _isolate(faults, 2)
    faults.committed(_trial(isolated, 2, _outcome(2)), 0.0, 0.0)
    for _ in range(2):
        clock.now += 3_600_000
        _times_out(faults, isolated)
        assert faults.spent("bad", 0, 10**9) is None
        faults.committed(_trial(isolated, 1, _outcome(1)), 0.0, 0.0)


def test_a_refused_probe_is_condemned_once_its_budget_is_used_up(faults: FaultAttribution, clock: Clock) -> None:
    isolated = _isolate(faults, 1, REFUSED)
    attempt = _trial(isolated, 1, _outcome(0, 7), due_ms=5_000)
    faults.aborted(attempt, 10**9)
    clock.now += BUDGET_MS - 1
    faults.committed(_trial(isolated, 1, _outcome(1)), 0.0, 0.0)
    faults.aborted(attempt, 10**9)
    assert not faults.condemned
    assert list(isolated.refused) == [7]
    clock.now += 1
    faults.aborted(attempt, 0)
    assert faults.condemned == {7: Refusal(Reason.RECORD_REFUSED, "against the policy")}
    assert not isolated.refused
    faults.ended([7])
    assert not faults.condemned


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (KafkaError.INVALID_RECORD, Reason.RECORD_REFUSED),
        (KafkaError.MSG_SIZE_TOO_LARGE, Reason.TOO_LARGE),
        (KafkaError.RECORD_LIST_TOO_LARGE, Reason.TOO_LARGE),
    ],
)
def test_a_probe_that_is_refused_for_good_is_condemned_at_once(
    faults: FaultAttribution, code: int, reason: Reason
) -> None:
    final = RecordRejected("schema validation failed", code)
    isolated = _isolate(faults, 2, final)
    faults.aborted(_trial(isolated, 2, _outcome(0, 7, 8, why=final)), 0)
    assert not faults.condemned  # a batch that is too large says nothing about a record
    faults.aborted(_trial(isolated, 1, _outcome(0, 7, why=final)), 0)
    assert faults.condemned == {7: Refusal(reason, "schema validation failed")}


@pytest.mark.parametrize("code", [KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_MSG, KafkaError.POLICY_VIOLATION])
def test_a_refusal_that_may_pass_with_time_is_tried_again(faults: FaultAttribution, code: int) -> None:
    passing = RecordRejected("not now", code)
    isolated = _isolate(faults, 1, passing)
    faults.aborted(_trial(isolated, 1, _outcome(0, 7, why=passing)), 0)
    assert not faults.condemned
    assert list(isolated.refused) == [7]


def test_each_late_probe_is_condemned_if_the_target_accepts_nothing(faults: FaultAttribution, clock: Clock) -> None:
    isolated = _isolate(faults, 1, REFUSED)
    clock.now += BUDGET_MS
    faults.aborted(_trial(isolated, 1, _outcome(0, 7), due_ms=1), BUDGET_MS)
    assert not faults.condemned
    faults.aborted(_trial(isolated, 1, _outcome(0, 8), due_ms=0), BUDGET_MS)
    assert list(faults.condemned) == [8]


def test_a_few_refused_among_many_leave_the_window_as_it_is(faults: FaultAttribution) -> None:
    isolated = _isolate(faults, 200)
    faults.aborted(_trial(isolated, 100, _outcome(99, 42)), 0)
    assert (isolated.window, list(isolated.refused)) == (100, [42])


def _probation_ms(faults: FaultAttribution, clock: Clock) -> float:
    """How long a target that is isolated now, and then has no fault, stays isolated."""
    isolated, since = _isolate(faults, 1), clock.now
    clock.now += 10
    faults.committed(_trial(isolated, 1, _outcome(1)), 0.0, 0.0)
    while faults.is_isolated("bad"):
        clock.now += 10
        faults.nothing_waits(isolated)
    return clock.now - since


def test_each_further_isolation_of_a_target_is_twice_as_long(faults: FaultAttribution, clock: Clock) -> None:
    spans = [_probation_ms(faults, clock) for _ in range(7)]
    assert spans == [1_000.0, 2_000.0, 4_000.0, 8_000.0, 16_000.0, PROBATION_MS, PROBATION_MS]
    clock.now += PROBATION_FORGOTTEN_MS
    assert _probation_ms(faults, clock) == 1_000.0


@pytest.mark.parametrize(("others", "next_ms"), [(ISOLATED_MAX - 1, 2_000.0), (ISOLATED_MAX, 1_000.0)])
def test_the_probations_of_a_thousand_targets_are_remembered(
    faults: FaultAttribution, clock: Clock, others: int, next_ms: float
) -> None:
    _probation_ms(faults, clock)
    for number in range(others):
        name = f"other-{number}"
        faults.aborted(_common({name: 1}, **{name: _outcome(0, 1, why=TIMED_OUT)}), 0)
    assert _probation_ms(faults, clock) == next_ms


def test_work_for_own_topics_is_split_and_no_entry_is_blamed(faults: FaultAttribution, clock: Clock) -> None:
    attempt = Attempt(None, 40, {STORE: 40}, {STORE: _outcome(0, *range(40), why=TIMED_OUT)}, 2_000.0)
    assert faults.aborted(attempt, 0) is Finding.BACK_OFF
    own = _isolated(faults, OWN)
    assert (own.window, own.topics) == (20, {STORE})
    for _ in range(100):
        clock.now += 1_000
        faults.aborted(Attempt(own, 1, {STORE: 1}, {STORE: _outcome(0, 1, why=TIMED_OUT)}, 2_000.0), 10**9)
    assert own.window == 1
    assert not faults.condemned
    assert not own.refused


def _quick(faults: FaultAttribution, first_ms: float = 3.0) -> None:
    """A common transaction was committed that nothing held up."""
    faults.committed(Attempt(None, 20, {"good": 20}, {"good": _outcome(20)}, first_ms + 5), first_ms, 0.0)


def _waited(faults: FaultAttribution, bad_ms: float, slow: int = 1, first_ms: float = 3.0, name: str = "bad") -> None:
    """A common transaction was committed that waited so long for `slow` records of the topic `name`."""
    outcomes = {"good": TopicOutcome(10), name: TopicOutcome(10, [bad_ms / slow] * slow if slow else [])}
    faults.committed(Attempt(None, 20, {"good": 10, name: 10}, outcomes, bad_ms + 15), first_ms, 2.0)


def test_the_topic_that_transactions_wait_for_is_slow(faults: FaultAttribution) -> None:
    _quick(faults)
    for _ in range(3):
        _waited(faults, 80.0)
    _waited(faults, 15.0, slow=0)
    for _ in range(3):
        _waited(faults, 80.0)
    assert not faults.any  # not often enough in a row: a coincidence
    _waited(faults, 80.0)
    assert faults.get("good") is None
    assert _isolated(faults).window == 2


def test_far_brokers_make_no_topic_slow(faults: FaultAttribution) -> None:
    """With a round trip of 24 ms a first acknowledgement takes two, and the sixth request of a connection one more."""
    _quick(faults, 48.0)
    for _ in range(10):
        _waited(faults, 96.0, slow=4, first_ms=48.0)
    assert not faults.any
    _waited(faults, 400.0, slow=4, first_ms=48.0)
    assert _isolated(faults).window == 2


def test_a_trial_is_quick_if_it_takes_no_longer_than_other_transactions(faults: FaultAttribution, clock: Clock) -> None:
    isolated = _isolate(faults, 16)
    clock.now += 1
    faults.committed(_trial(isolated, 8, _outcome(8), took_ms=45.0), 50.0, 0.0)
    assert isolated.faulted_at == clock.now
    faults.committed(Attempt(None, 20, {"good": 20}, {"good": _outcome(20)}, 70.0), 50.0, 2.0)
    clock.now += 1
    faults.committed(_trial(isolated, 8, _outcome(8), took_ms=45.0), 50.0, 0.0)
    assert isolated.faulted_at < clock.now


def _tried(faults: FaultAttribution, isolated: Isolated, took_ms: float) -> int:
    """A trial as large as the window was committed. Returns the window of the next one."""
    size = isolated.window
    faults.committed(_trial(isolated, size, _outcome(size), took_ms=took_ms), 3.0, 0.0)
    return isolated.window


def test_a_target_with_a_long_round_trip_gets_large_trials_and_stays_isolated(faults: FaultAttribution) -> None:
    isolated = _isolate(faults, 2)
    windows = [_tried(faults, isolated, 42.0) for _ in range(12)]
    assert windows == [2, 4, 8, 16, 32, 64, 128, 256, 512, 1_000, 1_000, 1_000]
    assert _isolated(faults) is isolated


def test_a_target_that_takes_its_time_for_each_message_gets_one_at_a_time(faults: FaultAttribution) -> None:
    isolated = _isolate(faults, 2)
    windows = [_tried(faults, isolated, took_ms) for took_ms in (33.0, 53.0, 33.0, 33.0)]
    assert windows == [2, 1, 1, 1]


def test_a_trial_without_a_message_for_its_target_does_not_count(faults: FaultAttribution, clock: Clock) -> None:
    """All of its entries have expired, and are dead letters."""
    isolated = _isolate(faults, 8)
    clock.now += 1_000
    faults.committed(_trial(isolated, 0, _outcome(0), took_ms=60.0), 3.0, 0.0)
    assert (isolated.window, isolated.acknowledged_at) == (4, clock.now - 1_000)
    assert faults.turns(clock.now + 179) == []


def _waits_for_a_trial(faults: FaultAttribution, clock: Clock, isolated: Isolated, late_ms: float) -> float:
    """A trial of 40 ms is 20 ms too long, and a message of another target, due `late_ms` before the end of the trial,
    waits for it. Returns how long the target must pause from then on."""
    ended_at = clock.now
    faults.committed(_trial(isolated, 1, _outcome(1), took_ms=40.0), 3.0, 0.0)
    clock.now += 12.0
    common = Attempt(None, 20, {"good": 20}, {"good": _outcome(20)}, 10.0, late_ms=late_ms + 2.0)
    faults.committed(common, 3.0, 0.0)
    return isolated.retry_at - ended_at


@pytest.mark.parametrize(("late_ms", "pauses"), [(19.0, False), (20.0, True)])
def test_trials_for_which_others_waited_too_long_again_and_again_pause_the_target(
    faults: FaultAttribution, clock: Clock, late_ms: float, pauses: bool
) -> None:
    """The credit covers five such trials. Each further one costs 150 times its excess of 20 ms, that is 3 s; the first
    pauses are limited to 1 and 2 s."""
    isolated = _isolate(faults, 1)
    clock.now += 1_000
    first = [_waits_for_a_trial(faults, clock, isolated, late_ms) for _ in range(5)]
    assert first == [120.0] * 5
    then_ms = [_waits_for_a_trial(faults, clock, isolated, late_ms) for _ in range(3)]
    assert then_ms == [1_000.0, 2_000.0, 3_000.0] if pauses else [120.0] * 3
    assert (isolated.faulted_at == isolated.retry_at) is pauses, "the probation begins when the pause ends"


@pytest.mark.parametrize(("accepted_before_ms", "rest_ms"), [(1_000.0, 30.0), (2_000.0, 300.0)])
def test_a_refused_trial_pauses_only_a_target_that_accepts_nothing(
    faults: FaultAttribution, clock: Clock, accepted_before_ms: float, rest_ms: float
) -> None:
    """Otherwise the messages between the refused ones would wait as well."""
    isolated = _isolate(faults, 1)
    clock.now += accepted_before_ms - 12.0
    ended_at = clock.now
    faults.aborted(_trial(isolated, 1, _outcome(0, 1), took_ms=10.0), 0)
    clock.now += 12.0
    faults.committed(Attempt(None, 20, {"good": 20}, {"good": _outcome(20)}, 10.0, late_ms=12.0), 3.0, 0.0)
    assert faults.turns(ended_at + rest_ms - 1) == []
    assert faults.turns(ended_at + rest_ms) == [isolated]


def test_only_the_first_transaction_after_a_trial_waited_for_it(faults: FaultAttribution, clock: Clock) -> None:
    isolated = _isolate(faults, 2)
    _tried(faults, isolated, 33.0)
    _quick(faults)
    faults.committed(Attempt(None, 20, {"good": 20}, {"good": _outcome(20)}, 10.0, late_ms=500.0), 3.0, 0.0)
    assert faults.turns(clock.now + 99) == [isolated]


def test_work_under_key_0_keeps_a_quarter_of_the_time(faults: FaultAttribution, clock: Clock) -> None:
    """Controls come before messages, and intake stops while they wait."""
    faults.aborted(Attempt(None, 2, {STORE: 2}, {STORE: _outcome(0, 1, 2, why=TIMED_OUT)}, 2_000.0), 0)
    own = _isolated(faults, OWN)
    _tried(faults, own, 33.0)
    faults.committed(Attempt(None, 20, {"good": 20}, {"good": _outcome(20)}, 0.0, late_ms=33.0), 3.0, 0.0)
    assert faults.turns(clock.now + 99) == [own]


def _on_a_busy_machine(faults: FaultAttribution, clock: Clock, transactions: int, slow: str = "") -> int:
    """Transactions for two or three of ten topics, any of which is slow in two of five; one topic is always slow.
    Returns after how many some topic was isolated."""
    chance = random.Random(7)
    names = [f"topic-{number}" for number in range(10)]
    for count in range(transactions):
        clock.now += 100
        outcomes = {}
        for name in chance.sample(names, chance.randint(2, 3)):
            is_slow = name == slow or chance.random() < 0.4
            outcomes[name] = TopicOutcome(1, [chance.uniform(20, 120)] if is_slow else [])
        faults.committed(Attempt(None, 3, dict.fromkeys(outcomes, 1), outcomes, 100.0), 3.0, 0.0)
        if faults.any:
            return count
    return transactions


def test_topics_that_are_all_slow_at_times_are_not_isolated(faults: FaultAttribution, clock: Clock) -> None:
    assert _on_a_busy_machine(faults, clock, 5_000) == 5_000


def test_a_long_wait_on_a_busy_machine_keeps_transactions_large(faults: FaultAttribution, clock: Clock) -> None:
    _on_a_busy_machine(faults, clock, 100)
    _waited(faults, 400.0)
    assert not faults.is_attributing


def test_a_topic_that_is_always_slow_is_isolated_on_a_busy_machine_too(faults: FaultAttribution, clock: Clock) -> None:
    assert _on_a_busy_machine(faults, clock, 5_000, slow="topic-3") < 1_000
    assert faults.get("topic-3") is not None


def test_a_transaction_for_the_slow_topic_alone_does_not_count(faults: FaultAttribution) -> None:
    for _ in range(3):
        _waited(faults, 60.0)
        faults.committed(Attempt(None, 1, {"bad": 1}, {"bad": TopicOutcome(1, [60.0])}, 65.0), 3.0, 0.0)
    assert not faults.any
    _waited(faults, 60.0)
    assert faults.get("bad") is not None


def test_a_target_counts_as_slow_regardless_of_the_transaction_size(faults: FaultAttribution) -> None:
    """3,000 messages a second and a target that takes 0.4 s: from the second transaction on each has 1,200 entries."""
    sizes = [30, *([1_200] * 4)]
    for size in sizes:
        outcomes = {"good": TopicOutcome(size - 1), "bad": TopicOutcome(1, [395.0])}
        reported = outcomes if faults.must_report(None, size) else {}
        faults.committed(Attempt(None, size, {"good": size - 1, "bad": 1}, reported, 400.0), 3.0, 0.0)
    assert faults.get("bad") is not None


def test_slow_large_transactions_report_by_turns(faults: FaultAttribution) -> None:
    """So a target is found that becomes slow while all transactions are large."""
    size = LARGE_TRANSACTION_FATES
    faults.committed(Attempt(None, size, {"good": size}, {}, 299.0), 3.0, 0.0)
    assert not faults.must_report(None, size)
    faults.committed(Attempt(None, size, {"good": size}, {}, 300.0), 3.0, 0.0)
    assert faults.must_report(None, size)
    faults.committed(Attempt(None, size, {"good": size}, {"good": _outcome(size)}, 300.0), 3.0, 0.0)
    assert not faults.must_report(None, size)


def test_after_an_abort_without_a_cause_each_message_reports(faults: FaultAttribution) -> None:
    assert faults.aborted(Attempt(None, 5_000, {}, {}, 2_000.0), 0) is Finding.BACK_OFF
    assert faults.must_report(None, 5_000)
    assert faults.entries_max(5_000) == REPORTED_ENTRIES_MAX


def test_a_topic_is_slow_after_two_records_that_took_long(faults: FaultAttribution) -> None:
    _quick(faults)
    _waited(faults, 299.0)
    assert not faults.any
    assert not faults.is_attributing
    _waited(faults, 400.0)
    assert _isolated(faults).window == 1


def test_the_transaction_after_a_long_wait_is_small(faults: FaultAttribution) -> None:
    _quick(faults)
    _waited(faults, 300.0)
    assert not faults.any
    assert faults.entries_max(5_000) == AFTER_FAULT_ENTRIES_MAX


def test_a_long_wait_for_the_first_acknowledgement_blames_no_topic(faults: FaultAttribution) -> None:
    """The records of the slow topic were acknowledged first: that clears it of nothing, and the other ones neither."""
    _quick(faults)
    for _ in range(3):
        _waited(faults, 80.0)
        _waited(faults, 10.0, slow=0, first_ms=80.0)
    assert not faults.any
    _waited(faults, 80.0)
    assert _isolated(faults).window == 2


def test_one_transaction_that_waits_for_several_records_of_a_topic_is_enough(faults: FaultAttribution) -> None:
    _quick(faults)
    _waited(faults, 80.0, slow=4)
    assert _isolated(faults).window == 2


def _answered(faults: FaultAttribution, first: str, second: str) -> None:
    """A common transaction was committed that waited for its first acknowledgement, and longer for the second topic.
    Nothing waited for the ten others."""
    outcomes = {first: TopicOutcome(10, is_first=True), second: TopicOutcome(10, [80.0])}
    outcomes |= {f"good-{number}": TopicOutcome(10) for number in range(10)}
    faults.committed(Attempt(None, 120, dict.fromkeys(outcomes, 10), outcomes, 150.0), 60.0, 2.0)


def test_two_slow_topics_that_answer_by_turns_are_both_isolated(faults: FaultAttribution) -> None:
    """The one that answers first is charged with nothing, and cleared of nothing."""
    _quick(faults)
    for _ in range(4):
        assert not faults.any
        _answered(faults, "bad", "worse")
        _answered(faults, "worse", "bad")
    assert faults.get("bad") is not None
    assert faults.get("worse") is not None


def test_a_topic_that_answers_first_and_fast_is_cleared(faults: FaultAttribution) -> None:
    _quick(faults)
    for _ in range(3):
        _waited(faults, 60.0)
    outcomes = {"bad": TopicOutcome(10, is_first=True), "good": TopicOutcome(10)}
    faults.committed(Attempt(None, 20, {"bad": 10, "good": 10}, outcomes, 8.0), 3.0, 2.0)
    _waited(faults, 60.0)
    assert not faults.any


def test_a_suspected_topic_that_gets_no_more_messages_makes_no_other_wait(
    faults: FaultAttribution, clock: Clock
) -> None:
    _quick(faults)
    _waited(faults, 300.0, name="slow")
    assert faults.entries_max(5_000) == AFTER_FAULT_ENTRIES_MAX
    for _ in range(7):
        _quick(faults)
    assert not faults.is_attributing
    assert faults.must_report(None, LARGE_TRANSACTION_FATES)
    clock.now += PROBATION_MS
    _quick(faults)
    assert not faults.must_report(None, LARGE_TRANSACTION_FATES)
