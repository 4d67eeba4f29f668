"""Goal: a fault is blamed on the target or the entry that causes it, and decides how much that target is sent.

Method: `FaultAttribution` alone, given the reports of transactions that never ran, on a clock that the test moves.
"""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from postdate.connectors.kafka.errors import RecordRejected
from postdate.connectors.wire.reasons import Reason
from postdate.sidecar.control_pieces import first_piece
from postdate.sidecar.fault_attribution import OWN, Attempt, FaultAttribution, Finding, Isolated
from postdate.sidecar.limits import LARGE_TRANSACTION_FATES, PROBATION_MS
from postdate.sidecar.transaction import Reports, TopicOutcome

BUDGET_MS = 30_000
STORE = "requests.store"
TIMED_OUT = RecordRejected("timed out", KafkaError._MSG_TIMED_OUT)
REFUSED = RecordRejected("schema validation failed", KafkaError.INVALID_RECORD)


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
    return TopicOutcome(acknowledged, 0.0, dict.fromkeys(refused, why))


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


def test_a_refusal_that_names_nobody_makes_the_next_transaction_report_each_message(faults: FaultAttribution) -> None:
    assert faults.reports(None) is Reports.NONE
    assert faults.aborted(_common({"good": 3}), 0) is Finding.GO_ON
    assert faults.reports(None) is Reports.ALL
    assert faults.aborted(_common({"good": 3}), 0) is Finding.BACK_OFF


def test_only_the_target_whose_records_were_refused_is_isolated(faults: FaultAttribution) -> None:
    counts = {"good": 50, "bad": 50}
    assert faults.aborted(_common(counts, good=_outcome(50), bad=_outcome(0, *range(50))), 0) is Finding.GO_ON
    assert faults.get("good") is None
    assert _isolated(faults).window == 25


def test_nobody_is_to_blame_if_the_log_record_failed_too(faults: FaultAttribution) -> None:
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
    assert isolated.window == 2


def test_what_a_target_has_acknowledged_in_time_is_its_next_window(faults: FaultAttribution) -> None:
    isolated = _isolate(faults, 200)
    faults.aborted(_trial(isolated, 100, _outcome(7, *range(93), why=TIMED_OUT)), 0)
    assert isolated.window == 7


def test_trials_have_a_quarter_of_the_time(faults: FaultAttribution, clock: Clock) -> None:
    isolated = _isolate(faults, 4)
    assert faults.turns(clock.now) == [isolated]
    faults.committed(_trial(isolated, 1, _outcome(1), took_ms=100.0), 0.0, 0.0)
    assert faults.turns(clock.now + 299) == []
    assert faults.turns(clock.now + 300) == [isolated]


@pytest.mark.parametrize("acknowledges", [True, False])
def test_a_target_is_unavailable_only_if_nothing_was_acknowledged_for_the_budget(
    faults: FaultAttribution, clock: Clock, acknowledges: bool
) -> None:
    isolated = _isolate(faults, 2)
    for _ in range(BUDGET_MS // 1_000):
        clock.now += 1_000
        faults.aborted(_trial(isolated, 2, _outcome(int(acknowledges), 1, why=TIMED_OUT)), 0)
    spent = faults.spent("bad", 0, BUDGET_MS)
    assert (spent is None) == acknowledges
    assert acknowledges or (spent is not None and spent[0] is Reason.TARGET_UNAVAILABLE)
    assert faults.spent("bad", 1, BUDGET_MS) is None  # its own budget is not used up


def test_an_outage_of_everything_is_not_held_against_a_target(faults: FaultAttribution, clock: Clock) -> None:
    isolated = _isolate(faults, 1)
    for _ in range(BUDGET_MS // 500):
        clock.now += 1_000
        attempt = _trial(isolated, 1, _outcome(0, 1, why=TIMED_OUT))
        attempt.log_failed = True
        faults.aborted(attempt, 0)
    assert faults.spent("bad", 0, 10**9) is None


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
    assert faults.condemned == {7: (Reason.RECORD_REFUSED, "schema validation failed")}
    assert not isolated.refused
    faults.ended([7])
    assert not faults.condemned


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


def test_a_target_without_faults_returns_after_its_probation(faults: FaultAttribution, clock: Clock) -> None:
    isolated = _isolate(faults, 1)
    clock.now += 1_000
    faults.committed(_trial(isolated, 1, _outcome(1)), 0.0, 0.0)
    faults.nothing_waits(isolated)
    assert faults.get("bad") is isolated
    clock.now += PROBATION_MS
    faults.nothing_waits(isolated)
    assert faults.get("bad") is None


def test_work_of_our_own_topics_is_split_and_no_entry_is_blamed(faults: FaultAttribution, clock: Clock) -> None:
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


def test_the_topic_that_transactions_wait_for_is_slow(faults: FaultAttribution, clock: Clock) -> None:
    def watched(bad_at: float) -> None:
        outcomes = {"good": TopicOutcome(1, 10.0), "bad": TopicOutcome(1, bad_at)}
        faults.committed(Attempt(None, 20, {"good": 10, "bad": 10}, outcomes, bad_at + 5), 0.0, bad_at + 2)

    watched(60.0)
    assert faults.reports(None) is Reports.LAST
    watched(90.0)
    watched(20.0)
    watched(90.0)
    assert not faults.any  # once each time: a coincidence
    watched(90.0)
    assert faults.get("good") is None
    assert _isolated(faults).window == 5


@pytest.mark.parametrize(
    ("acts_on", "most", "piece"),
    [
        ([-1, -1, -1, -1], 2, [3, 5]),
        ([-1, -1, 3, -1], 1, [5]),  # the control at 7 acts on 3, which waits for it
        ([-1, -1, 3, -1], 2, [5]),
        ([-1, -1, 3, -1], 3, [3, 5, 7]),
        ([-1, 3, 3, -1], 1, [3, 5, 7]),  # no smaller piece is legal
        ([-1, -1, 3, 5], 1, [3, 7]),
        ([-1, 1, -1, 8], 2, [3, 5]),  # neither of these is under key 0
        ([7, -1, -1, 7], 1, [5]),  # 3 was replaced by 7, which the control at 9 ends
        ([7, -1, -1, 7], 4, [3, 5, 7, 9]),
        ([-1, -1, -1, -1], 9, [3, 5, 7, 9]),
    ],
)
def test_a_piece_is_made_of_whole_groups(acts_on: list[int], most: int, piece: list[int]) -> None:
    offsets = [3, 5, 7, 9]
    assert [offsets[index] for index in first_piece(offsets, acts_on, most)] == piece
