"""`postdate bench`: measures throughput, as a ratio to a raw copy in the same run, and lateness."""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from postdate.cli.commands import print_note
from postdate.cli.options import seconds_option
from postdate.cli.tools.dev import StartProgress
from postdate.cli.tools.interrupts import Interrupted, interruptible
from postdate.sidecar.errors import Exit, PostdateError
from postdate.wire.values.texts import counted

if TYPE_CHECKING:
    from postdate.tools.bench.cases import Size
    from postdate.tools.bench.environment import BenchEnvironment
    from postdate.tools.bench.figures import Figure, Figures


class _Bench(click.Command):
    """The command, with a table of the cases in its help."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from postdate.tools.bench.cases import CASES

        with formatter.section("Cases"):
            formatter.write_dl([(name, case.description) for name, case in CASES.items()])


@click.command(cls=_Bench, short_help="Measure throughput and lateness on this machine.")
@click.argument("cases", nargs=-1, metavar="[CASE]...")
@click.option(
    "-b",
    "--bootstrap-server",
    "bootstrap",
    metavar="HOST:PORT",
    help="Cluster to measure; default: a new local broker.",
)
@click.option(
    "--messages",
    type=click.IntRange(1_000, 20_000_000),
    default=1_000_000,
    show_default=True,
    help="Messages in each case.",
)
@seconds_option(
    "--seconds",
    "20s",
    "1s",
    "1h",
    "Duration of each steady run, after 5 s of warm-up; each run takes about 15 s more.",
)
@click.option("--repeats", type=click.IntRange(1, 20), default=3, show_default=True, help="Fewest runs of each case.")
@click.option(
    "--repeats-max",
    type=click.IntRange(1, 20),
    default=7,
    show_default=True,
    help="Most runs of each case; it ends earlier once the median of its main figure is known to within 10 %.",
)
@click.option(
    "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Format on stdout."
)
@click.option(
    "--chart", type=click.Path(path_type=Path), help="Write a chart of lateness against load to this HTML file."
)
def bench(
    cases: tuple[str, ...],
    bootstrap: str | None,
    messages: int,
    seconds: float,
    repeats: int,
    repeats_max: int,
    output: str,
    chart: Path | None,
) -> None:
    """Measure one sidecar process with four shards; `many` has 64 shards, `scale` and `hand-over` use several
    processes. Without CASE, run all cases; otherwise run those whose names begin with CASE. If a case fails, print the
    error and run the others.

    Rates of deliveries are compared with that of a raw copy in the same run. `steady` and `many` compare lateness with
    that of transactional producers under the same load. Both programs use only the client library: they do not delay
    messages, and store nothing. Needs Java 17 or later unless -b names a cluster. Exit code 1 if a case fails. The
    table shows whether each figure reaches its target; a missed target does not change the exit code.
    """
    chosen = _chosen(cases)
    if chart is not None and not any(name.startswith("steady") for name in chosen):
        raise click.UsageError("--chart draws the steady cases: name one of them, or no case at all")
    console = Console(stderr=output == "json", highlight=False)
    try:
        with interruptible(), tempfile.TemporaryDirectory(prefix="postdate-bench-") as directory, ExitStack() as stack:
            from postdate.tools.bench.cases import Size
            from postdate.tools.bench.limits import WARM_UP_RECORDS_MAX

            environment = _environment(Path(directory), stack, bootstrap)
            if bootstrap is None and not environment.warm_up(min(messages, WARM_UP_RECORDS_MAX)):
                print_note("the raw copy is not stable: other programs use this machine, or it changes its speed")
            print_note(f"{counted(len(chosen), 'case')}, {counted(repeats, 'run')} of each or more")
            figures: list[Figure] = []
            runs = range(repeats, max(repeats, repeats_max) + 1)
            ended = _measure(environment, chosen, Size(messages, seconds), runs, figures)
            if figures:
                _report(console, environment, figures, output, chart, {"messages": messages, "seconds": seconds})
    except Interrupted:
        print_note("stopped; nothing is left running")
        sys.exit(Exit.FAILED)
    if not ended:
        sys.exit(Exit.FAILED)


def _chosen(prefixes: tuple[str, ...]) -> list[str]:
    from postdate.tools.bench.cases import CASES

    if not prefixes:
        return list(CASES)
    for prefix in prefixes:
        if not any(name.startswith(prefix) for name in CASES):
            raise click.UsageError(f"no case begins with {prefix!r}; there are: {', '.join(CASES)}")
    return [name for name in CASES if name.startswith(prefixes)]


def _environment(directory: Path, stack: ExitStack, bootstrap: str | None) -> BenchEnvironment:
    from postdate.tools.bench.environment import BenchEnvironment, load_clients
    from postdate.tools.dev_broker.local_broker import PRODUCTION_JVM, LocalBroker

    pid = None
    if bootstrap is None:
        progress = StartProgress()
        broker = LocalBroker(0, directory / "broker", jvm=PRODUCTION_JVM, progress=progress)
        stack.callback(broker.kill)  # its data is not needed again
        stack.callback(progress.done)
        broker.start()
        progress.done()
        bootstrap, pid = broker.bootstrap_servers, broker.pid
    return BenchEnvironment(load_clients(bootstrap), bootstrap, directory, stack, print_note, pid)


def _measure(environment: BenchEnvironment, chosen: list[str], size: Size, runs: range, figures: list[Figure]) -> bool:
    """Appends the figures of each case to `figures`. Repeats a case until its median is precise, within the bounds of
    `runs`. Returns False if a run failed or was stopped; the figures measured until then are kept. A failure does not
    stop the other cases."""
    from postdate.kafka.errors import KafkaFault
    from postdate.tools.bench.cases import CASES
    from postdate.tools.bench.figures import gather, is_precise

    all_ended = True
    for name in chosen:
        repeats: list[Figures] = []
        try:
            while len(repeats) < runs.start or (len(repeats) < runs.stop - 1 and not is_precise(repeats)):
                began = time.monotonic()
                print_note(f"{name}: run {len(repeats) + 1}")
                with environment.run():
                    repeats.append(CASES[name].run(environment, size))
                print_note(f"{name}: {time.monotonic() - began:.0f} s")
            if not is_precise(repeats):
                print_note(f"{name}: its runs differ too much to know the median to 10 %")
        except (PostdateError, KafkaFault) as error:
            print_note(f"{name}: failed: {error}")
            all_ended = False
        except Interrupted:
            print_note("stopped; the figures measured so far follow")
            return False
        finally:
            figures += gather(name, repeats) if repeats else []
    return all_ended


def _report(
    console: Console,
    environment: BenchEnvironment,
    figures: list[Figure],
    output: str,
    chart: Path | None,
    settings: dict[str, float],
) -> None:
    from postdate.tools.bench.chart import as_html
    from postdate.tools.bench.report import as_json, print_table

    print_table(console, figures)
    if output == "json":
        click.echo(as_json(figures, {**settings, "broker": environment.broker_settings()}))
    if chart is not None and not any(figure.case.startswith("steady ") for figure in figures):
        print_note("no chart: every steady case failed")
    elif chart is not None:
        chart.write_text(as_html(figures), encoding="utf-8")
        print_note(f"lateness against load: {chart}")
