"""Goal: if a case of the benchmark fails or is stopped, its processes end, and the figures of all other cases are kept.
The help describes every case.

Method: `_measure` with substituted cases, of which one raises; the load against a simulated cluster.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from postdate.cli import postdate
from postdate.cli.tools.bench import _measure, _report
from postdate.cli.tools.interrupts import Interrupted
from postdate.kafka import limits
from postdate.kafka.interface import NewTopic
from postdate.sidecar.errors import PostdateError, TransientError
from postdate.tools.bench.cases import CASES, BenchCase, Size
from postdate.tools.bench.environment import BenchEnvironment, load_clients, request, value_of
from postdate.tools.bench.figures import Figure, Figures
from postdate.tools.bench.limits import VALUE_SIZE_BYTES
from support.kafka_simulator import SimBroker, SimKafka
from support.repository import ROOT


@pytest.mark.parametrize(("end", "goes_on"), [(TransientError("too slow"), True), (Interrupted(), False)])
def test_figures_before_and_after_a_failure_are_kept(
    end: BaseException,
    goes_on: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended: list[str] = []

    def run(name: str, error: BaseException | None, environment: BenchEnvironment, _size: Size) -> Figures:
        environment.stack.callback(ended.append, name)
        if error is not None:
            raise error
        return {"rate_per_s": 1.0}

    for name, error in (("one", None), ("two", end), ("three", None)):
        monkeypatch.setitem(CASES, name, BenchCase("", partial(run, name, error)))
    figures: list[Figure] = []
    with ExitStack() as stack:
        environment = BenchEnvironment(SimKafka(SimBroker()), "nowhere:1", tmp_path, stack, print)
        assert not _measure(environment, ["one", "two", "three"], Size(1_000, 1.0), range(1, 2), figures)
        ran = ["one", "two", "three"] if goes_on else ["one", "two"]
        assert ended == ran, "the processes of a run end with it"
        assert environment.stack is stack
    assert {figure.case for figure in figures} == {name for name in ran if name != "two"}
    assert ("two: failed: too slow" in capsys.readouterr().err) == goes_on


def test_without_a_steady_case_the_table_is_printed_and_no_chart_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chart, figures = tmp_path / "chart.html", [Figure("through", "records_per_s", (1.0,), None)]
    with ExitStack() as stack:
        environment = BenchEnvironment(SimKafka(SimBroker()), "nowhere:1", tmp_path, stack, print)
        _report(Console(stderr=True), environment, figures, "text", chart, {})
    printed = capsys.readouterr().err
    assert "through" in printed
    assert "no chart: every steady case failed" in printed
    assert not chart.exists()


def test_the_help_lists_every_case_with_its_description() -> None:
    help_text = CliRunner().invoke(postdate, ["bench", "--help"]).stdout
    rows = [line.split("  ", 2) for line in help_text.partition("Cases:\n")[2].splitlines()]
    assert [(name, description.strip()) for _, name, description in rows] == [
        (name, case.description) for name, case in CASES.items()
    ], "one line for each case, in the order in which they run"


def test_the_documentation_has_a_row_for_every_kind_of_case() -> None:
    table = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    kinds = {name if name in ("schedules once", "bad target") else name.partition(" ")[0] for name in CASES}
    assert [kind for kind in kinds if f"| `{kind}` |" not in table and f"| `{kind} 1000/s` |" not in table] == []


def test_values_are_of_one_size_and_hardly_repeat() -> None:
    values = [value_of(number) for number in range(20_000)]
    assert {len(value) for value in values} == {VALUE_SIZE_BYTES}
    assert len(set(values)) == 16_384


def test_a_pause_of_the_broker_loses_no_request() -> None:
    """A shard repeats a write after a time-out. The load is written only once, so it needs a longer time-out."""
    timeout_ms = load_clients("nowhere:1").settings.producer_conf(None, 1_000_000)["message.timeout.ms"]
    assert timeout_ms >= 30 * limits.MESSAGE_TIMEOUT_MS


def test_a_request_without_acknowledgement_fails_the_case(tmp_path: Path) -> None:
    broker = SimBroker()
    broker.create(NewTopic("requests", 4, 1, {}))
    broker.topics["requests"].logs[2].hold()
    with ExitStack() as stack:
        environment = BenchEnvironment(SimKafka(broker), "nowhere:1", tmp_path, stack, print)
        with pytest.raises(PostdateError, match="the broker did not acknowledge 25 requests: "):
            environment.fill("requests", (request(number, "target", 0) for number in range(100)))
