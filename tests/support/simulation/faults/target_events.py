"""Faults of one target in runs without other faults; and the oracle that messages for another target are not late.

One target, `orders`, refuses records, accepts few of them, or is deleted. It gets a burst besides a steady load;
`mails` gets only a steady load. Each message for `mails` must leave within seconds of its due time. Each message for
`orders` must end in a way that the fault permits.

Thread rule: one thread; an event never waits, it only changes the state of the run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from random import Random

from postdate.kafka.interface import NewTopic, Partition
from postdate.wire.reasons import Reason
from support.kafka_simulator.misbehaviour import Misbehaviour
from support.simulation.oracles.outcomes import JudgedOutcome
from support.simulation.requests.traffic import REQUESTS, TARGETS, SimulatedRequest, SimulatedTraffic
from support.simulation.runtime.simulated_run import SimulatedRun

BAD, GOOD = "orders", "mails"
#: Milliseconds: the maximum lateness of a message for the target without a fault. It covers some transactions that time
#: out after two seconds each, and one look-up.
LATE_MS_MAX = 10_000
#: The numbers of messages in a burst for the bad target; usually fewer than a shard keeps as suspects.
BURSTS = (30, 100, 300)
BURST_MANY, BURST_MANY_SHARE = 1_200, 0.04
#: The records per second that a slow target accepts.
PER_SECOND = (3.0, 20.0, 50.0)
#: Milliseconds: the interval between messages of the steady load for one target.
_PACE_MS = 250.0
#: Milliseconds: after the target works again, messages that waited for it may still become dead letters during this
#: time.
_AFTERMATH_MS = 15_000


class TargetEvents:
    """The target fault of one run. `unavailable`: (topic, from, until), by the true time."""

    def __init__(self, run: SimulatedRun, random: Random, traffic: SimulatedTraffic, settings: dict[str, str]) -> None:
        self.unavailable: list[tuple[str, float, float]] = []
        self._run = run
        self._random = random
        self._traffic = traffic
        self._settings = settings
        self._reasons: frozenset[Reason] = frozenset()
        self._may_be_dead: Callable[[SimulatedRequest], bool] = lambda request: True
        self._requests: list[SimulatedRequest] = []

    # ---- load ------------------------------------------------------------------------------------------------------

    def load(self, partitions: int, duration_ms: float, burst_at_ms: float = -1.0) -> None:
        """Plans a steady load for both targets, and a burst for the bad one."""
        run, choose = self._run, self._random
        for number in range(int(duration_ms / _PACE_MS)):
            for target in (GOOD, BAD):
                at_ms = run.time.now_ms + number * _PACE_MS + choose.uniform(0.0, _PACE_MS)
                delay_ms = choose.choice([0, 500, choose.randrange(3_000)])
                run.time.at(at_ms, functools.partial(self._ask, target, delay_ms, choose.randrange(partitions)))
        if burst_at_ms >= 0:
            count = BURST_MANY if choose.random() < BURST_MANY_SHARE else choose.choice(BURSTS)
            run.reached["burst of more than the suspects"] += count == BURST_MANY
            for _ in range(count):
                send = functools.partial(self._ask, BAD, 1_000, choose.randrange(partitions))
                run.time.at(run.time.now_ms + burst_at_ms, send)

    def _ask(self, target: str, delay_ms: int, index: int) -> None:
        log = self._run.broker.topics[REQUESTS].logs[index]
        if not self._run.broker.serves(log):
            return
        number = len(self._requests)
        request = SimulatedRequest(Partition(REQUESTS, index), b"k%d" % (number % 7), b"%d" % number, [], target=target)
        request.target_key, request.delay_ms = request.key, delay_ms
        request.headers = [("postdate-topic", target.encode()), ("postdate-delay", b"%d" % delay_ms)]
        self._traffic.append(request)
        self._requests.append(request)

    # ---- faults of the bad target ----------------------------------------------------------------------------------

    def menu(self) -> list[Callable[[float], None]]:
        """Returns the faults; each is called with its duration in ms."""
        troubles = [self.refuse_all, self.refuse_some, self.take_few, self.take_few, self.take_none]
        return [*troubles, self.delete, self.delete_for_long]

    def refuse_all(self, for_ms: float) -> None:
        """Refuses every record, like a broker that checks a schema."""
        self._misbehave("target refuses all", for_ms, Misbehaviour(self._run.time, lambda _: True))
        self._reasons = frozenset({Reason.RECORD_REFUSED})

    def refuse_some(self, for_ms: float) -> None:
        """Refuses one record in five, by its value."""
        self._misbehave("target refuses some", for_ms, Misbehaviour(self._run.time, _is_fifth))
        self._reasons, self._may_be_dead = frozenset({Reason.RECORD_REFUSED}), lambda request: _is_fifth(request.value)

    def take_few(self, for_ms: float) -> None:
        """Accepts a few records per second; the others time out. The target is slow but available, so no message may
        become a dead letter."""
        per_second = self._random.choice(PER_SECOND)
        self._misbehave("target slow", for_ms, Misbehaviour(self._run.time, per_second=per_second))

    def take_none(self, for_ms: float) -> None:
        """Acknowledges no record, although the metadata shows no fault."""
        self._misbehave("target takes nothing", for_ms, Misbehaviour(self._run.time, per_second=1e-9))
        self._reasons = frozenset({Reason.TARGET_UNAVAILABLE})

    def delete(self, _for_ms: float) -> None:
        """Deletes the target, and creates it again within seconds."""
        self._delete(self._random.choice([0.0, 300.0, 2_000.0]))

    def delete_for_long(self, for_ms: float) -> None:
        """Deletes the target, and creates it again much later."""
        self._delete(for_ms)

    def _delete(self, for_ms: float) -> None:
        run = self._run
        run.reached["target deleted"] += 1
        run.trace(f"{BAD} is deleted for {for_ms:.0f}")
        run.broker.delete(BAD)
        self._reasons = frozenset({Reason.UNKNOWN_TARGET, Reason.TARGET_UNAVAILABLE})
        self.unavailable.append((BAD, run.time.now_ms, run.time.now_ms + for_ms))
        run.time.at(run.time.now_ms + for_ms, self._create)

    def _create(self) -> None:
        if BAD not in self._run.broker.topics:
            self._run.trace(f"{BAD} is created again")
            self._run.broker.create(NewTopic(BAD, TARGETS[BAD], 1, self._settings))

    def _misbehave(self, name: str, for_ms: float, how: Misbehaviour) -> None:
        run = self._run
        run.reached[name] += 1
        run.trace(f"{name} for {for_ms:.0f}")
        run.broker.misbehaving[BAD] = how
        self.unavailable.append((BAD, run.time.now_ms, run.time.now_ms + for_ms))
        run.time.at(run.time.now_ms + for_ms, run.broker.misbehaving.clear)

    def cease(self) -> None:
        """Ends the fault: the target exists and accepts every record."""
        self._run.broker.misbehaving.clear()
        self._create()

    # ---- judgement -------------------------------------------------------------------------------------------------

    def excuse(self) -> None:
        """Permits the dead letters that the fault of their target explains."""
        for request in self._requests:
            for topic, from_ms, until_ms in self.unavailable:
                waited = from_ms - _AFTERMATH_MS <= request.due_ms <= until_ms + _AFTERMATH_MS
                if request.target == topic and waited and self._may_be_dead(request):
                    request.dead |= self._reasons

    def judge(self, outcome: JudgedOutcome, late: frozenset[str]) -> None:
        """Checks O13: the messages for the targets in `late` left within seconds of their due times."""
        latest = 0
        for request in self._requests:
            origin = (request.part.index, request.offset)
            if request.target not in late or not outcome.fates.get(origin):
                continue
            late_ms = outcome.fates[origin][0][1] - max(request.due_ms, request.appended_ms)
            latest = max(latest, late_ms)
            if late_ms > LATE_MS_MAX:
                outcome.wrong.append(f"O13: {origin} for {request.target} ends {late_ms} ms after it was due")
        self._run.trace(f"the latest message for {sorted(late)} is {latest} ms late")


def _is_fifth(value: bytes | None) -> bool:
    return bool(value) and int(value or b"0") % 5 == 0
