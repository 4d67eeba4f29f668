"""`python -m benchmarks.peers`: the same load on Postdate, RocketMQ and NATS, one after the other.

Exits with 1 if a system could not be measured; the report names it and keeps the others.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import click

from benchmarks import conditions
from benchmarks.peers import report
from benchmarks.peers.cases import Case, Measurement
from benchmarks.peers.errors import PeerFailed
from benchmarks.peers.nats import Nats
from benchmarks.peers.rocketmq import RocketMQ
from benchmarks.peers.sidecar import Postdate
from benchmarks.peers.system import System
from postdate.kafka.errors import DevBrokerFailed, KafkaFault
from postdate.sidecar.errors import PostdateError

#: Messages that are drained before the measurements, so that JVMs have compiled their code.
WARM_UP_MESSAGES_MAX = 50_000
#: Messages a second that each system is expected to accept at least. It determines the time until messages are due.
ACCEPTED_PER_S_MIN = 2_000
#: Seconds: the part of that time for the start of the sender.
STARTING_S = 15


@click.command()
@click.option("--messages", type=click.IntRange(100, 5_000_000), default=100_000, show_default=True, help="Of a drain.")
@click.option(
    "--rate", "rates", type=click.IntRange(10, 100_000), multiple=True, default=(1_000,), help="A second; repeatable."
)
@click.option("--seconds", type=click.IntRange(1, 3_600), default=30, show_default=True, help="Of each steady load.")
@click.option("--lead", type=click.FloatRange(5, 3_600), help="s until messages of a drain are due.")
@click.option("--only", type=click.Choice(["postdate", "rocketmq", "nats"]), multiple=True, help="Repeatable.")
@click.option(
    "--report", "page", type=click.Path(dir_okay=False, path_type=Path), help="Write a page of Markdown there."
)
def main(
    messages: int, rates: tuple[int, ...], seconds: int, lead: float | None, only: tuple[str, ...], page: Path | None
) -> None:
    """Compare Postdate with RocketMQ and NATS on this machine.

    Needs Java 17 with its compiler, Maven and Go. Downloads stay in ~/.cache/postdate.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that children end too
    began, commit = conditions.now(), conditions.commit()
    versions: dict[str, str] = {}
    cases: list[Case] = []
    failures: list[str] = []
    makers: dict[str, Callable[[Path, ExitStack], System]] = {
        "postdate": lambda directory, stack: Postdate(directory, stack, commit, _report),
        "rocketmq": RocketMQ,
        "nats": Nats,
    }
    for name in only or makers:
        with tempfile.TemporaryDirectory(prefix="postdate-peers-", ignore_cleanup_errors=True) as made:
            try:
                with ExitStack() as stack:
                    system = makers[name](Path(made) / name, stack)
                    versions[system.name] = system.version
                    measurement = Measurement(system, Path(made))
                    _warm_up(measurement, f"{system.name} {system.version}", min(messages, WARM_UP_MESSAGES_MAX), lead)
                    for case, take in _cases(measurement, messages, rates, seconds, lead).items():
                        try:
                            cases.append(take())
                            _report(_line(cases[-1]))
                        except PeerFailed as error:
                            failures.append(f"{system.name}, {case}: {error}")
                            _report(failures[-1])
            except (PeerFailed, PostdateError, KafkaFault, DevBrokerFailed) as error:
                failures.append(f"{name}: {error}")
                _report(failures[-1])
    command = " ".join(["python -m benchmarks.peers", *sys.argv[1:]])
    run = report.Run(command, commit, began, conditions.machine(), versions, messages, cases, failures)
    click.echo(report.markdown(run, page.with_suffix(".json").name if page else "a file beside --report"))
    if page is not None:
        report.write(run, page)
    if failures:
        sys.exit(1)


def _warm_up(measurement: Measurement, name: str, messages: int, lead: float | None) -> None:
    _report(f"{name}: warming up with {messages:,} messages")
    measurement.drain(messages, lead or _lead_s(messages))


def _cases(
    measurement: Measurement, messages: int, rates: tuple[int, ...], seconds: int, lead: float | None
) -> dict[str, Callable[[], Case]]:
    """Returns the measurements of a system by name, in the order in which they run."""
    lead_s = lead or _lead_s(messages)
    steady = {f"{rate:,}/s": partial(measurement.lateness, rate, seconds) for rate in rates}
    drain, kill = partial(measurement.drain, messages, lead_s), partial(measurement.kill, messages, lead_s)
    return {"accept and drain": drain, **steady, "SIGKILL in the drain": kill}


def _line(case: Case) -> str:
    shown = {key: value for key, value in case.figures.items() if not isinstance(value, dict)}
    return f"{case.system}, {case.case}: {shown}, load average {case.load_average}"


def _lead_s(messages: int) -> float:
    return STARTING_S + messages / ACCEPTED_PER_S_MIN


def _report(text: str) -> None:
    click.echo(text, err=True)


if __name__ == "__main__":
    main()
