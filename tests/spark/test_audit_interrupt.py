"""Ctrl-C while an audit works. Goal: one sentence, exit code 1, and no process left.

Method: `postdate audit` as a process group of its own, as a terminal makes one; the signal goes to all of the group,
as a terminal sends it, once while Spark starts and once while it reads.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.bed import new_bed
from support.broker import RunningBroker
from support.patience import PATIENCE_S
from support.sidecars import wait_until

_ROOT = Path(__file__).resolve().parents[2]


def _members(group: int) -> list[str]:
    """The command lines of the processes of a group that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            command = stat.with_name("cmdline").read_text().replace("\0", " ")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(its_group) == group and state != "Z":
            found.append(command)
    return found


@pytest.mark.parametrize("moment", ["starting Spark", "reading requests"])
def test_interrupted_it_says_so_and_leaves_nothing(broker: RunningBroker, tmp_path: Path, moment: str) -> None:
    said = tmp_path / "stderr"
    with new_bed(broker.bootstrap_servers, tmp_path) as bed, said.open("wb") as stderr:
        requests = bed.new_requests(1)
        path = os.pathsep.join(str(_ROOT / source) for source in ("sidecar", "wheel", "connectors"))
        command = [sys.executable, "-m", "postdate.sidecar.cli", "audit", "-b", bed.bootstrap, "--requests", requests]
        audit = subprocess.Popen(
            [*command, "--spark-conf", "spark.driver.memory=1g"],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        try:
            wait_until(lambda: moment in said.read_text(), f"the audit says {moment!r}")
            if moment == "starting Spark":
                wait_until(lambda: any("java" in command for command in _members(audit.pid)), "its JVM has started")
            os.killpg(audit.pid, signal.SIGINT)
            stdout, _ = audit.communicate(timeout=PATIENCE_S)
        finally:
            audit.kill()
            audit.wait(PATIENCE_S)
    wait_until(lambda: not _members(audit.pid), f"nothing is left of {_members(audit.pid)}")
    assert (audit.returncode, stdout) == (1, b""), said.read_text()
    lines = said.read_text().splitlines()
    assert lines[-1] == "stopped; nothing was judged"
    assert not [line for line in lines if "Traceback" in line or "Error" in line or "Exception" in line], lines
