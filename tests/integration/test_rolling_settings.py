"""Goal: processes with different settings end each request once, through kills and takeovers.

Method: the first test forces the critical order of events. An owner dies between ingest and dispatch, another owner
with other settings ends the requests, and the first owner returns with its old disk.

In the second test, two processes share four partitions. Each is killed with SIGKILL at random times and started again
with other settings: a narrower or wider allow list, other levels, a limit of requests or none, a shorter or longer
horizon. So each shard moves back and forth between owners that accept, refuse and date the same requests differently.
Then the test checks all records on Kafka. Each request has one final fate and the record that the fate names, and is
never both delivered and dead; nothing is lost, changed or early. The test prints its seed, and POSTDATE_KILL_SEED
repeats it. POSTDATE_ROLLING_REQUESTS, POSTDATE_ROLLING_KILLS and POSTDATE_ROLLING_SECONDS make the run larger.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping

import pytest

from postdate.wire.dispatch_log import APPLIED, CANCELLED, DEAD, DELIVERED, Moved
from postdate.wire.headers import ACTION, DUE, ID, PREFIX, TOPIC, Headers
from postdate.wire.origins import parse_origin
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import Sidecar
from support.oracles.exactly_once import Outcome, Seen, Sent, gather
from support.waiting.timeouts import WAIT_TIMEOUT_S

_REQUESTS = int(os.environ.get("POSTDATE_ROLLING_REQUESTS", "5000"))
_KILLS = int(os.environ.get("POSTDATE_ROLLING_KILLS", "5"))
_SECONDS = float(os.environ.get("POSTDATE_ROLLING_SECONDS", "15"))
_PARTITIONS = 4
#: Refusals that differences between settings may cause.
_REFUSALS = {b"forbidden-target", b"limit-exceeded", b"beyond-horizon"}


def _settings(chance: random.Random, allowed: str) -> dict[str, object]:
    return {
        "allow": chance.choice([["*"], [allowed]]),
        "levels_ms": chance.choice([[500, 3_000], [2_500, 1_000], [1_500]]),
        "requests_per_second_max": chance.choice([0, 0, 60]),
        "horizon_ms": chance.choice([3_600_000, 10_000]),
        "store_after_ms": chance.choice([1_500, 3_600_000]),
    }


def _send(deployment: SidecarDeployment, requests: str, targets: list[str], chance: random.Random) -> list[Sent]:
    """Sends requests over the whole run, and returns them. Some move, cancel or replace earlier ones by their ids."""
    sender, requested, began = deployment.sender(), list[Sent](), time.monotonic()
    ids: list[bytes] = []
    for number in range(_REQUESTS):
        ahead = began + number * _SECONDS / _REQUESTS - time.monotonic()
        if ahead > 0.01:
            threading.Event().wait(ahead)
        key, target = b"%d" % (number % 97), chance.choice(targets)
        headers: Headers = [("n", b"%d" % number)]
        if ids and chance.random() < 0.2:
            named = chance.choice(ids[-200:])
            key, action = b"key of " + named, chance.choice([b"cancel", b"reschedule", b"replace"])
            headers += [(ID, named)]
            if action != b"replace":
                headers += [(ACTION, action)]
            if action != b"cancel":
                headers += [("postdate-delay", chance.choice([b"1s", b"4s", b"11s"]))]
            if action == b"replace":
                headers += [(TOPIC, target.encode())]
        else:
            headers += [(TOPIC, target.encode())]
            if chance.random() < 0.3:
                ids.append(b"id-%d" % number)
                key = b"key of " + ids[-1]
                headers += [(ID, ids[-1]), ("postdate-delay", b"3s")]
            elif chance.random() < 0.6:
                headers += [("postdate-level", chance.choice([b"1", b"2"]))]
            else:
                headers += [("postdate-delay", b"%dms" % chance.randrange(4_000))]
        requested.append(sender.send(requests, Sent(target, key, b"value %d" % number, headers)))
    sender.flush()
    return requested


def _roll(processes: list[Sidecar], chance: random.Random, allowed: str) -> None:
    """Kills one process at a time, at random times, and starts it again with other settings."""
    first, step = time.monotonic(), _SECONDS / _KILLS
    for number in range(_KILLS):
        kill_at = first + (number + chance.random()) * step
        threading.Event().wait(max(kill_at - time.monotonic(), 0.0))
        victim = processes[number % 2]
        victim.kill()
        victim.topic = _settings(chance, allowed)
        victim.start()


def _judge(outcome: Outcome, requested: list[Sent]) -> list[str]:
    """Describes each violation that the fates and records of these requests show."""
    delivered, dead = _by_origin(outcome.delivered), _by_origin(outcome.dead)
    fates, moved, wrong = outcome.fates, _moved(outcome), list[str]()
    strangers = {*delivered, *dead, *fates} - {sent.origin for sent in requested}
    wrong += [f"{origin!r} is no request" for origin in strangers]
    for sent in requested:
        ends = fates.get(sent.origin, [])
        records = len(delivered[sent.origin]), len(dead[sent.origin])
        if len(ends) != 1:
            wrong.append(f"{sent.origin!r}: {len(ends)} final fates: {ends}")
            continue
        name, appended_ms = ends[0]
        if records != (int(name == DELIVERED), int(name == DEAD)):
            wrong.append(f"{sent.origin!r} is {name}: {records[0]} deliveries and {records[1]} dead letters")
        action = dict(sent.headers).get(ACTION)
        if (action is not None and name not in (APPLIED, DEAD)) or (action is None and name == APPLIED):
            wrong.append(f"{sent.origin!r}, action {action!r}, is {name}")
        for seen in (*delivered[sent.origin], *dead[sent.origin]):
            own = [header for header in seen.headers if not header[0].startswith(PREFIX)]
            if (seen.key, seen.value, own) != (sent.key, sent.value, sent.data_headers):
                wrong.append(f"{sent.origin!r} was changed: {seen}")
        for seen in delivered[sent.origin]:
            due_ms = int(seen.last(DUE))
            if appended_ms < max(due_ms, moved.get(sent.origin, 0)):
                wrong.append(f"{sent.origin!r} due {due_ms} was dispatched at {appended_ms}")
        wrong += [
            f"{sent.origin!r} was refused: {seen.last('postdate-dead-reason')!r}"
            for seen in dead[sent.origin]
            if seen.last("postdate-dead-reason") not in _REFUSALS
        ]
    return wrong


def _by_origin(records: list[Seen]) -> dict[bytes, list[Seen]]:
    by_origin: dict[bytes, list[Seen]] = defaultdict(list)
    for seen in records:
        by_origin[seen.origin].append(seen)
    return by_origin


def _moved(outcome: Outcome) -> dict[bytes, int]:
    """Returns by origin the due time that the last control has given each moved request, according to the log."""
    last: dict[bytes, tuple[int, int]] = {}
    for seen, record in outcome.log:
        for fate in record.fates:
            if isinstance(fate, Moved):
                origin = b"%s/%d/%d" % (seen.topic.removesuffix(".dispatch-log").encode(), seen.partition, fate.offset)
                last[origin] = max(last.get(origin, (-1, -1)), (fate.control, fate.due_ms))
    return {origin: due_ms for origin, (_, due_ms) in last.items()}


_WIDE: Mapping[str, object] = {"allow": ["*"], "levels_ms": [2_000]}
_NARROW: Mapping[str, object] = {"allow": ["nothing"], "levels_ms": [2_000]}
_QUICK: Mapping[str, object] = {"allow": ["*"], "levels_ms": [500]}


@pytest.mark.parametrize(
    ("first", "second", "end"),
    [(_NARROW, _WIDE, DELIVERED), (_WIDE, _NARROW, DEAD), (_WIDE, _QUICK, DELIVERED)],
    ids=["allow list wider", "allow list narrower", "levels shorter"],
)
def test_an_owner_with_an_old_disk_applies_the_fates_of_others(
    deployment: SidecarDeployment, first: Mapping[str, object], second: Mapping[str, object], end: str
) -> None:
    requests, target = deployment.new_requests(1), deployment.new_target(1)
    sender = deployment.sender()

    def send(number: int) -> Sent:
        headers: Headers = [("n", b"%d" % number), (TOPIC, target.encode()), ("postdate-level", b"1")]
        return sender.send(requests, Sent(target, b"%d" % number, b"v", headers))

    requested = [send(number) for number in range(300)]
    sender.flush()
    old, new = (deployment.new_sidecar(topic=settings) for settings in (first, second))
    old.failpoints = "ingest.written=kill"
    old.start()
    old.wait()
    new.start()
    deployment.wait_for_ends(len(requested))
    assert new.stop() == 0
    old.failpoints = ""
    old.start()
    old.wait_for_shards(1)
    requested.append(send(300))
    sender.flush()
    deployment.wait_for_ends(len(requested))
    assert old.stop() == 0
    outcome = gather(deployment.bootstrap, deployment.requests, deployment.targets)
    assert _judge(outcome, requested) == []
    assert [outcome.fates[sent.origin][0][0] for sent in requested[:300]] == [end] * 300


# After a kill, a dynamic member gets other shards, and a static member keeps its shards.
@pytest.mark.timeout(1_800 + 20 * _KILLS + 2 * _SECONDS)
@pytest.mark.parametrize("members", ["dynamic", "static"])
def test_owners_with_different_settings_end_each_request_once(deployment: SidecarDeployment, members: str) -> None:
    seed = int(os.environ.get("POSTDATE_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
    print(f"seed {seed}: {_REQUESTS} requests over {_SECONDS:.0f} s, {_KILLS} kills")
    chance = random.Random(seed)
    requests = deployment.new_requests(_PARTITIONS)
    targets = [deployment.new_target(_PARTITIONS) for _ in range(2)]
    processes = [
        deployment.new_sidecar(static=members == "static", topic=_settings(chance, targets[0])) for _ in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.wait_for_shards(_PARTITIONS // 2)
    roller = threading.Thread(target=_roll, args=(processes, chance, targets[0]))
    roller.start()
    requested = _send(deployment, requests, targets, random.Random(seed + 1))
    roller.join()
    deployment.wait_for_ends(len(requested), WAIT_TIMEOUT_S + 5.0 * _KILLS + _SECONDS)
    assert [process.stop() for process in processes] == [0, 0]
    outcome = gather(deployment.bootstrap, deployment.requests, deployment.targets)
    wrong = _judge(outcome, requested)
    names = Counter(ends[0][0] for ends in outcome.fates.values())
    print(f"{dict(names)}, {dict(outcome.reasons())}, takeovers {outcome.takeovers()}, {len(_moved(outcome))} moved")
    assert not wrong, f"{len(wrong)} violations:\n" + "\n".join(wrong[:10])
    assert outcome.takeovers() > _PARTITIONS, "no shard was ever taken over: the run proves nothing"
    assert {DELIVERED, DEAD, CANCELLED, APPLIED} <= names.keys()
    partitions = {parse_origin(origin)[1] for origin in outcome.fates}
    assert len(partitions) == _PARTITIONS
    for process in processes:
        assert "HALTED" not in process.all_logs()
        assert "Traceback" not in process.all_logs()
