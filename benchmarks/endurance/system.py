"""A broker with the options of Kafka's own scripts, and two sidecars that share the partitions.

The sidecars are static members of the group, each with its own data directory. So the shards of a killed sidecar wait
for its restart, and do not move to the other sidecar.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from click import ClickException

from benchmarks.conditions import ROOT
from postdate.sidecar.process.children import Child
from postdate.tools.bench.environment import BenchEnvironment, cpu_s, load_clients
from postdate.tools.dev_broker.local_broker import PRODUCTION_JVM, LocalBroker
from postdate.wheel.timing_wheel.wheel_view import WHEEL_NAME, present_snapshot

PARTITIONS = 4
"""Partitions of the request topic: two shards for each sidecar."""
TARGET_PARTITIONS = 4
SIDECARS = ("a", "b")
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20
_POLL_INTERVAL_S = 0.1
_START_S = 120.0
#: Records that are copied before the run, so that the JVM of the broker has compiled its code.
_WARM_UP_RECORDS = 300_000


class SystemFailed(ClickException):
    """A process has ended, or did not start. The error ends the command with its message."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The resources of one sidecar. `at_s`: seconds after the start of the load. `memory_mb`: without mapped files."""

    at_s: float
    sidecar: str
    memory_mb: float
    files: int
    disk_mb: float
    pending: int


class EnduranceSystem:
    """The broker, the topics and the sidecars, in `directory`; all end with `stack`."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory, self._stack = directory, stack
        broker = LocalBroker(0, directory / "broker", jvm=PRODUCTION_JVM)
        stack.callback(broker.kill)  # its data is not needed again
        broker.start()
        self.bootstrap, self._broker_pid = broker.bootstrap_servers, broker.pid
        clients = load_clients(self.bootstrap)
        environment = BenchEnvironment(clients, self.bootstrap, directory, stack, lambda _: None)
        with environment.run():
            environment.warm_up(_WARM_UP_RECORDS)
        self.requests, (self.target,) = environment.new_topics(1, PARTITIONS, TARGET_PARTITIONS)
        self._children: dict[str, Child] = {}
        self._starts = 0
        self._ended_cpu_s = 0.0

    def start(self) -> None:
        """Starts both sidecars, and waits until they serve all shards. Raises SystemFailed."""
        for name in SIDECARS:
            self._start(name)
        deadline = time.monotonic() + _START_S
        while sum(child.shards() for child in self._children.values()) < PARTITIONS:
            self.check()
            if time.monotonic() > deadline:
                raise SystemFailed("the sidecars do not serve all shards")
            time.sleep(_POLL_INTERVAL_S)

    def kill(self, name: str) -> int:
        """Kills a sidecar, and starts it again at once; returns the time, epoch ms."""
        child = self._children[name]
        self._ended_cpu_s += cpu_s(child.pid)
        child.kill()
        at_ms = time.time_ns() // 1_000_000
        self._start(name)
        return at_ms

    def stop(self) -> list[int]:
        """Stops the sidecars; returns their exit codes."""
        for child in self._children.values():
            child.stop()
        return [child.exit_code() for child in self._children.values()]

    def check(self) -> None:
        """Raises SystemFailed if a sidecar has ended."""
        for name, child in self._children.items():
            if not child.is_running():
                raise SystemFailed(f"sidecar {name} has ended; the end of its log:\n{child.log_tail()}")

    def samples(self, at_s: float) -> Iterator[Sample]:
        """Yields the resources of each sidecar now."""
        for name, child in self._children.items():
            process, data = Path(f"/proc/{child.pid}"), self._data(name)
            statm = (process / "statm").read_text().split()
            memory_mb, files = (int(statm[1]) - int(statm[2])) * _PAGE_MB, len(list((process / "fd").iterdir()))
            yield Sample(round(at_s, 1), name, round(memory_mb, 1), files, round(_disk_mb(data), 1), _pending(data))

    def cpu_s(self) -> dict[str, float]:
        """Returns the processor time of the broker and of all sidecars so far, s."""
        running = sum(cpu_s(child.pid) for child in self._children.values())
        return {"broker": cpu_s(self._broker_pid), "sidecars": self._ended_cpu_s + running}

    def logs(self) -> list[Path]:
        """Returns the logs of all sidecars."""
        return sorted(self._directory.glob("sidecar-*.log"))

    @contextmanager
    def program(self, module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Runs `python -m benchmarks.endurance.MODULE BOOTSTRAP ARGUMENTS`, which ends with the block."""
        command = [sys.executable, "-m", f"benchmarks.endurance.{module}", self.bootstrap, *arguments]
        paths = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
        with subprocess.Popen(  # noqa: S603
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths}
        ) as program:
            try:
                yield program
            finally:
                program.terminate()

    def _start(self, name: str) -> None:
        self._starts += 1
        arguments = ["run", "-b", self.bootstrap, "--requests", self.requests, "--data", str(self._data(name))]
        arguments += ["--group-id", self.requests, "--group-instance-id", name, "--instance", name, "--http-port", "0"]
        child = Child(f"sidecar-{name}{self._starts}", self._directory, arguments)
        self._stack.callback(child.stop)
        child.start()
        self._children[name] = child

    def _data(self, name: str) -> Path:
        return self._directory / f"data-{name}"


def _disk_mb(data: Path) -> float:
    """Returns the size of a directory on the disk, MiB. RocksDB may remove files meanwhile."""
    blocks = 0
    for path in data.rglob("*"):
        with suppress(FileNotFoundError):
            blocks += path.stat().st_blocks
    return blocks * 512 / 2**20


def _pending(data: Path) -> int:
    wheels = (present_snapshot(path.parent, complete=False) for path in data.rglob(WHEEL_NAME))
    return sum(wheel.count for wheel in wheels if wheel is not None)
