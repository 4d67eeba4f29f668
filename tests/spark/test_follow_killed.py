"""An audit that follows, killed and started again beside live traffic.

Goal: `postdate audit --follow` says nothing false of what sidecars do, whatever dies, leaves nothing out, and names a
duplicate and a loss soon after they were made.
Method: a sidecar delivers a steady load on a real broker; the audit runs as the process that a person would start.
Both are killed with SIGKILL, the audit with its JVM, at moments that a seed chooses, and started again. Then a
delivered record is produced a second time by hand, and on a request topic that no sidecar serves a dispatch log says of
a request that it was delivered. In the end the verdicts of all steps together must be those of every request.
POSTDATE_TEST_FOLLOW_KILLS=N kills N times instead of once, and waits for a step in between.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from postdate.connectors.wire.dispatch_log import DELIVERED, OWNER, DispatchRecord, encode_record
from postdate.connectors.wire.headers import ACTION, AT, DELAY, ID, TOPIC
from support.bed import Bed, new_bed
from support.broker import RunningBroker
from support.oracle import Sent, gather
from support.sidecars import environment, wait_until
from support.small_spark import SMALL_SPARK

_KILLS = int(os.environ.get("POSTDATE_TEST_FOLLOW_KILLS", "1"))
_SEED = 8
#: s. What a step may take on a machine that is busy with other things, a JVM's start included.
_STEP_S = 300.0


@dataclass
class Follower:
    """`postdate audit --follow`, process after process with one state."""

    bed: Bed
    directory: Path
    starts: int = 0
    _process: subprocess.Popen[bytes] | None = None
    told: list[dict[str, Any]] = field(default_factory=list)

    def start(self) -> None:
        self.starts += 1
        command = [sys.executable, "-m", "postdate.sidecar.cli", "audit", "-b", self.bed.bootstrap, "--follow"]
        command += ["--state", str(self.directory / "state"), "--every", "1s", "--output", "json"]
        command += [word for name in self.bed.requests for word in ("--requests", name)]
        command += ["--master", "local[2]"]
        command += [word for name, value in SMALL_SPARK.items() for word in ("--spark-conf", f"{name}={value}")]
        with self._file("stdout").open("wb") as output, self._file("stderr").open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=errors, env=environment(), start_new_session=True
            )

    def kill(self) -> None:
        """SIGKILL for it and its JVM: whatever it was doing stays half done."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)
            self.told += self._said()
            self._process = None

    def steps(self) -> list[dict[str, Any]]:
        """All steps that any of the processes has told; one that was told twice has the same `run` twice."""
        return self.told + (self._said() if self._process is not None else [])

    def wait_for(self, steps: int) -> None:
        """Returns when so many more steps were told than now."""
        wanted = len(self.steps()) + steps

        def reached() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, self._file("stderr").read_text()[-4_000:]
            return len(self.steps()) >= wanted

        wait_until(reached, f"{steps} more steps are told, see {self._file('stderr')}", _STEP_S)

    def _said(self) -> list[dict[str, Any]]:
        whole = self._file("stdout").read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def _file(self, stream: str) -> Path:
        return self.directory / f"follow-{self.starts}.{stream}"


class Traffic:
    """Requests one after the other until it is stopped: plain ones, and ids that are cancelled, moved and replaced."""

    def __init__(self, bed: Bed, requests: str, target: str) -> None:
        self.sent: list[Sent] = []
        self._bed, self._requests, self._target = bed, requests, target
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic")
        self._thread.start()

    def stop(self) -> int:
        """How many requests it has made."""
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        return len(self.sent)

    def _run(self) -> None:
        sender, number = self._bed.sender(), 0
        while not self._stopping.wait(0.1):
            self.sent += [sender.send(self._requests, one) for one in self._asked(number)]
            number += 1
        sender.flush()

    def _asked(self, number: int) -> list[Sent]:
        topic, id = (TOPIC, self._target.encode()), b"id-%d" % number
        schedule = [topic, (DELAY, b"%dms" % (number % 20 * 100)), (ID, id)]
        later: list[list[tuple[str, bytes | None]]] = [
            [(ACTION, b"cancel"), (ID, id)],
            [(ACTION, b"reschedule"), (ID, id), (DELAY, b"1s")],
            [topic, (DELAY, b"1s"), (ID, id)],
        ]
        plain = Sent(self._target, b"%d" % number, b"v", [topic, (DELAY, b"%dms" % (number % 7 * 300))])
        return [
            plain,
            Sent(self._target, id, b"first", [*schedule]),
            Sent(self._target, id, b"then", later[number % 3]),
        ]


@contextmanager
def following(bed: Bed, directory: Path) -> Iterator[Follower]:
    follower = Follower(bed, directory)
    follower.start()
    try:
        yield follower
    finally:
        follower.kill()


def _forge_duplicate(bed: Bed, requests: str) -> str:
    """A delivered record once more; returns its origin."""
    one = gather(bed.bootstrap, [requests], bed.targets).delivered[0]
    producer = Producer({"bootstrap.servers": bed.bootstrap})
    producer.produce(one.topic, one.value, one.key, one.partition, headers=[*one.headers])
    assert producer.flush(30) == 0
    return one.origin.decode()


def _forge_loss(bed: Bed, requests: str, target: str) -> str:
    """A request whose dispatch log says that it was delivered; returns its origin."""
    producer, due_ms = Producer({"bootstrap.servers": bed.bootstrap}), int(time.time() * 1_000) - 1_000
    producer.produce(requests, b"v", b"k", 0, headers=[(TOPIC, target.encode()), (AT, b"%d" % due_ms)])
    assert producer.flush(30) == 0
    record = DispatchRecord(
        seq=1, takeover=1, instance="a", group="g", at=due_ms, next_request=1, low_water=0, kind=OWNER
    )
    fates = DispatchRecord(
        seq=2,
        takeover=1,
        instance="a",
        group="g",
        at=due_ms,
        next_request=1,
        low_water=1,
        fates=[(0, due_ms, DELIVERED)],
    )
    for one in (record, fates):
        producer.produce(f"{requests}.dispatch-log", encode_record(one), partition=0)
    assert producer.flush(30) == 0
    return f"{requests}/0/0"


@pytest.mark.timeout(900 + 2 * _STEP_S * _KILLS)  # JVMs start and plan on a machine that does other things
def test_killed_again_and_again_it_says_what_is_so(broker: RunningBroker, tmp_path: Path) -> None:
    chance = random.Random(_SEED)
    with new_bed(broker.bootstrap_servers, tmp_path) as bed:
        requests, target = bed.new_requests(2), bed.new_target(2)
        sidecar = bed.new_sidecar()
        silent = bed.new_requests(1)
        sidecar.start()
        sidecar.wait_for_shards(2)
        traffic = Traffic(bed, requests, target)
        try:
            with following(bed, tmp_path) as follower:
                for _ in range(_KILLS):
                    follower.wait_for(1)
                    time.sleep(chance.uniform(0.0, 3.0))  # where in its step it dies is the seed's to say
                    follower.kill()
                    sidecar.kill()
                    sidecar.start()
                    follower.start()
                follower.wait_for(1)
                told = follower.steps()
                assert [one for one in told if one["violations"]] == []
                began_s = time.monotonic()
                duplicate, loss = _forge_duplicate(bed, requests), _forge_loss(bed, silent, target)

                def named() -> dict[str, set[str]]:
                    samples = [one["samples"] for one in follower.steps()]
                    verdicts = {name for some in samples for name in some}
                    return {
                        name: {row["origin"] for some in samples for row in some.get(name, [])} for name in verdicts
                    }

                expected = {"duplicate": {duplicate}, "missing": {loss}, "contradiction": {loss}}
                wait_until(lambda: named() == expected, f"named what was forged: {expected}", _STEP_S)
                print(f"named after {time.monotonic() - began_s:.1f} s, {len(follower.steps())} steps")

                asked = traffic.stop()
                bed.wait_for_ends(asked + 1)
                follower.wait_for(2)
                steps = follower.steps()
        finally:
            traffic.stop()
        assert named() == expected
        runs = [one["state"]["run"] for one in steps]
        assert sorted(set(runs)) == [*range(1, max(runs) + 1)], "no step is left out"
        assert runs == sorted(runs)
        last = steps[-1]["state"]
        judged = {name: count for name, count in last["counts"].items() if count}
        assert {name: judged.pop(name) for name in expected} == {"duplicate": 1, "missing": 1, "contradiction": 1}
        assert (sum(judged.values()), last["open"]) == (asked - 1, 0), "every request has its verdict"
