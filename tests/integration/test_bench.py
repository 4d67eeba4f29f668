"""Goal: a small run of `postdate bench` ends, and its figures are consistent.

Method: the test runs the command with a thousand messages on the broker of the tests, and checks its JSON output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from confluent_kafka.admin import AdminClient

from support.brokers.broker import RunningBroker
from support.repository import ROOT
from support.waiting.timeouts import WAIT_TIMEOUT_S


def test_each_kind_of_case_gives_its_figures(broker: RunningBroker, tmp_path: Path) -> None:
    chart = tmp_path / "chart.html"
    command = [sys.executable, "-m", "postdate.cli", "bench", "through", "scale", "steady 100/s"]
    command += ["schedules once", "schedules 100/s"]
    command += ["-b", broker.bootstrap_servers, "--messages", "1000", "--seconds", "2"]
    command += ["--repeats", "1", "--repeats-max", "1"]
    paths = os.pathsep.join(str(ROOT / source) for source in ("sidecar", "wheel", "connectors"))

    done = subprocess.run(
        [*command, "--output", "json", "--chart", str(chart)],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert "Traceback" not in done.stderr
    assert "ended unexpectedly" not in done.stderr
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    through, steady = report["cases"]["through"], report["cases"]["steady 100/s"]
    assert through["of_copy_share"]["median"] == through["records_per_s"]["median"] / through["copy_per_s"]["median"]
    assert steady["early"]["median"] == 0
    assert steady["arrival_p99_of_raw_share"]["median"] > 0
    assert steady["raw_transactions_per_s"]["median"] > 1
    assert 0 < through["sidecar_cpu_us"]["median"] < 1e6
    assert 0 <= steady["commit_p50_ms"]["median"] < steady["arrival_most_ms"]["median"]
    schedules, beside = report["cases"]["schedules once"], report["cases"]["schedules 100/s"]
    assert schedules["occurrences_per_s"]["median"] > 0
    assert 0 <= schedules["commit_p50_ms"]["median"] < schedules["commit_most_ms"]["median"]
    p99_ms = [beside[name]["median"] for name in ("occurrence_p99_ms", "message_p99_ms")]
    assert beside["occurrence_of_message_p99_share"]["median"] == p99_ms[0] / p99_ms[1]
    scale = report["cases"]["scale"]
    assert scale["with_1_per_s"]["median"] > 0
    if "with_2_per_s" in scale:  # not measured on a machine with one core
        shares = [scale[name]["median"] for name in ("with_1_per_s", "with_2_per_s", "with_2_of_one_share")]
        assert shares[1] / shares[0] == shares[2]
    assert report["settings"]["messages"] == 1000
    assert report["settings"]["broker"]["min.insync.replicas"] == "1"
    assert "100/s" in chart.read_text()
    topics = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=WAIT_TIMEOUT_S).topics
    assert [name for name in topics if name.startswith("bench.")] == []


def test_an_unknown_case_is_refused_with_the_list_of_cases() -> None:
    command = [sys.executable, "-m", "postdate.cli", "bench", "thru"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_TIMEOUT_S, env=dict(os.environ))
    assert done.returncode == 2
    assert "no case begins with 'thru'; there are: intake, long, through, cancel, drain" in done.stderr
