"""Runs `postdate audit --follow` as a user starts it, one process after another with one state, under a steady load.

The steps are read from the files to which the processes write their standard output. A process and its JVM are one
group, and end together. Only the load runs in a separate thread.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from postdate.wire.headers import ACTION, DELAY, ID, TOPIC
from support.audits.small_spark import SMALL_SPARK
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import environment, wait_until
from support.oracles.exactly_once import Sent

#: Seconds: the longest time of a step on a busy machine, including the start of a JVM.
STEP_S = 300.0
_COMMIT = re.compile(r"([0-9]{20})\.json")


@dataclass
class AuditFollower:
    """The follower processes, of which one runs at a time. They also report to `topic`."""

    deployment: SidecarDeployment
    directory: Path
    topic: str
    starts: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _reported_steps: list[dict[str, Any]] = field(default_factory=list)
    _read_bytes: int = 0

    @property
    def state(self) -> Path:
        return self.directory / "state"

    def start(self) -> None:
        self.starts += 1
        self._read_bytes = 0
        command = [sys.executable, "-m", "postdate.cli", "audit", "-b", self.deployment.bootstrap, "--follow"]
        command += ["--state", str(self.state), "--every", "1s", "--output", "json", "--to-topic", self.topic]
        command += [word for name in self.deployment.requests for word in ("--requests", name)]
        command += ["--master", "local[2]"]
        command += [word for name, value in SMALL_SPARK.items() for word in ("--spark-conf", f"{name}={value}")]
        with self._file("stdout").open("wb") as output, self._file("stderr").open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=errors, env=environment(), start_new_session=True
            )

    def kill(self) -> None:
        """Kills the process and its JVM with SIGKILL, whatever they are doing."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)
            self.steps()
            self._process = None

    def steps(self) -> list[dict[str, Any]]:
        """Returns all steps that any process has reported. A step that was reported twice has the same `run` twice."""
        if self._process is not None:
            with self._file("stdout").open("rb") as output:
                output.seek(self._read_bytes)
                whole = output.read().rpartition(b"\n")[:2]
            self._read_bytes += sum(map(len, whole))
            self._reported_steps += [json.loads(line) for line in whole[0].splitlines()]
        return self._reported_steps

    def wait_for(self, steps: int) -> None:
        """Waits until `steps` more steps are reported."""
        wanted = len(self.steps()) + steps

        def reached() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, self._file("stderr").read_text()[-4_000:]
            return len(self.steps()) >= wanted

        wait_until(reached, f"{steps} more steps are told, see {self._file('stderr')}", steps * STEP_S)

    def kept(self) -> int:
        """Returns the number of the last run that committed, or 0 if none has committed.

        Each run is one commit of the table `runs`. The first commit of the table only creates it.
        """
        found = (_COMMIT.fullmatch(path.name) for path in self.state.glob("runs/_delta_log/*.json"))
        return max((int(match[1]) for match in found if match is not None), default=0)

    def _file(self, stream: str) -> Path:
        return self.directory / f"follow-{self.starts}.{stream}"


@contextmanager
def following(deployment: SidecarDeployment, directory: Path, topic: str) -> Iterator[AuditFollower]:
    """Yields a running follower, and kills it at the end of the context."""
    follower = AuditFollower(deployment, directory, topic)
    follower.start()
    try:
        yield follower
    finally:
        follower.kill()


class FollowedTraffic:
    """Sends requests until it is stopped: plain requests, and requests that are later cancelled, moved or replaced by
    id."""

    def __init__(self, deployment: SidecarDeployment, requests: str, target: str) -> None:
        self._env, self._requests, self._target = deployment, requests, target
        self._sent = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic")
        self._thread.start()

    def stop(self) -> int:
        """Stops the traffic, and returns the number of its requests, which Kafka has all acknowledged."""
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self._sent

    def _run(self) -> None:
        sender, number = self._env.sender(), 0
        while not self._stopping.wait(0.25):
            for request in self._next_requests(number):
                sender.send(self._requests, request)
                self._sent += 1
            number += 1
        sender.flush()

    def _next_requests(self, number: int) -> list[Sent]:
        topic, id = (TOPIC, self._target.encode()), b"id-%d" % number
        first = [topic, (DELAY, b"%dms" % (number % 20 * 100)), (ID, id)]
        later: list[list[tuple[str, bytes | None]]] = [
            [(ACTION, b"cancel"), (ID, id)],
            [(ACTION, b"reschedule"), (ID, id), (DELAY, b"1s")],
            [topic, (DELAY, b"1s"), (ID, id)],
        ]
        return [
            Sent(self._target, b"%d" % number, b"v", [topic, (DELAY, b"%dms" % (number % 7 * 300))]),
            Sent(self._target, id, b"first", [*first]),
            Sent(self._target, id, b"then", later[number % 3]),
        ]


@contextmanager
def traffic(deployment: SidecarDeployment, requests: str, target: str) -> Iterator[FollowedTraffic]:
    """Yields running traffic, and stops it at the end of the context."""
    load = FollowedTraffic(deployment, requests, target)
    try:
        yield load
    finally:
        load.stop()
