"""`postdate schedule create|list|show|pause|resume|trigger|backfill|cancel`: messages that recur.

`create` checks its request by the rules of the sidecar, as `postdate send` does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from postdate.cli.limits import PREVIEW_MAX
from postdate.cli.operation.schedule_queries import list_, show
from postdate.cli.options import (
    Command,
    Loader,
    as_bytes,
    configured,
    duration_text,
    now_ms,
    output_option,
    time_ms,
    time_text,
)
from postdate.cli.requests.controls import backfill, end, pause, resume, trigger
from postdate.cli.requests.send import message_options, record_of, send_request
from postdate.cli.requests.waiting import verdict_options, waiting
from postdate.wire import headers as names
from postdate.wire.headers import Headers
from postdate.wire.schedules.schedule import Fold, Gap, Missed, Schedule, read_schedule

_HEADERS = {
    "cron": names.CRON,
    "every": names.EVERY,
    "zone": names.ZONE,
    "start": names.START,
    "end": names.END,
    "count": names.COUNT,
    "gap": names.GAP,
    "fold": names.FOLD,
    "missed": names.MISSED,
    "catch_up": names.CATCH_UP,
}


def _repeat_options(command: Command) -> Command:
    """Adds the options for the times of a schedule. `record_of` converts --grace and --window to headers,
    `_repeat_headers` converts the others."""
    for option in (
        click.option(
            "--grace", type=duration_text, metavar="DURATION", help="Skip occurrences that would be later than this."
        ),
        click.option(
            "--window", type=duration_text, metavar="DURATION", help="Deliver within this time after the nominal time."
        ),
        click.option(
            "--catch-up", type=duration_text, metavar="DURATION", help="Skip due occurrences that are later than this."
        ),
        click.option(
            "--missed",
            type=click.Choice([choice.value for choice in Missed]),
            help="If several occurrences are due: deliver all, only the last, or (none) those at most 60s late. [all]",
        ),
        click.option(
            "--fold",
            type=click.Choice([choice.value for choice in Fold]),
            help="Times that exist twice, as clocks are set back. [first]",
        ),
        click.option(
            "--gap",
            type=click.Choice([choice.value for choice in Gap]),
            help="Times that do not exist, as clocks are set forward; next: once, right after the gap. [next]",
        ),
        click.option("--count", metavar="N", help="End after N occurrences, skipped ones included."),
        click.option(
            "--end", type=time_text, metavar="TIME", help="No occurrence later than this. TIME as for --start."
        ),
        click.option(
            "--start",
            type=time_text,
            metavar="TIME",
            help="No occurrence before this: RFC 3339, epoch milliseconds, now, or 10s (from now).",
        ),
        click.option("--zone", metavar="NAME", help="IANA time zone of --cron, such as Europe/Berlin. [UTC]"),
        click.option(
            "--every",
            type=duration_text,
            metavar="DURATION[/PHASE]",
            help="At multiples of a duration since 1970, plus a phase: 15m/5m.",
        ),
        click.option("--cron", metavar="EXPRESSION", help="Five fields, six with seconds first, or @daily."),
    ):
        command = option(command)
    return command


@click.group(short_help="Create, show, pause, trigger and end recurring schedules.")
def schedule() -> None:
    """Create, show, pause and end messages that are delivered again and again, by a cron expression or at an interval.

    All members of the deployment, and these commands, need the setting format_version = 3.
    """


@schedule.command(short_help="Create or replace a schedule, or preview its times.")
@configured
@click.option("--topic", metavar="TOPIC", help="Target topic of the message.")
@click.option(
    "--id", "request_id", metavar="ID", help="Id of the schedule; it replaces a schedule or message with the same id."
)
@_repeat_options
@message_options
@click.option("--dry-run", is_flag=True, help="Print the next ten nominal times, and send nothing. Needs no broker.")
@click.option(
    "--after",
    "after_ms",
    type=time_ms,
    metavar="TIME",
    help="With --dry-run: the times after this one. TIME as for --start. [now]",
)
@verdict_options
@output_option
def create(
    loader: Loader,
    requests: str | None,
    dry_run: bool,
    after_ms: int | None,
    wait_verdict: bool,
    timeout: int | None,
    output: str,
    **message: Any,
) -> None:
    """Create a schedule, and print the origin of the request; --dry-run previews it.

    A preview prints the schedule in words, the next ten nominal times and, with --cron, the clock changes of the year
    after --after. They are computed as in the sidecar, by the time zones of the same package. Times that a gap skips
    are not printed.
    --wait-verdict prints the first verdict: `replaced`, if a schedule or message of this id was pending. For a new id
    there is one only with the setting `verdicts = "all"`; otherwise the command ends with exit code 1 after --timeout.

    \b
      postdate schedule create --dry-run --cron '30 2 * * *' --zone Europe/Berlin --after 2026-10-24T00:00:00Z
      postdate schedule create -b localhost:9092 --id nightly --topic reports --cron '30 2 * * *' --zone Europe/Berlin
    """
    when = _repeat_headers(message)
    if dry_run:
        _preview(_schedule_of(message, when), now_ms() if after_ms is None else after_ms, output)
        return
    if after_ms is not None:
        raise click.UsageError("--after needs --dry-run")
    if message["topic"] is None or message["request_id"] is None:
        raise click.UsageError("give --topic and --id, or --dry-run")
    _schedule_of(message, when)
    config = loader({"request_topics": (requests,) if requests else ()}).config
    send_request(config, record_of(message, when), str(message["topic"]), waiting(wait_verdict, timeout), output)


for command in (backfill, end, list_, pause, resume, show, trigger):
    schedule.add_command(command)


def _repeat_headers(options: Mapping[str, Any]) -> Headers:
    """Returns the headers of the options that only a schedule has."""
    return [(header, as_bytes(str(options[name]))) for name, header in _HEADERS.items() if options[name] is not None]


def _schedule_of(message: Mapping[str, Any], when: Headers) -> Schedule:
    """Returns the schedule that the options describe. `when`: the result of `_repeat_headers`. Raises UsageError if the
    options do not describe a valid schedule."""
    headers = dict(when)
    if names.CRON not in headers and names.EVERY not in headers:
        raise click.UsageError("give one of --cron and --every")
    for name, header in (("window", names.WINDOW), ("grace", names.GRACE)):
        if message[name] is not None:
            headers[header] = as_bytes(message[name])
    try:
        return read_schedule({names.ID: b"preview", **headers})
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _preview(planned: Schedule, after_ms: int, output: str) -> None:
    from postdate.cli.requests.schedule_preview import next_occurrences, preview

    occurrences = next_occurrences(planned, after_ms, PREVIEW_MAX)
    if output == "json":
        click.echo(json.dumps({"next": [occurrence.nominal_ms for occurrence in occurrences]}))
        return
    for line in preview(planned, occurrences, after_ms):
        click.echo(line)
