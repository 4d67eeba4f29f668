"""Goal: the members of a running group change from the group protocol classic to consumer and back, one after the
other. Meanwhile every message is delivered once, and none early.

Method: a dynamic and a static member share four partitions. Each is stopped and started again with the other protocol,
while messages fall due. The first member with `consumer` waits, and reports that it is ready, until the last member
with `classic` has stopped. On the way back, both protocols serve at the same time. After each change, the test waits
until all shards are served, and prints the duration. POSTDATE_TEST_PROTOCOL_CHANGES makes more changes.
"""

from __future__ import annotations

import os
import threading
import time
from http.client import HTTPConnection

import pytest

from postdate.wire.headers import AT, TOPIC, Headers
from support.deployments.ports import free_port
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import Sidecar, wait_until
from support.oracles.exactly_once import Sent, overtaken
from support.waiting.timeouts import WAIT_TIMEOUT_S

_CHANGES = int(os.environ.get("POSTDATE_TEST_PROTOCOL_CHANGES", "1"))
_PER_SECOND = 100
_DELAY_MS = 1_000
_PARTITIONS = 4
#: The protocol with which the next member restarts, and the number of shards that each member serves from then on.
_STEPS = [("consumer", [0, 4]), ("consumer", [2, 2]), ("classic", [2, 2]), ("classic", [2, 2])]


def _send(
    deployment: SidecarDeployment, requests: str, target: str, requested: list[Sent], ended: threading.Event
) -> None:
    """Sends requests that are due one second later, at a steady rate, until `ended`."""
    sender = deployment.sender()
    while not ended.wait(1 / _PER_SECOND):
        due_ms = int(time.time() * 1000) + _DELAY_MS
        number = b"%d" % len(requested)
        headers: Headers = [(TOPIC, target.encode()), ("n", number), (AT, b"%d" % due_ms)]
        requested.append(sender.send(requests, Sent(target, b"%d" % (len(requested) % 97), number, headers, due_ms)))
    sender.flush()


def _served_s(processes: list[Sidecar], shards: list[int]) -> float:
    """Waits until the processes serve these numbers of shards, and returns the time that this took, in seconds."""
    began = time.monotonic()
    wait_until(lambda: [process.shards() for process in processes] == shards, f"they serve {shards} shards")
    return time.monotonic() - began


def _ready(port: int) -> int:
    """Returns the HTTP status of the readiness probe."""
    connection = HTTPConnection("127.0.0.1", port, timeout=WAIT_TIMEOUT_S)
    connection.request("GET", "/readyz")
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.timeout(600 * _CHANGES)
def test_members_change_their_group_protocol_one_after_the_other(deployment: SidecarDeployment) -> None:
    requests, target = (
        deployment.new_requests(_PARTITIONS),
        deployment.new_target(4, message_timestamp_type="LogAppendTime"),
    )
    processes, port = [deployment.new_sidecar("dynamic"), deployment.new_sidecar("static", static=True)], free_port()
    processes[0].http = {"port": port}
    for process in processes:
        process.start()
    _served_s(processes, [2, 2])
    requested, ended = list[Sent](), threading.Event()
    load = threading.Thread(target=_send, args=(deployment, requests, target, requested, ended))
    load.start()
    try:
        for protocol, shards in _STEPS * _CHANGES:
            process = next(process for process in processes if process.group_protocol != protocol)
            assert process.stop() == 0
            if not all(shards):  # the broker could convert a group whose members have joined only once
                processes[1].wait_for_shards(_PARTITIONS)
            process.group_protocol = protocol
            process.start()
            served_s = _served_s(processes, shards)
            print(
                f"{process.name} restarted with {protocol}: {shards} shards served after {served_s:.1f} s", flush=True
            )
            if not all(shards):
                process.wait_for_log("joins when the last member with group_protocol = classic has stopped")
                assert _ready(port) == 200
    finally:
        ended.set()
        load.join()
    deployment.wait_for_ends(len(requested))
    assert [process.stop() for process in processes] == [0, 0]
    outcome = deployment.judge(requested)
    assert overtaken(outcome) == []
    due_ms = {sent.origin: sent.due_ms for sent in requested}
    late_ms = sorted(seen.timestamp_ms - due_ms[seen.origin] for seen in outcome.delivered)
    print(f"{len(requested)} messages, lateness ms p50 {late_ms[len(late_ms) // 2]}, most {late_ms[-1]}")
    assert late_ms[0] >= 0
    for process in processes:
        assert "Traceback" not in process.all_logs()
        assert "HALTED" not in process.all_logs()
