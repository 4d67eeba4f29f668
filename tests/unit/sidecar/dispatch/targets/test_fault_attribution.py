"""Goal: a fault is attributed to the target or the entry that causes it, and limits the messages that this target gets.

Method: `FaultAttribution` alone gets made-up reports of transactions, on a clock that the test advances.
"""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from postdate.kafka.errors import RecordRejected
from postdate.sidecar.context.limits import LARGE_TRANSACTION_FATES
from postdate.sidecar.dispatch.limits import (
    AFTER_FAULT_ENTRIES_MAX,
    FIRST_PROBATION_MS,
    GOOD_TRIALS,
    ISOLATED_MAX,
    PROBATION_FORGOTTEN_MS,
    PROBATION_MS,
)
from postdate.sidecar.dispatch.targets.fault_attribution import FaultAttribution, Finding
from postdate.sidecar.dispatch.targets.isolated_targets import OWN, Isolated
from postdate.sidecar.dispatch.targets.targets import Refusal
from postdate.wire.reasons import Reason
from support.shards.fault_attempts import (
    BUDGET_MS,
    REFUSED,
    STORE,
    TIMED_OUT,
    StepClock,
    common,
    finished,
    isolate,
    isolated_target,
    outcome,
    quick,
    trial,
)


def test_after_a_refusal_without_a_record_the_next_transaction_reports_each_message(faults: FaultAttribution) -> None:
    assert faults.must_report(None, 3)
    assert not faults.must_report(None, LARGE_TRANSACTION_FATES)
    assert faults.aborted(common({"good": 3}), 0) is Finding.ATTRIBUTED
    assert faults.must_report(None, LARGE_TRANSACTION_FATES)
    assert faults.aborted(common({"good": 3}), 0) is Finding.BACK_OFF


def test_only_the_target_whose_records_were_refused_is_isolated(faults: FaultAttribution) -> None:
    counts = {"good": 50, "bad": 50}
    assert faults.aborted(common(counts, good=outcome(50), bad=outcome(0, *range(50))), 0) is Finding.ATTRIBUTED
    assert faults.get("good") is None
    assert faults.any
    assert isolated_target(faults).messages_max == 25


def test_transactions_after_a_fault_are_small_and_double(faults: FaultAttribution) -> None:
    assert faults.entries_max(5_000) == 5_000
    isolate(faults, 1)
    assert faults.entries_max(10) == 10
    sizes = []
    while faults.is_attributing:
        sizes.append(faults.entries_max(5_000))
        quick(faults)
    assert sizes == [20, 40, 80, 160, 320, 640, 1_280]
    assert faults.entries_max(5_000) == 5_000


def test_transactions_after_a_fault_double_while_all_their_entries_wait_for_own_topics(
    faults: FaultAttribution,
) -> None:
    """Transactions double up to the largest size at which each message has a delivery report."""
    faults.all_wait()
    assert not faults.is_attributing
    isolate(faults, 1)
    sizes = []
    for _ in range(8):
        sizes.append(faults.entries_max(5_000))
        faults.all_wait()
    assert sizes == [20, 40, 80, 160, 320, 640, 1_000, 1_000]


def test_an_abort_without_a_cause_makes_transactions_no_larger(faults: FaultAttribution) -> None:
    isolate(faults, 1)
    assert faults.aborted(finished(None, 20, {}, {}, 5.0), 0) is Finding.BACK_OFF
    assert faults.entries_max(5_000) == AFTER_FAULT_ENTRIES_MAX


def test_no_target_is_blamed_if_the_log_record_failed_too(faults: FaultAttribution) -> None:
    attempt = common({"bad": 1}, bad=outcome(0, 1, why=TIMED_OUT))
    attempt.log_failed = True
    assert faults.aborted(attempt, 0) is Finding.BACK_OFF
    assert not faults.any


def test_the_maximum_halves_down_to_one_and_grows_again(faults: FaultAttribution, clock: StepClock) -> None:
    isolated = isolate(faults, 64)
    maxima = []
    for _ in range(6):
        faults.aborted(trial(isolated, isolated.messages_max, outcome(0, 1, why=TIMED_OUT)), 0)
        maxima.append(isolated.messages_max)
    assert maxima == [16, 8, 4, 2, 1, 1]
    while faults.get("bad") is not None:
        faults.committed(trial(isolated, isolated.messages_max, outcome(isolated.messages_max)), 0.0, 0.0)
        maxima.append(isolated.messages_max)
    assert maxima[6:] == [2**power for power in range(1, 11)]
    assert maxima[-1] >= LARGE_TRANSACTION_FATES


def test_a_slow_trial_makes_the_next_ones_smaller(faults: FaultAttribution) -> None:
    isolated = isolate(faults, 200)
    faults.committed(trial(isolated, 100, outcome(100), took_ms=2_000.0), 0.0, 0.0)
    assert isolated.messages_max == 1


def test_the_acknowledged_messages_of_a_trial_are_its_next_maximum(faults: FaultAttribution) -> None:
    isolated = isolate(faults, 200)
    faults.aborted(trial(isolated, 100, outcome(7, *range(93), why=TIMED_OUT)), 0)
    assert isolated.messages_max == 7


def test_trials_have_a_quarter_of_the_time(faults: FaultAttribution, clock: StepClock) -> None:
    isolated = isolate(faults, 4)
    assert faults.ready_trials(clock.now) == [isolated]
    faults.committed(trial(isolated, 1, outcome(1), took_ms=100.0), 0.0, 0.0)
    assert faults.ready_trials(clock.now + 299) == []
    assert faults.ready_trials(clock.now + 300) == [isolated]


def test_transactions_without_messages_for_targets_do_not_show_how_long_a_trial_may_take(
    faults: FaultAttribution, clock: StepClock
) -> None:
    for _ in range(8):
        faults.committed(finished(None, 9, {}, {}, 30.0, targets=["bad"]), 3.0, 0.0)
    isolated = isolate(faults, 32)
    while faults.any and clock.now < 1_000 + 2 * FIRST_PROBATION_MS:
        for _ in range(4):
            faults.committed(finished(None, 1, {}, {}, 10.0), 3.0, 0.0)  # verdicts on controls
        clock.now = max(isolated.retry_at, clock.now) + 30
        faults.committed(trial(isolated, isolated.messages_max, outcome(isolated.messages_max), 30.0), 3.0, 0.0)
    assert not faults.any


def _times_out(
    faults: FaultAttribution, isolated: Isolated, log_acknowledged: bool = True, acknowledged: int = 0
) -> None:
    """Reports the abort of a trial in which a record timed out."""
    attempt = trial(isolated, 2, outcome(acknowledged, 1, why=TIMED_OUT), took_ms=2_000.0)
    attempt.log_acknowledged = log_acknowledged
    faults.aborted(attempt, 0)


@pytest.mark.parametrize(
    ("log_acknowledged", "acknowledged", "commits", "is_spent"),
    [(True, 0, False, True), (False, 0, True, True), (False, 0, False, False), (True, 1, True, False)],
)
def test_a_target_is_unavailable_if_only_its_trials_fail_for_the_budget(
    faults: FaultAttribution, clock: StepClock, log_acknowledged: bool, acknowledged: int, commits: bool, is_spent: bool
) -> None:
    isolated = isolate(faults, 2)
    for _ in range(BUDGET_MS // 1_000 + 1):
        assert faults.spent("bad", 0, BUDGET_MS) is None
        clock.now += 1_000
        if commits:
            faults.note_commit()
        _times_out(faults, isolated, log_acknowledged, acknowledged)
    spent = faults.spent("bad", 0, BUDGET_MS)
    assert spent == (Refusal(Reason.TARGET_UNAVAILABLE, "timed out") if is_spent else None)
    assert faults.spent("bad", 1, BUDGET_MS) is None  # the entry's budget is not used up
    faults.committed(trial(isolated, 1, outcome(1)), 0.0, 0.0)
    assert faults.spent("bad", 0, BUDGET_MS) is None


def test_one_failed_trial_is_not_an_outage_however_long_it_took(faults: FaultAttribution, clock: StepClock) -> None:
    """The target had no messages for an hour, and a network outage hits the next trial."""
    isolated = isolate(faults, 2)
    faults.committed(trial(isolated, 2, outcome(2)), 0.0, 0.0)
    for _ in range(2):
        clock.now += 3_600_000
        _times_out(faults, isolated)
        assert faults.spent("bad", 0, 10**9) is None
        clock.now += 10
        faults.committed(trial(isolated, 1, outcome(1)), 0.0, 0.0)


def test_an_outage_begins_with_the_abort_that_isolates_the_target(faults: FaultAttribution, clock: StepClock) -> None:
    """If twenty targets hang, each gets a trial only every three minutes, so its first failed trial comes late."""
    attempt = common({"bad": 1}, bad=outcome(0, 1, why=TIMED_OUT))
    attempt.log_acknowledged = True
    faults.aborted(attempt, 0)
    clock.now += BUDGET_MS
    _times_out(faults, isolated_target(faults))
    assert faults.spent("bad", 0, BUDGET_MS) is not None


def test_a_refusal_of_a_common_transaction_does_not_begin_an_outage(faults: FaultAttribution, clock: StepClock) -> None:
    """A refusal is an answer: one failed trial after it does not show that the target was unavailable."""
    attempt = common({"bad": 1, "good": 1}, bad=outcome(0, 0))
    attempt.log_acknowledged = True
    faults.aborted(attempt, 0)
    clock.now += BUDGET_MS
    _times_out(faults, isolated_target(faults))
    assert faults.spent("bad", 0, BUDGET_MS) is None


def test_a_refused_probe_is_condemned_once_its_budget_is_used_up(faults: FaultAttribution, clock: StepClock) -> None:
    isolated = isolate(faults, 1, REFUSED)
    attempt = trial(isolated, 1, outcome(0, 7), due_ms=5_000)
    faults.aborted(attempt, 10**9)
    clock.now += BUDGET_MS - 1
    faults.committed(trial(isolated, 1, outcome(1)), 0.0, 0.0)
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
    isolated = isolate(faults, 2, final)
    faults.aborted(trial(isolated, 2, outcome(0, 7, 8, why=final)), 0)
    assert not faults.condemned  # a batch that is too large proves nothing about a record
    faults.aborted(trial(isolated, 1, outcome(0, 7, why=final)), 0)
    assert faults.condemned == {7: Refusal(reason, "schema validation failed")}


def test_a_dead_letter_names_the_refusal_and_not_the_fault_that_isolated_the_target(faults: FaultAttribution) -> None:
    final = RecordRejected("schema validation failed", KafkaError.INVALID_RECORD)
    isolated = isolate(faults, 1, TIMED_OUT)
    faults.aborted(trial(isolated, 1, outcome(0, 7, why=final)), 0)
    assert faults.condemned == {7: Refusal(Reason.RECORD_REFUSED, "schema validation failed")}


@pytest.mark.parametrize("code", [KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_MSG, KafkaError.POLICY_VIOLATION])
def test_a_refusal_that_may_pass_with_time_is_tried_again(faults: FaultAttribution, code: int) -> None:
    passing = RecordRejected("not now", code)
    isolated = isolate(faults, 1, passing)
    faults.aborted(trial(isolated, 1, outcome(0, 7, why=passing)), 0)
    assert not faults.condemned
    assert list(isolated.refused) == [7]


def test_each_late_probe_is_condemned_if_the_target_accepts_nothing(faults: FaultAttribution, clock: StepClock) -> None:
    isolated = isolate(faults, 1, REFUSED)
    clock.now += BUDGET_MS
    faults.aborted(trial(isolated, 1, outcome(0, 7), due_ms=1), BUDGET_MS)
    assert not faults.condemned
    faults.aborted(trial(isolated, 1, outcome(0, 8), due_ms=0), BUDGET_MS)
    assert list(faults.condemned) == [8]


def test_a_few_refused_among_many_leave_the_maximum_as_it_is(faults: FaultAttribution) -> None:
    isolated = isolate(faults, 200)
    faults.aborted(trial(isolated, 100, outcome(99, 42)), 0)
    assert (isolated.messages_max, list(isolated.refused)) == (100, [42])


def test_a_few_refused_of_a_common_transaction_are_retried_alone(faults: FaultAttribution) -> None:
    faults.aborted(common({"bad": 100}, bad=outcome(99, 42)), 0)
    isolated = isolated_target(faults)
    assert (isolated.messages_max, list(isolated.refused)) == (100, [42])


def _probation_ms(faults: FaultAttribution, clock: StepClock) -> float:
    """Isolates a target, and returns how long it stays isolated without a further fault, in ms."""
    isolated, since = isolate(faults, 1), clock.now
    for _ in range(GOOD_TRIALS):
        clock.now += 10
        faults.committed(trial(isolated, 1, outcome(1)), 0.0, 0.0)
    while faults.is_isolated("bad"):
        clock.now += 10
        faults.nothing_waits(isolated)
    return clock.now - since


def test_a_few_good_trials_do_not_end_an_isolation_early(faults: FaultAttribution, clock: StepClock) -> None:
    """A target that is often slow may be fast by chance."""
    isolated = isolate(faults, 1)
    for trials in (7, 7):
        for _ in range(trials):
            clock.now += FIRST_PROBATION_MS
            faults.committed(trial(isolated, 1, outcome(1)), 0.0, 0.0)
        faults.nothing_waits(isolated)
        assert isolated_target(faults) is isolated
        _times_out(faults, isolated)
    for _ in range(7):
        clock.now += FIRST_PROBATION_MS
        faults.committed(trial(isolated, 1, outcome(1)), 0.0, 0.0)
    clock.now += FIRST_PROBATION_MS
    faults.committed(trial(isolated, 1, outcome(1)), 0.0, 0.0)
    faults.nothing_waits(isolated)
    assert faults.get("bad") is None


def test_each_further_isolation_of_a_target_is_twice_as_long(faults: FaultAttribution, clock: StepClock) -> None:
    spans = [_probation_ms(faults, clock) for _ in range(7)]
    assert spans == [1_000.0, 2_000.0, 4_000.0, 8_000.0, 16_000.0, PROBATION_MS, PROBATION_MS]
    clock.now += PROBATION_FORGOTTEN_MS
    assert _probation_ms(faults, clock) == 1_000.0


@pytest.mark.parametrize(("others", "next_ms"), [(ISOLATED_MAX - 1, 2_000.0), (ISOLATED_MAX, 1_000.0)])
def test_the_probations_of_a_thousand_targets_are_remembered(
    faults: FaultAttribution, clock: StepClock, others: int, next_ms: float
) -> None:
    _probation_ms(faults, clock)
    for number in range(others):
        name = f"other-{number}"
        faults.aborted(common({name: 1}, **{name: outcome(0, 1, why=TIMED_OUT)}), 0)
    assert _probation_ms(faults, clock) == next_ms


def test_entries_for_own_topics_are_split_and_not_blamed(
    faults: FaultAttribution, clock: StepClock, caplog: pytest.LogCaptureFixture
) -> None:
    attempt = finished(None, 40, {STORE: 40}, {STORE: outcome(0, *range(40), why=TIMED_OUT)}, 2_000.0)
    assert faults.aborted(attempt, 0) is Finding.BACK_OFF
    logged = f"Postdate's own topics are isolated ({STORE}), with at most 20 entries in a transaction: "
    assert [record.message for record in caplog.records if record.message.startswith(logged)]
    own = isolated_target(faults, OWN)
    assert (own.messages_max, own.topics) == (20, {STORE})
    for _ in range(100):
        clock.now += 1_000
        faults.aborted(finished(own, 1, {STORE: 1}, {STORE: outcome(0, 1, why=TIMED_OUT)}, 2_000.0), 10**9)
    assert own.messages_max == 1
    assert not faults.condemned
    assert not own.refused


def test_a_trial_is_quick_if_it_takes_no_longer_than_other_transactions(
    faults: FaultAttribution, clock: StepClock
) -> None:
    isolated = isolate(faults, 16)
    clock.now += 1
    faults.committed(trial(isolated, 8, outcome(8), took_ms=45.0), 50.0, 0.0)
    assert isolated.faulted_at == clock.now
    faults.committed(finished(None, 20, {"good": 20}, {"good": outcome(20)}, 70.0), 50.0, 2.0)
    clock.now += 1
    faults.committed(trial(isolated, 8, outcome(8), took_ms=45.0), 50.0, 0.0)
    assert isolated.faulted_at < clock.now


def _tried(faults: FaultAttribution, isolated: Isolated, took_ms: float) -> int:
    """Commits a trial as large as the maximum. Returns the next maximum."""
    size = isolated.messages_max
    faults.committed(trial(isolated, size, outcome(size), took_ms=took_ms), 3.0, 0.0)
    return isolated.messages_max


def test_a_target_with_a_long_round_trip_gets_large_trials_and_stays_isolated(faults: FaultAttribution) -> None:
    isolated = isolate(faults, 2)
    maxima = [_tried(faults, isolated, 42.0) for _ in range(12)]
    assert maxima == [2, 4, 8, 16, 32, 64, 128, 256, 512, 1_000, 1_000, 1_000]
    assert isolated_target(faults) is isolated


def test_a_target_with_a_fixed_time_per_message_gets_one_at_a_time(faults: FaultAttribution) -> None:
    isolated = isolate(faults, 2)
    maxima = [_tried(faults, isolated, took_ms) for took_ms in (33.0, 53.0, 33.0, 33.0)]
    assert maxima == [2, 1, 1, 1]


def test_a_trial_without_a_message_for_its_target_does_not_count(faults: FaultAttribution, clock: StepClock) -> None:
    """All its entries have expired and become dead letters."""
    isolated = isolate(faults, 8)
    clock.now += 1_000
    faults.committed(trial(isolated, 0, outcome(0), took_ms=60.0), 3.0, 0.0)
    assert (isolated.messages_max, isolated.acknowledged_at) == (4, clock.now - 1_000)
    assert faults.ready_trials(clock.now + 179) == []


def _waits_for_a_trial(faults: FaultAttribution, clock: StepClock, isolated: Isolated, late_ms: float) -> float:
    """Commits a trial of 40 ms, which is 20 ms too long. A message for another target, due `late_ms` before its end,
    waits for it. Returns how long the target must then pause, in ms."""
    ended_at = clock.now
    faults.committed(trial(isolated, 1, outcome(1), took_ms=40.0), 3.0, 0.0)
    clock.now += 12.0
    common = finished(None, 20, {"good": 20}, {"good": outcome(20)}, 10.0, late_ms=late_ms + 2.0)
    faults.committed(common, 3.0, 0.0)
    return isolated.retry_at - ended_at


@pytest.mark.parametrize(("late_ms", "pauses"), [(19.0, False), (20.0, True)])
def test_trials_that_repeatedly_delay_others_too_long_pause_the_target(
    faults: FaultAttribution, clock: StepClock, late_ms: float, pauses: bool
) -> None:
    """The credit covers five such trials. Each further trial costs 150 times its excess of 20 ms, that is 3 s. The
    first pauses are limited to 1 s and 2 s."""
    isolated = isolate(faults, 1)
    clock.now += 1_000
    first = [_waits_for_a_trial(faults, clock, isolated, late_ms) for _ in range(5)]
    assert first == [120.0] * 5
    then_ms = [_waits_for_a_trial(faults, clock, isolated, late_ms) for _ in range(3)]
    assert then_ms == [1_000.0, 2_000.0, 3_000.0] if pauses else [120.0] * 3
    assert (isolated.faulted_at == isolated.retry_at) is pauses, "the probation begins when the pause ends"


@pytest.mark.parametrize(("hangs", "rest_ms"), [(False, 1_000.0), (True, 10_000.0)])
def test_the_first_pause_is_short_unless_the_target_is_known_to_hang(
    faults: FaultAttribution, clock: StepClock, hangs: bool, rest_ms: float
) -> None:
    """A target is known to hang if its records timed out although the log record was acknowledged."""
    isolated = isolate(faults, 1)
    clock.now += 1_000
    ended_at = clock.now
    _times_out(faults, isolated, log_acknowledged=hangs)
    assert faults.next_at() == ended_at + (6_000 if hangs else 1_000)
    clock.now += 12.0
    faults.committed(finished(None, 20, {"good": 20}, {"good": outcome(20)}, 10.0, late_ms=2_000.0), 3.0, 0.0)
    assert isolated.retry_at == ended_at + rest_ms


@pytest.mark.parametrize(("accepted_before_ms", "rest_ms"), [(1_000.0, 30.0), (2_000.0, 300.0)])
def test_a_refused_trial_pauses_only_a_target_that_accepts_nothing(
    faults: FaultAttribution, clock: StepClock, accepted_before_ms: float, rest_ms: float
) -> None:
    """Otherwise accepted messages between the refused ones would wait as well."""
    isolated = isolate(faults, 1)
    clock.now += accepted_before_ms - 12.0
    ended_at = clock.now
    faults.aborted(trial(isolated, 1, outcome(0, 1), took_ms=10.0), 0)
    clock.now += 12.0
    faults.committed(finished(None, 20, {"good": 20}, {"good": outcome(20)}, 10.0, late_ms=12.0), 3.0, 0.0)
    assert faults.ready_trials(ended_at + rest_ms - 1) == []
    assert faults.ready_trials(ended_at + rest_ms) == [isolated]


def test_only_the_first_transaction_after_a_trial_waited_for_it(faults: FaultAttribution, clock: StepClock) -> None:
    isolated = isolate(faults, 2)
    _tried(faults, isolated, 33.0)
    quick(faults)
    faults.committed(finished(None, 20, {"good": 20}, {"good": outcome(20)}, 10.0, late_ms=500.0), 3.0, 0.0)
    assert faults.ready_trials(clock.now + 99) == [isolated]


def test_entries_under_key_0_keep_a_quarter_of_the_time(faults: FaultAttribution, clock: StepClock) -> None:
    """Controls come before messages, and ingest stops while they wait."""
    faults.aborted(finished(None, 2, {STORE: 2}, {STORE: outcome(0, 1, 2, why=TIMED_OUT)}, 2_000.0), 0)
    own = isolated_target(faults, OWN)
    _tried(faults, own, 33.0)
    faults.committed(finished(None, 20, {"good": 20}, {"good": outcome(20)}, 0.0, late_ms=33.0), 3.0, 0.0)
    assert faults.ready_trials(clock.now + 99) == [own]


def test_a_trial_isolates_other_topics_that_fail_in_it(faults: FaultAttribution, clock: StepClock) -> None:
    """A trial of Postdate's own topics also delivers messages, and a trial of a target may write dead letters."""
    failed = {STORE: outcome(0, 1, why=TIMED_OUT)}
    faults.aborted(finished(None, 1, {STORE: 1}, failed, 2_000.0), 0)
    own = isolated_target(faults, OWN)
    failed = {STORE: outcome(1), "bad": outcome(0, 1, why=TIMED_OUT)}
    faults.aborted(finished(own, 1, {STORE: 1, "bad": 1}, failed, 2_000.0), 0)
    isolated = isolated_target(faults)
    clock.now += PROBATION_MS
    faults.nothing_waits(own)
    assert faults.get(OWN) is None
    failed = {STORE: outcome(0, 2, why=TIMED_OUT)}
    faults.aborted(finished(isolated, 1, {STORE: 1, "bad": 1}, failed, 2_000.0), 0)
    assert isolated_target(faults, OWN).topics == {STORE}


def test_own_topics_return_after_their_probation_although_nothing_tried_them(
    faults: FaultAttribution, clock: StepClock
) -> None:
    """Trials of Postdate's own topics may contain none of the entries that wait for these topics: parked messages of an
    isolated target, or a bulk control."""
    failed = {STORE: outcome(0, 1, why=TIMED_OUT)}
    faults.aborted(finished(None, 1, {STORE: 1}, failed, 2_000.0), 0)
    own = isolated_target(faults, OWN)
    clock.now += 1
    faults.aborted(finished(own, 1, {STORE: 1}, failed, 2_000.0), 0)
    faults.nothing_waits(own)
    clock.now += PROBATION_MS - 1
    assert faults.is_isolated(OWN)
    clock.now += 1
    assert not faults.is_isolated(OWN)
