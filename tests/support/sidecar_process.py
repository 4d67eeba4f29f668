"""`postdate run` as a child process, as a person would start it: its words are read, its process id is known."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

ROOT = Path(__file__).resolve().parents[2]
_SOURCE_ROOTS = os.pathsep.join(str(ROOT / name) for name in ("sidecar", "wheel", "connectors"))
_STOP_TIMEOUT_S = 30.0


def postdate(*arguments: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Runs a command of Postdate to its end and returns it, output and exit code included."""
    return subprocess.run(
        _command(arguments), capture_output=True, text=True, timeout=timeout_s, check=False, env=_environment()
    )


class SidecarProcess:
    """One `postdate run`. Use as a context manager: whatever happens, the process has ended afterwards."""

    def __init__(self, bootstrap_servers: str, requests: Sequence[str], data_dir: Path, *more: str) -> None:
        arguments = ["run", "-b", bootstrap_servers, "--data", str(data_dir), *more]
        for name in requests:
            arguments += ["--requests", name]
        self.log: list[str] = []
        self._said: queue.Queue[str] = queue.Queue()
        self.process = subprocess.Popen(
            _command(arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment()
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._readers = [
            threading.Thread(target=self._listen, args=(self.process.stdout,), daemon=True),
            threading.Thread(target=self._read_log, args=(self.process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def wait_until(self, line: str, timeout_s: float = 60.0) -> None:
        """Returns when the process has printed `line` on stdout since the last call; fails with its log otherwise."""
        deadline = time.monotonic() + timeout_s
        heard: list[str] = []
        while line not in heard:
            try:
                heard.append(self._said.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                raise AssertionError(f"not said: {line!r}, but {heard}; log:\n" + "\n".join(self.log[-40:])) from None

    def stop(self) -> int:
        """Asks the process to stop and returns its exit code; one that does not obey is killed."""
        self.process.terminate()
        try:
            code = self.process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        for reader in self._readers:
            reader.join()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _listen(self, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                self._said.put(line.strip())

    def _read_log(self, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                self.log.append(line.rstrip())


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "postdate.sidecar.cli", *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": _SOURCE_ROOTS}
