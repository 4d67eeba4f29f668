"""An audit that follows, killed and started again beside live traffic.

Goal: `postdate audit --follow` says nothing false of what sidecars do, whatever dies, leaves nothing out, keeps no more
than it must, and names a duplicate and a loss soon after they were made.
Method: two sidecars deliver a steady load on a real broker; the audit runs as the process that a person would start.
One of the sidecars and the audit with its JVM are killed with SIGKILL and started again: the audit once between
telling and keeping a step, then, where there are more kills, at moments that a seed chooses. Then a delivered record is
produced a second time by hand, and on a request topic that no sidecar serves a dispatch log says of a request that it
was delivered. In the end the verdicts of all steps together must be those of every request.
POSTDATE_TEST_FOLLOW_SECONDS=N kills for N seconds instead of once, and both must then be named within a minute.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from postdate.connectors.spark.limits import CLOSED_TABLES_MAX
from postdate.connectors.wire.dispatch_log import DELIVERED, OWNER, DispatchRecord, encode_record
from postdate.connectors.wire.headers import AT, TOPIC
from support.bed import Bed, new_bed
from support.broker import RunningBroker
from support.following import STEP_S, Follower, following, traffic
from support.oracle import gather
from support.sidecars import Sidecar, wait_until

_SECONDS = float(os.environ.get("POSTDATE_TEST_FOLLOW_SECONDS", "0"))
_SEED = 8
#: s. How soon both are named; in the test command, beside all other tests, as long as a step may take.
_NAMED_S = 60.0 if _SECONDS else STEP_S
#: Tables of a state besides closed ones: the open one, what a killed step has left, what the next one has begun.
_OTHER_TABLES_MAX = 6


def _killed(follower: Follower, sidecars: list[Sidecar], chance: random.Random) -> int:
    """Kills the audit and one sidecar, again and again until the time is over, and starts them anew; how often."""
    began_s, kills = time.monotonic(), 0
    while not kills or time.monotonic() < began_s + _SECONDS:
        follower.wait_for(1)
        if kills:
            step_s = follower.steps()[-1]["seconds"]
            threading.Event().wait(chance.uniform(0.0, 2 * step_s))  # where in its step it dies is the seed's to say
        follower.kill()
        victim = sidecars[kills % len(sidecars)]
        victim.kill()
        victim.start()
        kept, told = follower.kept(), len(follower.steps())
        follower.start()
        follower.wait_for(1)
        assert follower.steps()[told]["state"]["run"] == kept + 1, "it goes on behind the last step that was kept"
        kills += 1
    return kills


def _forge_duplicate(bed: Bed, requests: str) -> str:
    """A record that was delivered long ago once more; returns its origin."""
    delivered = gather(bed.bootstrap, [requests], bed.targets).delivered
    one = min(delivered, key=lambda seen: seen.timestamp_ms)
    producer = Producer({"bootstrap.servers": bed.bootstrap})
    producer.produce(one.topic, one.value, one.key, one.partition, headers=[*one.headers])
    assert producer.flush(30) == 0
    return one.origin.decode()


def _forge_loss(bed: Bed, requests: str, target: str) -> str:
    """A request whose dispatch log says that it was delivered; returns its origin."""
    producer, due_ms = Producer({"bootstrap.servers": bed.bootstrap}), int(time.time() * 1_000) - 1_000
    producer.produce(requests, b"v", b"k", 0, headers=[(TOPIC, target.encode()), (AT, b"%d" % due_ms)])
    assert producer.flush(30) == 0
    owner = DispatchRecord(seq=1, takeover=1, instance="a", group="g", at=due_ms, next_request=1, low_water=0)
    owner.kind = OWNER
    fates = DispatchRecord(seq=2, takeover=1, instance="a", group="g", at=due_ms, next_request=1, low_water=1)
    fates.fates = [(0, due_ms, DELIVERED)]
    for one in (owner, fates):
        producer.produce(f"{requests}.dispatch-log", encode_record(one), partition=0)
    assert producer.flush(30) == 0
    return f"{requests}/0/0"


def _named(steps: list[dict[str, Any]]) -> dict[str, set[str]]:
    """The origins that any of these steps has named, by violation."""
    found: dict[str, set[str]] = {}
    for step in steps:
        for verdict, samples in step["samples"].items():
            found.setdefault(verdict, set()).update(sample["origin"] for sample in samples)
    return found


@pytest.mark.timeout(900 + 2 * STEP_S + 4 * _SECONDS)  # JVMs start and plan on a machine that does other things
def test_killed_again_and_again_it_says_what_is_so(broker: RunningBroker, tmp_path: Path) -> None:
    chance = random.Random(_SEED)
    with new_bed(broker.bootstrap_servers, tmp_path) as bed:
        requests, topic, target = bed.new_requests(2), bed.new_target(), bed.new_target(2)
        bed.targets.remove(topic)
        sidecars = [bed.new_sidecar(), bed.new_sidecar()]
        silent = bed.new_requests(1)
        for sidecar in sidecars:
            sidecar.start()
        with traffic(bed, requests, target) as load, following(bed, tmp_path, topic) as follower:
            kills = _killed(follower, sidecars, chance)
            assert [step["samples"] for step in follower.steps() if step["violations"]] == []
            began_s = time.monotonic()
            duplicate, loss = _forge_duplicate(bed, requests), _forge_loss(bed, silent, target)
            expected = {"duplicate": {duplicate}, "missing": {loss}, "contradiction": {loss}}

            def named() -> bool:
                found = _named(follower.steps())
                assert all(origins <= expected.get(verdict, set()) for verdict, origins in found.items()), found
                return found == expected

            wait_until(named, f"the audit names what was forged: {expected}", _NAMED_S)
            named_s = time.monotonic() - began_s
            asked = load.stop()
            bed.wait_for_ends(asked + 1)
            follower.wait_for(2)
            steps = follower.steps()
    print(f"{asked} requests, {kills} kills, {len(steps)} steps; what was forged was named after {named_s:.1f} s")
    assert named()
    runs = [step["state"]["run"] for step in steps]
    assert runs == sorted(runs)
    assert set(runs) == {*range(1, runs[-1] + 1)}, "no step is left out"
    last = steps[-1]["state"]
    judged = {verdict: count for verdict, count in last["counts"].items() if count}
    assert {verdict: judged.pop(verdict) for verdict in expected} == {"duplicate": 1, "missing": 1, "contradiction": 1}
    assert sum(judged.values()) == asked - 1, "every request has its verdict"
    assert (last["open"], last["standing"]) == (2, 2), "nothing but the two is judged again"
    assert len(follower.tables()) <= CLOSED_TABLES_MAX + _OTHER_TABLES_MAX
    said = _told_on(bed, topic)
    assert {one["run"] for one in said if one["kind"] == "step"} >= {*runs[:-1]}, "what is kept was told there before"
    violations = {(one["verdict"], one["origin"]) for one in said if one["kind"] == "violation"}
    assert violations == {(verdict, origin) for verdict, origins in expected.items() for origin in origins}


def _told_on(bed: Bed, topic: str) -> list[dict[str, Any]]:
    """What the steps have told on a topic."""
    reader = bed.reader(topic)
    try:
        return [json.loads(seen.value or b"{}") for seen in reader.to_end()]
    finally:
        reader.close()
