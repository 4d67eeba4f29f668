"""`postdate top`: shows the shards of a data directory on one screen, live.

It reads the mapped wheels and the status files of the shards on this machine. It needs no port, no broker and no lock,
and does not disturb the shards. It shows pending entries; metrics show late deliveries and their cause.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

import click
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from postdate.cli.commands import listed, print_note
from postdate.cli.limits import STATUS_SILENT_MS_MAX
from postdate.cli.options import Loader, configured_without_kafka, data_option, output_option, seconds_option
from postdate.sidecar.operation.shard_directories import FoundShard, find_shards, no_shard_in, require_directory
from postdate.sidecar.states import DELIVERING, State
from postdate.wheel.timing_wheel.forecast import ENDING, HORIZONS_MS, LATER, OVERDUE, PARKED
from postdate.wheel.timing_wheel.wheel_view import WheelSnapshot, present_snapshot

_BAR_CELLS = 40
_HORIZONS = tuple(name for name, _ in HORIZONS_MS)
_AHEAD = {
    OVERDUE: OVERDUE,
    **{name: f"{start} to {name}" for start, name in zip(("now", *_HORIZONS), _HORIZONS, strict=False)},
    LATER: f"after {_HORIZONS[-1]}",
}
"""The label of each bucket of due times."""


@dataclass(frozen=True, slots=True)
class Row:
    """One shard at one time. A value of None is unknown."""

    shard: str
    state: str
    why: str
    pending: int | None
    due_in_ms: int | None
    next_request: int | None
    lag: int | None
    horizons: dict[str, int]
    held: list[str] = field(default_factory=list)
    """The holds in the shard's last status: delivery, intake, target NAME."""


@dataclass(frozen=True, slots=True)
class TopSample:
    """All shards at one time; `at_s` is monotonic."""

    at_s: float
    rows: dict[str, Row]


@click.command(short_help="Show the shards of this machine, live.")
@configured_without_kafka
@data_option
@seconds_option("--interval", "1s", "100ms", "1h", "Time between two updates.")
@click.option("--once", is_flag=True, help="Print once and exit, as without a terminal.")
@output_option
def top(loader: Loader, data_dir: str | None, interval: float, once: bool, output: str) -> None:
    """Show the shards of this machine, live: states, pending entries, upcoming load, intake and delivery rates, holds.

    Columns: late (due, but not delivered yet), parked (the target fails, is held or is over its rate), next in (time
    until the next due time), ended/s (entries delivered, cancelled or dead), lag (requests not read yet). The bars
    count entries by due time; `ending` counts those that end without a delivery.

    Reads only the files of the data directory, so it needs no running process. Ctrl-C ends it. With --output json it
    prints one object per shard and exits.
    """
    path = require_directory(loader({"data_dir": data_dir}).config.data_path)

    def sample() -> TopSample:
        now_ms = time.time_ns() // 1_000_000
        rows = [_row(found, now_ms) for found in find_shards(path)]
        return TopSample(time.monotonic(), {row.shard: row for row in rows})

    first = sample()
    if not first.rows:
        print_note(no_shard_in(path))
        return
    if output == "json":
        for row in first.rows.values():
            click.echo(json.dumps(asdict(row)))
        return
    console = Console()
    if once or not console.is_terminal:
        console.print(screen(first, None))
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        before: TopSample | None = None
        while True:
            now = sample()
            live.update(screen(now, before), refresh=True)
            before = now
            time.sleep(interval)


def screen(now: TopSample, before: TopSample | None) -> Group:
    """Returns the screen: one line for each shard, the upcoming load of all shards, their holds, and the reasons of
    their states."""
    table = Table(box=None, padding=(0, 1, 0, 0))  # fits eighty columns
    for title in ("shard", "state"):
        table.add_column(title, no_wrap=True)
    for title in ("pending", "late", "parked", "next in", "read/s", "ended/s", "lag"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in now.rows.values():
        style = "" if row.state in DELIVERING else "bold red" if row.state == State.HALTED else "yellow"
        table.add_row(*_cells(row, now, before), style=style)
    reasons = [Text(f"{row.shard}: {row.why}") for row in now.rows.values() if row.why]
    return Group(table, "", _ahead(now.rows.values()), *_holds(now.rows.values()), *reasons)


def _holds(rows: Iterable[Row]) -> list[Text]:
    """Returns one line for each hold, with its shards."""
    shards: dict[str, list[str]] = {}
    for row in rows:
        for what in row.held:
            shards.setdefault(what, []).append(row.shard)
    return [Text(f"held: {what} ({listed(names)})", style="yellow") for what, names in shards.items()]


def _cells(row: Row, now: TopSample, before: TopSample | None) -> tuple[str, ...]:
    known = row.horizons
    late, parked = (str(known[name]) if known else "-" for name in (OVERDUE, PARKED))
    read, ended = _rates(row, now, before)
    pending = "-" if row.pending is None else f"{row.pending:,}"
    lag = "-" if row.lag is None else f"{row.lag:,}"
    return row.shard, row.state, pending, late, parked, _span(row.due_in_ms), read, ended, lag


def _rates(row: Row, now: TopSample, before: TopSample | None) -> tuple[str, str]:
    """Returns the requests read and the entries ended per second; a dash for a rate that is unknown."""
    old = before.rows.get(row.shard) if before is not None else None
    if before is None or old is None or row.next_request is None or old.next_request is None:
        return "-", "-"
    seconds = max(now.at_s - before.at_s, 0.001)
    read = row.next_request - old.next_request
    if row.pending is None or old.pending is None:
        return f"{read / seconds:,.0f}", "-"
    ended = max(old.pending + read - row.pending, 0)
    return f"{read / seconds:,.0f}", f"{ended / seconds:,.0f}"


def _ahead(rows: Iterable[Row]) -> Table:
    """Returns the entries due within each horizon, as bars, and the number of ending entries."""
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row.horizons)
    most = max([total[name] for name in _AHEAD], default=0)
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column()
    for name, label in _AHEAD.items():
        bar = ProgressBar(total=max(most, 1), completed=total[name], width=_BAR_CELLS)
        table.add_row(label, f"{total[name]:,}", bar)
    table.add_row("ending", f"{total[ENDING]:,}")
    return table


def _row(found: FoundShard, now_ms: int) -> Row:
    status, age_ms = found.status, found.age_ms(now_ms)
    silent = age_ms is None or age_ms > STATUS_SILENT_MS_MAX
    snapshot = present_snapshot(found.directory)
    return Row(
        shard=found.name,
        state="not served" if silent else found.state.value,
        why="" if status is None or silent else status.why,
        pending=found.pending,
        due_in_ms=None if snapshot is None else _due_in_ms(snapshot, now_ms),
        next_request=found.next_request,
        lag=None if status is None or silent else status.lag,
        horizons={} if snapshot is None else snapshot.pending_by_horizon(now_ms),
        held=[] if status is None else status.held,
    )


def _due_in_ms(snapshot: WheelSnapshot, now_ms: int) -> int | None:
    next_due = snapshot.next_due_ms()
    return None if next_due is None else max(next_due - now_ms, 0)


def _span(ms: int | None) -> str:
    """Returns a duration in its largest unit: with one decimal place from 1 s on, as whole milliseconds below; `now`
    for 0, and a dash for None."""
    if ms is None:
        return "-"
    for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if ms >= unit_ms:
            return f"{ms * 10 // unit_ms / 10:.1f} {unit}"
    return "now" if ms == 0 else f"{ms} ms"
