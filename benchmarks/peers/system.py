"""The interface of a measured system, and the shared parts of the systems: programs, downloads, child processes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.peers.errors import PeerFailed
from postdate.tools.dev_broker.local_broker import with_parent_death_signal

CLIENTS = Path(__file__).with_name("clients")
#: The largest number of characters of a program's output in an error message.
WORDS_MAX = 600
#: Seconds: the limit of a download by Maven or Go, which may use a slow connection.
FETCH_TIMEOUT_S = 900.0
#: Seconds: the limit of a server's start, also after a SIGKILL.
START_TIMEOUT_S = 120.0

PACKAGES = {"java": "openjdk-17-jdk-headless", "javac": "openjdk-17-jdk-headless", "mvn": "maven", "go": "golang-go"}


@dataclass(frozen=True)
class Clients:
    """The command lines of the client programs for one target, and their environment.

    The caller appends three arguments to the sender's command line: the count; messages a second, 0 for as fast as
    possible; and the due time in epoch ms, 0 for one to five seconds after a message is sent.
    """

    sender: list[str]
    receiver: list[str]
    environment: dict[str, str]


class System(Protocol):
    """A running system that delays messages."""

    name: str
    version: str

    def target(self) -> AbstractContextManager[Clients]:
        """Returns a new, empty target that is served until the context ends."""
        ...

    def pending(self) -> int | None:
        """Returns the number of messages that the delaying process holds; None if the system does not report it."""
        ...

    def kill(self) -> None:
        """Kills the delaying process."""
        ...

    def restart(self) -> None:
        """Starts the delaying process again, on the same data."""
        ...


def need(program: str) -> str:
    """Returns the path of a program. Raises PeerFailed with the package to install if it is missing."""
    found = shutil.which(program)
    if found is None:
        raise PeerFailed(f"{program} is missing (Debian, Ubuntu: apt-get install {PACKAGES[program]})")
    return found


def run(command: list[str], what: str, *, directory: Path, environment: dict[str, str], timeout_s: float) -> str:
    """Runs a program to its end and returns its stdout. Raises PeerFailed with the end of its output if it fails."""
    try:
        done = subprocess.run(  # noqa: S603
            command, cwd=directory, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise PeerFailed(f"{what} did not end within {timeout_s:.0f} s") from error
    if done.returncode != 0:
        raise PeerFailed(f"{what} failed:\n{(done.stdout + done.stderr)[-WORDS_MAX:]}")
    return done.stdout


class Server:
    """A child process that listens on a port of the loopback interface."""

    def __init__(self, name: str, command: list[str], port: int, log: Path, environment: dict[str, str]) -> None:
        self._name, self._command, self._port = name, command, port
        self._log, self._environment = log, environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the process, and returns when it accepts connections. Raises PeerFailed if the process ends, or after
        START_TIMEOUT_S."""
        with self._log.open("ab") as words:
            self._process = subprocess.Popen(  # noqa: S603
                with_parent_death_signal(self._command),
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                env=self._environment,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise PeerFailed(f"{self._name} does not start:\n{self._log.read_text(errors='replace')[-WORDS_MAX:]}")
            try:
                socket.create_connection(("127.0.0.1", self._port), 1.0).close()
                return
            except OSError:
                time.sleep(0.02)

    def kill(self) -> None:
        """Kills the process, and waits until it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def environment(**more: str) -> dict[str, str]:
    """Returns the environment of this process with some variables set."""
    return {**os.environ, **more}
