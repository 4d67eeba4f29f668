"""Goal: running processes serve partitions that are added to a request topic, without a restart or an operator.

Method: a process serves a request topic with one partition, and an administrator adds two. The process must take the
new shards over, add the missing partitions to the topics beside the request topic, and deliver requests of the new
partitions.
"""

from __future__ import annotations

import time

from postdate.kafka.client import ConfluentKafka
from postdate.kafka.settings import KafkaSettings
from postdate.wire.headers import AT, TOPIC, Headers
from postdate.wire.topics import OwnTopics
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import QUICK_SESSION
from support.oracles.exactly_once import Sent

_ADDED = 3


def test_added_partitions_are_served_without_a_restart(deployment: SidecarDeployment) -> None:
    requests, target = deployment.new_requests(1), deployment.new_target()
    sidecar = deployment.new_sidecar(consumer={**QUICK_SESSION, "topic.metadata.refresh.interval.ms": "1000"})
    sidecar.start()
    sidecar.wait_for_shards(1)
    admin = ConfluentKafka(KafkaSettings(deployment.bootstrap)).admin()
    admin.add_partitions({requests: _ADDED})
    sidecar.wait_for_shards(_ADDED)
    requested, sender = [], deployment.sender()
    for index in range(30):
        due_ms = int(time.time() * 1000) + 10 * index
        headers: Headers = [(TOPIC, target.encode()), (AT, b"%d" % due_ms)]
        requested.append(sender.send(requests, Sent(target, b"%d" % index, b"v", headers, due_ms), index % _ADDED))
    sender.flush()
    deployment.wait_for_ends(len(requested))
    assert {len(info.partitions) for info in admin.describe(OwnTopics.of(requests).names()).values()} == {_ADDED}
    admin.close()
    assert sidecar.stop() == 0
    deployment.judge(requested)
    assert "HALTED" not in sidecar.all_logs()
