"""`postdate schedule list|show`: queries recurring schedules over HTTP, as `postdate pending` queries messages."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from postdate.cli.commands import fail, warn
from postdate.cli.limits import PREVIEW_MAX
from postdate.cli.operation.pending import STATES, table
from postdate.cli.operation.processes import processes_options, warn_about_unqueried_shards
from postdate.cli.options import max_option, output_option
from postdate.wire.dispatch_log import BACKFILLED, EXTRA, EXTRA_DEAD, OCCURRED, PAUSED, RESUMED, SKIPPED, TRIGGERED
from postdate.wire.values.durations import format_duration
from postdate.wire.values.instants import format_instant

if TYPE_CHECKING:
    from postdate.sidecar.http.queries.deployment import Deployment

_OCCURRENCES = (OCCURRED, SKIPPED)
_CONTROLS = (PAUSED, RESUMED, TRIGGERED, BACKFILLED)
_EXTRAS = {EXTRA: "delivered", EXTRA_DEAD: "dead-lettered"}
_COLUMNS = ("next", "id", "target", "origin", "times")


@click.command("list", short_help="List recurring schedules by their next time.")
@processes_options
@click.option("--target", "targets", multiple=True, metavar="TOPIC", help="Only schedules for this target; repeatable.")
@click.option("--requests", metavar="TOPIC", help="Only this request topic. [all]")
@max_option("schedules")
@output_option
def list_(
    deployment: Deployment, targets: tuple[str, ...], requests: str | None, entries_max: int, output: str
) -> None:
    """List recurring schedules by the time of their next occurrence.

    \b
      postdate schedule list -b localhost:9092
    """
    query = [("recurring", "true"), *(("target", target) for target in targets)]
    query += [("topic", requests)] if requests is not None else []
    # A schedule is parked while its target fails, is held or is over its rate. The list contains both states.
    states = (deployment.entries([*query, ("state", state)], entries_max + 1) for state in STATES)
    entries = sorted(chain.from_iterable(states), key=_next_ms)
    listed = entries[:entries_max]
    for line in map(json.dumps, listed) if output == "json" else table(_COLUMNS, map(_row, listed)):
        click.echo(line)
    if not entries:
        click.echo("no recurring schedule is pending", err=True)
    if len(entries) > entries_max:
        warn(f"only the first {entries_max} are listed; use --max for more")
    warn_about_unqueried_shards(deployment)


@click.command(short_help="Show the next and the latest occurrences of a schedule.")
@processes_options
@click.option("--id", "request_id", required=True, metavar="ID", help="Id of the schedule.")
@click.option("--requests", metavar="TOPIC", help="Only this request topic. [all]")
@output_option
def show(deployment: Deployment, request_id: str, requests: str | None, output: str) -> None:
    """Show a schedule: its next ten nominal times, and its latest ten occurrences with their lateness or skip reason.
    Extra deliveries are counted for each trigger and backfill.

    \b
      postdate schedule show -b localhost:9092 --id nightly
    """
    query = [("id", request_id)] + ([("topic", requests)] if requests is not None else [])
    schedules = [entry for entry in deployment.entries(query, PREVIEW_MAX) if "schedule" in entry]
    warn_about_unqueried_shards(deployment)
    if not schedules:
        fail(f"no schedule with the id {request_id} is pending")
    for entry in schedules:
        history = deployment.history(entry["origin"], [])
        # The history may contain an occurrence that was delivered after `schedules` was read. The entry in the history
        # is as recent as its events.
        entry = history["entry"] or entry
        events = _latest(history["events"])
        if output == "json":
            click.echo(json.dumps({**entry, "events": events, "complete": history["complete"]}))
            continue
        for line in _shown(entry, events, bool(history["complete"])):
            click.echo(line)


def _latest(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the last ten occurrences and the last ten controls in log order, then the last ten extra deliveries."""
    places = [
        [place for place, event in enumerate(events) if event["fate"] in fates][-PREVIEW_MAX:]
        for fates in (_OCCURRENCES, _CONTROLS, _EXTRAS)
    ]
    return [events[place] for place in (*sorted(places[0] + places[1]), *places[2])]


def _next_ms(entry: dict[str, Any]) -> float:
    return math.inf if entry["due_ms"] is None else float(entry["due_ms"])


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    times = " ".join(f"{name}={text!r}" for name, text in sorted(entry["schedule"].items()))
    due = "paused" if entry.get("paused") else format_instant(entry["due_ms"])
    return due, entry["id"], entry["target"], entry["origin"], times


def _shown(entry: dict[str, Any], events: list[dict[str, Any]], complete: bool) -> Iterator[str]:
    yield from table(_COLUMNS, [_row(entry)])
    yield "latest:" if complete else "latest (the search of the dispatch log reached its limit):"
    for event in events:
        if event["fate"] == OCCURRED:
            late = format_duration(max(event["at_ms"] - event.get("chosen_ms", event["due_ms"]), 0))
            yield f"{event['occurrence']:>6}  {format_instant(event['due_ms'])}  delivered {late} late"
        elif event["fate"] in _EXTRAS:
            last = f"the last one, number {event['number']:,}, at {format_instant(event['at_ms'])}"
            outcome = f"{event.get('deliveries', 1):,} {_EXTRAS[event['fate']]}"
            yield f"extra:  {format_instant(event['due_ms'])}  {outcome} by {event['by']}; {last}"
        elif event["fate"] == BACKFILLED:
            times = f"{format_instant(event['first_ms'])} to {format_instant(event['end_ms'])}"
            yield f"        {times}  backfilled by {event['by']}"
        elif event["fate"] in (PAUSED, RESUMED, TRIGGERED):
            yield f"        {format_instant(event['due_ms'])}  {event['fate']} by {event['by']}"
        else:
            last = "" if event["last"] == event["occurrence"] else f" to {event['last']}"
            yield f"{event['occurrence']:>6}{last}  skipped: {event['reason']}"
    for extra in entry.get("extras", []):
        until = f", until {format_instant(extra['end_ms'])}" if extra["end_ms"] != extra["due_ms"] else ""
        yield f"pending: {format_instant(extra['due_ms'])}{until}, by {extra['by']}"
    yield "next, once it is resumed:" if entry.get("paused") else "next:"
    for number, next_ms in enumerate(entry["next_ms"], entry["occurrence"]):
        # The occurrence numbers of a paused schedule depend on the time of its resume.
        yield f"{'' if entry.get('paused') else number:>6}  {format_instant(next_ms)}"
