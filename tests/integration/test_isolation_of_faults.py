"""Goal: a target that refuses every record, a slow target and a deleted target delay no other target.

Method: ten healthy targets and three bad ones get traffic at the same rate. The broker refuses every record of the
first bad target, by a size limit that an ACL hides. A proxy slows the second down to about 50 records a second. The
third is deleted in the middle of the run and created again. Transactions with messages for other targets may fail until
the bad target is isolated, and not after that. The test counts failed transactions, since their number does not depend
on the machine. (tests/unit/sidecar/dispatch/targets/test_fault_attribution.py tests the pauses between trials on a
simulated clock.) Each message for a bad target ends once, as promised.

POSTDATE_ISOLATION_SECONDS and POSTDATE_ISOLATION_RATE make the run larger; it then needs an idle machine. Before the
bad targets get traffic, the healthy ones get theirs alone. The test compares the p99 of the lateness at the reader in
both rounds, less the time that other programs took (`support/waiting/contention.py`).
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from postdate.sidecar.counts import FAILED, FENCED, OUTCOMES, UNKNOWN
from postdate.wire.headers import AT, DEAD_REASON, ORIGIN, TOPIC
from support.deployments.ports import free_port
from support.deployments.sidecar_deployment import SidecarDeployment, new_deployment
from support.deployments.sidecars import Sidecar
from support.faults.proxied_broker import ProxiedBroker, proxied_broker
from support.oracles.exactly_once import Reader, Sent
from support.waiting.contention import Waits, Watch, watch_contention
from support.waiting.timeouts import WAIT_TIMEOUT_S
from support.web.http_steps import Client, value_of

_COMPARES_TIMES = "POSTDATE_ISOLATION_SECONDS" in os.environ
#: Seconds of traffic. To compare the p99, use more than 50: the half second that a deleted target may cost must be
#: less than 1 % of the time.
_SECONDS = float(os.environ.get("POSTDATE_ISOLATION_SECONDS", "30"))
_RATE = int(os.environ.get("POSTDATE_ISOLATION_RATE", "200"))
#: The promised multiple of the p99 without bad targets.
_RATIO_MAX = 1.5
_BUDGET_MS = 5_000
_TRANSACTIONS = "postdate_transactions_total"
#: The maximum number of failed transactions with messages for healthy targets. Four are expected: the
#: refusing target causes one, and the deleted target causes a time-out, a refused abort and the failure of the next
#: transaction. Two more are permitted.
_FAILED_MAX = 6
_HEALTHY = 10
_BODY = b"x" * 200
_ACLS = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow_everyone_if_no_acl_found": "true",
}
#: 50 records of `_BODY` a second, with the headers that Postdate adds and the overhead of their batches.
_SLOW_BYTES_PER_SECOND = 50 * 330


@dataclass
class _Scenario:
    """A request topic with its targets, and the requests sent so far."""

    deployment: SidecarDeployment
    broker: ProxiedBroker
    sidecar: Sidecar
    client: Client
    requests: str
    healthy: list[str]
    refusing: str
    slow: str
    deleted: str
    reader: Reader
    bad: list[Sent] = field(default_factory=list)
    good: list[Sent] = field(default_factory=list)

    def disturb(self) -> list[Sent]:
        """Sends requests for all targets, and returns those for healthy ones.

        Fails if more than `_FAILED_MAX` transactions with messages for healthy targets failed.
        """
        self.broker.proxies[0].throttle(self.slow, _SLOW_BYTES_PER_SECOND)
        before, failed_before = self._transactions(), self._failed()
        requested = self.run_traffic([*self.healthy, self.refusing, self.slow, self.deleted], disturbed=True)
        failed = self._failed() - failed_before
        print(f"transactions beside the bad targets: {dict(self._transactions() - before)}; failed: {failed}")
        assert failed <= _FAILED_MAX
        return requested

    def compare(self, watch: Watch) -> None:
        """Compares the p99 of the healthy targets without and with traffic for the bad ones."""
        quiet = self.run_traffic(self.healthy, disturbed=False)
        disturbed = self.disturb()
        waits = watch.most()
        quiet_ms, disturbed_ms = self._p99_ms(quiet, waits), self._p99_ms(disturbed, waits)
        assert disturbed_ms <= _RATIO_MAX * quiet_ms

    def run_traffic(self, targets: list[str], disturbed: bool, seconds: float = _SECONDS) -> list[Sent]:
        """Sends requests for these targets, and returns those for healthy ones after all of them have arrived.

        If `disturbed`, one target is deleted in the middle and created again at the end.
        """
        requested: list[Sent] = []
        sending = threading.Thread(target=lambda: requested.extend(self._send(_RATE, targets, seconds)))
        sending.start()
        before, deletes_at = len(self.reader.records), time.monotonic() + seconds / 2 if disturbed else float("inf")
        while sending.is_alive():
            self.reader.read_new(0.05)
            if time.monotonic() >= deletes_at:
                deletes_at = float("inf")
                _delete(self.deployment, self.deleted)
        good = [sent for sent in requested if sent.target in self.healthy]
        self.good += good
        self.bad += [sent for sent in requested if sent.target not in self.healthy]
        self.reader.until(
            lambda: len(self.reader.records) >= before + len(good), "the healthy targets have their messages"
        )
        if disturbed:
            _create(self.deployment, self.deleted)
        return good

    def _transactions(self) -> Counter[str]:
        """Returns the number of transactions that the sidecar has ended, by outcome."""
        samples = self.client.samples()
        return Counter({outcome: int(value_of(samples, _TRANSACTIONS, outcome=outcome)) for outcome in OUTCOMES})

    def _failed(self) -> int:
        """Returns the number of failed transactions, except trials. The log shows aborts, a metric the others."""
        aborted = len(re.findall(r"(?:INFO|WARNING).* a transaction was aborted", self.sidecar.log_text()))
        return aborted + sum(self._transactions()[outcome] for outcome in (UNKNOWN, FENCED, FAILED))

    def _p99_ms(self, requested: list[Sent], waits: Waits) -> float:
        """Returns the p99 lateness of these messages at their reader, less the time that other programs took."""
        due = {sent.origin: sent.due_ms for sent in requested}
        seen = [record for record in self.reader.records if record.origin in due]
        dues, arrivals = [due[record.origin] for record in seen], [record.arrived_ms for record in seen]
        undisturbed, points = waits.undisturbed(dues, arrivals), (50, 99, 100)
        late = np.percentile(np.array(arrivals) - np.array(dues), points).round(1)
        print(f"{len(seen)} messages, ms late, p50, p99, most: {late}; without other programs, which took ")
        print(f"{waits.share:.0%} of the time: {np.percentile(undisturbed, points).round(1)}")
        seconds = (np.array(dues) - min(dues)) // 1000
        p90s = [round(float(np.percentile(undisturbed[seconds == second], 90))) for second in range(int(max(seconds)))]
        print(f"p90 of each second: {p90s}")
        return float(np.percentile(undisturbed, 99))

    def _send(self, per_second: int, targets: list[str], seconds: float) -> list[Sent]:
        """Sends requests for these targets in turn, due two seconds later, and returns them.

        Ten targets together get `per_second` requests a second, more targets proportionally more.
        """
        sender, requested, first, wait = self.deployment.sender(), list[Sent](), time.time(), threading.Event()
        for index in range(int(seconds * per_second * len(targets) / _HEALTHY)):
            send_at = first + index * _HEALTHY / (per_second * len(targets))
            wait.wait(max(send_at - time.time(), 0.0))
            target, due_ms = targets[index % len(targets)], int(send_at * 1000) + 2_000
            headers = [(TOPIC, target.encode()), (AT, b"%d" % due_ms)]
            requested.append(sender.send(self.requests, Sent(target, b"%d" % index, _BODY, list(headers), due_ms)))
        sender.flush()
        return requested


def _hide_settings(deployment: SidecarDeployment, topic: str) -> None:
    """Denies reading the settings of the topic to everybody, and allows all other operations."""
    operations = (
        (AclOperation.DESCRIBE_CONFIGS, AclPermissionType.DENY),
        (AclOperation.ALL, AclPermissionType.ALLOW),
    )
    acls = [
        AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission)
        for operation, permission in operations
    ]
    admin = AdminClient({"bootstrap.servers": deployment.bootstrap})
    for future in admin.create_acls(acls).values():
        future.result(WAIT_TIMEOUT_S)


def _delete(deployment: SidecarDeployment, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": deployment.bootstrap})
    admin.delete_topics([topic])[topic].result(WAIT_TIMEOUT_S)


def _create(deployment: SidecarDeployment, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": deployment.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_TIMEOUT_S)


@pytest.fixture
def scenario(tmp_path: Path) -> Iterator[_Scenario]:
    with proxied_broker(1, None, **_ACLS) as broker, new_deployment(broker.bootstrap, tmp_path) as deployment:
        requests, healthy = deployment.new_requests(), [deployment.new_target() for _ in range(_HEALTHY)]
        refusing = deployment.new_target(max_message_bytes="100")
        _hide_settings(deployment, refusing)
        slow, deleted = deployment.new_target(), deployment.new_target()
        sidecar = deployment.new_sidecar(dispatch={"retry_budget_ms": _BUDGET_MS})
        sidecar.http = {"port": free_port()}
        sidecar.bootstrap = broker.way(0)
        sidecar.start()
        sidecar.wait_for_shards(1)
        reader = deployment.reader(*healthy)
        try:
            client = Client(int(str(sidecar.http["port"])))
            yield _Scenario(deployment, broker, sidecar, client, requests, healthy, refusing, slow, deleted, reader)
        finally:
            reader.close()


@pytest.mark.timeout(1_800 + 40 * _SECONDS)
def test_a_refusing_a_slow_and_a_deleted_target_delay_no_other(scenario: _Scenario) -> None:
    scenario.run_traffic(scenario.healthy, disturbed=False, seconds=5.0)  # to warm up
    if _COMPARES_TIMES:
        with watch_contention() as watch:
            scenario.compare(watch)
    else:
        scenario.disturb()
    scenario.broker.heal()
    scenario.deployment.wait_for_ends(len(scenario.good) + len(scenario.bad), 20 * WAIT_TIMEOUT_S)
    dead_letters = scenario.deployment.reader(f"{scenario.requests}.dead-letters")
    target_of = {sent.origin: sent.target for sent in scenario.bad}
    dead_letters.until(lambda: len(dead_letters.records) > 0, "there are dead letters")
    dead_letters.read_new(2.0)
    reasons = Counter((target_of.get(seen.last(ORIGIN)), seen.last(DEAD_REASON)) for seen in dead_letters.records)
    dead_letters.close()
    print(reasons)
    assert reasons.keys() <= {(scenario.refusing, b"too-large"), (scenario.deleted, b"unknown-target")}
    assert reasons[scenario.refusing, b"too-large"] > 0
