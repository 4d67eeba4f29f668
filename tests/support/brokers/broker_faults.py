"""Injects faults into three brokers and kills sidecars meanwhile; measures how long each fault delays messages.

A step is a fault, its end and the recovery. The cluster has recovered once all replicas are in sync and no request is
overdue. A message arrives when a read_committed reader receives it. A sidecar that exits unexpectedly is recorded and
restarted, so that later steps still produce results.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from support.brokers.broker_traffic import GRACE_MS, Traffic
from support.brokers.three_brokers import NODES, ThreeBrokers
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import Sidecar, postdate
from support.waiting.contention import Watch
from support.waiting.timeouts import WAIT_TIMEOUT_S

#: Partitions of the request topic. Initially each of the three brokers leads at least one of them.
SHARDS = 4
#: Seconds, net of contention: the limit for delivering every overdue message once all replicas are in sync, and again
#: for every sidecar to serve shards after that. A third of it covers three consecutive time-outs: of a session (6 s), a
#: fence (15 s) and a transaction (10 s).
RESUMES_S = 90.0
_POLL_S = 0.1


@dataclass
class BrokerFaultStep:
    """One injected fault and its effects. Times are in ms; `outage_ms` is the longest delay of a message."""

    name: str
    what: str
    begun_ms: int
    ended_ms: int
    whole_ms: int = -1
    """The time at which all replicas were in sync again."""
    recovered_ms: int = -1
    outage_ms: int = 0
    resumed_ms: int = 0
    """The time from the end of the fault until the last delayed message was read."""
    gap_ms: int = 0
    """The longest interval in which no message was read."""

    def __str__(self) -> str:
        return (
            f"{self.name} ({self.what}): lasted {_s(self.ended_ms - self.begun_ms)}; nothing read for at most "
            f"{_s(self.gap_ms)}, a message kept back for at most {_s(self.outage_ms)}; from its end, replicas in sync "
            f"after {_s(self.whole_ms - self.ended_ms)}, all delivered after {_s(self.resumed_ms)}, every sidecar at "
            f"work after {_s(self.recovered_ms - self.ended_ms)}"
        )


@dataclass
class BrokerFaultRig:
    """Three brokers, two sidecars and their traffic."""

    cluster: ThreeBrokers
    deployment: SidecarDeployment
    requests: str
    traffic: Traffic
    sidecars: list[Sidecar]
    random: Random
    watch: Watch
    steps: list[BrokerFaultStep] = field(default_factory=list)
    exits: list[str] = field(default_factory=list)
    """The sidecar processes that exited unexpectedly."""
    _kills: list[tuple[float, Sidecar]] = field(default_factory=list)

    def run(self, name: str) -> BrokerFaultStep:
        """Injects one fault, waits for the recovery and returns the measured effects."""
        begun_ms = now_ms()
        self._plan_kill(self.random.random() * 3)
        what = FAULTS[name](self)
        step = BrokerFaultStep(name, what, begun_ms, now_ms())
        self._plan_kill(self.random.random() * 3)
        self.steps.append(step)
        self.wait(lambda: not self._kills, "the kills are done")
        self.cluster.wait_until_whole(self.tend_sidecars)
        step.whole_ms = now_ms()
        self.resumes(lambda: self.traffic.overdue() == 0, f"nothing is overdue after: {name} ({what})")
        self.resumes(self.all_serve, f"every sidecar serves shards after: {name} ({what})")
        step.recovered_ms = now_ms()
        seen = self.traffic.seen_between(begun_ms - 5_000, step.recovered_ms - GRACE_MS)
        late = [(ready, at) for ready, at in seen if at - ready > GRACE_MS and at > begun_ms]
        arrivals = sorted({begun_ms, *(at for _, at in seen if at > begun_ms)})
        step.gap_ms = max((after - before for before, after in pairwise(arrivals)), default=0)
        step.outage_ms = max((at - ready for ready, at in late), default=0)
        step.resumed_ms = max((at - step.ended_ms for _, at in late), default=0)
        return step

    def tend_sidecars(self) -> None:
        """Kills the sidecars whose planned time has come; records and restarts those that have exited."""
        for sidecar in self.sidecars:
            if not sidecar.is_alive():
                log_end = sidecar.log_text()[-600:]
                self.exits.append(f"{sidecar.instance} ended with {sidecar.wait()} at {now_ms()}: {log_end}")
                print(self.exits[-1], flush=True)
                sidecar.start()
        for at, sidecar in [kill for kill in self._kills if kill[0] <= time.monotonic()]:
            self._kills.remove((at, sidecar))
            sidecar.kill()
            sidecar.start()

    def all_serve(self) -> bool:
        """True if every sidecar delivers for a shard, and every shard is served."""
        counts = [sidecar.shards() for sidecar in self.sidecars]
        return min(counts) > 0 and sum(counts) == SHARDS

    def evidence(self) -> str:
        """Returns possible reasons for a delay: the state of each shard, and the partitions with open transactions."""
        status = [postdate("shard", "status", "--data", str(sidecar.data_dir)) for sidecar in self.sidecars]
        held = self.cluster.open_transactions(
            [*self.deployment.requests, *self.deployment.targets, f"{self.requests}.dispatch-log"]
        )
        return "\n".join(
            [f"see {self.deployment.directory}", *status, f"transactions are open on {held or 'no partition'}"]
        )

    def wait(self, condition: Callable[[], bool], what: str, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Waits for a condition and tends the sidecars meanwhile. Raises AssertionError with `what` after the
        time-out."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            self.tend_sidecars()
            if time.monotonic() >= deadline:
                raise AssertionError(f"not within {timeout_s:.0f} s: {what}\n{self.evidence()}")
            time.sleep(_POLL_S)

    def resumes(self, condition: Callable[[], bool], what: str) -> None:
        """Waits like `wait`, but for RESUMES_S without the time lost to other programs: a busy machine only delays the
        verdict."""
        began_ms = now_ms()
        left_s = RESUMES_S
        while left_s > 0:
            try:
                return self.wait(condition, what, left_s)
            except AssertionError as error:
                late = error
            (used_ms,) = self.watch.average().undisturbed([began_ms], [now_ms()])
            left_s = RESUMES_S - float(used_ms) / 1_000
        raise late

    def rest(self, seconds: float) -> None:
        """Waits for the duration of a fault, and tends the sidecars meanwhile."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.tend_sidecars()
            time.sleep(_POLL_S)

    def busy_leader(self) -> int:
        """Returns a node that is not the active controller: preferably the group coordinator, or the leader of a
        partition of the dispatch log."""
        nodes = [self.cluster.group_coordinator(self.deployment.group_id)]
        nodes += [self.cluster.leader(f"{self.requests}.dispatch-log", part) for part in range(SHARDS)]
        return next(node for node in (*nodes, *NODES) if node > 0 and node != self.cluster.controller())

    def _plan_kill(self, in_s: float) -> None:
        self._kills.append((time.monotonic() + in_s, self.random.choice(self.sidecars)))


Inject = Callable[[BrokerFaultRig], str]


def _leader_killed(rig: BrokerFaultRig) -> str:
    node = rig.busy_leader()
    rig.cluster.kill(node)
    rig.cluster.wait_until_deposed(node, rig.tend_sidecars)
    rig.cluster.launch(node)
    return f"broker {node}"


def _leader_frozen(rig: BrokerFaultRig) -> str:
    node = rig.busy_leader()
    rig.cluster.freeze(node)
    rig.cluster.wait_until_deposed(node, rig.tend_sidecars)
    rig.cluster.thaw(node)
    return f"broker {node}"


def _controller_frozen(rig: BrokerFaultRig) -> str:
    node = rig.cluster.controller()
    rig.cluster.freeze(node)
    rig.wait(lambda: rig.cluster.controller() != node, "another controller is elected")
    rig.cluster.wait_until_deposed(node, rig.tend_sidecars)
    rig.cluster.thaw(node)
    return f"broker {node}"


def _rolling_restart(rig: BrokerFaultRig) -> str:
    for node in NODES:
        rig.cluster.terminate(node)
        rig.cluster.launch(node)
        rig.cluster.wait_until_whole(rig.tend_sidecars)
    return "all brokers"


def _killed_for_a_moment(rig: BrokerFaultRig) -> str:
    """Kills a broker and restarts it up to 15 s later: before or after the controller fences it."""
    node, seconds = rig.random.choice(NODES), rig.random.random() * 15
    rig.cluster.kill(node)
    rig.rest(seconds)
    rig.cluster.launch(node)
    return f"broker {node}, {seconds:.1f} s"


def _frozen_for_a_while(rig: BrokerFaultRig) -> str:
    """Freezes a broker for up to about twice the time after which the controller fences it."""
    node, seconds = rig.random.choice(NODES), rig.random.random() * 25
    rig.cluster.freeze(node)
    rig.rest(seconds)
    rig.cluster.thaw(node)
    return f"broker {node}, {seconds:.1f} s"


def _stopped_for_a_while(rig: BrokerFaultRig) -> str:
    node, seconds = rig.random.choice(NODES), rig.random.random() * 10
    rig.cluster.terminate(node)
    rig.rest(seconds)
    rig.cluster.launch(node)
    return f"broker {node}, {seconds:.1f} s"


#: The faults of the test command, in this order.
SCENARIOS = ("leader killed", "leader frozen until deposed", "controller frozen", "rolling restart")
FAULTS: dict[str, Inject] = {
    "leader killed": _leader_killed,
    "leader frozen until deposed": _leader_frozen,
    "controller frozen": _controller_frozen,
    "rolling restart": _rolling_restart,
    "broker killed": _killed_for_a_moment,
    "broker frozen": _frozen_for_a_while,
    "broker stopped": _stopped_for_a_while,
}


def _s(ms: int) -> str:
    return f"{ms / 1000:.1f} s"


def now_ms() -> int:
    return int(time.time() * 1000)
