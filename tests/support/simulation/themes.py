"""Themes of runs with faults of the cluster, targets, clocks or disks, and their set-up.

A calm theme has no other faults, so that only its own fault can explain lateness.

Thread rule: one thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from postdate.kafka.interface import Partition
from support.simulation.faults.cluster_events import ClusterEvents
from support.simulation.faults.target_events import BAD, GOOD, TargetEvents
from support.simulation.oracles.outcomes import JudgedOutcome
from support.simulation.requests.traffic import REQUESTS

if TYPE_CHECKING:
    from support.simulation.plan import RunPlan

#: Three brokers, whose clocks differ: leaders move, die, and freeze while an owner ends.
BROKERS = "brokers"
#: Admin requests fail; producers and consumers work. Calm.
ADMIN = "admin"
#: Leaders are missing or machines are suspended, for minutes up to an hour.
STALLS = "stalls"
#: The clocks of machines are hours ahead, and brokers refuse such timestamps.
STAMPS = "stamps"
#: One target has a fault. Calm.
BAD_TARGET = "bad target"
#: Disks are full for some time.
DISKS = "disks"
#: EndTxn requests are copied, and refused when they are repeated.
ENDS = "ends"

CLUSTER_THEMES = (BROKERS, ADMIN, STALLS, STAMPS, BAD_TARGET, DISKS, ENDS)
CALM = frozenset({ADMIN, BAD_TARGET})
#: Theme -> the share of the runs of other themes that also have its faults.
_RARE = {BROKERS: 0.1, ADMIN: 0.1, STALLS: 0.02, DISKS: 0.1, ENDS: 0.1}
#: Themes to which no faults of other themes are added, since these would invalidate the checks or take too long.
NO_OTHERS = frozenset({*CLUSTER_THEMES, "volume", "lost", "held", "burst", "expired"})
#: Milliseconds: the duration of a theme, if it differs from the usual ones.
_DURATION_MS = {BROKERS: 60_000.0, ADMIN: 130_000.0, BAD_TARGET: 60_000.0}
_HOUR_MS = 3_600_000.0
#: Milliseconds: with real brokers, the first copy of an EndTxn arrived up to 0.99 s late.
_COPY_MS_MAX = 1_000.0


class Themes:
    """The additions of a theme to one run."""

    def __init__(self, plan: RunPlan, seed: int) -> None:
        self._plan = plan
        self._theme = plan.theme
        self._random = Random(f"{seed}/cluster")
        self.cluster = ClusterEvents(plan.run, self._random, plan.events)
        self.targets = TargetEvents(plan.run, self._random, plan.traffic, {})
        self._late: frozenset[str] = frozenset()  # targets whose messages must not be late
        self._rare = frozenset[str]()  # themes whose faults are added to this run of another theme
        if self._theme not in NO_OTHERS:
            drawn = Random(f"{seed}/rare")  # a separate stream: drawing here changes nothing else of the run
            self._rare = frozenset(name for name, share in _RARE.items() if drawn.random() < share)
        plan.duration_ms = _DURATION_MS.get(self._theme, plan.duration_ms)
        if self._theme == BROKERS:
            plan.by_hand = self._random.random() < 0.5
        elif self._theme in CALM:
            plan.by_hand, plan.entries_max = False, [1_000]
        elif self._theme == STAMPS:
            plan.stamps = {}
        elif self._theme == ENDS:
            plan.duration_ms = 30_000.0

    @property
    def is_calm(self) -> bool:
        """True if no other fault may occur."""
        return self._theme in CALM

    def before_topics(self) -> None:
        """Sets up what must exist before the topics."""
        if self._theme == BROKERS or BROKERS in self._rare:
            self.cluster.several_brokers()

    def plan_events(self) -> None:
        """Plans the events of the theme. REQUIRES: the machines exist."""
        plan, choose, run = self._plan, self._random, self._plan.run
        now = run.time.now_ms
        if self._theme == BROKERS:
            for number in range(3):
                run.time.at(now + number * 20_000.0 + choose.uniform(500.0, 4_000.0), self._strike_broker)
            for _ in range(6):
                run.time.at(now + choose.uniform(0.0, plan.duration_ms), self.cluster.move_leader)
        elif self._theme == STALLS:
            for _ in range(2):
                event = choose.choice(self.cluster.stalls())
                run.time.at(now + choose.uniform(0.3, 0.9) * plan.duration_ms, event)
        elif self._theme == STAMPS:
            for machine in run.machines:
                machine.clock.skew_ms = choose.choice([2.0, 2.0, -2.0, 1.1]) * _HOUR_MS
        elif self._theme == DISKS:
            for _ in range(5):
                run.time.at(now + choose.uniform(0.0, plan.duration_ms), self.cluster.fill_disk)
        elif self._theme == ENDS:
            run.faults.rates |= {"end-copied": 0.5, "end-refused": 0.6, "added-apart": 0.7, "sent-early": 0.3}
            run.faults.rates["slow"] = 0.1  # a late copy can meet only a transaction that takes long
            run.faults.copy_ms_max = _COPY_MS_MAX
            for number in range(3):
                run.time.at(now + number * 10_500.0 + choose.uniform(2_000.0, 6_000.0), self._leap)
        elif self._theme == ADMIN:
            self.targets.load(plan.partitions, plan.duration_ms - 5_000.0)
            silence_ms = choose.choice([60_000.0, 110_000.0])
            run.time.at(now + 8_000.0, lambda: self.cluster.silence_admin(silence_ms))
            self._late = frozenset({GOOD, BAD})
        elif self._theme == BAD_TARGET:
            trouble, for_ms = choose.choice(self.targets.menu()), choose.choice([15_000.0, 40_000.0])
            self.targets.load(plan.partitions, plan.duration_ms - 5_000.0, burst_at_ms=9_500.0)
            run.time.at(now + 10_000.0, lambda: trouble(for_ms))
            self._late = frozenset({GOOD})

        self._plan_rare()

    def _plan_rare(self) -> None:
        """Plans one or two faults of each of the rare themes."""
        plan, choose, run = self._plan, self._random, self._plan.run
        events: dict[str, list[Callable[[], None]]] = {
            BROKERS: [self._strike_broker, self.cluster.move_leader],
            ADMIN: [functools.partial(self.cluster.silence_admin, 5_000.0)],
            STALLS: [self.cluster.suspend],
            DISKS: [self.cluster.fill_disk, self.cluster.fill_disk],
        }
        for name in sorted(self._rare):
            run.reached[f"rare: {name}"] += 1
            for event in events.get(name, []):
                run.time.at(run.time.now_ms + choose.uniform(0.0, plan.duration_ms), event)
        if ENDS in self._rare:
            run.faults.rates |= {"end-copied": 0.2, "end-refused": 0.3}

    def _leap(self) -> None:
        """Moves the cluster's clock forward by ten seconds, and sends a request whose timestamp shows this. The shard
        first commits a heartbeat, and then the messages that have become due."""
        run = self._plan.run
        run.reached["broker's clock stepped"] += 1
        run.troubles.clocks_are_true = False
        run.broker.skew_ms += 10_000.0
        for index in range(self._plan.partitions):
            if run.broker.serves(run.broker.topics[REQUESTS].logs[index]):
                self._plan.traffic.send_plain(index)

    def _strike_broker(self) -> None:
        cluster = self.cluster
        frozen = [cluster.freeze_leader, cluster.freeze_until_a_commit, cluster.freeze_until_a_commit]
        self._random.choice([*frozen, cluster.kill_broker])()

    def extra_wait_ms(self) -> float:
        """Returns the ms until the last stall ends, by which the run is longer."""
        return max(self.cluster.stalled_until_ms - self._plan.run.time.now_ms, 0.0)

    def cease(self) -> None:
        """Ends all lasting faults."""
        self.cluster.cease()
        self.targets.cease()

    def before_judgement(self) -> None:
        """Keeps deleted targets for the judges, and permits the dead letters that the faults explain."""
        run = self._plan.run
        for topic in run.broker.deleted:
            assert topic.name != REQUESTS
            for index, log in enumerate(topic.logs):
                run.archive.setdefault(Partition(topic.name, index), []).extend(log.committed())
        run.reached["write found no space"] += run.disks.refused
        run.reached["a deposed leader answers"] += run.broker.stale_answers
        self.targets.excuse()

    def judge(self, outcome: JudgedOutcome) -> None:
        """Adds late messages to `outcome.wrong`."""
        if self._late:
            self.targets.judge(outcome, self._late)
