"""Goal: `postdate demo` shows what it promises: with a sidecar killed on the way, its own count and the audit find
every message delivered once, and nothing that it started outlives it.

Method: the command itself with few messages, as one child process, to its end. The slowest single test: it starts a
broker, three sidecars and Spark.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.deployments.command import run_postdate

#: s. Most of it is Java and Spark, which take many times as long on a machine that is slow and busy.
DEMO_TIMEOUT_S = 1_500.0


@pytest.mark.timeout(DEMO_TIMEOUT_S + 30)
def test_the_demo_delivers_everything_once_although_a_sidecar_is_killed() -> None:
    done = run_postdate("demo", "--messages", "400", "--seconds", "6", timeout_s=DEMO_TIMEOUT_S)

    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert re.search(r"killed sidecar-1 \(SIGKILL, process \d+\)", done.stdout), said
    assert "verdict: nothing lost, nothing repeated, nothing early" in done.stdout
    for pid in re.findall(r"started as process (\d+)", done.stdout):
        assert not _is_a_sidecar(int(pid)), f"process {pid} outlived the demo"


def _is_a_sidecar(pid: int) -> bool:
    """Whether the process runs and is one of Postdate's; its number may have been given to another meanwhile."""
    command = Path(f"/proc/{pid}/cmdline")
    return command.exists() and b"postdate" in command.read_bytes()
