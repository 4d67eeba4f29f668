"""`postdate dead-letters list|requeue`: list undeliverable messages, and schedule them again."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from postdate.cli import limits
from postdate.cli.commands import listed, print_note, warn
from postdate.cli.operation.dead_letter_output import (
    dead_letter_as_json,
    dead_letters_as_table,
    outcome_as_json,
    outcome_as_line,
    summary,
)
from postdate.cli.options import (
    Command,
    Loader,
    Renamed,
    configured,
    from_option,
    output_option,
    requests_option,
    until_option,
)
from postdate.cli.request_options import the_request_topic, time_headers, time_options
from postdate.kafka.interface import Admin, Partition
from postdate.sidecar.cluster.producing import LiveTopic, look_up
from postdate.sidecar.config.settings import Config
from postdate.sidecar.dead_letters.reading import DeadLetter, DeadLetterFilters, read_dead_letters, spans_of
from postdate.sidecar.dead_letters.requeue import EarlierRequeues, RequeueOutcome, RequeueStatus, first, plan, run_plan
from postdate.sidecar.errors import ConfigError, Exit
from postdate.wire.origins import parse_origin
from postdate.wire.reasons import Reason
from postdate.wire.topics import OwnTopics

_MORE = "use --max for more"


def origin_bytes(text: str) -> bytes:
    """Returns the bytes of an origin. Raises BadParameter if it is malformed."""
    origin = text.encode("utf-8", "surrogateescape")
    try:
        parse_origin(origin)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} {error}") from None
    return origin


def filter_options(command: Command) -> Command:
    """Adds --requests, the filters, and --max."""
    for option in (
        click.option(
            "--max",
            "letters_max",
            type=click.IntRange(1, limits.DEAD_LETTERS_MAX),
            default=limits.DEAD_LETTERS_MAX_DEFAULT,
            show_default=True,
            metavar="N",
            help="At most N dead letters.",
        ),
        until_option("Only dead letters written before this time.", "until_ms"),
        from_option("Only dead letters written at or after this time.", "--since", "since_ms"),
        click.option(
            "--origin",
            "origins",
            type=origin_bytes,
            multiple=True,
            metavar="ORIGIN",
            help="Only of this request; repeatable.",
        ),
        click.option("--target", "targets", multiple=True, metavar="TOPIC", help="Only for this target; repeatable."),
        click.option(
            "--reason",
            "reasons",
            type=click.Choice([reason.value for reason in Reason]),
            multiple=True,
            metavar="REASON",
            help="Only with this reason, such as unknown-target; repeatable.",
        ),
        requests_option(),
    ):
        command = option(command)
    return command


@click.group("dead-letters")
def dead_letters() -> None:
    """List dead letters, and schedule them again."""


@dead_letters.command("list", short_help="Print the dead letters of a request topic.")
@configured
@filter_options
@output_option
def list_(loader: Loader, requests: str | None, output: str, letters_max: int, **options: Any) -> None:
    """Print the dead letters of a request topic in order of time. With more than --max, omit those of the last
    partitions."""
    from postdate.sidecar.cluster.connection import admin_of, kafka_of
    from postdate.sidecar.ingest.request_rules import rules_of

    filters = _filters(options)
    config = loader({"request_topics": (requests,) if requests else ()}).config
    name = the_request_topic(config)
    kafka = kafka_of(config)
    with admin_of(kafka) as admin:
        spans = spans_of(admin, name, _look_up(admin, config, name).partitions, filters)
    records = read_dead_letters(kafka, rules_of(config, name), spans, filters, _bar, warn)
    dead_letters = sorted(_first(records, letters_max), key=lambda dead_letter: dead_letter.timestamp_ms)
    if not dead_letters:
        print_note(f"no dead letter of {name}" + (" matches" if filters != DeadLetterFilters() else ""))
    if output == "json":
        lines: Iterable[str] = (json.dumps(dead_letter_as_json(name, dead_letter)) for dead_letter in dead_letters)
    else:
        lines = dead_letters_as_table(dead_letters)
    for line in lines:
        click.echo(line)


@dead_letters.command(short_help="Schedule dead letters again, as new requests.")
@configured
@filter_options
@time_options
@click.option(
    "--apply",
    "--execute",
    "is_applied",
    cls=Renamed,
    is_flag=True,
    help="Send the requests; without this option, only print the plan.",
)
@click.option("--again", is_flag=True, help="Also send those that were, or may have been, requeued before.")
@output_option
def requeue(
    loader: Loader, requests: str | None, is_applied: bool, again: bool, output: str, letters_max: int, **options: Any
) -> None:
    """Send dead letters again as new requests, with key, value and headers as sent, to the same partition.

    Without --apply the command only prints its plan. A delay counts from the new request; --delay, --at or --level
    sets a new time for all. Dead letters that were requeued before are skipped. Exit code 1 if a dead letter cannot be
    requeued.

    \b
      postdate dead-letters requeue -b localhost:9092 --reason unknown-target --from -2h --apply
    """
    from postdate.sidecar.cluster.connection import admin_of, kafka_of
    from postdate.sidecar.ingest.request_rules import rules_of

    filters, when = _filters(options), time_headers(options)
    config = loader({"request_topics": (requests,) if requests else ()}).config
    name = the_request_topic(config)
    kafka = kafka_of(config)
    with admin_of(kafka) as admin:
        live = _look_up(admin, config, name)
        rules = rules_of(config, name, live.retention_ms)
        spans = spans_of(admin, name, live.partitions, filters)
        records = read_dead_letters(kafka, rules, spans, filters, _bar, warn)
        earlier = None if again else (lambda selected: EarlierRequeues(kafka, admin, name, selected, _bar))
        run = plan(records, earlier, limits.DEAD_LETTERS_MAX, letters_max)
        if run.has_more_matching:
            print_note(f"only the first {limits.DEAD_LETTERS_MAX} are used; use --from for the others")
        if run.has_more_chosen:
            print_note(f"only the first {letters_max} are used; {_MORE}")
        missing = run.missing_targets(admin)
        if missing:
            warn(
                f"target topics that do not exist: {listed(missing)}; create them, or these messages become dead"
                " letters again"
            )
    _print_outcomes(run_plan(kafka, rules, run, when, is_applied), output, is_applied)


def _filters(options: dict[str, Any]) -> DeadLetterFilters:
    return DeadLetterFilters(
        frozenset(options["reasons"]),
        frozenset(options["targets"]),
        frozenset(options["origins"]),
        options["since_ms"],
        options["until_ms"],
    )


def _look_up(admin: Admin, config: Config, requests: str) -> LiveTopic:
    """Returns the metadata of the request topic. Raises ConfigError if it or its dead-letter topic does not exist."""
    topic = OwnTopics.of(requests).dead_letters
    live = look_up(admin, requests, config.kafka.bootstrap_servers, (topic,))
    if topic not in live.existing:
        servers = config.kafka.bootstrap_servers
        raise ConfigError(
            f"topic {topic} does not exist: postdate topics create -b {servers} --requests {requests} --allow-existing"
        )
    return live


def _first(records: Generator[DeadLetter], letters_max: int) -> list[DeadLetter]:
    """Returns the first `letters_max` dead letters without their values. If there are more, prints a hint on stderr."""
    dead_letters, has_more = first(
        records, letters_max, lambda dead_letter: dataclasses.replace(dead_letter, value=None)
    )
    if has_more:
        print_note(f"only the first {letters_max} are used; {_MORE}")
    return dead_letters


@contextmanager
def _bar(part: Partition, count: int) -> Iterator[Callable[[int], None]]:
    """Shows a progress bar if stderr is a terminal. Nothing may be printed within the block."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(f"{part.topic}/{part.index}", total=count)
        yield lambda offsets: progress.update(task, completed=offsets)


def _print_outcomes(outcomes: Iterable[RequeueOutcome], output: str, is_applied: bool) -> None:
    """Prints the outcomes and, on stderr, their counts. Ends the process with 1 if a dead letter cannot be
    requeued."""
    counts: Counter[RequeueStatus] = Counter()
    with_id = 0
    for outcome in outcomes:
        counts[outcome.status] += 1
        with_id += outcome.status in (RequeueStatus.WOULD, RequeueStatus.DONE) and outcome.dead_letter.id is not None
        click.echo(json.dumps(outcome_as_json(outcome)) if output == "json" else outcome_as_line(outcome))
    print_note(summary(counts, with_id, is_applied))
    if counts[RequeueStatus.CANNOT]:
        sys.exit(Exit.FAILED)
