"""Runs Postdate's command line in a child process, or in this process, which saves the half second of imports."""

from __future__ import annotations

import os
import subprocess
import sys

from click.testing import CliRunner, Result

from postdate.cli import postdate as program
from support.repository import ROOT
from support.waiting.timeouts import WAIT_TIMEOUT_S


def call_postdate(*arguments: str) -> Result:
    """Runs a command in this process without POSTDATE_ variables; returns its exit code and output."""
    unset = {name: None for name in os.environ if name.startswith("POSTDATE_")}
    return CliRunner().invoke(program, arguments, env=unset)


def command_output(*arguments: str) -> str:
    """Returns what a command prints in this process; if it fails, the test fails with its error output."""
    done = call_postdate(*arguments)
    assert done.exit_code == 0, done.stderr or repr(done.exception)
    return done.stdout


def run_postdate(*arguments: str, timeout_s: float = WAIT_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    """Returns the finished process, with stdout and stderr as text."""
    return subprocess.run(
        _command(arguments), capture_output=True, text=True, timeout=timeout_s, check=False, env=environment()
    )


def start_postdate(*arguments: str) -> subprocess.Popen[str]:
    """Returns the running process, with stdout and stderr as text pipes; the caller ends it."""
    return subprocess.Popen(
        _command(arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )


def _command(arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "postdate.cli", *arguments]


def environment() -> dict[str, str]:
    """Returns the variables of a child process that runs this source tree."""
    path = os.pathsep.join(str(ROOT / source) for source in ("sidecar", "wheel", "connectors"))
    return {**os.environ, "PYTHONPATH": path}
