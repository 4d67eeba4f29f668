"""Real `postdate run` processes for tests, with methods to start, stop, kill, pause and resume them.

A process writes its stdout and its log to separate files. The tests wait for conditions on these files, with a
deadline. Settings of the machine have no effect: every POSTDATE_ variable is removed from the environment.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support.repository import ROOT
from support.waiting.timeouts import WAIT_TIMEOUT_S

_RUNNING = re.compile(r"^running: (\d+) shards?$", re.MULTILINE)
_LINES_SHOWN = 30

#: The shortest session time-out that a broker accepts by default, so that the group soon detects a killed member.
QUICK_SESSION: Mapping[str, str] = {"session.timeout.ms": "6000"}


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_TIMEOUT_S) -> None:
    """Waits for a condition; fails with `what` after the time-out."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(0.02)


def postdate(*arguments: str, timeout_s: float = WAIT_TIMEOUT_S) -> str:
    """Returns the output of the program `postdate`; if it fails, the test fails with its error output."""
    done = subprocess.run(_command(*arguments), capture_output=True, timeout=timeout_s, check=False, env=environment())
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode()


@dataclass
class Sidecar:
    """One `postdate run` process. A restart uses the same disk.

    `static`: a static member, which gets its partitions back immediately after a restart. `topic`: further settings of
    all request topics; `topics`: further settings by request topic. `data`: the directory of the timer indexes, if it
    is shared. `failpoints`: where the next process dies or stops (sidecar/failpoints.py). `http`: the settings of its
    HTTP port; if empty, it has none. `options`: further options of the command line. `workers`: the number of worker
    processes; if there are several, only `stop` ends them. `group_protocol`: if it is `consumer`, the broker sets the
    session time-out (`tools/dev_broker/properties.py`), not the field `consumer`. `traces`: as in the configuration.
    `environment`: further variables. `format_version`: 2 accepts the headers of format 2. `release`: the directory of
    another installed version, for the next process.
    """

    name: str
    bootstrap: str
    requests: Sequence[str]
    directory: Path
    group_id: str
    dispatch: Mapping[str, int] = field(default_factory=dict)
    common: Mapping[str, str] = field(default_factory=dict)
    consumer: Mapping[str, str] = field(default_factory=lambda: QUICK_SESSION)
    producer: Mapping[str, str] = field(default_factory=dict)
    allow: Sequence[str] = ("*",)
    static: bool = False
    topic: Mapping[str, object] = field(default_factory=dict)
    topics: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    data: Path | None = None
    failpoints: str = ""
    group_protocol: str = "classic"
    traces: str = "off"
    environment: Mapping[str, str] = field(default_factory=dict)
    format_version: int = 1
    options: Sequence[str] = ()
    http: Mapping[str, object] = field(default_factory=lambda: {"port": 0})
    workers: int = 1
    release: Path | None = None
    starts: int = 0
    _process: subprocess.Popen[bytes] | None = None

    @property
    def data_dir(self) -> Path:
        """The directory of the timer indexes."""
        return self.data or self.directory / self.name / "data"

    @property
    def instance(self) -> str:
        """The name of the present process in the dispatch log."""
        return f"{self.name}-{self.starts}"

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    def start(self) -> None:
        """Starts a process and returns immediately; `wait_for_shards` waits until it serves."""
        assert not self.is_alive(), f"{self.name} runs already"
        self.starts += 1
        self.data_dir.mkdir(parents=True, exist_ok=True)
        config = self.directory / self.name / "postdate.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(self._toml())
        command = _command("run", "-b", self.bootstrap, "--config", str(config), release=self.release)
        command += ["--data", str(self.data_dir)]
        command += ["--group-id", self.group_id, "--instance", self.instance]
        if self.workers > 1:
            command += ["--workers", str(self.workers)]
        if self.static:
            command += ["--group-instance-id", self.name]
        command += self.options
        with self._stdout().open("wb") as stdout, self._log().open("wb") as log:
            given = environment(self.release) | dict(self.environment)
            if self.failpoints:
                given["POSTDATE_FAILPOINTS"] = self.failpoints
            self._process = subprocess.Popen(command, stdout=stdout, stderr=log, env=given)

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def shards(self) -> int:
        """Returns the number of shards for which the process delivers, by its last report; 0 before the first
        report."""
        counts = _RUNNING.findall(self._stdout().read_text()) if self._stdout().exists() else []
        return int(counts[-1]) if counts else 0

    def wait_for_shards(self, count: int, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        def reached() -> bool:
            assert self.is_alive(), f"{self.name} ended by itself:\n{self.log_text()[-4000:]}"
            return self.shards() == count

        wait_until(reached, f"{self.name} delivers for {count} shards (see {self._log()})", timeout_s)

    def log_text(self) -> str:
        """Returns the log of the present process so far."""
        return self._log().read_text(errors="replace") if self._log().exists() else ""

    def state_and_log_end(self) -> str:
        """Returns the state of the process and the end of its log, for the report of a failed test."""
        ended = None if self._process is None else self._process.poll()
        state = f"it ended with {ended}" if ended is not None else "it runs, or was never started"
        return "\n".join([*self.log_text().splitlines()[-_LINES_SHOWN:], state])

    def wait_for_log(self, pattern: str, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        wait_until(lambda: re.search(pattern, self.log_text()) is not None, f"{self.name} logs {pattern!r}", timeout_s)

    def all_logs(self) -> str:
        """Returns the logs of all processes of this sidecar, in order."""
        paths = [self._log(number) for number in range(1, self.starts + 1)]
        return "".join(path.read_text(errors="replace") for path in paths if path.exists())

    def stop(self, timeout_s: float = WAIT_TIMEOUT_S) -> int:
        """Sends SIGTERM and returns the exit code. First waits until the process handles the signal, which would
        otherwise kill a process that is still starting."""
        assert self._process is not None, f"{self.name} was not started"
        wait_until(lambda: not self.is_alive() or self._handles_sigterm(), f"{self.name} handles SIGTERM", timeout_s)
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout_s)

    def wait(self, timeout_s: float = WAIT_TIMEOUT_S) -> int:
        """Waits until the process exits; returns the exit code."""
        assert self._process is not None, f"{self.name} was not started"
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """Sends SIGKILL if it runs; its work stays incomplete."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(WAIT_TIMEOUT_S)

    def pause(self) -> None:
        """Sends SIGSTOP: none of its threads runs, and its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _handles_sigterm(self) -> bool:
        """True if the process has installed a handler for SIGTERM, according to the kernel."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except FileNotFoundError:
            return False
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)
        return bool(caught >> (signal.SIGTERM - 1) & 1)

    def _toml(self) -> str:
        lines = [f"{name} = {value}" for name, value in self.dispatch.items()]
        served = [f"{name} = {json.dumps(value)}" for name, value in self.http.items()]
        top = [f"format_version = {self.format_version}"] if self.format_version > 1 else []
        if self.traces != "off":
            top.append(f"traces = {json.dumps(self.traces)}")
        consumer = dict(self.consumer)
        if self.group_protocol != "classic":
            top.append(f"group_protocol = {json.dumps(self.group_protocol)}")
            consumer.pop("session.timeout.ms", None)
        text = "\n".join([*top, "[dispatch]", *lines, "[http]", *served, "[kafka.consumer]"]) + "\n"
        text += "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in consumer.items())
        text += "[kafka.common]\n"
        text += "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in self.common.items())
        text += "[kafka.producer]\n"
        text += "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in self.producer.items())
        for topic in self.requests:
            text += f"[[request_topics]]\nname = {json.dumps(topic)}\n"
            settings = {"allow": list(self.allow), **self.topic, **self.topics.get(topic, {})}
            text += "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
        return text

    def _stdout(self) -> Path:
        return self.directory / self.name / f"stdout-{self.starts}"

    def _log(self, number: int = 0) -> Path:
        return self.directory / self.name / f"log-{number or self.starts}"


def _command(*arguments: str, release: Path | None = None) -> list[str]:
    is_old = release is not None and not (release / "postdate" / "cli").exists()
    return [sys.executable, "-m", "postdate.sidecar.cli" if is_old else "postdate.cli", *arguments]


def environment(release: Path | None = None) -> dict[str, str]:
    """Returns the environment of this process without settings of Postdate, with this tree's sources or the version
    installed at `release`."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("POSTDATE_")}
    roots = [ROOT / source for source in ("sidecar", "wheel", "connectors")] if release is None else [release]
    return {**given, "PYTHONPATH": os.pathsep.join(map(str, roots))}
