"""Goal: two deployments with different groups on one request topic deliver nothing twice, and do not fence each other
endlessly.

Method: a process of one group serves, and a process of another group starts while messages fall due. The process whose
group name sorts second ends with exit code 3 and names the other group, no matter which process started first. The
other process continues, and each message arrives once.
"""

from __future__ import annotations

import threading
import time
from itertools import count

import pytest

from postdate.wire.headers import AT, TOPIC, Headers
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import wait_until
from support.oracles.exactly_once import Sent

_RATE = 50
_FENCED = 3


def _send(
    deployment: SidecarDeployment, requests: str, target: str, requested: list[Sent], over: threading.Event
) -> None:
    """Sends requests until `over`. Without deliveries, a deployment notices only after a minute that it is fenced."""
    sender, first = deployment.sender(), time.time()
    for index in count():
        if over.wait(max(first + index / _RATE - time.time(), 0.0)):
            break
        due_ms = int((first + index / _RATE) * 1000) + 300
        headers: Headers = [(TOPIC, target.encode()), (AT, b"%d" % due_ms)]
        requested.append(sender.send(requests, Sent(target, b"%d" % index, b"v", headers, due_ms)))
    sender.flush()


@pytest.mark.parametrize("first", ["older", "newer"])
def test_of_two_deployments_one_continues_and_the_other_stops_with_the_reason(
    deployment: SidecarDeployment, first: str
) -> None:
    requests, target = deployment.new_requests(2), deployment.new_target(2)
    older, newer = deployment.new_sidecar("older"), deployment.new_sidecar("newer")
    newer.group_id = f"{older.group_id}-other" if first == "older" else f"a-{older.group_id}"
    older.start()
    older.wait_for_shards(2)
    requested: list[Sent] = []
    over = threading.Event()
    sending = threading.Thread(target=_send, args=(deployment, requests, target, requested, over))
    sending.start()
    newer.start()
    try:
        wait_until(lambda: older.is_alive() != newer.is_alive(), "one of the two stops")
    finally:
        over.set()
        sending.join()
    stopped, survivor = (newer, older) if first == "older" else (older, newer)
    assert stopped.wait() == _FENCED
    assert f"group {survivor.group_id}" in stopped.log_text()
    deployment.wait_for_ends(len(requested))
    assert survivor.is_alive()
    assert survivor.stop() == 0
    deployment.judge(requested)
