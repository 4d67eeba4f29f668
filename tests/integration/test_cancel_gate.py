"""Goal: a cancel that was written before the due time wins, even if no process ran at that time.

Method: the only process ingests messages and is stopped. Then some of them are cancelled or rescheduled before they are
due. The process starts again when all are overdue.
"""

from __future__ import annotations

import time

from postdate.wire.headers import ACTION, AT, ID, ORIGIN, TOPIC, Headers
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import wait_until
from support.oracles.exactly_once import Sent
from support.waiting.rounds import LONGER, expect, first_round_in_time

_LEAD_MS = 5_000


def test_a_cancel_written_during_an_outage_wins_at_the_restart(deployment: SidecarDeployment) -> None:
    first_round_in_time(lambda slower: _cancel_while_nobody_runs(deployment.another(), _LEAD_MS * slower), LONGER)


def _cancel_while_nobody_runs(deployment: SidecarDeployment, lead_ms: int) -> None:
    """Sends messages due in `lead_ms`. Writes the controls before that time, and starts the process again after it."""
    requests, target = deployment.new_requests(1), deployment.new_target()
    sender, sidecar = deployment.sender(), deployment.new_sidecar(static=True)
    sidecar.start()
    sidecar.wait_for_shards(1)
    due_ms = int(time.time() * 1000) + lead_ms

    def schedule(caller_id: bytes) -> Sent:
        headers: Headers = [(TOPIC, target.encode()), (AT, b"%d" % due_ms), (ID, caller_id)]
        return sender.send(requests, Sent(target, caller_id, b"v", headers, due_ms), 0)

    def control(action: bytes, *headers: tuple[str, bytes]) -> Sent:
        return sender.send(requests, Sent(target, None, None, [(ACTION, action), *headers]), 0)

    held = [schedule(b"id-%d" % number) for number in range(4)]
    sentinel: Headers = [(TOPIC, target.encode()), (AT, b"0")]
    first = sender.send(requests, Sent(target, b"first", b"v", sentinel, 1), 0)
    sender.flush()
    deployment.wait_for_ends(1)  # the requests before the sentinel are ingested
    assert sidecar.stop() == 0
    later_ms = due_ms + 3_000
    controls = [control(b"cancel", (ID, b"id-0")), control(b"cancel", (ORIGIN, held[1].origin))]
    controls.append(control(b"reschedule", (ID, b"id-2"), (AT, b"%d" % later_ms)))
    unread = [schedule(b"id-8"), schedule(b"id-9")]
    controls.append(control(b"cancel", (ID, b"id-8")))
    sender.flush()
    expect(time.time() * 1000 < due_ms, "the controls were written after the due time")
    wait_until(lambda: time.time() * 1000 > due_ms + 200, "all are overdue")
    sidecar.start()
    deployment.wait_for_ends(1 + len(held) + len(controls) + len(unread))
    assert sidecar.stop() == 0
    held[2].due_ms = later_ms
    deployment.judge([first, held[2], held[3], unread[1]], silent=[held[0], held[1], unread[0], *controls])
