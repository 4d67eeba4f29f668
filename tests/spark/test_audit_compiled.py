"""The audit as its users start it, with Spark's compiler on; the other tests interpret the plans.

Goal: an audit prints no error of Spark's unless it fails, and Spark compiles every plan. Method: a small history that
was written by hand has origins of most kinds. The command runs in a separate process: one full audit, one that begins
with chunks as for a long history, and two with a state. Spark logs to standard error, also if code does not compile.
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

from postdate.wire.headers import ACTION, ID
from support.bed import new_bed
from support.broker import RunningBroker
from support.command import run_postdate
from support.forged import Forged

_TIMEOUT_S = 400.0
_EACH = Counter(delivered=22, cancelled=1, applied=1, dead=1, pending=1, duplicate=1, overtaken=1)
_IN_STAGES = (
    "from postdate.spark.audit import reading; reading.CHUNKS_ROWS_MIN = 0; "
    "from postdate.cli import postdate; postdate()"
)


def _write(forged: Forged) -> None:
    """Adds what `_EACH` counts."""
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
    with new_bed(broker.bootstrap_servers, tmp_path) as bed:
        forged = Forged.on(bed)
        given = ("audit", "-b", bed.bootstrap, "--requests", forged.requests, "--output", "json", "--slack", "1s")
        _write(forged)
        _check(run_postdate(*given, timeout_s=_TIMEOUT_S), _EACH)
        _check(_run_in_stages(*given), _EACH)
        state = ("--state", str(tmp_path / "state"))
        _check(run_postdate(*given, *state, timeout_s=_TIMEOUT_S), _EACH)
        _write(forged)
        _check(run_postdate(*given, *state, timeout_s=_TIMEOUT_S), _EACH)


def _run_in_stages(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, for which no history is short."""
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _IN_STAGES, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, env={**os.environ, **path}
    )


def _check(done: subprocess.CompletedProcess[str], counts: Counter[str]) -> None:
    """Asserts that an audit found the duplicate, and that Spark logged nothing."""
    assert "spark: " not in done.stderr, done.stderr
    assert done.returncode == 4, done.stderr
    found = json.loads(done.stdout)
    sys.stdout.write(f"judged in {found['seconds']} s\n")
    assert Counter({name: count for name, count in found["counts"].items() if count}) == counts
