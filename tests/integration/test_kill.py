"""Goal: although processes die at any moment, every message is delivered once, none early, and each key in order.

Method: two processes share four partitions. Each is killed with SIGKILL at random times and started again on the same
disk, while messages fall due. Then the oracle checks all records that Kafka holds. The test prints its seed, and
POSTDATE_KILL_SEED repeats it. POSTDATE_KILL_MESSAGES, POSTDATE_KILL_KILLS and POSTDATE_KILL_SECONDS make the run
larger.
"""

from __future__ import annotations

import os
import random
import threading
import time

import pytest

from postdate.wire.headers import AT, TOPIC, Headers
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import Sidecar
from support.oracles.exactly_once import Seen, Sent, overtaken
from support.waiting.timeouts import WAIT_TIMEOUT_S

_MESSAGES = int(os.environ.get("POSTDATE_KILL_MESSAGES", "5000"))
_KILLS = int(os.environ.get("POSTDATE_KILL_KILLS", "4"))
_SECONDS = float(os.environ.get("POSTDATE_KILL_SECONDS", "8"))


def _send(deployment: SidecarDeployment, requests: str, target: str, chance: random.Random) -> list[Sent]:
    """Sends requests with different keys, due at random times while processes are killed, and returns them."""
    sender, first_due_ms = deployment.sender(), int(time.time() * 1000) + 1000
    requested = []
    for index in range(_MESSAGES):
        due_ms = first_due_ms + int(chance.random() * _SECONDS * 1000)
        headers: Headers = [(TOPIC, target.encode()), ("n", b"%d" % index), (AT, b"%d" % due_ms)]
        requested.append(sender.send(requests, Sent(target, b"%d" % (index % 97), b"v%d" % index, headers, due_ms)))
    sender.flush()
    return requested


def _kill(processes: list[Sidecar], chance: random.Random) -> None:
    """Kills one process at a time, at random times, and starts it again at once."""
    first, step = time.monotonic(), _SECONDS / _KILLS
    for number in range(_KILLS):
        kill_at = first + (number + chance.random()) * step
        threading.Event().wait(max(kill_at - time.monotonic(), 0.0))
        victim = chance.choice(processes)
        victim.kill()
        victim.start()


# A static member keeps its shards when it returns, so the next kill interrupts a dispatch. The shards of a dynamic
# member move, so a kill often interrupts a takeover. With the group protocol consumer the second member is static: it
# waits until the session of its killed predecessor expires.
@pytest.mark.timeout(1_800 + 20 * _KILLS + 2 * _SECONDS)
@pytest.mark.parametrize("members", ["dynamic", "static", "consumer"])
def test_killed_processes_deliver_each_message_once(deployment: SidecarDeployment, members: str) -> None:
    seed = int(os.environ.get("POSTDATE_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
    print(f"seed {seed}: {_MESSAGES} requests over {_SECONDS:.0f} s, {_KILLS} kills")
    chance = random.Random(seed)
    requests, target = deployment.new_requests(4), deployment.new_target(4, message_timestamp_type="LogAppendTime")
    protocol = "consumer" if members == "consumer" else "classic"
    processes = [
        deployment.new_sidecar(
            static=members == "static" or (members == "consumer" and number == 1), group_protocol=protocol
        )
        for number in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.wait_for_shards(2)
    killer = threading.Thread(target=_kill, args=(processes, chance))
    began = time.monotonic()
    killer.start()
    requested = _send(deployment, requests, target, random.Random(seed + 1))
    killer.join()
    killed = time.monotonic()
    deployment.wait_for_ends(len(requested), WAIT_TIMEOUT_S + 5.0 * _KILLS + _SECONDS)
    settled = time.monotonic()
    exits = [process.stop() for process in processes]
    outcome = deployment.judge(requested)
    assert overtaken(outcome) == [], "order, through kills and takeovers"
    late_ms = sorted(seen.timestamp_ms - sent.due_ms for seen, sent in _pairs(outcome.delivered, requested))
    print(
        f"killed {_KILLS} in {killed - began:.1f} s, settled {settled - killed:.1f} s after the last; takeovers "
        f"{outcome.takeovers()}, transactions {len(outcome.log)}; lateness ms p50 {late_ms[len(late_ms) // 2]}, "
        f"p99 {late_ms[len(late_ms) * 99 // 100]}, most {late_ms[-1]}"
    )
    assert min(late_ms) >= 0, "early by the clock of the target"
    assert outcome.takeovers() > 4, "no shard was ever taken over: the run proves nothing"
    assert exits == [0, 0]
    for process in processes:
        assert "HALTED" not in process.all_logs()
        assert "Traceback" not in process.all_logs()


def _pairs(delivered: list[Seen], requested: list[Sent]) -> list[tuple[Seen, Sent]]:
    by_origin = {sent.origin: sent for sent in requested}
    return [(seen, by_origin[seen.origin]) for seen in delivered]
