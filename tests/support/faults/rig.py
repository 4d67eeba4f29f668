"""The deployment that fault tests use: two sidecars behind proxies, a steady load on four partitions, and a ledger of
all requests.

The attribute `static` is the process `steady`, a static member with a separate disk; `dynamic` is the process `moving`,
a dynamic member. Some faults start and stop `extras`, the processes `third` and `fourth`, which share the data
directory of `moving`, as the workers of one machine do. Load and judge connect to the broker directly.

Thread rule: one thread. The load, the follower and the proxies have threads for themselves.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import Sidecar
from support.faults.follower import Follower
from support.faults.load import Load, LoadPlan
from support.faults.proxied_broker import ProxiedBroker, proxied_broker
from support.faults.proxy import Proxy
from support.faults.request_ledger import OVERDUE_MS, RequestLedger
from support.waiting.timeouts import WAIT_TIMEOUT_S

PARTITIONS = 4
#: Seconds: the default transaction time-out of a rig, and the session time-out of its members.
TRANSACTION_S, SESSION_S = 10.0, 6.0
#: Log lines that no fault may cause.
_NEVER = re.compile(r"^.*(?:HALTED|Traceback|a defect of Postdate).*$", re.MULTILINE)
_POLL_INTERVAL_S = 0.2
#: Milliseconds: the delay from which entries are stored. It is smaller than the default, so that some of the load
#: passes through the store topic.
STORE_AFTER_MS = 12_000


@dataclass
class FaultRig:
    """The processes and topics of a fault test."""

    broker: ProxiedBroker
    deployment: SidecarDeployment
    requests: str
    ledger: RequestLedger
    follower: Follower
    load: Load
    chance: random.Random
    static: Sidecar
    dynamic: Sidecar
    extras: list[Sidecar]
    transaction_s: float = TRANSACTION_S
    foreign_requests: int = 0
    """The number of requests that foreign clients have committed."""
    ended_ms: int = 0
    """The time at which the last fault ended. If the fault function returns later, it has called `fault_ends`."""
    wrong: list[str] = field(default_factory=list)
    _read: dict[Path, int] = field(default_factory=dict)

    @property
    def base(self) -> list[Sidecar]:
        """The two members that always run."""
        return [self.static, self.dynamic]

    def proxy_of(self, member: Sidecar) -> Proxy:
        number = 2 if member in self.extras else self.base.index(member)
        return self.broker.proxies[number]

    def one(self) -> Sidecar:
        return self.chance.choice(self.base)

    def start(self) -> None:
        """Starts the members and the load; returns once both members serve shards."""
        for member in self.base:
            member.start()
        for member in self.base:
            member.wait_for_shards(PARTITIONS // 2)
        self.follower.start()
        self.load.start()

    def wait(self, seconds: float) -> None:
        """Waits for the duration of a fault, not for a condition."""
        time.sleep(seconds)

    def fault_ends(self) -> None:
        self.ended_ms = now_ms()

    def repair(self) -> None:
        """Ends all effects of a fault: the two base members run, and no other process does. Records and restarts a base
        member that has exited."""
        self.broker.heal()
        if not self.broker.local.is_running():
            self.broker.local.start()
        for extra in self.extras:
            if extra.is_alive():
                extra.resume()
                extra.stop()
            extra.failpoints = ""
        for member in self.base:
            member.failpoints = ""
            if member.is_alive():
                member.resume()
            else:
                self.wrong.append(f"{member.name} had ended: {member.log_text()[-1000:]}")
                member.start()

    def recover(self, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Waits until every overdue request has ended, and the ledger has read a request that was sent after the
        fault."""
        since = self.ended_ms

        def recovered() -> bool:
            now = now_ms()
            return now > since + OVERDUE_MS and self.ledger.newest_ms() > since and not self.ledger.overdue(now)

        _wait_until(recovered, "nothing is overdue", timeout_s, self._standing)

    def _standing(self) -> str:
        """Returns the reasons for which the rig has not recovered."""
        overdue = self.ledger.overdue(now_ms())
        return f"{overdue} are, by partition; {self.load.unanswered()} requests are not acknowledged"

    def count_fault(self, requests: int) -> str:
        """Returns an error unless `requests`, the number of requests on the topic, is possible after the
        acknowledgements; empty if it is."""
        load, foreign = self.load, self.foreign_requests
        if 0 <= requests - load.acknowledged - foreign <= load.given_up:
            return ""
        return (
            f"{load.acknowledged} requests were acknowledged, {load.given_up} given up by clients without brokers, "
            f"{foreign} sent by foreign clients, and {requests} are on the topic"
        )

    def look_through_logs(self) -> list[str]:
        """Returns the forbidden log lines of the members since the last check."""
        found = []
        for member in [*self.base, *self.extras]:
            for path in sorted((member.directory / member.name).glob("log-*")):
                text = path.read_text(errors="replace")
                lines = _NEVER.findall(text[self._read.get(path, 0) :])
                self._read[path] = len(text)
                found += [f"{path.parent.name}/{path.name}: {line[:400]}" for line in lines[:3]]
        return found

    def finish(self, timeout_s: float = WAIT_TIMEOUT_S) -> list[int]:
        """Stops the load, waits until all requests have ended and are read, and stops the members; returns their exit
        codes."""
        self.repair()
        self.load.stop()
        sent = self.load.acknowledged + self.foreign_requests
        ledger = self.ledger
        _wait_until(
            lambda: ledger.request_count() >= sent,
            f"{sent} requests are read",
            timeout_s,
            lambda: f"{ledger.request_count()}",
        )
        _wait_until(lambda: ledger.pending() == 0, "all have ended", timeout_s, lambda: f"{ledger.pending()} have not")
        exits = [member.stop() for member in self.base]
        self.follower.to_end()
        return exits


def _wait_until(condition: Callable[[], bool], what: str, timeout_s: float, otherwise: Callable[[], str]) -> None:
    """Waits like `sidecars.wait_until`, but checks less often, since the condition acquires the lock of the ledger."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}; {otherwise()}"
        time.sleep(_POLL_INTERVAL_S)


def now_ms() -> int:
    return int(time.time() * 1000)


@contextmanager
def new_rig(
    directory: Path,
    seed: int,
    per_second: int,
    delay_ms_max: int = 20_000,
    transaction_s: float = TRANSACTION_S,
) -> Iterator[FaultRig]:
    """Yields a rig with a separate broker; no sidecar runs yet. `transaction_s`: the transaction time-out."""
    chance = random.Random(seed)
    with proxied_broker(3, random.Random(seed + 1)) as broker:
        deployment = SidecarDeployment(broker.bootstrap, directory)
        requests, targets = deployment.new_requests(PARTITIONS), [deployment.new_target(4) for _ in range(2)]
        small = deployment.new_target(1, max_message_bytes="20000")
        plan = LoadPlan(requests, tuple(targets), small, seed, per_second, delay_ms_max)
        ledger = RequestLedger(requests)
        follower = Follower(broker.bootstrap, ledger, [*targets, small])
        shared = directory / "shared"
        settings: dict[str, object] = {"store_after_ms": STORE_AFTER_MS}
        members = []
        for name in ("steady", "moving", "third", "fourth"):
            member = deployment.new_sidecar(
                name, dispatch={"retry_budget_ms": 3_000}, static=name == "steady", topic=settings
            )
            member.bootstrap = broker.way({"steady": 0, "moving": 1}.get(name, 2))
            member.producer = {"transaction.timeout.ms": str(int(transaction_s * 1000))}
            member.data = None if name == "steady" else shared
            members.append(member)
        rig = FaultRig(
            broker,
            deployment,
            requests,
            ledger,
            follower,
            Load(broker.bootstrap, plan),
            chance,
            members[0],
            members[1],
            members[2:],
            transaction_s,
        )
        try:
            yield rig
        finally:
            deployment.close()
            follower.close()
