"""`postdate pending list|count|get`: queries pending messages over HTTP.

Each running process answers for its shards. If the configuration names a broker, the commands find all processes
through the consumer group and merge their answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import click

from postdate.cli.commands import warn
from postdate.cli.operation.dead_letters import origin_bytes
from postdate.cli.operation.processes import processes_options, warn_about_unqueried_shards
from postdate.cli.options import Command, from_option, max_option, now_ms, output_option, time_ms, until_option
from postdate.wire.dispatch_log import DELIVERED
from postdate.wire.values.durations import format_duration
from postdate.wire.values.instants import format_instant

if TYPE_CHECKING:
    from postdate.sidecar.http.queries.deployment import Deployment

_ALL = 10**9
_COLUMNS = ("due", "state", "target", "id", "origin")
STATES = ("waiting", "parked")
_MEASURED_ROWS = 200  # rows that determine the column widths
_NOTHING = "no pending message matches"
_ENDED = (
    "; for a request that has ended, use `postdate pending get ORIGIN`; for undeliverable messages, "
    "`postdate dead-letters list`"
)


def _filter_options(default_state: str) -> Callable[[Command], Command]:
    """Returns a decorator that adds the filters that list and count share."""

    def add(command: Command) -> Command:
        for option in (
            click.option(
                "--state",
                type=click.Choice(STATES),
                help=f"parked: the target fails, is held, or is over its rate. [{default_state}]",
            ),
            until_option("Only messages due before this time.", kind=time_ms),
            from_option("Only messages due at or after this time.", kind=time_ms),
            click.option(
                "--target", "targets", multiple=True, metavar="TOPIC", help="Only messages for this target; repeatable."
            ),
            click.option("--partition", type=int, metavar="N", help="Only this partition of the request topic."),
            click.option("--requests", metavar="TOPIC", help="Only this request topic. [all]"),
        ):
            command = option(command)
        return command

    return add


def _origin(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    origin_bytes(text)
    return text


@click.group(short_help="List, count and look up pending messages.")
def pending() -> None:
    """List and count pending messages, and show the history of one request.

    These commands query running processes on their http.port. With a broker address (-b or the configuration) they find
    all processes through the consumer group. Without one they query http://127.0.0.1:8080, or --url. A single process
    forwards the query to the others; with several --url, each process answers only for its own shards.
    """


@pending.command("list", short_help="List pending messages.")
@processes_options
@_filter_options("waiting")
@click.option("--id", "request_id", metavar="ID", help="Only messages with this id.")
@click.option("--origin", metavar="ORIGIN", help="Only this request.")
@max_option("messages")
@click.option("--all", "everything", is_flag=True, help="List all messages, without --max.")
@click.option("--payload", is_flag=True, help="Show keys, headers and values in base64, if http.payloads is `allowed`.")
@output_option
def list_(
    deployment: Deployment,
    request_id: str | None,
    origin: str | None,
    entries_max: int,
    everything: bool,
    payload: bool,
    output: str,
    **filters: Any,
) -> None:
    """List pending messages: the waiting ones by due time, or with --state parked the parked ones by target.

    \b
      postdate pending list --from 2030-01-31T10:00:00Z --until 2030-01-31T10:01:00Z
      postdate pending list --id order-4711
    """
    query = _query(filters)
    query += [(name, value) for name, value in (("id", request_id), ("origin", origin)) if value is not None]
    query += [("payload", "true")] if payload else []
    limit = _ALL if everything else entries_max
    entries = deployment.entries(query, limit + 1)
    first = next(entries, None)
    if first is None:
        scope = " on the queried shards" if deployment.not_asked else ""
        click.echo(_NOTHING + scope + ("" if request_id is origin is None else _ENDED), err=True)
    else:
        entries = chain([first], entries)
    shown = islice(entries, limit)
    for line in map(json.dumps, shown) if output == "json" else table(_COLUMNS, map(_row, shown)):
        click.echo(line)
    if next(entries, None) is not None:
        warn(f"only the first {limit} are listed; use --max or --all for more")
    warn_about_unqueried_shards(deployment)


@pending.command(short_help="Count pending messages.")
@processes_options
@_filter_options("both")
@output_option
def count(deployment: Deployment, output: str, **filters: Any) -> None:
    """Count pending messages: all, those due in a window, or those for a target.

    Without --state the count includes waiting and parked messages. It is `N or more` if the count reached its limit or
    if a shard did not answer.

    \b
      postdate pending count --until now      counts overdue messages
    """
    total = deployment.count(_query(filters))
    if output == "json":
        click.echo(json.dumps(total))
    else:
        click.echo(f"{total['count']}" if total["exact"] and not total["not_asked"] else f"{total['count']} or more")
    warn_about_unqueried_shards(deployment)


@pending.command(short_help="Print the history of one request.")
@processes_options
@click.argument("origin", callback=_origin)
@click.option("--payload", is_flag=True, help="Show key, headers and value in base64, if http.payloads is `allowed`.")
@output_option
def get(deployment: Deployment, origin: str, payload: bool, output: str) -> None:
    """Print the history of the request ORIGIN: when it was accepted, its due time, and its fates."""
    history = deployment.history(origin, [("payload", "true")] if payload else [])
    if output == "json":
        click.echo(json.dumps(history))
        return
    for line in _history(history):
        click.echo(line)


def _query(filters: dict[str, Any]) -> list[tuple[str, str]]:
    names = {"requests": "topic", "partition": "partition", "from": "from", "until": "until", "state": "state"}
    query = [(name, str(filters[option])) for option, name in names.items() if filters[option] is not None]
    return query + [("target", target) for target in filters["targets"]]


def table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yields the lines of a table with these columns; no line if there are no rows. The first rows determine the
    widths."""
    rows = iter(rows)
    first = [columns, *islice(rows, _MEASURED_ROWS)]
    widths = [max(len(row[column]) for row in first) for column in range(len(columns))]
    if len(first) == 1:
        return
    for row in chain(first, rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    attempt = f", attempt {entry['attempt']}" if entry.get("attempt") else ""
    return (
        format_instant(entry["due_ms"]),
        f"{entry['state']}{attempt}",
        entry["target"],
        entry["id"] or "-",
        entry["origin"],
    )


def _history(history: dict[str, Any]) -> Iterator[str]:
    yield f"{history['origin']}  {history['state']}"
    request, entry = history["request"] or {}, history["entry"]
    due_ms: int | None = request.get("due_ms")
    was_moved = False
    if request:
        to = f" to {request['target']}" if "target" in request else ""
        due = f", due {format_instant(due_ms)}" if due_ms is not None else ""
        attempt = f", attempt {request['attempt']}" if request.get("attempt") else ""
        action = request.get("refused") or request["action"]
        yield f"  {format_instant(request['accepted_ms'])}  requested: {action}{to}{due}{attempt}"
    for event in history["events"]:
        moved = late = ""
        if "by" in event and "due_ms" not in event:
            moved = f" by {event['by']}"
        elif "by" in event:
            due_ms = int(event["due_ms"])
            moved, was_moved = f" to {format_instant(due_ms)} by {event['by']}", True
        elif event["fate"] == DELIVERED and due_ms is not None:
            first_due_ms = event["first_due_ms"] if "latest_ms" in request and not was_moved else due_ms
            late = f", {_late(event.get('chosen_ms', first_due_ms), request, event['at_ms'])}"
        times = f" ({event['deliveries']:,} times)" if event.get("deliveries", 1) > 1 else ""
        yield f"  {format_instant(event['at_ms'])}  {event['fate']}{times}{moved}{late}  ({event['dispatch_log']})"
    if entry is not None:
        leaves_ms = entry.get("chosen_ms", entry["due_ms"])
        late = f", {_late(leaves_ms, request, now_ms())} so far" if now_ms() >= leaves_ms else ""
        window = ""
        if "window_ms" in entry:
            window = f" within {format_duration(entry['window_ms'])}, to leave at {format_instant(leaves_ms)}"
        yield f"  {format_instant(entry['due_ms'])}  due{window}, for {entry['target']}{late}"
    if not history["complete"]:
        yield "  the search of the dispatch log reached its limit: there may be more"


def _late(due_ms: int, request: dict[str, Any], at_ms: int) -> str:
    """Returns the lateness at a time, from the due time or the request's timestamp, whichever is later."""
    return f"{format_duration(max(at_ms - max(due_ms, request.get('accepted_ms', 0)), 0))} late"
