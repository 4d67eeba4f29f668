"""A command of Postdate: as a child process, run to its end whatever its exit code or started and left to the test; or
in this process, which spares the half second that a new one takes to import everything."""

from __future__ import annotations

import os
import subprocess
import sys

from click.testing import CliRunner, Result

from postdate.cli import postdate as program
from support.repository import ROOT
from support.waiting.timeouts import WAIT_TIMEOUT_S


def call_postdate(*arguments: str) -> Result:
    """The command in this process, without settings from the environment; the exit code and what it said."""
    unset = {name: None for name in os.environ if name.startswith("POSTDATE_")}
    return CliRunner().invoke(program, arguments, env=unset)


def said_by(*arguments: str) -> str:
    """What the command prints in this process; its failure is the test's, in its own words."""
    done = call_postdate(*arguments)
    assert done.exit_code == 0, done.stderr or repr(done.exception)
    return done.stdout


def run_postdate(*arguments: str, timeout_s: float = WAIT_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    """The finished process, with stdout and stderr as text."""
    return subprocess.run(
        _command(arguments), capture_output=True, text=True, timeout=timeout_s, check=False, env=environment()
    )


def start_postdate(*arguments: str) -> subprocess.Popen[str]:
    """The process, with stdout and stderr as pipes of text; whoever starts it ends it."""
    return subprocess.Popen(
        _command(arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )


def _command(arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "postdate.cli", *arguments]


def environment() -> dict[str, str]:
    """The variables of a child process that runs this tree."""
    path = os.pathsep.join(str(ROOT / source) for source in ("sidecar", "wheel", "connectors"))
    return {**os.environ, "PYTHONPATH": path}
