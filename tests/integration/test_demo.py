"""Goal: `postdate demo` kills a sidecar, and its count and the audit still find every message delivered once. No
process that it starts outlives it.

Method: the test runs the command with few messages as a child process until it ends. It is the slowest single test,
since it starts a broker, three sidecars and Spark.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.deployments.command import run_postdate

#: Seconds: Java and Spark take most of the time, and much longer on a slow and busy machine.
DEMO_TIMEOUT_S = 1_500.0


@pytest.mark.timeout(DEMO_TIMEOUT_S + 30)
def test_the_demo_delivers_everything_once_although_a_sidecar_is_killed() -> None:
    done = run_postdate("demo", "--messages", "400", "--seconds", "6", timeout_s=DEMO_TIMEOUT_S)

    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert re.search(r"killed sidecar-1 \(SIGKILL, process \d+\)", done.stdout), output
    assert "verdict: nothing lost, nothing repeated, nothing early" in done.stdout
    for pid in re.findall(r"started as process (\d+)", done.stdout):
        assert not _is_a_sidecar(int(pid)), f"process {pid} outlived the demo"


def _is_a_sidecar(pid: int) -> bool:
    """True if a sidecar with this process id runs. Another program may have got the id of a sidecar that has ended."""
    command = Path(f"/proc/{pid}/cmdline")
    return command.exists() and b"postdate" in command.read_bytes()
