"""The audit as its users start it, with Spark's compiler on; the other tests interpret the plans.

Goal: an audit that succeeds prints no error of Spark, and Spark compiles every plan. Method: a small handwritten
history has origins of most kinds. A separate process runs the command four times in one session, which it starts as the
command does, since starting a JVM takes longer than an audit. One audit is full, one begins with chunks as for a long
history, and two have a state. Spark logs to standard error if code does not compile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from postdate.spark.limits import CHUNKS_ROWS_MIN
from postdate.wire.headers import ACTION, ID
from support.audits.forged_topics import Forged
from support.audits.small_spark import SHORT_LIVED_JAVA
from support.brokers.broker import RunningBroker
from support.deployments.sidecar_deployment import new_deployment

_EACH = Counter(delivered=22, cancelled=1, applied=1, dead=1, pending=1, duplicate=1, overtaken=1)
_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
#: The argument has Java settings, since by default the JIT compiler would take longer than the audits. Each input line
#: is a list: the value of CHUNKS_ROWS_MIN, and the command.
_PROGRAM = """
import json, sys
from postdate.cli import postdate
from postdate.spark.audit import reading
from postdate.spark.session.start import spark_session
with spark_session(None, json.loads(sys.argv[1]), sys.stderr.write, with_delta=True):
    for line in sys.stdin:
        reading.CHUNKS_ROWS_MIN, command = json.loads(line)
        try:
            postdate(command)
        except SystemExit as end:
            print(end.code, flush=True)
"""


def _write(forged: Forged) -> None:
    """Adds the requests that `_EACH` counts."""
    first = forged.next
    for number in range(21):
        forged.sound(key=b"k%d" % number)
    id_ = (ID, b"c%d" % first)
    cancelled, control = forged.ask(id_), forged.ask((ACTION, b"cancel"), id_)
    forged.commit((cancelled, forged.due_ms, "cancelled"), (control, 0, "applied"))
    key, dues = b"order%d" % first, (forged.due_ms, forged.due_ms - 1_000)
    for offset, due_ms in [(forged.ask(key=key, at=due_ms), due_ms) for due_ms in dues]:
        forged.deliver(offset, key=key, at=due_ms)
        forged.commit((offset, due_ms, "delivered"))
    forged.deliver(forged.sound())
    forged.ask(at=int(time.time() * 1_000) + 86_400_000)
    dead = forged.ask()
    forged.bury(dead, "unknown-target")
    forged.commit((dead, forged.due_ms, "dead"))


@pytest.mark.timeout(1800)
def test_spark_compiles_every_plan_of_an_audit(broker: RunningBroker, tmp_path: Path) -> None:
    with new_deployment(broker.bootstrap_servers, tmp_path) as deployment, _started() as audits:
        forged = Forged.on(deployment)
        given = (
            "audit",
            "-b",
            deployment.bootstrap,
            "--requests",
            forged.requests,
            "--output",
            "json",
            "--slack",
            "1s",
        )
        state = (*given, "--state", str(tmp_path / "state"))
        _write(forged)
        for chunks_rows_min, command in ((CHUNKS_ROWS_MIN, given), (0, given), (CHUNKS_ROWS_MIN, state)):
            _check(audits, chunks_rows_min, command)
        _write(forged)
        _check(audits, CHUNKS_ROWS_MIN, state)
        _, errors = audits.communicate()
    assert audits.returncode == 0, errors
    assert "spark: " not in errors, errors


def _started() -> subprocess.Popen[str]:
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, json.dumps({_JAVA_OPTIONS: SHORT_LIVED_JAVA})],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **path},
    )


def _check(audits: subprocess.Popen[str], chunks_rows_min: int, command: tuple[str, ...]) -> None:
    """Asserts that an audit finds the duplicate."""
    assert audits.stdin is not None
    assert audits.stdout is not None
    audits.stdin.write(json.dumps([chunks_rows_min, command]) + "\n")
    audits.stdin.flush()
    output, exit_code = audits.stdout.readline(), audits.stdout.readline()
    assert exit_code == "4\n", audits.communicate()[1]
    result = json.loads(output)
    sys.stdout.write(f"judged in {result['seconds']} s\n")
    assert Counter({name: count for name, count in result["counts"].items() if count}) == _EACH
