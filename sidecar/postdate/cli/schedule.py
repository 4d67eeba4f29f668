"""`postdate schedule`: messages that are delivered again and again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from postdate.cli.limits import PREVIEW_MAX
from postdate.cli.options import as_bytes, now_ms, output_option, time_ms
from postdate.wire import headers as names
from postdate.wire.headers import GRACE, ID, WINDOW
from postdate.wire.schedules.schedule import Fold, Gap, Missed, Schedule, read_schedule

Command = TypeVar("Command", bound=Callable[..., Any])

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
    "window": WINDOW,
    "grace": GRACE,
    "request_id": ID,
}


def _repeat_options(command: Command) -> Command:
    """Add the options that say when; `repeat_headers` makes the headers of a schedule from them."""
    for option in (
        click.option("--grace", metavar="DURATION", help="Skip occurrences that would be later than this."),
        click.option("--window", metavar="DURATION", help="Deliver within this time after the nominal time."),
        click.option("--catch-up", metavar="DURATION", help="Skip due occurrences that are later than this."),
        click.option(
            "--missed",
            type=click.Choice([each.value for each in Missed]),
            help="Which of several due occurrences are delivered; none: those at most 60s late. [all]",
        ),
        click.option(
            "--fold",
            type=click.Choice([each.value for each in Fold]),
            help="Times that exist twice, as clocks are set back. [first]",
        ),
        click.option(
            "--gap",
            type=click.Choice([each.value for each in Gap]),
            help="Times that clocks are set forward over; next: once, right after the gap. [next]",
        ),
        click.option("--count", metavar="N", help="End after N occurrences, skipped ones included."),
        click.option("--end", type=time_ms, metavar="TIME", help="No occurrence later than this. TIME as for --start."),
        click.option(
            "--start",
            type=time_ms,
            metavar="TIME",
            help="No occurrence before this: RFC 3339, epoch milliseconds, now, or 10s (from now).",
        ),
        click.option("--zone", metavar="NAME", help="IANA time zone of --cron, such as Europe/Berlin. [UTC]"),
        click.option(
            "--every", metavar="DURATION[/PHASE]", help="At multiples of a duration since 1970, plus a phase: 15m/5m."
        ),
        click.option("--cron", metavar="EXPRESSION", help="Five fields, six with seconds first, or @daily."),
    ):
        command = option(command)
    return command


def repeat_headers(options: Mapping[str, Any]) -> dict[str, bytes | None]:
    """The headers of a schedule that the options describe."""
    given = {header: options[name] for name, header in _HEADERS.items() if options[name] is not None}
    return {header: as_bytes(str(value)) for header, value in given.items()}


def _schedule_of(headers: Mapping[str, bytes | None]) -> Schedule:
    """The schedule that headers describe. Raises UsageError if they do not describe one."""
    if names.CRON not in headers and names.EVERY not in headers:
        raise click.UsageError("give one of --cron and --every")
    try:
        return read_schedule(headers)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


@click.group(short_help="Create recurring schedules.")
def schedule() -> None:
    """Create messages that are delivered again and again, by a cron expression or at an interval."""


@schedule.command(short_help="Create a schedule, or preview its times.")
@_repeat_options
@click.option("--id", "request_id", metavar="ID", help="Id of the schedule.")
@click.option("--dry-run", is_flag=True, help="Print the next ten nominal times, and send nothing. Needs no broker.")
@click.option(
    "--after",
    "after_ms",
    type=time_ms,
    metavar="TIME",
    help="With --dry-run: the times after this one. TIME as for --start. [now]",
)
@output_option
def create(dry_run: bool, after_ms: int | None, output: str, **options: Any) -> None:
    """Preview a schedule: its next ten nominal times, in words, and clock changes of the next year.

    The command computes the times as the sidecar does, by the time zones of the same package. Times that a gap skips
    are not printed. --dry-run is required: a producer sends the request.

    \b
      postdate schedule create --dry-run --cron '30 2 * * *' --zone Europe/Berlin --after 2026-10-24T00:00:00Z
    """
    from postdate.cli.schedule_preview import next_occurrences, preview

    if not dry_run:
        raise click.UsageError("give --dry-run: this version previews schedules and cannot create them")
    wanted = _schedule_of({ID: b"preview", **repeat_headers(options)})
    after_ms = now_ms() if after_ms is None else after_ms
    occurrences = next_occurrences(wanted, after_ms, PREVIEW_MAX)
    if output == "json":
        click.echo(json.dumps({"next": [occurrence.nominal_ms for occurrence in occurrences]}))
        return
    for line in preview(wanted, occurrences, after_ms):
        click.echo(line)
