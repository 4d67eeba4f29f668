"""Real `postdate run` processes for tests: started, stopped, killed, paused and woken, and waited for.

A process writes its stdout and its log to files of its own, which is also where a failed test looks. Waiting means to
look at those files until a condition holds, with a deadline. Settings of the machine never leak in: every POSTDATE_
variable is taken out of the environment.
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

from support.timeouts import WAIT_TIMEOUT_S

_ROOT = Path(__file__).resolve().parents[2]
_RUNNING = re.compile(r"^running: (\d+) shards$", re.MULTILINE)

#: The shortest session time-out that a broker accepts by default: a member that was killed is missed soon.
QUICK_SESSION: Mapping[str, str] = {"session.timeout.ms": "6000"}


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_TIMEOUT_S) -> None:
    """Returns when the condition holds; fails with `what` where it does not come to hold in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(0.02)


def postdate(*arguments: str, timeout_s: float = WAIT_TIMEOUT_S) -> str:
    """What the program `postdate` prints; its failure is the test's, in its own words."""
    done = subprocess.run(_command(*arguments), capture_output=True, timeout=timeout_s, check=False, env=environment())
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode()


@dataclass
class Sidecar:
    """One `postdate run`; the same object started again is the same place with the same disk, as a new process.

    `static`: a member by name, which gets its partitions back at once when it is started again. `topic`: further
    settings of each request topic; `topics`: those of one alone, by its name. `data`: where its timer indexes lie, if
    not in a place of its own. `failpoints`: where its next process dies or stops (sidecar/failpoints.py). `http`: its
    port and so on; it serves none by default. `options`: further ones of the command line. `workers`: more than one are
    processes of their own, which only `stop` ends with it. `release`: where another version than this tree's is
    installed, which the next process then is.
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
    options: Sequence[str] = ()
    http: Mapping[str, object] = field(default_factory=lambda: {"port": 0})
    workers: int = 1
    release: Path | None = None
    starts: int = 0
    _process: subprocess.Popen[bytes] | None = None

    @property
    def data_dir(self) -> Path:
        """Where its timer indexes lie."""
        return self.data or self.directory / self.name / "data"

    @property
    def instance(self) -> str:
        """What its present process calls itself in the dispatch log."""
        return f"{self.name}-{self.starts}"

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    def start(self) -> None:
        """Returns at once; `wait_for_shards` says when it serves."""
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
            given = environment(self.release) | ({"POSTDATE_FAILPOINTS": self.failpoints} if self.failpoints else {})
            self._process = subprocess.Popen(command, stdout=stdout, stderr=log, env=given)

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def shards(self) -> int:
        """For how many shards it last said that it may deliver; 0 before it said anything."""
        said = _RUNNING.findall(self._stdout().read_text()) if self._stdout().exists() else []
        return int(said[-1]) if said else 0

    def wait_for_shards(self, count: int, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        def reached() -> bool:
            assert self.is_alive(), f"{self.name} ended by itself:\n{self.log_text()[-4000:]}"
            return self.shards() == count

        wait_until(reached, f"{self.name} delivers for {count} shards (see {self._log()})", timeout_s)

    def log_text(self) -> str:
        """What this process has logged so far."""
        return self._log().read_text(errors="replace") if self._log().exists() else ""

    def wait_for_log(self, pattern: str, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        wait_until(lambda: re.search(pattern, self.log_text()) is not None, f"{self.name} logs {pattern!r}", timeout_s)

    def all_logs(self) -> str:
        """The logs of all its processes one after the other."""
        paths = [self._log(number) for number in range(1, self.starts + 1)]
        return "".join(path.read_text(errors="replace") for path in paths if path.exists())

    def stop(self, timeout_s: float = WAIT_TIMEOUT_S) -> int:
        """SIGTERM, once the process handles it: one that has only begun to start is ended by the signal itself.
        Returns the exit code."""
        assert self._process is not None, f"{self.name} was not started"
        wait_until(lambda: not self.is_alive() or self._handles_sigterm(), f"{self.name} handles SIGTERM", timeout_s)
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout_s)

    def wait(self, timeout_s: float = WAIT_TIMEOUT_S) -> int:
        """Waits until it has ended by itself; returns the exit code."""
        assert self._process is not None, f"{self.name} was not started"
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL: what it was doing stays half done. Nothing happens where it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(WAIT_TIMEOUT_S)

    def pause(self) -> None:
        """SIGSTOP: no thread of it runs, and its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _handles_sigterm(self) -> bool:
        """Whether its handler is installed, by the mask that the kernel shows."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except FileNotFoundError:
            return False
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)
        return bool(caught >> (signal.SIGTERM - 1) & 1)

    def _toml(self) -> str:
        lines = [f"{name} = {value}" for name, value in self.dispatch.items()]
        served = [f"{name} = {json.dumps(value)}" for name, value in self.http.items()]
        text = "\n".join(["[dispatch]", *lines, "[http]", *served, "[kafka.consumer]"]) + "\n"
        text += "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in self.consumer.items())
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
    """That of this process, without settings of Postdate and with the sources of this tree, or with what is installed
    at `release` in their place."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("POSTDATE_")}
    roots = [_ROOT / source for source in ("sidecar", "wheel", "connectors")] if release is None else [release]
    return {**given, "PYTHONPATH": os.pathsep.join(map(str, roots))}
