"""Goal: with brokers of other Kafka versions, each message is delivered once and a cancel works. If the brokers lack
the group protocol, the log names the remedy.

Method: two processes share a local broker of each version, and one of them is killed while messages are due. The oracle
checks the deliveries. POSTDATE_TEST_KAFKA_VERSIONS="4.0.1 4.1.1" adds versions, whose jars are fetched on first use.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from postdate.sidecar.errors import Exit
from postdate.wire.headers import ACTION, AT, ID, TOPIC, Headers
from support.brokers.broker import local_broker
from support.deployments.sidecar_deployment import SidecarDeployment, new_deployment
from support.oracles.exactly_once import Sent

_VERSIONS = ("3.9.2", *os.environ.get("POSTDATE_TEST_KAFKA_VERSIONS", "").split())
_MESSAGES = 400


@pytest.fixture
def deployment(version: str, tmp_path: Path) -> Iterator[SidecarDeployment]:
    with local_broker(version) as broker, new_deployment(broker.bootstrap_servers, tmp_path) as environment:
        yield environment


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", _VERSIONS)
def test_a_broker_of_this_version_delivers_each_message_once(deployment: SidecarDeployment, version: str) -> None:
    requests, target = deployment.new_requests(2), deployment.new_target(3)
    processes = [deployment.new_sidecar() for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.wait_for_shards(1)
    sender, first_ms = deployment.sender(), int(time.time() * 1000) + 1_000
    requested = []
    for number in range(_MESSAGES):
        due_ms = first_ms + 5 * number
        headers: Headers = [(TOPIC, target.encode()), (AT, b"%d" % due_ms)]
        requested.append(sender.send(requests, Sent(target, b"%d" % (number % 7), b"v%d" % number, headers, due_ms)))
    late_ms = first_ms + 600_000
    named: Headers = [(TOPIC, target.encode()), (AT, b"%d" % late_ms), (ID, b"x")]
    cancelled = sender.send(requests, Sent(target, b"x", b"never", named, late_ms))
    control = sender.send(requests, Sent(target, b"x", None, [(ACTION, b"cancel"), (ID, b"x")], 0))
    sender.flush()
    processes[0].kill()
    processes[0].start()
    deployment.wait_for_ends(_MESSAGES + 2)
    assert [process.stop() for process in processes] == [Exit.OK, Exit.OK]
    deployment.judge(requested, silent=[cancelled, control])
    if version.startswith("3."):
        unknown = deployment.new_sidecar(group_protocol="consumer")
        unknown.start()
        unknown.wait_for_log("needs Kafka 4.0 on all brokers: upgrade them, or set it to classic")
        assert unknown.stop() == Exit.OK
