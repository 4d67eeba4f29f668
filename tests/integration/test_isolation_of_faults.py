"""Goal: a target that refuses every record, one that is slow and one that is deleted delay no other target.

Method: ten healthy targets get traffic beside three bad ones, each of which gets as much as a healthy one: the broker
refuses every record of the first (by a size limit that an ACL hides), a proxy passes on some 50 records a second for
the second, and the third is deleted in the middle and created again. Each bad target may fail a transaction with
messages for others until it is isolated, and none after that: these are counted, which does not depend on how busy the
machine is. (tests/unit/sidecar/dispatch/targets/test_fault_attribution.py judges the pauses between trials, on a
simulated clock.) Each message for a bad target ends once, as promised.

With POSTDATE_ISOLATION_SECONDS and POSTDATE_ISOLATION_RATE the run is larger, and for an idle machine: before it, the
healthy targets get the same traffic alone, and the p99 of their lateness is compared, at their reader, without what
other programs kept the processes from doing (`support/waiting/contention.py`).
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
#: In a comparison long enough that the stall that a deleted target may cost, half a second, is below 1 %.
_SECONDS = float(os.environ.get("POSTDATE_ISOLATION_SECONDS", "30"))
_RATE = int(os.environ.get("POSTDATE_ISOLATION_RATE", "200"))
#: Times the undisturbed p99: the promise.
_RATIO_MAX = 1.5
_BUDGET_MS = 5_000
_TRANSACTIONS = "postdate_transactions_total"
#: Of the transactions with messages for healthy targets: one for the refusing target, and for the deleted one a
#: time-out, a refused abort and the transaction after it.
_FAILED_MAX = 6
_HEALTHY = 10
_BODY = b"x" * 200
_ACLS = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow_everyone_if_no_acl_found": "true",
}
#: Bytes of 50 records of that size a second, with what Postdate adds and the frame around a few of them.
_SLOW_BYTES_PER_SECOND = 50 * 330


@dataclass
class _Play:
    """A request topic with its targets, and what was sent so far."""

    env: SidecarDeployment
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
        """Requests for all targets; few transactions for healthy ones fail. Returns the requests for healthy ones."""
        self.broker.proxies[0].throttle(self.slow, _SLOW_BYTES_PER_SECOND)
        before, failed_before = self._transactions(), self._failed()
        asked = self.ask([*self.healthy, self.refusing, self.slow, self.deleted], disturbed=True)
        failed = self._failed() - failed_before
        print(f"transactions beside the bad targets: {dict(self._transactions() - before)}; not of one alone: {failed}")
        assert failed <= _FAILED_MAX
        return asked

    def compare(self, watch: Watch) -> None:
        """Hold the p99 of the healthy targets with the bad ones beside them against that without."""
        quiet = self.ask(self.healthy, disturbed=False)
        disturbed = self.disturb()
        waits = watch.most()
        quiet_ms, disturbed_ms = self._p99_ms(quiet, waits), self._p99_ms(disturbed, waits)
        assert disturbed_ms <= _RATIO_MAX * quiet_ms

    def ask(self, targets: list[str], disturbed: bool, seconds: float = _SECONDS) -> list[Sent]:
        """The requests for healthy targets, once all of them have arrived."""
        asked: list[Sent] = []
        sending = threading.Thread(target=lambda: asked.extend(self._send(_RATE, targets, seconds)))
        sending.start()
        before, deletes_at = len(self.reader.records), time.monotonic() + seconds / 2 if disturbed else float("inf")
        while sending.is_alive():
            self.reader.read_new(0.05)
            if time.monotonic() >= deletes_at:
                deletes_at = float("inf")
                _delete(self.env, self.deleted)
        good = [sent for sent in asked if sent.target in self.healthy]
        self.good += good
        self.bad += [sent for sent in asked if sent.target not in self.healthy]
        self.reader.until(lambda: len(self.reader.records) >= before + len(good), "the healthy ones have theirs")
        if disturbed:
            _create(self.env, self.deleted)
        return good

    def _transactions(self) -> Counter[str]:
        """How many transactions the sidecar has ended, by outcome."""
        samples = self.client.samples()
        return Counter({each: int(value_of(samples, _TRANSACTIONS, outcome=each)) for each in OUTCOMES})

    def _failed(self) -> int:
        """How many transactions that were not trials have failed: aborted ones are logged, the others are counted."""
        aborted = len(re.findall(r"(?:INFO|WARNING).* a transaction was aborted", self.sidecar.log_text()))
        return aborted + sum(self._transactions()[outcome] for outcome in (UNKNOWN, FENCED, FAILED))

    def _p99_ms(self, asked: list[Sent], waits: Waits) -> float:
        """How late these messages were at their reader, without what was spent waiting for others."""
        due = {sent.origin: sent.due_ms for sent in asked}
        seen = [record for record in self.reader.records if record.origin in due]
        dues, arrivals = [due[record.origin] for record in seen], [record.arrived_ms for record in seen]
        undisturbed, points = waits.undisturbed(dues, arrivals), (50, 99, 100)
        late = np.percentile(np.array(arrivals) - np.array(dues), points).round(1)
        print(f"{len(seen)} messages, ms late, p50, p99, most: {late}; without waiting for others, which took ")
        print(f"{waits.share:.0%} of the time: {np.percentile(undisturbed, points).round(1)}")
        seconds = (np.array(dues) - min(dues)) // 1000
        p90s = [round(float(np.percentile(undisturbed[seconds == second], 90))) for second in range(int(max(seconds)))]
        print(f"p90 of each second: {p90s}")
        return float(np.percentile(undisturbed, 99))

    def _send(self, per_second: int, targets: list[str], seconds: float) -> list[Sent]:
        """Requests for these targets in turn, `per_second` to ten of them, due two seconds after they are sent."""
        sender, asked, first, wait = self.env.sender(), list[Sent](), time.time(), threading.Event()
        for index in range(int(seconds * per_second * len(targets) / _HEALTHY)):
            at = first + index * _HEALTHY / (per_second * len(targets))
            wait.wait(max(at - time.time(), 0.0))
            target, due_ms = targets[index % len(targets)], int(at * 1000) + 2_000
            given = [(TOPIC, target.encode()), (AT, b"%d" % due_ms)]
            asked.append(sender.send(self.requests, Sent(target, b"%d" % index, _BODY, list(given), due_ms)))
        sender.flush()
        return asked


def _hide_settings(env: SidecarDeployment, topic: str) -> None:
    """Nobody may read the settings of the topic; everything else stays allowed."""
    operations = (
        (AclOperation.DESCRIBE_CONFIGS, AclPermissionType.DENY),
        (AclOperation.ALL, AclPermissionType.ALLOW),
    )
    acls = [
        AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission)
        for operation, permission in operations
    ]
    admin = AdminClient({"bootstrap.servers": env.bootstrap})
    for made in admin.create_acls(acls).values():
        made.result(WAIT_TIMEOUT_S)


def _delete(env: SidecarDeployment, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": env.bootstrap})
    admin.delete_topics([topic])[topic].result(WAIT_TIMEOUT_S)


def _create(env: SidecarDeployment, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": env.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_TIMEOUT_S)


@pytest.fixture
def play(tmp_path: Path) -> Iterator[_Play]:
    with proxied_broker(1, None, **_ACLS) as broker, new_deployment(broker.bootstrap, tmp_path) as env:
        requests, healthy = env.new_requests(), [env.new_target() for _ in range(_HEALTHY)]
        refusing = env.new_target(max_message_bytes="100")
        _hide_settings(env, refusing)
        slow, deleted = env.new_target(), env.new_target()
        sidecar = env.new_sidecar(dispatch={"retry_budget_ms": _BUDGET_MS})
        sidecar.http = {"port": free_port()}
        sidecar.bootstrap = broker.way(0)
        sidecar.start()
        sidecar.wait_for_shards(1)
        reader = env.reader(*healthy)
        try:
            client = Client(int(str(sidecar.http["port"])))
            yield _Play(env, broker, sidecar, client, requests, healthy, refusing, slow, deleted, reader)
        finally:
            reader.close()


@pytest.mark.timeout(1_800 + 40 * _SECONDS)
def test_a_refusing_a_slow_and_a_deleted_target_delay_no_other(play: _Play) -> None:
    play.ask(play.healthy, disturbed=False, seconds=5.0)  # to warm up
    if _COMPARES_TIMES:
        with watch_contention() as watch:
            play.compare(watch)
    else:
        play.disturb()
    play.broker.heal()
    play.env.wait_for_ends(len(play.good) + len(play.bad), 20 * WAIT_TIMEOUT_S)
    letters = play.env.reader(f"{play.requests}.dead-letters")
    target_of = {sent.origin: sent.target for sent in play.bad}
    letters.until(lambda: len(letters.records) > 0, "there are dead letters")
    letters.read_new(2.0)
    reasons = Counter((target_of.get(seen.last(ORIGIN)), seen.last(DEAD_REASON)) for seen in letters.records)
    letters.close()
    print(reasons)
    assert reasons.keys() <= {(play.refusing, b"too-large"), (play.deleted, b"unknown-target")}
    assert reasons[play.refusing, b"too-large"] > 0
