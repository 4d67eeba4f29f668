"""A continuous audit, killed and restarted beside live traffic. Goal: even if processes are killed, `postdate audit
--follow` reports no false violation, omits no request, keeps no unneeded rows, and reports a duplicate and a loss soon
after they occur. Method: two sidecars deliver a steady load on a real broker; the audit runs as a user would start it.
SIGKILL ends one of the sidecars. It also ends the audit with its JVM, after a step is printed and before it is saved.
Then a delivered record is produced again, and on a request topic without a sidecar, a forged dispatch log names a
request as delivered. The steps that report the forgeries run in the session of these tests, on the state of the killed
process; one step is cut off after its output, and must report again. In the end each request must have its verdict.
POSTDATE_TEST_FOLLOW_SECONDS=N kills sidecars and audit for N seconds, the audit at times that a seed chooses. Then a
separate process reports the forgeries, and the test prints its delay.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from postdate.spark.audit.continuous import FollowOptions, follow
from postdate.spark.audit.options import AuditOptions
from postdate.spark.audit.output import AuditOutcome, as_json
from postdate.spark.job.progress import Reporter
from postdate.wire.dispatch_log import DELIVERED, OWNER, DispatchRecord, PlainFate, encode_record
from postdate.wire.headers import AT, TOPIC
from support.audits.following import STEP_S, AuditFollower, following, traffic
from support.brokers.broker import RunningBroker
from support.deployments.sidecar_deployment import SidecarDeployment, new_deployment
from support.deployments.sidecars import Sidecar, wait_until
from support.oracles.exactly_once import gather

_SECONDS = float(os.environ.get("POSTDATE_TEST_FOLLOW_SECONDS", "0"))
_SEED = 8


class CutOff(Exception):
    """Represents the end of a program by any cause."""


def _step(
    spark: SparkSession, deployment: SidecarDeployment, follower: AuditFollower, *, cut_off: bool = False
) -> dict[str, Any]:
    """Returns the output of one more step in this session; with `cut_off`, the step ends after its output."""
    outcomes: list[AuditOutcome] = []

    def tell(outcome: AuditOutcome) -> None:
        outcomes.append(outcome)
        if cut_off:
            raise CutOff

    options = AuditOptions(deployment.bootstrap, tuple(deployment.requests), state=str(follower.state))
    with suppress(CutOff):
        follow(spark, FollowOptions(options, steps=1, to_topic=follower.topic), Reporter(), tell)
    return as_json(outcomes[0])


def _killed(follower: AuditFollower, sidecars: list[Sidecar], chance: random.Random) -> int:
    """Kills the audit and one sidecar, and restarts the sidecar. Repeats this with a restarted audit until the time is
    over. Returns the number of rounds."""
    began_s, kills, kept = time.monotonic(), 0, 0
    while True:
        steps_before = len(follower.steps())
        follower.wait_for(1)
        assert follower.steps()[steps_before]["state"]["run"] == kept + 1, "it continues after the last saved step"
        if kills:
            step_s = follower.steps()[-1]["seconds"]
            threading.Event().wait(chance.uniform(0.0, step_s))  # the seed decides where in its step the audit dies
        follower.kill()
        victim = sidecars[kills % len(sidecars)]
        victim.kill()
        victim.start()
        kills, kept = kills + 1, follower.kept()
        if time.monotonic() >= began_s + _SECONDS:
            return kills
        follower.start()


def _forge_duplicate(deployment: SidecarDeployment, requests: str) -> str:
    """Produces a record again that was delivered long ago; returns its origin."""
    delivered = gather(deployment.bootstrap, [requests], deployment.targets).delivered
    one = min(delivered, key=lambda seen: seen.timestamp_ms)
    producer = Producer({"bootstrap.servers": deployment.bootstrap})
    producer.produce(one.topic, one.value, one.key, one.partition, headers=[*one.headers])
    assert producer.flush(30) == 0
    return one.origin.decode()


def _forge_loss(deployment: SidecarDeployment, requests: str, target: str) -> str:
    """Produces a request, and a dispatch-log record with its fate `delivered`; returns its origin."""
    producer, due_ms = Producer({"bootstrap.servers": deployment.bootstrap}), int(time.time() * 1_000) - 1_000
    producer.produce(requests, b"v", b"k", 0, headers=[(TOPIC, target.encode()), (AT, b"%d" % due_ms)])
    assert producer.flush(30) == 0
    owner = DispatchRecord(seq=1, takeover=1, instance="a", group="g", at=due_ms, next_request=1, low_water=0)
    owner.kind = OWNER
    fates = DispatchRecord(seq=2, takeover=1, instance="a", group="g", at=due_ms, next_request=1, low_water=1)
    fates.fates = [PlainFate(0, due_ms, DELIVERED)]
    for one in (owner, fates):
        producer.produce(f"{requests}.dispatch-log", encode_record(one), partition=0)
    assert producer.flush(30) == 0
    return f"{requests}/0/0"


def _named(steps: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Returns the origins that these steps have reported, by violation."""
    found: dict[str, set[str]] = {}
    for step in steps:
        for verdict, samples in step["samples"].items():
            found.setdefault(verdict, set()).update(sample["origin"] for sample in samples)
    return found


def _forged(deployment: SidecarDeployment, requests: str, silent: str) -> dict[str, set[str]]:
    """Forges a duplicate and a loss; returns their origins by violation."""
    duplicate, loss = _forge_duplicate(deployment, requests), _forge_loss(deployment, silent, deployment.targets[0])
    return {"duplicate": {duplicate}, "missing": {loss}, "contradiction": {loss}}


def _named_by_process(
    follower: AuditFollower, deployment: SidecarDeployment, requests: str, silent: str
) -> dict[str, set[str]]:
    """Forges a duplicate and a loss, and waits until a continuous audit in another process reports them."""
    follower.start()
    follower.wait_for(1)
    assert _named(follower.steps()) == {}
    expected, began_s = _forged(deployment, requests, silent), time.monotonic()

    def named() -> bool:
        found = _named(follower.steps())
        assert all(origins <= expected.get(verdict, set()) for verdict, origins in found.items()), found
        return found == expected

    wait_until(named, f"the audit names what was forged: {expected}", STEP_S)
    print(f"what was forged was named after {time.monotonic() - began_s:.1f} s")
    follower.kill()
    return expected


@pytest.mark.timeout(900 + STEP_S + 4 * _SECONDS)  # a JVM starts and plans on a busy machine
def test_killed_again_and_again_it_says_what_is_so(broker: RunningBroker, spark: SparkSession, tmp_path: Path) -> None:
    with new_deployment(broker.bootstrap_servers, tmp_path) as deployment:
        requests, topic, target = deployment.new_requests(2), deployment.new_target(), deployment.new_target(2)
        deployment.targets.remove(topic)
        sidecars = [deployment.new_sidecar(), deployment.new_sidecar()]
        silent = deployment.new_requests(1)
        for sidecar in sidecars:
            sidecar.start()
        with traffic(deployment, requests, target) as load, following(deployment, tmp_path, topic) as follower:
            kills = _killed(follower, sidecars, random.Random(_SEED))
            assert _named(follower.steps()) == {}
            if _SECONDS:
                expected = _named_by_process(follower, deployment, requests, silent)
            else:
                expected = _forged(deployment, requests, silent)
            cut_off = _step(spark, deployment, follower, cut_off=True)
            sent = load.stop()
            deployment.wait_for_ends(sent + 1)
            last = _step(spark, deployment, follower)
        steps = [*follower.steps(), cut_off, last]
    print(f"{sent} requests, {kills} kills, {len(steps)} steps")
    assert _named(steps) == expected
    assert (_named([last]), last["state"]["run"]) == (_named([cut_off]), cut_off["state"]["run"]), (
        "it is reported again"
    )
    runs = [step["state"]["run"] for step in steps]
    assert runs == sorted(runs)
    assert set(runs) == {*range(1, runs[-1] + 1)}, "no step is left out"
    counts = last["state"]["counts"]
    assert {verdict: counts[verdict] for verdict in expected} == dict.fromkeys(expected, 1)
    assert all(counts[ending] for ending in ("delivered", "cancelled", "replaced", "applied"))
    assert sum(counts.values()) == sent + 2, "each request has one verdict, and the loss has two"
    assert last["state"]["open"] == 0, "nothing is judged again"
    assert last["exit"] == 4
    results = _results_on(deployment, topic)
    assert {result["run"] for result in results if result["kind"] == "step"} == {*runs}, (
        "a saved step was written there before"
    )
    violations = {(result["verdict"], result["origin"]) for result in results if result["kind"] == "violation"}
    assert violations == {(verdict, origin) for verdict, origins in expected.items() for origin in origins}


def _results_on(deployment: SidecarDeployment, topic: str) -> list[dict[str, Any]]:
    """Returns the results that the steps have written to a topic."""
    reader = deployment.reader(topic)
    try:
        return [json.loads(seen.value or b"{}") for seen in reader.to_end()]
    finally:
        reader.close()
