"""Faults of the brokers, of admin requests and of the disks; long stalls, in which leaders are missing or machines are
suspended.

Each method injects one fault. A lasting fault ends after its time, or with `cease`.

Thread rule: one thread; an event never waits, it only changes the state of the run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from random import Random

from support.kafka_simulator.brokers import BELIEF_MS_MAX, SESSION_MS
from support.kafka_simulator.silence import Server
from support.simulation.faults.process_events import RunEvents
from support.simulation.faults.target_faults import UNAVAILABLE
from support.simulation.requests.traffic import REQUESTS, TARGETS
from support.simulation.runtime.simulated_run import SimulatedRun

#: The number of brokers of a cluster with several.
BROKERS = 3
#: Milliseconds: the maximum difference between the clocks of a broker and the cluster. Milliseconds per ms: the maximum
#: drift.
APART_MS_MAX, DRIFT_MAX = 200.0, 0.002
#: Milliseconds: the durations of stalls, which are longer than any time-out and at most an hour.
STALLS_MS = (200_000.0, 200_000.0, 900_000.0, 3_600_000.0)
#: Milliseconds: the minimum and maximum interval between polls during a stall, since little happens then.
STALLED_POLL_MS = (500.0, 2_000.0)
_OWN = (REQUESTS, f"{REQUESTS}.dispatch-log", f"{REQUESTS}.dispatch-log", f"{REQUESTS}.store", f"{REQUESTS}.verdicts")


class ClusterEvents:
    """The cluster events of one run. `stalled_until_ms`: the end of the last stall."""

    def __init__(self, run: SimulatedRun, random: Random, events: RunEvents) -> None:
        self.stalled_until_ms = 0.0
        self._run = run
        self._random = random
        self._events = events

    def several_brokers(self) -> None:
        """Gives the cluster several brokers, whose clocks differ. REQUIRES: no topic exists yet."""
        brokers = self._run.broker.brokers
        self._run.troubles.clocks_are_true = False
        brokers.grow(BROKERS)
        for node in brokers.nodes:
            node.skew_ms = self._random.uniform(-APART_MS_MAX, APART_MS_MAX)
            node.drift = self._random.choice([0.0, self._random.uniform(-DRIFT_MAX, DRIFT_MAX)])

    def cease(self) -> None:
        """Ends all lasting faults."""
        run = self._run
        run.broker.brokers.recover()
        run.broker.silence.end()
        run.disks.full.clear()
        run.poll_ms = run.POLL_MS

    # ---- brokers ---------------------------------------------------------------------------------------------------

    def freeze_leader(self) -> None:
        """Freezes the leader of a log until it is deposed. Then the owner of a shard ends, and another process takes
        over. The deposed broker resumes at about the time of the takeover."""
        run, choose = self._run, self._random
        brokers, number = run.broker.brokers, self._leader()
        if self._events.at_peace or not brokers.freeze(number):
            return
        run.reached["broker frozen"] += 1
        run.trace(f"broker {number} freezes")
        now = run.time.now_ms
        goes_ms = SESSION_MS + choose.uniform(300.0, 6_000.0)
        run.time.at(now + goes_ms, choose.choice([self._events.kill, self._events.stop]))
        if choose.random() < 0.2:  # too early, since the broker is not deposed yet
            goes_ms = SESSION_MS - choose.uniform(200.0, 8_000.0)
        run.time.at(now + goes_ms + choose.uniform(0.0, 12_000.0), functools.partial(self._resume, number))

    def freeze_until_a_commit(self) -> None:
        """Freezes the leader of a log until it is deposed. Owners continue with the new leaders of its logs. Then the
        broker resumes, and an owner ends or needs a new producer: the next takeover may read from the stale broker."""
        run, choose = self._run, self._random
        topic = choose.choice([*[f"{REQUESTS}.dispatch-log", REQUESTS] * 2, f"{REQUESTS}.store"])
        number = choose.choice(run.broker.topics[topic].logs).leader
        if self._events.at_peace or not run.broker.brokers.freeze(number):
            return
        run.reached["broker frozen"] += 1
        run.trace(f"broker {number} freezes until a commit")
        step, goes = ("ingest.written", ["recycle"]) if topic == REQUESTS else ("dispatch.written", ["burn", "burn"])
        self._note_unwell(number, SESSION_MS + 9_000.0)
        times, how = choose.choice([1, 2, 4, 8]), choose.choice(["stop", "kill", *goes])

        def go_on() -> None:
            self._resume(number)
            if self._events.at_peace:
                return
            owner = run.acting()
            if how == "stop":
                owner.stopping = True
            elif how == "kill":
                run.kill(owner)
            elif how == "burn":
                run.lose_disk(owner.machine)
            else:
                run.cut(owner.machine, 100.0, answers=True)

        def lie_in_wait() -> None:
            run.ambushes[step, run.reached[step] + times] = go_on

        deposed_ms = run.time.now_ms + SESSION_MS + 1.0
        run.time.at(deposed_ms, lie_in_wait)
        run.time.at(deposed_ms + choose.uniform(6_000.0, 9_000.0), functools.partial(self._resume, number))

    def kill_broker(self) -> None:
        """Kills the leader of a log, and restarts it some time later."""
        run, choose, number = self._run, self._random, self._leader()
        if self._events.at_peace or not run.broker.brokers.kill(number):
            return
        run.reached["broker killed"] += 1
        run.trace(f"broker {number} is killed")
        restart = functools.partial(run.broker.brokers.restart, number)
        run.time.at(run.time.now_ms + choose.uniform(1_000.0, 20_000.0), restart)

    def move_leader(self) -> None:
        """Moves the leadership of a log: from now on another clock stamps its records."""
        run = self._run
        log = self._random.choice(run.broker.topics[self._random.choice(_OWN)].logs)
        number = self._random.randrange(len(run.broker.brokers.nodes))
        run.reached["leader moved"] += run.broker.brokers.move(log, number)

    def _note_unwell(self, number: int, for_ms: float) -> None:
        """Permits dead letters for the targets that a broker leads, during this time and while the broker considers
        itself the leader."""
        for name in TARGETS:
            logs = self._run.broker.topics[name].logs if name in self._run.broker.topics else []
            if any(log.leader == number for log in logs):
                self._run.troubles.begin(UNAVAILABLE, for_ms + BELIEF_MS_MAX, target=name)

    def _leader(self) -> int:
        topics = self._run.broker.topics
        return self._random.choice(topics[self._random.choice(_OWN)].logs).leader

    def _resume(self, number: int) -> None:
        self._run.trace(f"broker {number} goes on")
        self._run.broker.brokers.resume(number)

    # ---- admin requests --------------------------------------------------------------------------------------------

    def silence_admin(self, for_ms: float | None = None) -> None:
        """Makes requests of admin clients fail or hang; producers and consumers are served."""
        choose, run = self._random, self._run
        if self._events.at_peace:
            return
        servers = choose.choice([[Server.CONTROLLER], [Server.CONTROLLER, Server.LEADERS], list(Server)])
        wait_ms = choose.choice([5_000.0, 20_000.0, 60_000.0]) if for_ms is None else for_ms
        run.broker.silence.begin(servers, wait_ms, refuses=choose.random() < 0.5)
        run.reached["admin path silent"] += 1
        run.trace(f"{[server.value for server in servers]} serve no admin client for {wait_ms:.0f}")

    # ---- stalls ----------------------------------------------------------------------------------------------------

    def stalls(self) -> list[Callable[[], None]]:
        """Returns all kinds of stalls."""
        in_takeover = [self.lose_leader_in_takeover, self.lose_leader_in_takeover, self.suspend_in_takeover]
        return [self.lose_leader_for_long, self.suspend, *in_takeover]

    def lose_leader_for_long(self) -> None:
        """Takes all leaders of a topic away for minutes up to an hour. Meanwhile an owner dies, so that a takeover
        needs the topic."""
        choose, run = self._random, self._run
        self._lose_leader(choose.choice([*_OWN, "orders"]))
        for _ in range(choose.choice([1, 2])):
            run.time.at(run.time.now_ms + choose.choice([50.0, 3_000.0, 30_000.0]), self._events.kill)

    def _lose_leader(self, topic: str) -> None:
        run, choose = self._run, self._random
        if self._events.at_peace:
            return
        logs, wait_ms = run.broker.topics[topic].logs, self._stall()
        logs = logs if choose.random() < 0.7 else [choose.choice(logs)]
        for log in logs:
            log.has_leader = False
        run.reached["leader gone for long"] += 1
        run.troubles.begin(UNAVAILABLE, wait_ms, target=topic)
        run.trace(f"{topic} has no leader for {wait_ms:.0f}")

        def back() -> None:
            for log in logs:
                log.has_leader = True

        run.time.at(run.time.now_ms + wait_ms, back)

    def lose_leader_in_takeover(self) -> None:
        """Takes the leader away from a log that the next takeover is about to read, for minutes up to an hour."""
        run, choose = self._run, self._random
        step = choose.choice(["takeover.bounded", "takeover.bounded", "takeover.record-applied"])
        topic = choose.choice([f"{REQUESTS}.dispatch-log", f"{REQUESTS}.dispatch-log", f"{REQUESTS}.store", REQUESTS])
        run.ambushes[step, run.reached[step] + 1] = functools.partial(self._lose_leader, topic)
        run.time.at(run.time.now_ms + 100.0, self._events.kill)

    def suspend_in_takeover(self) -> None:
        """Suspends the machine of the next owner during the takeover; the machine's connections are broken when it
        resumes."""
        run, choose = self._run, self._random
        step = choose.choice(["takeover.bounded", "takeover.record-applied"])
        run.ambushes[step, run.reached[step] + 1] = self.suspend
        run.time.at(run.time.now_ms + 100.0, self._events.kill)

    def suspend(self) -> None:
        """Suspends machines for minutes up to an hour. Their steady clocks continue, or stop as well."""
        run, choose = self._run, self._random
        if self._events.at_peace:
            return
        wait_ms = self._stall()
        for machine in choose.choice([run.machines, run.machines[:1]]):
            process = run.process_on(machine)
            if process is None:
                continue
            run.pause(process, wait_ms)
            if choose.random() < 0.5:
                machine.clock.stop_steady(wait_ms)
            run.cut(machine, wait_ms + choose.uniform(0.0, 5_000.0), answers=False)
        run.reached["machine suspended"] += 1

    def _stall(self) -> float:
        """Begins a stall, in which poll threads act less often; returns its duration."""
        run, wait_ms = self._run, self._random.choice(STALLS_MS)
        self.stalled_until_ms = max(self.stalled_until_ms, run.time.now_ms + wait_ms)
        run.poll_ms = STALLED_POLL_MS

        def over() -> None:
            if run.time.now_ms >= self.stalled_until_ms:
                run.poll_ms = run.POLL_MS

        run.time.at(run.time.now_ms + wait_ms, over)
        return wait_ms

    # ---- disks -----------------------------------------------------------------------------------------------------

    def fill_disk(self) -> None:
        """Fills the disk of a machine for some time."""
        run = self._run
        if self._events.at_peace:
            return
        root = self._random.choice(run.machines).directory
        run.disks.full.add(root)
        run.reached["disk filled"] += 1
        run.trace(f"the disk of {root.name} is full")
        free_ms = run.time.now_ms + self._random.choice([100.0, 2_000.0, 10_000.0])
        run.time.at(free_ms, functools.partial(run.disks.full.discard, root))
