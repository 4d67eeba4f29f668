"""Goal: an isolated target that is fast again gets its messages on time, whatever its traffic, and its isolation ends.
A slow target, or one that refuses all messages, delays few messages for other targets.

Method: `FaultAttribution` decides for a model of a shard, on a clock that the model advances. The shard has one
producer. A transaction of n messages takes `base_ms` plus EACH_MS for each message; a trial of a slow target takes
longer. Healthy targets together get `healthy_per_ms` messages per ms: 1, or 0.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from confluent_kafka import KafkaError

from postdate.kafka.errors import RecordRejected
from postdate.sidecar.dispatch.limits import PROBATION_MS
from postdate.sidecar.dispatch.targets.fault_attribution import FaultAttribution, FinishedTransaction
from postdate.sidecar.dispatch.targets.isolated_targets import Isolated
from postdate.sidecar.transaction.limits import SLOW_RECORD_MS
from postdate.sidecar.transaction.transaction import TopicOutcome
from support.shards.fault_attempts import finished

BASE_MS, EACH_MS = 8.0, 0.05
HEALTHY_PER_MS = 1.0
#: Additional ms of a slow target, for each message and for a whole transaction.
PER_MESSAGE = {"slow": 20.0}
PER_TRIAL = {"far": 34.0}
#: Additional ms of an erratic target, in some of the transactions with its messages.
ERRATIC_MS = {"erratic": 30.0, "hanging": 2_000.0}
#: The time in ms after which an unacknowledged record has failed.
TIMEOUT_MS = 2_000.0
#: The target that refuses every record.
REFUSING = "refusing"
_TIMED_OUT = RecordRejected("timed out", KafkaError._MSG_TIMED_OUT)
_TOO_LARGE = RecordRejected("too large", KafkaError.MSG_SIZE_TOO_LARGE)


@dataclass
class _Shard:
    """The model of a shard. `rates`: messages per second for each target that a fault has isolated at the beginning.
    `busy`: the mean extra time of a transaction on a busy machine, as a multiple of its duration. `cuts`: the start and
    end of each network outage, in ms; a transaction that is open during an outage ends when the outage ends. `erratic`:
    the share of transactions in which an erratic target is slow."""

    rates: Mapping[str, float]
    busy: float = 0.0
    base_ms: float = BASE_MS
    healthy_per_ms: float = HEALTHY_PER_MS
    cuts: list[tuple[float, float]] = field(default_factory=list)
    erratic: float = 0.0
    seed: int = 7
    cut_trials: int = 0
    now: float = 0.0
    sent: dict[str, int] = field(default_factory=dict)
    waits_ms: list[float] = field(default_factory=list)

    def steady_ms(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now)

    def sleep(self, wait_ms: float) -> None:
        self.now += wait_ms

    def __post_init__(self) -> None:
        self.faults = FaultAttribution(self, 30_000, ())
        outcomes = {name: TopicOutcome(0, faults={0: _TIMED_OUT}) for name in self.rates}
        self.faults.aborted(finished(None, len(outcomes), dict.fromkeys(outcomes, 1), outcomes, 5.0), 0)
        self.sent = dict.fromkeys(self.rates, 0)
        self.chance = random.Random(self.seed)

    def due(self, name: str) -> int:
        """Returns the number of messages for a target that are due and not sent."""
        return int(self.now / 1_000 * self.rates[name]) - self.sent[name]

    def run(self, seconds: float) -> None:
        """Runs trials and common transactions in turns, as the dispatcher does."""
        while self.now < seconds * 1_000:
            self._try_one()
            self._send_common()
            self.faults.parked([*self.rates])

    def _try_one(self) -> None:
        for isolated in self.faults.ready_trials(self.now):
            size = min(self.due(isolated.name), isolated.messages_max)
            if not size:
                self.faults.nothing_waits(isolated)
                continue
            name = isolated.name
            if name == REFUSING:
                self._refuse(isolated)
                return
            slow_ms = self._slow_ms(name, size)
            attempt = finished(isolated, size, {name: size}, {name: TopicOutcome(size)}, slow_ms)
            self.sent[name] += size if self._commit(attempt) else 0
            return

    def _slow_ms(self, name: str, size: int) -> float:
        """Returns the extra time of a transaction with `size` messages for a target, in ms."""
        is_slow = name in ERRATIC_MS and self.chance.random() < self.erratic
        return PER_TRIAL.get(name, 0.0) + size * PER_MESSAGE.get(name, 0.0) + (ERRATIC_MS[name] if is_slow else 0.0)

    def _refuse(self, target: Isolated) -> None:
        """Runs a trial of one message, which the broker refuses: its entry becomes a dead letter."""
        offset = self.sent[REFUSING]
        outcome = TopicOutcome(0, faults={offset: _TOO_LARGE})
        due_ms, took_ms = {offset: int(self.now)}, self._stretched(self.base_ms)
        counts, outcomes = {REFUSING: 1}, {REFUSING: outcome}
        attempt = finished(target, 1, counts, outcomes, took_ms, is_refused=True, due_ms=due_ms)
        self.now += took_ms
        self.faults.aborted(attempt, int(self.now))
        self.sent[REFUSING] += len(self.faults.condemned)
        self.faults.ended([offset])

    def _send_common(self) -> None:
        """Runs one transaction for all targets that are not isolated. It waits for each target in turn."""
        first, now = len(self.waits_ms), self.now
        healthy = int(now * self.healthy_per_ms) - first
        counts = {name: self.due(name) for name in self.rates if self.faults.get(name) is None and self.due(name)}
        if not healthy and not counts:
            self.now += 1
            return
        late_ms = now - first / self.healthy_per_ms if healthy else 0.0
        outcomes = {"good": TopicOutcome(healthy)} if healthy else {}
        for name, count in counts.items():
            slow_ms = self._slow_ms(name, count)
            outcomes[name] = TopicOutcome(count, [slow_ms] if slow_ms >= SLOW_RECORD_MS else [])
        slow_ms = sum(sum(outcome.waits_ms) for outcome in outcomes.values())
        size = healthy + sum(counts.values())
        if self._commit(finished(None, size, {"good": healthy, **counts}, outcomes, slow_ms, late_ms=late_ms)):
            self.waits_ms += [self.now - (first + n) / self.healthy_per_ms for n in range(healthy)]
            for name, count in counts.items():
                self.sent[name] += count

    def _commit(self, attempt: FinishedTransaction) -> bool:
        """Commits a transaction, or aborts it and returns False if its records time out."""
        attempt.took_ms = self._stretched(attempt.took_ms + self.base_ms + EACH_MS * attempt.size)
        cut_ms = max(
            (until - self.now for since, until in self.cuts if self._is_open(attempt, since, until)), default=0
        )
        attempt.took_ms = max(attempt.took_ms, cut_ms)
        self.now += attempt.took_ms
        self.cut_trials += cut_ms > 0 and attempt.trial is not None
        if cut_ms < TIMEOUT_MS:
            self.faults.committed(attempt, 1.0, 1.0)
            return True
        attempt.log_failed = attempt.trial is None
        attempt.outcomes = {name: TopicOutcome(0, faults={0: _TIMED_OUT}) for name in attempt.outcomes}
        self.faults.aborted(attempt, int(self.now))
        return False

    def _is_open(self, attempt: FinishedTransaction, since: float, until: float) -> bool:
        return self.now < until and since < self.now + attempt.took_ms

    def _stretched(self, took_ms: float) -> float:
        return took_ms * (1 + self.chance.expovariate(1 / self.busy)) if self.busy else took_ms

    def late_ms(self, share: float) -> float:
        """Returns the quantile `share` of the waits of healthy messages, in ms."""
        return sorted(self.waits_ms)[int(share * len(self.waits_ms))]

    def share_later_than(self, wait_ms: float) -> float:
        """Returns the share of healthy messages that waited longer than `wait_ms`."""
        return sum(wait > wait_ms for wait in self.waits_ms) / len(self.waits_ms)


@pytest.mark.parametrize("beside", [{}, {"slow": 100.0}, {"slow": 100.0, "far": 100.0}])
@pytest.mark.parametrize("rate", [10.0, 100.0, 1_000.0, 5_000.0])
def test_a_target_that_is_fast_again_catches_up_and_returns(beside: Mapping[str, float], rate: float) -> None:
    shard = _Shard({"back": rate, **beside})
    shard.run(2 * PROBATION_MS / 1_000)
    assert shard.faults.get("back") is None
    assert shard.due("back") <= rate / 10
    assert all(shard.faults.get(name) is not None for name in beside)


@pytest.mark.parametrize("seed", [0, 1, 2, 4, 7, 13, 20])
@pytest.mark.parametrize(
    ("busy", "rate", "late_ms"),
    [(2.0, 10.0, 2_500), (2.0, 100.0, 2_500), (2.0, 1_000.0, 2_500), (10.0, 10.0, 6_500), (10.0, 100.0, 6_500)],
)
def test_a_target_that_is_fast_again_returns_on_a_busy_machine(
    busy: float, rate: float, late_ms: float, seed: int
) -> None:
    """On a busy machine all transactions take longer, some of them ten times as long as others."""
    shard, most_ms = _Shard({"back": rate}, busy, seed=seed), 0.0
    while shard.now < 60_000:
        shard.run(shard.now / 1_000 + 1)
        most_ms = max(most_ms, shard.due("back") / rate * 1_000 - max(shard.waits_ms[-1_000:]))
    assert shard.faults.get("back") is None
    assert most_ms <= late_ms, "ms later than messages for others"


@pytest.mark.parametrize("base_ms", [8.0, 12.0, 16.0, 30.0])
def test_messages_of_a_target_that_is_fast_again_do_not_wait_for_its_return(base_ms: float) -> None:
    """A trial of one message takes as long as any other transaction, so its duration does not show how long a larger
    trial takes. The target has been isolated before, so it stays isolated for half a minute."""
    shard, most = _Shard({"back": 100.0}, base_ms=base_ms), 0
    isolated = shard.faults.get("back")
    assert isolated is not None
    isolated.probation_ms = PROBATION_MS
    while shard.now < PROBATION_MS - 1_000:
        shard.run(shard.now / 1_000 + 1)
        most = max(most, shard.due("back") if shard.now > 10_000 else 0)
    assert most <= 100, "those of one second"
    assert shard.faults.get("back") is isolated


def test_a_slow_target_delays_few_messages_of_the_others() -> None:
    shard = _Shard({"slow": 100.0})
    shard.run(60)
    alone = _Shard({})
    alone.run(60)
    usual_ms = max(alone.waits_ms)
    assert shard.share_later_than(usual_ms + 20) < 0.01
    assert shard.sent["slow"] > 20, "a message in three seconds"


def test_a_target_with_a_long_round_trip_gets_large_trials_beside_others() -> None:
    """Smaller trials would take as long. Once the credit is used up, a trial of a single message would pause the target
    for up to three seconds."""
    shard = _Shard({"far": 100.0})
    shard.run(120)
    assert shard.sent["far"] > 120 * 15


@pytest.mark.parametrize("share", [0.3, 0.5])
def test_a_target_that_is_often_slow_delays_few_messages_of_the_others(share: float) -> None:
    shard, alone = _Shard({"erratic": 100.0}, erratic=share), _Shard({})
    shard.run(240)
    alone.run(240)
    assert shard.share_later_than(max(alone.waits_ms) + 20) < 0.01
    assert shard.sent["erratic"] > 240, "a message in a second"


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_others_wait_at_most_a_fifth_of_the_time_for_a_target_that_hangs(share: float) -> None:
    """Each trial that hangs takes two seconds, and the pause after it takes at most ten."""
    shard = _Shard({"hanging": 100.0}, erratic=share)
    shard.run(240)
    assert shard.share_later_than(500) < 0.2


@pytest.mark.parametrize("cut_ms", [500.0, 1_500.0, 4_000.0, 12_000.0])
def test_a_network_outage_delays_an_isolated_target_hardly_longer_than_the_others(cut_ms: float) -> None:
    """The outage hits a trial or a common transaction, depending on when it starts."""
    hits = 0
    for begin_ms in range(500, 600, 10):
        shard = _Shard({"back": 100.0}, cuts=[(begin_ms, begin_ms + cut_ms)])
        shard.run(begin_ms / 1_000)
        assert shard.faults.get("back") is not None
        shard.run((begin_ms + cut_ms) / 1_000 + 3)
        assert shard.due("back") <= 100, "those of one second"
        hits += shard.cut_trials
    assert hits


@pytest.mark.parametrize("busy", [0.2, 0.6])
def test_a_target_that_refuses_everything_delays_few_messages_of_the_others(busy: float) -> None:
    """The target needs a trial for each message."""
    shard, alone = _Shard({REFUSING: 100.0}, busy), _Shard({}, busy)
    shard.run(120)
    alone.run(120)
    assert shard.late_ms(0.9) <= 1.1 * alone.late_ms(0.9)
    assert shard.late_ms(0.99) <= 1.25 * alone.late_ms(0.99)
    assert shard.sent[REFUSING] > 120, "a message in a second"


def test_a_refusing_target_gets_twenty_trials_a_second_if_nothing_else_is_due() -> None:
    shard = _Shard({REFUSING: 100.0}, healthy_per_ms=0.0)
    shard.run(60)
    assert shard.sent[REFUSING] > 60 * 20
