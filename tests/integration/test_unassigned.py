"""Goal: partitions that a rebalance left without an owner are served again within a minute, without an operator.

Method: a sidecar joins a real group. Its static member exits when it must give up partitions for the sidecar, and
starts again at once. So the coordinator assigns these partitions to nobody.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from support.deployments.sidecar_deployment import SidecarDeployment
from support.waiting.timeouts import WAIT_TIMEOUT_S

_MEMBER = """
import os, sys
from confluent_kafka import Consumer

bootstrap, group, topic = sys.argv[1:4]
conf = {
    "bootstrap.servers": bootstrap, "group.id": group, "group.instance.id": "static", "session.timeout.ms": 30000,
    "partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 300,
}
consumer = Consumer(conf)
dies = len(sys.argv) > 4
consumer.subscribe(
    [topic],
    on_assign=lambda _, parts: print(len(parts), flush=True),
    on_revoke=lambda _, parts: os._exit(9) if dies else None,
)
while True:
    consumer.poll(0.1)
"""

#: Seconds: the time for two checks at intervals of 15 s, the rebalance and the takeovers. If the sidecar is the second
#: member of the group, a third check is needed.
_WITHIN_S = 75.0


@contextmanager
def _member(deployment: SidecarDeployment, topic: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", _MEMBER, deployment.bootstrap, deployment.group_id, topic, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as member:
        try:
            yield member
        finally:
            member.kill()


def _assigned(member: subprocess.Popen[str]) -> int:
    """Waits for the next assignment of the member, and returns the number of added partitions."""
    assert member.stdout is not None
    return int(member.stdout.readline())


def test_unassigned_partitions_are_served_within_a_minute(deployment: SidecarDeployment) -> None:
    requests = deployment.new_requests(4)
    sidecar = deployment.new_sidecar()
    with _member(deployment, requests, "exits on revocation") as first:
        assert _assigned(first) == 4
        sidecar.start()
        assert first.wait(WAIT_TIMEOUT_S) == 9, sidecar.log_text()
    with _member(deployment, requests) as second:
        assert _assigned(second) == 2
        began = time.monotonic()
        sidecar.wait_for_shards(2, _WITHIN_S)
        print(f"served after {time.monotonic() - began:.1f} s")
        assert "the group assigns its partitions again" in sidecar.log_text()
