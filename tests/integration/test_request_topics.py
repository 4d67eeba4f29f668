"""Goal: each request topic has its own targets, horizon, levels and limits, and refuses requests beyond them.

Method: one process serves two request topics with different settings, and gets the same requests on both. The dead
letters of each topic must contain exactly the requests that its settings refuse.
"""

from __future__ import annotations

import time
from collections import Counter

from postdate.wire.headers import AT, DEAD_REASON, DELAY, LEVEL, TOPIC, Headers
from support.deployments.sidecar_deployment import SidecarDeployment
from support.oracles.exactly_once import Sent

_HOUR_MS = 3_600_000


def test_two_request_topics_of_one_process_have_different_rules(deployment: SidecarDeployment) -> None:
    wide, narrow = deployment.new_requests(1), deployment.new_requests(1)
    orders, other = deployment.new_target(), deployment.new_target()
    sidecar = deployment.new_sidecar()
    sidecar.topics = {narrow: {"allow": [orders], "horizon_ms": _HOUR_MS, "levels_ms": [50, 100], "pending_max": 3}}
    sidecar.start()
    sidecar.wait_for_shards(2)
    sender, far_ms = deployment.sender(), int(time.time() * 1000) + 60 * _HOUR_MS

    def request(requests: str, target: str, *time_headers: tuple[str, bytes], due_ms: int = -1) -> Sent:
        headers: Headers = [(TOPIC, target.encode()), *time_headers]
        return sender.send(requests, Sent(target, b"k", b"v", headers, due_ms), 0)

    delivered: list[Sent] = []
    dead: dict[str, list[Sent]] = {wide: [], narrow: []}
    for requests in (wide, narrow):
        delivered.append(request(requests, orders, (AT, b"1"), due_ms=1))
        delivered.append(request(requests, orders, (LEVEL, b"1")))  # 50 ms on the narrow topic
        (delivered if requests == wide else dead[narrow]).append(request(requests, other, (AT, b"2"), due_ms=2))
        held = [request(requests, orders, (AT, b"%d" % far_ms)) for _ in range(1)]
        if requests == narrow:
            dead[narrow] += held
    sender.flush()
    deployment.wait_for_ends(7)
    # Nothing is pending on the narrow topic, so it accepts three requests and refuses two. The wide topic accepts all.
    soon = int(time.time() * 1000) + 6_000
    for requests in (wide, narrow):
        more = [request(requests, orders, (AT, b"%d" % soon), due_ms=soon) for _ in range(5)]
        accepted = 5 if requests == wide else 3
        delivered += more[:accepted]
        dead[requests] += more[accepted:]
    sender.flush()
    deployment.wait_for_ends(17)
    for sent in delivered:
        if sent.due_ms < 0:
            sent.due_ms = sent.appended_ms + (1_000 if sent.origin.startswith(wide.encode()) else 50)
    outcome = deployment.judge(delivered, [*dead[wide], *dead[narrow]])
    reasons = Counter(seen.last(DEAD_REASON) for seen in outcome.dead)
    assert reasons == {b"forbidden-target": 1, b"beyond-horizon": 1, b"limit-exceeded": 2}
    assert {seen.topic for seen in outcome.dead} == {f"{narrow}.dead-letters"}


def test_a_rate_beyond_the_limit_is_refused_and_not_slowed(deployment: SidecarDeployment) -> None:
    requests, target = deployment.new_requests(1), deployment.new_target()
    sidecar = deployment.new_sidecar(topic={"requests_per_second_max": 20})
    sidecar.start()
    sidecar.wait_for_shards(1)
    sender = deployment.sender()
    headers: Headers = [(TOPIC, target.encode()), (DELAY, b"10")]
    requested = [sender.send(requests, Sent(target, b"k", b"v", headers), 0) for _ in range(200)]
    sender.flush()
    deployment.wait_for_ends(200)
    for sent in requested:
        sent.due_ms = sent.appended_ms + 10
    reader = deployment.reader(f"{requests}.dead-letters")
    refused = {seen.origin for seen in reader.to_end()}
    reader.close()
    assert 20 <= 200 - len(refused) < 150
    deployment.judge(
        [sent for sent in requested if sent.origin not in refused], [s for s in requested if s.origin in refused]
    )
