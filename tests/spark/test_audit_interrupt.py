"""Signals while an audit works. Goal: one sentence, the right exit code, and no process left.

Method: `postdate audit` runs in a separate process group, as a terminal starts it. The group gets Ctrl-C once while
Spark starts and once while it reads: exit code 1, since nothing was judged. An audit with `--follow` gets SIGTERM, as
in a pod that stops: exit code 0, its normal end. Spark's directory `artifacts` is gone as well, unless it existed
before.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.audits.small_spark import SMALL_SPARK
from support.brokers.broker import RunningBroker
from support.deployments.sidecar_deployment import new_deployment
from support.deployments.sidecars import wait_until
from support.repository import ROOT
from support.waiting.timeouts import WAIT_TIMEOUT_S


def _members(group: int) -> list[str]:
    """Returns the command lines of the running processes of a group."""
    commands = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            command = stat.with_name("cmdline").read_text().replace("\0", " ")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(its_group) == group and state != "Z":
            commands.append(command)
    return commands


_STOPPED = "stopped; nothing was judged"
_FOLLOWED = "stopped; the next run continues after the last step"


@pytest.mark.parametrize(
    ("stage", "follows", "code", "sentence"),
    [
        ("starting Spark", False, 1, _STOPPED),
        ("reading requests", False, 1, _STOPPED),
        ("comparing requests", True, 0, _FOLLOWED),
    ],
)
def test_an_interrupted_audit_prints_one_sentence_and_leaves_no_process(
    broker: RunningBroker, tmp_path: Path, stage: str, follows: bool, code: int, sentence: str
) -> None:
    errors, work = tmp_path / "stderr", tmp_path / "work"
    existing = [work / "artifacts"] if stage == "reading requests" else []
    for directory in (work, *existing):
        directory.mkdir()
    with new_deployment(broker.bootstrap_servers, tmp_path) as deployment, errors.open("wb") as stderr:
        requests = deployment.new_requests(1)
        path = os.pathsep.join(str(ROOT / source) for source in ("sidecar", "wheel", "connectors"))
        command = [sys.executable, "-m", "postdate.cli", "audit", "-b", deployment.bootstrap, "--requests", requests]
        command += ["--follow", "--state", str(tmp_path / "state")] if follows else []
        settings = {**SMALL_SPARK, "spark.driver.memory": "1g"}
        audit = subprocess.Popen(
            [*command, *(word for name, value in settings.items() for word in ("--spark-conf", f"{name}={value}"))],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "PYTHONPATH": path},
            cwd=work,
            start_new_session=True,
        )
        try:
            wait_until(lambda: stage in errors.read_text(), f"the audit prints {stage!r}")
            if stage == "starting Spark":
                wait_until(lambda: any("java" in command for command in _members(audit.pid)), "its JVM has started")
            if follows:
                audit.send_signal(signal.SIGTERM)
            else:
                os.killpg(audit.pid, signal.SIGINT)
            stdout, _ = audit.communicate(timeout=WAIT_TIMEOUT_S)
        finally:
            audit.kill()
            audit.wait(WAIT_TIMEOUT_S)
    wait_until(lambda: not _members(audit.pid), f"nothing is left of {_members(audit.pid)}")
    assert (audit.returncode, stdout) == (code, b""), errors.read_text()
    assert list(work.iterdir()) == existing
    lines = errors.read_text().splitlines()
    assert lines[-1] == sentence
    assert not [line for line in lines if "Traceback" in line or "Error" in line or "Exception" in line], lines
