"""Goal: the comparison of Postdate with other systems counts and reports exactly the messages that have arrived.

Method: handwritten rows in the format of a receiver, and a small program in place of a receiver.
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import lateness_chart
from benchmarks.peers.arrivals import Receiver, Rows, count_figures, drain_figures, lateness_figures, rows_of
from benchmarks.peers.cases import Case, kill_figures
from benchmarks.peers.errors import PeerFailed
from benchmarks.peers.report import Run, markdown
from benchmarks.peers.system import need

DUE_MS = 1_800_000_000_000


def rows(*each: tuple[int, float, int]) -> Rows:
    """Returns rows of (sequence, arrival in ms after the due time, position)."""
    return np.array([(number, DUE_MS, round((DUE_MS + ms) * 1_000), place) for number, ms, place in each])


def test_a_second_record_is_a_duplicate_but_a_record_read_again_is_not() -> None:
    found = rows((0, 1, 10), (1, 2, 11), (1, 3, 11), (0, 4, 12), (0, 5, 13))
    assert count_figures(found, 3) == {"lost": 1, "twice": 1, "records": 4}


def test_a_message_that_was_never_sent_fails_the_count() -> None:
    with pytest.raises(PeerFailed, match="never sent"):
        count_figures(rows((3, 1, 10)), 3)


def test_lateness_excludes_the_warm_up_and_counts_early_messages() -> None:
    found = rows((0, 500, 1), (1, -2, 2), (2, 10, 3), (3, 30, 4))
    figures = lateness_figures(found, 1)
    assert (figures["p50_ms"], figures["max_ms"], figures["early"]) == (10.0, 30.0, 1)
    assert figures["messages_by_ms"] == {"-2": 1, "10": 1, "30": 1}
    with pytest.raises(PeerFailed, match="warm-up"):
        lateness_figures(found, 4)


def test_a_drain_is_timed_from_the_due_time_to_the_last_arrival() -> None:
    figures = drain_figures(rows((0, 20, 1), (1, 150, 2), (2, 500, 3)), DUE_MS, 3)
    assert (figures["delivered_per_s"], figures["first_ms"], figures["last_ms"]) == (6, 20.0, 500.0)
    assert figures["messages_by_100_ms"] == {"0": 1, "100": 1, "500": 1}


def test_arrivals_are_timed_from_the_kill() -> None:
    figures = kill_figures(rows((0, 20, 1), (1, 1_100, 2), (0, 1_600, 3)), 2, DUE_MS + 100)
    assert figures == {
        "lost": 0,
        "twice": 1,
        "records": 3,
        "arrived_before_the_kill": 1,
        "next_after_s": 1.0,
        "last_after_s": 1.5,
    }


def test_an_incomplete_row_is_left_for_later() -> None:
    data = struct.pack(">qqqq", 7, DUE_MS, DUE_MS * 1_000, 1 << 48 | 5)
    assert rows_of(data + data[:31]).tolist() == [[7, DUE_MS, DUE_MS * 1_000, 1 << 48 | 5]]


def receiver(program: str, directory: Path) -> Receiver:
    prelude = (
        "import struct, sys, time\ndef row(*n): sys.stdout.buffer.write(struct.pack('>qqqq', *n)); sys.stdout.flush()\n"
    )
    return Receiver([sys.executable, "-c", prelude + program], directory / "log", dict(os.environ))


def test_a_receiver_waits_for_each_message_and_not_for_a_number_of_records(tmp_path: Path) -> None:
    program = "row(-1, 0, 0, 0)\nfor n in (0, 0, 1): row(n, 0, 0, n)\ntime.sleep(1)\nrow(2, 0, 0, 2)\ntime.sleep(600)"
    with receiver(program, tmp_path) as running:
        running.wait_for_all(3, silent_s=240)
        assert running.rows()[:, 0].tolist() == [0, 0, 1, 2]


def test_a_receiver_that_exits_is_reported_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(PeerFailed, match="no such broker"), receiver("sys.exit('no such broker')", tmp_path):
        pass


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PeerFailed, match=r"mvn is missing .*apt-get install maven"):
        need("mvn")


def test_the_report_has_a_table_for_each_case_and_names_failures() -> None:
    cases = [
        Case("Postdate", "1,000/s", {"p50_ms": 10.5, "messages_by_ms": {"10": 1}}, (0.5, 1.0)),
        Case("NATS", "1,000/s", {"p50_ms": 150.0, "lost": 2_000}, (1.0, 1.5)),
    ]
    text = markdown(Run("c", "abc", "today", "2 cores", {"NATS": "2"}, 1_000, cases, ["rocketmq: no\nJava"]), "x.json")
    assert text.partition("## 1,000/s\n\n")[2].splitlines() == [
        "|  | p50 ms | lost | load average |",
        "| --- | --- | --- | --- |",
        "| Postdate | 10.5 |  | 0.5 to 1.0 |",
        "| NATS | 150.0 | 2,000 | 1.0 to 1.5 |",
        "",
        "## Not measured",
        "",
        "- rocketmq: no Java",
    ]


def test_the_chart_of_lateness_shows_the_records() -> None:
    assert lateness_chart.CHART.read_text() == lateness_chart.draw(lateness_chart.lines()), (
        "run python -m benchmarks.lateness_chart"
    )
