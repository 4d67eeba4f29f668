"""The child processes of the demo, the benchmark and the test package. The output of each usually goes to files.

Each child runs in a separate session, so that Ctrl-C in the terminal reaches only the command, which then stops the
children in order. If `setpriv` is installed, the kernel sends each child SIGTERM if the command is killed.

Thread rule: main thread.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

#: Seconds: a process that has not ended within this time after SIGTERM is killed.
_STOP_TIMEOUT_S = 15.0
_LINES_SHOWN = 20
_RUNNING = re.compile(r"^running: (\d+) shards?$", re.MULTILINE)


class Child:
    """One command of Postdate as a process. Its stdout and stderr go to files in `directory`. With `show_stderr`, its
    stderr is that of this process."""

    def __init__(self, name: str, directory: Path, arguments: Sequence[str], *, show_stderr: bool = False) -> None:
        self.name = name
        self.stdout_file = directory / f"{name}.out"
        self.log_file = directory / f"{name}.log"
        self._arguments = arguments
        self._show_stderr = show_stderr
        self.was_killed = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id. REQUIRES: the process was started."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Starts the process; returns immediately."""
        command = [sys.executable, "-m", "postdate.cli", *self._arguments]
        setpriv = shutil.which("setpriv")
        if setpriv is not None:
            command = [setpriv, "--pdeathsig", "TERM", *command]
        with self.stdout_file.open("wb") as stdout, self.log_file.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=None if self._show_stderr else log,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )

    def is_running(self) -> bool:
        """True if the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def exit_code(self, timeout_s: float | None = None) -> int:
        """Waits for the end of the process and returns its exit code. Raises subprocess.TimeoutExpired."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def shards(self) -> int:
        """Returns the number of shards that a sidecar last reported as delivering."""
        reported = _RUNNING.findall(self.stdout_file.read_text()) if self.stdout_file.exists() else []
        return int(reported[-1]) if reported else 0

    def kill(self) -> None:
        """Sends SIGKILL to the process, so that it cannot clean up, and waits for its end."""
        self.was_killed = True
        os.kill(self.pid, signal.SIGKILL)
        self.exit_code()

    def kill_group(self) -> None:
        """Sends SIGKILL to the process and its children. Does nothing if it is not running."""
        if self.is_running():
            os.killpg(self.pid, signal.SIGKILL)  # it leads a process group, since it started its session
            self.exit_code()

    def stop(self) -> None:
        """Stops the process with SIGTERM, and kills it after a time-out. Does nothing if it has ended or was never
        started."""
        if self._process is None or not self.is_running():
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def log_tail(self) -> str:
        """Returns the last lines of its log, for an error message."""
        if not self.log_file.exists():
            return ""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-_LINES_SHOWN:])
