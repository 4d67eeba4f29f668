"""Goal: `postdate top` shows the entries in the wheels and the states of the shards, without a running process.

Method: real timer indexes and status files in a data directory. The screen is rendered to text. The live screen is
rendered from two samples a known time apart.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from postdate.cli import postdate
from postdate.cli.operation.shard import as_lines
from postdate.cli.operation.top import Row, TopSample, screen
from postdate.sidecar.operation.shard_directories import FoundShard
from postdate.sidecar.operation.shard_status import ShardStatus, write_status
from postdate.sidecar.states import State
from postdate.wheel.options import IndexOptions
from support.shards.timer_indexes import finish_wheel, open_index, put_entries

HOUR_MS = 3_600_000
Make = Callable[[int, State, str, int], None]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Creates shards as a running process does: an open index with entries, and a status written some time ago."""
    opened = []

    def made(partition: int, state: State, why: str, age_ms: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        directory = tmp_path / "cluster-1" / "requests" / str(partition)
        index = open_index(directory, IndexOptions(), now_ms)
        opened.append(index)
        put_entries(index, [(now_ms - 60_000, 0), (now_ms + HOUR_MS // 2, 1), (now_ms + 30 * HOUR_MS, 2)])
        finish_wheel(index, now_ms)
        status = ShardStatus(
            requests="requests",
            partition=partition,
            cluster_id="cluster-1",
            state=state,
            instance="it",
            process_id=1,
            written_ms=now_ms - age_ms,
            why=why,
            next_request=3,
            pending=3,
            lag=7,
            held=["delivery", "target [x]"] if partition == 1 else ["delivery"] if partition == 2 else [],
        )
        write_status(directory, status)

    yield made
    for index in opened:
        index.close()


def shown(tmp_path: Path, *options: str) -> str:
    result = CliRunner().invoke(postdate, ["top", "--data", str(tmp_path), *options], env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_one_sample_shows_every_shard_and_the_upcoming_load(tmp_path: Path, make: Make) -> None:
    make(0, State.RUNNING, "", 0)
    make(1, State.HALTED, "seq-broken: [look]", 0)
    make(2, State.RUNNING, "", HOUR_MS)
    lines = [line.split() for line in shown(tmp_path).splitlines()]
    assert lines[0] == ["shard", "state", "pending", "late", "parked", "next", "in", "read/s", "ended/s", "lag"]
    assert ["requests/0", "RUNNING", "3", "1", "0", "now", "-", "-", "7"] in lines
    assert ["requests/1", "HALTED", "3", "1", "0", "now", "-", "-", "7"] in lines
    assert ["requests/2", "not", "served", "3", "1", "0", "now", "-", "-", "-"] in lines
    assert ["overdue", "3"] in [line[:2] for line in lines]
    assert ["after", "24h", "3"] in [line[:3] for line in lines]
    assert ["15m", "to", "1h", "3"] in [line[:4] for line in lines]
    assert ["requests/1:", "seq-broken:", "[look]"] in lines


def test_each_hold_is_shown_once_with_its_shards(tmp_path: Path, make: Make) -> None:
    for partition in (0, 1, 2):
        make(partition, State.RUNNING, "", 0)
    held = [line.strip() for line in shown(tmp_path).splitlines() if "held" in line]
    assert held == [
        "held: delivery (requests/1, requests/2)",
        "held: target [x] (requests/1)",
    ]


def test_eighty_columns_hold_every_heading_and_figure() -> None:
    row = Row("postdate.requests/0", State.CATCHING_UP, "", 2_334, 90_000, 9, 0, {"overdue": 7_777, "parked": 8_888})
    text = io.StringIO()
    Console(file=text, width=80).print(screen(TopSample(10.0, {"postdate.requests/0": row}), None))
    heading, line = text.getvalue().splitlines()[:2]
    assert heading.split() == ["shard", "state", "pending", "late", "parked", "next", "in", "read/s", "ended/s", "lag"]
    assert line.split() == ["postdate.requests/0", "CATCHING_UP", "2,334", "7777", "8888", "1.5", "m", "-", "-", "0"]


def test_json_output_has_the_same_values(tmp_path: Path, make: Make) -> None:
    make(5, State.CATCHING_UP, "", 0)
    (line,) = shown(tmp_path, "--output", "json").splitlines()
    printed = json.loads(line)
    assert (printed["shard"], printed["state"], printed["pending"], printed["lag"]) == (
        "requests/5",
        "CATCHING_UP",
        3,
        7,
    )
    assert (printed["horizons"]["overdue"], printed["horizons"]["1h"], printed["horizons"]["later"]) == (1, 1, 1)
    assert printed["held"] == []


@pytest.mark.parametrize("command", [["top"], ["shard", "status"]])
def test_a_missing_directory_is_an_error(tmp_path: Path, command: list[str]) -> None:
    result = CliRunner().invoke(postdate, [*command, "--data", str(tmp_path / "mistyped")])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "there is no directory" in result.stderr
    assert "mistyped" in result.stderr


def test_top_shows_intake_and_delivery_rates_between_two_samples() -> None:
    def row(next_request: int, pending: int) -> Row:
        return Row("requests/0", State.RUNNING, "", pending, 1_500, next_request, 0, {"overdue": 0, "parked": 0})

    before = TopSample(10.0, {"requests/0": row(100, 40)})
    now = TopSample(12.0, {"requests/0": row(160, 20)})
    text = io.StringIO()
    Console(file=text, width=120).print(screen(now, before))
    line = next(line.split() for line in text.getvalue().splitlines() if line.startswith("requests/0"))
    assert line == ["requests/0", "RUNNING", "20", "0", "0", "1.5", "s", "30", "40", "0"]


@pytest.mark.parametrize("command", [["top"], ["top", "--output", "json"], ["shard", "status"]])
def test_a_directory_without_shards_is_named(command: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(postdate, [*command, "--data", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"no shard in {tmp_path}: --data names" in result.stderr


def test_the_line_of_a_shard_names_its_figures_and_rounds_the_skew_to_zero(tmp_path: Path) -> None:
    status = ShardStatus(
        requests="requests",
        partition=0,
        cluster_id="cluster-1",
        state=State.RUNNING,
        instance="it",
        process_id=1,
        written_ms=0,
        next_request=3,
        next_dispatch=9,
        skew_ms=-0.3,
    )
    found = FoundShard("cluster-1", "requests", 0, tmp_path, status, 3, 1)
    (line,) = as_lines(found, 0)
    assert "next request 3  next dispatch-log record 9  pending 1" in line
    assert line.endswith("skew 0 ms  (reported 0 s ago by it)")
    unmeasured = msgspec.structs.replace(status, skew_ms=None)
    (line,) = as_lines(FoundShard("cluster-1", "requests", 0, tmp_path, unmeasured, 3, 1), 0)
    assert "takeover 0  lag unknown  skew unknown  (reported" in line
