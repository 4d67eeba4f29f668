"""Goal: a target that refuses every record, one that is slow and one that is deleted delay no other target.

Method: ten healthy targets get the same traffic twice, without and then with three bad ones beside them, each of which
gets as much as a healthy one: the broker refuses every record of the first (by a size limit that an ACL hides), a proxy
passes on some 50 records a second for the second, and the third is deleted in the middle and created again. The
lateness of the healthy ones in both is compared: p99, at their reader. What was meant for the bad ones ends once, as
promised.
POSTDATE_ISOLATION_SECONDS and POSTDATE_ISOLATION_RATE make the run larger.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from postdate.connectors.wire.headers import AT, DEAD_REASON, ORIGIN, TOPIC
from support.bed import Bed, new_bed
from support.faults.proxied_broker import ProxiedBroker, proxied_broker
from support.oracle import Reader, Sent
from support.patience import PATIENCE_S
from support.rounds import LIGHTER, expect, first_kept

#: Long enough that the one stall that a deleted target may cost, half a second, is below 1 %.
_SECONDS = float(os.environ.get("POSTDATE_ISOLATION_SECONDS", "60"))
_RATE = int(os.environ.get("POSTDATE_ISOLATION_RATE", "200"))
_RATIO_MAX = 1.5
_BUDGET_MS = 5_000
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

    bed: Bed
    broker: ProxiedBroker
    requests: str
    healthy: list[str]
    refusing: str
    slow: str
    deleted: str
    reader: Reader
    bad: list[Sent] = field(default_factory=list)
    good: list[Sent] = field(default_factory=list)

    def round(self, slower: int) -> None:
        """The p99 of the healthy targets without and with the bad ones beside them."""
        per_second = max(_RATE // slower, 20)
        self.broker.heal()
        quiet_ms = self._p99_ms(per_second, self.healthy, disturbed=False)
        self.broker.proxies[0].throttle(self.slow, _SLOW_BYTES_PER_SECOND)
        disturbed_ms = self._p99_ms(per_second, [*self.healthy, self.refusing, self.slow, self.deleted], disturbed=True)
        told = f"p99 {quiet_ms:.1f} ms without and {disturbed_ms:.1f} ms with bad targets, {per_second} a second"
        print(told)
        expect(disturbed_ms <= _RATIO_MAX * quiet_ms, told)

    def _p99_ms(self, per_second: int, targets: list[str], disturbed: bool, seconds: float = _SECONDS) -> float:
        asked: list[Sent] = []
        sending = threading.Thread(target=lambda: asked.extend(self._send(per_second, targets, seconds)))
        sending.start()
        before, deletes_at = len(self.reader.records), time.monotonic() + seconds / 2 if disturbed else float("inf")
        while sending.is_alive():
            self.reader.take(0.05)
            if time.monotonic() >= deletes_at:
                deletes_at = float("inf")
                _delete(self.bed, self.deleted)
        good = [sent for sent in asked if sent.target in self.healthy]
        self.good += good
        self.bad += [sent for sent in asked if sent.target not in self.healthy]
        self.reader.until(lambda: len(self.reader.records) >= before + len(good), "the healthy ones have theirs")
        if disturbed:
            _create(self.bed, self.deleted)
        due = {sent.origin: sent.due_ms for sent in good}
        late = sorted(seen.arrived_ms - due[seen.origin] for seen in self.reader.records if seen.origin in due)
        print(f"{len(late)} messages: p50 {late[len(late) // 2]:.1f}, max {late[-1]:.1f} ms late")
        return late[int(len(late) * 0.99)]

    def _send(self, per_second: int, targets: list[str], seconds: float) -> list[Sent]:
        """Requests for these targets in turn, `per_second` to ten of them, due two seconds after they are sent."""
        sender, asked, first, wait = self.bed.sender(), list[Sent](), time.time(), threading.Event()
        for index in range(int(seconds * per_second * len(targets) / _HEALTHY)):
            at = first + index * _HEALTHY / (per_second * len(targets))
            wait.wait(max(at - time.time(), 0.0))
            target, due_ms = targets[index % len(targets)], int(at * 1000) + 2_000
            given = [(TOPIC, target.encode()), (AT, b"%d" % due_ms)]
            asked.append(sender.send(self.requests, Sent(target, b"%d" % index, _BODY, list(given), due_ms)))
        sender.flush()
        return asked


def _hide_settings(bed: Bed, topic: str) -> None:
    """Nobody may read the settings of the topic; everything else stays allowed."""
    operations = (
        (AclOperation.DESCRIBE_CONFIGS, AclPermissionType.DENY),
        (AclOperation.ALL, AclPermissionType.ALLOW),
    )
    acls = [
        AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission)
        for operation, permission in operations
    ]
    admin = AdminClient({"bootstrap.servers": bed.bootstrap})
    for made in admin.create_acls(acls).values():
        made.result(PATIENCE_S)


def _delete(bed: Bed, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bed.bootstrap})
    admin.delete_topics([topic])[topic].result(PATIENCE_S)


def _create(bed: Bed, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bed.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)


@pytest.fixture
def play(tmp_path: Path) -> Iterator[_Play]:
    with proxied_broker(1, None, **_ACLS) as broker, new_bed(broker.bootstrap, tmp_path) as bed:
        requests, healthy = bed.new_requests(), [bed.new_target() for _ in range(_HEALTHY)]
        refusing = bed.new_target(max_message_bytes="100")
        _hide_settings(bed, refusing)
        slow, deleted = bed.new_target(), bed.new_target()
        sidecar = bed.new_sidecar(dispatch={"retry_budget_ms": _BUDGET_MS})
        sidecar.bootstrap = broker.way(0)
        sidecar.start()
        sidecar.wait_for_shards(1)
        reader = bed.reader(*healthy)
        try:
            yield _Play(bed, broker, requests, healthy, refusing, slow, deleted, reader)
        finally:
            reader.close()


@pytest.mark.timeout(1_800 + 40 * _SECONDS)
def test_a_refusing_a_slow_and_a_deleted_target_delay_no_other(play: _Play) -> None:
    play._p99_ms(_RATE, play.healthy, disturbed=False, seconds=5.0)  # to warm up
    first_kept(play.round, LIGHTER)
    play.broker.heal()
    play.bed.wait_for_ends(len(play.good) + len(play.bad), 20 * PATIENCE_S)
    letters = play.bed.reader(f"{play.requests}.dead-letters")
    target_of = {sent.origin: sent.target for sent in play.bad}
    letters.until(lambda: len(letters.records) > 0, "there are dead letters")
    letters.take(2.0)
    reasons = Counter((target_of.get(seen.last(ORIGIN)), seen.last(DEAD_REASON)) for seen in letters.records)
    letters.close()
    print(reasons)
    assert reasons.keys() <= {(play.refusing, b"too-large"), (play.deleted, b"unknown-target")}
    assert reasons[play.refusing, b"too-large"] > 0
