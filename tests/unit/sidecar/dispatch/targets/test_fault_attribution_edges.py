"""Goal: the limits, pauses and probations of fault attribution hold exactly at their bounds.

Method: as `test_fault_attribution`.
"""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from postdate.kafka.errors import RecordRejected
from postdate.sidecar.context.limits import LARGE_TRANSACTION_FATES
from postdate.sidecar.dispatch.limits import (
    PROBATION_MS,
    REFUSED_RETRY_MS_MAX,
    REFUSED_RETRY_MS_MIN,
    REPORTED_ENTRIES_MAX,
    TARGET_PROBE_MS_MAX,
)
from postdate.sidecar.dispatch.targets import fault_attribution, isolated_targets
from postdate.sidecar.dispatch.targets.fault_attribution import FaultAttribution, Finding, FinishedTransaction
from postdate.sidecar.dispatch.targets.isolated_targets import _RECENT, OWN, Isolated, RecentDurations
from postdate.sidecar.limits import BACKOFF_MS_MIN
from postdate.sidecar.transaction.transaction import NOBODY
from support.shards.fault_attempts import (
    BUDGET_MS,
    REFUSED,
    STORE,
    TIMED_OUT,
    VERDICTS,
    StepClock,
    common,
    finished,
    isolate,
    isolated_target,
    outcome,
    quick,
    trial,
)


@pytest.fixture
def faults(clock: StepClock) -> FaultAttribution:
    return FaultAttribution(clock, BUDGET_MS, {STORE, VERDICTS})


def _times_out(faults: FaultAttribution, isolated: Isolated, log_acknowledged: bool = True) -> None:
    """Reports the abort of a trial of which no record was acknowledged."""
    attempt = trial(isolated, 2, outcome(0, 1, why=TIMED_OUT))
    attempt.log_acknowledged = log_acknowledged
    assert faults.aborted(attempt, 0) is Finding.ATTRIBUTED


@pytest.mark.parametrize("topic", ["bad", STORE])
def test_a_topic_that_fails_with_one_record_gets_one_at_a_time(faults: FaultAttribution, topic: str) -> None:
    faults.aborted(common({topic: 1}, **{topic: outcome(0, 1, why=TIMED_OUT)}), 0)
    assert isolated_target(faults, OWN if topic == STORE else topic).messages_max == 1


def test_the_durations_of_the_last_transactions_are_summed_up() -> None:
    recent = RecentDurations()
    assert (recent.shortest, recent.median, recent.upper_quartile, recent.mean_above(0.0)) == (0, 0, 0, 0)
    recent.add(7.0)
    assert (recent.shortest, recent.median, recent.upper_quartile, recent.mean_above(5.0)) == (7, 7, 7, 2)
    for took_ms in range(_RECENT, 0, -1):
        recent.add(took_ms)
    assert recent.shortest == 1
    assert (recent.median, recent.upper_quartile) == (_RECENT // 2 + 1, _RECENT * 3 // 4 + 1)
    assert recent.mean_above(_RECENT - 2) == (1 + 2) / _RECENT


def test_trials_may_begin_at_any_time_of_the_steady_clock(faults: FaultAttribution, clock: StepClock) -> None:
    clock.now = 0.0
    isolated = isolate(faults, 1)
    assert faults.ready_trials(0.0) == [isolated]


def test_the_pause_after_a_trial_holds_for_all_targets(faults: FaultAttribution, clock: StepClock) -> None:
    first = isolate(faults, 4)
    faults.aborted(common({"other": 1}, other=outcome(0, 1, why=TIMED_OUT)), 0)
    other = isolated_target(faults, "other")
    assert faults.ready_trials(clock.now) == [first, other]
    faults.committed(trial(first, 1, outcome(1), took_ms=100.0), 0.0, 0.0)
    assert faults.next_at() == clock.now + 300
    assert faults.ready_trials(clock.now + 299) == []
    assert faults.ready_trials(clock.now + 300) == [other, first], "in order of waiting time"
    other.retry_at = clock.now + 500
    assert faults.next_at() == clock.now + 300
    first.waits = False
    assert faults.next_at() == clock.now + 500


def test_a_target_is_tried_while_messages_wait_for_it(faults: FaultAttribution, clock: StepClock) -> None:
    isolated = isolate(faults, 1)
    faults.nothing_waits(isolated)
    assert faults.ready_trials(clock.now) == []
    faults.parked(("good", "bad"))
    assert faults.ready_trials(clock.now) == [isolated]


def test_trials_of_which_only_the_log_record_fails_shrink_to_one_message(faults: FaultAttribution) -> None:
    """The target may still delay that record."""
    isolated = isolate(faults, 8)
    maxima = []
    for _ in range(4):
        assert faults.aborted(trial(isolated, 1, outcome(0)), 0) is Finding.BACK_OFF
        maxima.append(isolated.messages_max)
    assert maxima == [2, 1, 1, 1]


def test_a_trial_with_one_acknowledged_message_is_followed_by_one_message(faults: FaultAttribution) -> None:
    isolated = isolate(faults, 200)
    faults.aborted(trial(isolated, 100, outcome(1, *range(99), why=TIMED_OUT)), 0)
    assert isolated.messages_max == 1


def test_a_target_that_acknowledges_nothing_is_tried_more_and_more_rarely(
    faults: FaultAttribution, clock: StepClock
) -> None:
    """The pauses are short again once it acknowledges a message."""
    isolated = isolate(faults, 1)
    pauses = []
    for _ in range(9):
        _times_out(faults, isolated, log_acknowledged=False)
        pauses.append(isolated.retry_at - clock.now)
        clock.now = isolated.retry_at
    assert pauses == [min(BACKOFF_MS_MIN * 2**n, TARGET_PROBE_MS_MAX) for n in range(9)]
    faults.committed(trial(isolated, 1, outcome(1)), 0.0, 0.0)
    _times_out(faults, isolated, log_acknowledged=False)
    assert isolated.retry_at == clock.now + BACKOFF_MS_MIN


@pytest.mark.parametrize("answer", [outcome(1, 1, why=TIMED_OUT), outcome(0, 1, 2), None])
def test_any_answer_ends_an_outage(faults: FaultAttribution, clock: StepClock, answer: object) -> None:
    """An acknowledgement or a refusal ends it. Without either, the entries end after their budget."""
    isolated = isolate(faults, 2)
    _times_out(faults, isolated)
    clock.now += 1_000
    if answer is not None:
        assert faults.aborted(trial(isolated, 2, answer), 0) is Finding.ATTRIBUTED  # type: ignore[arg-type]
    clock.now += BUDGET_MS
    _times_out(faults, isolated)
    assert (faults.spent("bad", 0, BUDGET_MS) is None) is (answer is not None)


def test_a_commit_before_the_last_failed_trial_does_not_show_that_kafka_works(
    faults: FaultAttribution, clock: StepClock
) -> None:
    faults.note_commit()
    isolated = isolate(faults, 2)
    for _ in range(BUDGET_MS // 1_000 + 2):
        clock.now += 1_000
        _times_out(faults, isolated, log_acknowledged=False)
    assert faults.spent("bad", 0, BUDGET_MS) is None


def test_own_topics_remember_which_of_them_failed_and_keep_the_smallest_maximum(
    faults: FaultAttribution, clock: StepClock
) -> None:
    faults.aborted(common({STORE: 8}, **{STORE: outcome(0, 1, why=TIMED_OUT)}), 0)
    own = isolated_target(faults, OWN)
    assert own.messages_max == 4
    clock.now += 10
    attempt = finished(own, 4, {VERDICTS: 4}, {VERDICTS: outcome(0, 1, why=TIMED_OUT)}, 5.0)
    faults.aborted(attempt, 0)
    assert (own.topics, own.messages_max, own.faulted_at) == ({STORE, VERDICTS}, 2, clock.now)
    faults.nothing_waits(own)
    clock.now += 10
    faults.aborted(common({STORE: 50}, **{STORE: outcome(0, 1, why=TIMED_OUT)}), 0)
    assert (own.messages_max, own.faulted_at, own.waits) == (2, clock.now, True)
    faults.aborted(common({STORE: 2}, **{STORE: outcome(0, 1, why=TIMED_OUT)}), 0)
    assert own.messages_max == 1


@pytest.mark.parametrize(("size", "refused", "next_max"), [(8, 3, 4), (7, 2, 3), (3, 2, 1), (2, 2, 1)])
def test_a_trial_that_is_mostly_refused_is_followed_by_half_of_it(
    faults: FaultAttribution, size: int, refused: int, next_max: int
) -> None:
    isolated = isolate(faults, 200, REFUSED)
    assert faults.aborted(trial(isolated, size, outcome(size - refused, *range(refused))), 0) is Finding.ATTRIBUTED
    assert (isolated.messages_max, isolated.refused) == (next_max, {})


def test_a_quarter_of_a_trial_may_be_refused_entries(faults: FaultAttribution, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refused entries are retried alone, up to the number that is remembered. A record that belongs to no entry
    does not count."""
    monkeypatch.setattr(isolated_targets, "REFUSED_MAX", 2)
    isolated = isolate(faults, 8)
    faults.aborted(trial(isolated, 4, outcome(3, 42)), 0)
    assert (isolated.messages_max, list(isolated.refused)) == (4, [42])
    faults.aborted(trial(isolated, 100, outcome(96, NOBODY, 42, 43, 44)), 0)
    assert list(isolated.refused) == [42, 43]
    faults.aborted(trial(isolated, 1, outcome(0, 45)), 0)
    assert list(isolated.refused) == [42, 43]


def test_a_refused_entry_is_retried_more_and_more_rarely(faults: FaultAttribution, clock: StepClock) -> None:
    passing = RecordRejected("not now", KafkaError.POLICY_VIOLATION)
    isolated = isolate(faults, 1, passing)
    pauses = []
    for _ in range(6):
        faults.aborted(trial(isolated, 1, outcome(0, 7, why=passing), due_ms=10**9), 0)
        pauses.append(isolated.refused[7].next_at - clock.now)
    assert pauses == [min(REFUSED_RETRY_MS_MIN * 2**n, REFUSED_RETRY_MS_MAX) for n in range(6)]


def test_a_bounded_number_of_targets_is_isolated(faults: FaultAttribution, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_attribution, "ISOLATED_MAX", 2)
    for name in ("a", "b", "c"):
        faults.aborted(common({name: 1}, **{name: outcome(0, 1, why=TIMED_OUT)}), 0)
    assert [faults.get(name) is not None for name in ("a", "b", "c")] == [False, True, True]


@pytest.mark.parametrize("fails", [True, False])
def test_an_isolation_without_messages_ends_unless_the_last_trial_failed(
    faults: FaultAttribution, clock: StepClock, fails: bool
) -> None:
    isolated = isolate(faults, 1)
    if fails:
        clock.now += 1
        _times_out(faults, isolated)
    clock.now += PROBATION_MS - 1
    faults.nothing_waits(isolated)
    assert faults.get("bad") is isolated
    clock.now += 1
    faults.nothing_waits(isolated)
    assert (faults.get("bad") is isolated) is fails


def test_a_target_whose_trials_may_be_large_returns(faults: FaultAttribution, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    isolated = isolate(faults, 4)
    isolated.messages_max = LARGE_TRANSACTION_FATES - 1
    faults.committed(trial(isolated, 1, outcome(1)), 0.0, 0.0)
    assert faults.get("bad") is isolated
    isolated.messages_max = LARGE_TRANSACTION_FATES
    faults.committed(trial(isolated, 1, outcome(1)), 0.0, 0.0)
    assert faults.get("bad") is None
    assert caplog.messages[-1] == "target bad is no longer isolated"


@pytest.mark.parametrize(
    ("size", "took_ms", "next_max"), [(200, 10.0, 300), (200, 4.0, 400), (100, 10.0, 200), (100, 80.0, 25)]
)
def test_the_next_trial_is_as_large_as_the_aim_allows(
    faults: FaultAttribution, size: int, took_ms: float, next_max: int
) -> None:
    """The aim is 20 ms. A fast trial at most doubles the next one, up to three quarters of the size that would reach
    the aim."""
    isolated = isolate(faults, 1)
    isolated.messages_max = max(size, 200)
    faults.committed(trial(isolated, size, outcome(size), took_ms=took_ms), 0.0, 0.0)
    assert isolated.messages_max == next_max


@pytest.mark.parametrize(("took_ms", "is_fast"), [(49.0, True), (51.0, False)])
def test_a_trial_may_take_a_quarter_longer_than_other_transactions_usually_do(
    faults: FaultAttribution, clock: StepClock, took_ms: float, is_fast: bool
) -> None:
    isolated = isolate(faults, 1)
    for _ in range(8):
        faults.committed(_common(40.0), 3.0, 0.0)
    clock.now += 1
    faults.committed(trial(isolated, 1, outcome(1), took_ms=took_ms), 0.0, 0.0)
    assert (isolated.faulted_at < clock.now) is is_fast


def test_after_one_transaction_that_reported_all_messages_the_next_one_is_not_limited(faults: FaultAttribution) -> None:
    assert faults.aborted(finished(None, 5_000, {}, {}, 5.0), 0) is Finding.BACK_OFF
    assert faults.entries_max(5_000) == REPORTED_ENTRIES_MAX
    quick(faults)
    assert not faults.is_attributing


def _tried(
    faults: FaultAttribution, clock: StepClock, isolated: Isolated, size: int = 1, late_ms: float = 20.0
) -> bool:
    """Commits a trial of 40 ms, which is 20 ms too long. A message for another target waits `late_ms` for it. Returns
    True if the target must pause longer than after every trial, 120 ms."""
    clock.now = max(clock.now, isolated.retry_at)
    ended_at = clock.now
    faults.committed(trial(isolated, size, outcome(size), took_ms=40.0), 3.0, 0.0)
    clock.now += 12.0
    faults.committed(_common(10.0, late_ms + 2.0), 3.0, 0.0)
    return isolated.retry_at > ended_at + 120.0


def _common(took_ms: float, late_ms: float = 0.0) -> FinishedTransaction:
    return finished(None, 20, {"good": 20}, {"good": outcome(20)}, took_ms, late_ms=late_ms)


def test_trials_that_delay_no_message_neither_use_credit_nor_add_to_it(
    faults: FaultAttribution, clock: StepClock
) -> None:
    isolated = isolate(faults, 1)
    for _ in range(150):
        assert not _tried(faults, clock, isolated, late_ms=0.0)
    assert [_tried(faults, clock, isolated) for _ in range(4)] == [False] * 4
    for _ in range(20):
        assert not _tried(faults, clock, isolated, late_ms=0.0)
    assert any(_tried(faults, clock, isolated) for _ in range(3))


def test_a_trial_costs_no_credit_if_other_transactions_stall_for_as_long(
    faults: FaultAttribution, clock: StepClock
) -> None:
    """One of eight transactions takes 200 ms, an excess of 22 ms on average."""
    isolated = isolate(faults, 1)
    for _ in range(10):
        for took_ms in (200.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0):
            faults.committed(_common(took_ms), 3.0, 0.0)
        assert not _tried(faults, clock, isolated)


@pytest.mark.parametrize(("is_fast_at_times", "size", "next_max"), [(True, 50, 25), (True, 1, 1), (False, 50, 100)])
def test_trials_become_smaller_with_a_pause_if_smaller_ones_were_fast(
    faults: FaultAttribution, clock: StepClock, is_fast_at_times: bool, size: int, next_max: int
) -> None:
    isolated = isolate(faults, 1)
    if is_fast_at_times:
        faults.committed(trial(isolated, 1, outcome(1), took_ms=10.0), 3.0, 0.0)
    isolated.messages_max = 100
    while not _tried(faults, clock, isolated, size):
        assert isolated.messages_max == 100
    assert isolated.messages_max == next_max


def test_a_pause_after_a_trial_that_hangs_makes_no_trial_smaller(faults: FaultAttribution, clock: StepClock) -> None:
    isolated = isolate(faults, 1)
    faults.committed(trial(isolated, 1, outcome(1), took_ms=10.0), 3.0, 0.0)
    isolated.messages_max = 100
    attempt = trial(isolated, 100, outcome(0, 1, why=TIMED_OUT), took_ms=2_000.0)
    attempt.log_acknowledged = True
    faults.aborted(attempt, 0)
    before_ms, clock.now = isolated.retry_at, clock.now + 12.0
    faults.committed(_common(10.0, late_ms=2_000.0), 3.0, 0.0)
    assert isolated.retry_at > before_ms
    assert isolated.messages_max == 50
