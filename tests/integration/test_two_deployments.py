"""Goal: two deployments with different groups on one request topic do not deliver twice, nor fence each other for
ever.

Method: one process of group A serves, and a process of group B is started beside it, with traffic all the while. The
one whose group comes second in the order of names ends with exit code 3 and says which group has taken over, whoever
came first; the other goes on, and each message arrives once.
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


def _send(env: SidecarDeployment, requests: str, target: str, asked: list[Sent], over: threading.Event) -> None:
    """Traffic until it is over: a deployment that has nothing to deliver finds out only after a minute that it was
    fenced."""
    sender, first = env.sender(), time.time()
    for index in count():
        if over.wait(max(first + index / _RATE - time.time(), 0.0)):
            break
        due_ms = int((first + index / _RATE) * 1000) + 300
        given: Headers = [(TOPIC, target.encode()), (AT, b"%d" % due_ms)]
        asked.append(sender.send(requests, Sent(target, b"%d" % index, b"v", given, due_ms)))
    sender.flush()


@pytest.mark.parametrize("first", ["older", "newer"])
def test_of_two_deployments_one_continues_and_the_other_stops_with_the_reason(
    env: SidecarDeployment, first: str
) -> None:
    requests, target = env.new_requests(2), env.new_target(2)
    older, newer = env.new_sidecar("older"), env.new_sidecar("newer")
    newer.group_id = f"{older.group_id}-other" if first == "older" else f"a-{older.group_id}"
    older.start()
    older.wait_for_shards(2)
    asked: list[Sent] = []
    over = threading.Event()
    sending = threading.Thread(target=_send, args=(env, requests, target, asked, over))
    sending.start()
    newer.start()
    try:
        wait_until(lambda: older.is_alive() != newer.is_alive(), "one of the two stops")
    finally:
        over.set()
        sending.join()
    stopped, going = (newer, older) if first == "older" else (older, newer)
    assert stopped.wait() == _FENCED
    assert f"group {going.group_id}" in stopped.log_text()
    env.wait_for_ends(len(asked))
    assert going.is_alive()
    assert going.stop() == 0
    env.judge(asked)
