"""The output of the demo: on a terminal a live table with the events above it, otherwise plain lines. At the end it
shows the results of the ledger, and those of the audit, which reads only the topics.

Everything goes to stdout. Thread rule: main thread.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from postdate.tools.demo.ledger import Account, Ledger, percentile
from postdate.tools.demo.traffic import now_ms

#: Seconds between two updates of the table on a terminal, and between two lines of other output.
_REDRAW_S = 0.2
_LINE_S = 1.0


class DemoScreen:
    """Shows a ledger as it fills. Within `with` on a terminal, the table stays at the bottom."""

    def __init__(self, console: Console, messages: int) -> None:
        self._console = console
        self._messages = messages
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._began = time.monotonic()
        self._shown = 0.0

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def event(self, text: str, style: str = "bold") -> None:
        """Prints an event above the table."""
        self._console.print(f"{self._elapsed_s():5.1f} s  {text}", style=style, markup=False, soft_wrap=True)

    def show(self, ledger: Ledger, sidecars: str) -> None:
        """Shows the current state, unless the last update was too recent."""
        now = time.monotonic()
        if now - self._shown < (_LINE_S if self._live is None else _REDRAW_S):
            return
        self._shown = now
        if self._live is None:
            self.event(self._line(ledger), style="dim")
        else:
            self._live.update(self._table(ledger, sidecars), refresh=True)

    def _line(self, ledger: Ledger) -> str:
        recent = ledger.recent_lateness_ms()
        return (
            f"sent {ledger.sent}, delivered {ledger.distinct} of {self._messages}, due and on the way"
            f" {ledger.overdue(now_ms())}; lateness p50 {percentile(recent, 0.5)} ms, p99 {percentile(recent, 0.99)} ms"
        )

    def _table(self, ledger: Ledger, sidecars: str) -> Group:
        recent = ledger.recent_lateness_ms()
        table = Table.grid(padding=(0, 2))
        table.add_row("time", f"{self._elapsed_s():.1f} s")
        table.add_row("sidecars", sidecars)
        table.add_row("sent", f"{ledger.sent:,}")
        table.add_row("delivered", f"{ledger.distinct:,} of {self._messages:,}")
        table.add_row("due, on the way", f"{ledger.overdue(now_ms()):,}")
        shares = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
        lateness = "   ".join(f"{name} {percentile(recent, share):,} ms" for name, share in shares)
        table.add_row("lateness now", lateness if recent else "")
        return Group(ProgressBar(total=self._messages, completed=ledger.distinct, width=60), table)

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began


#: The largest number of messages that a line lists.
_NAMED_MAX = 10


def print_account(console: Console, ledger: Ledger, account: Account) -> None:
    """Prints the result of the ledger."""
    lateness = ledger.lateness_ms()
    table = Table("demo", "", title="Deliveries, as read from the targets", title_justify="left")
    table.add_row("sent", f"{ledger.sent:,}")
    table.add_row("delivered", f"{ledger.distinct:,}")
    for name, found in _findings(account):
        table.add_row(name, f"{len(found):,}" + (f": {_named(found)}" if found else ""), style="red" if found else "")
    shares = (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    table.add_row("lateness", ", ".join(f"{name} {percentile(lateness, share):,} ms" for name, share in shares))
    console.print(table)


def _findings(account: Account) -> tuple[tuple[str, Sequence[object]], ...]:
    return (
        ("lost", account.lost),
        ("repeated", account.repeated),
        ("early", account.early),
        ("altered", account.altered),
    )


def _named(found: Sequence[object]) -> str:
    return ", ".join(str(one) for one in found[:_NAMED_MAX]) + (" …" if len(found) > _NAMED_MAX else "")


def read_audit(stdout: str) -> Mapping[str, Any]:
    """Returns the audit's result, which is the last JSON line of its output; empty if there is none."""
    lines = [line for line in stdout.splitlines() if line.startswith("{")]
    outcome: Mapping[str, Any] = json.loads(lines[-1]) if lines else {}
    return outcome


def print_audit(console: Console, outcome: Mapping[str, Any]) -> None:
    """Prints the audit's counts and lateness, and its samples of violations."""
    table = Table("audit", "", title="The audit of the topics by Spark", title_justify="left")
    for verdict, count in outcome["counts"].items():
        if count or verdict in ("delivered", "missing", "duplicate", "early"):
            table.add_row(verdict, f"{count:,}")
    figures = (outcome["lateness_ms"] or {}).items()
    lateness = ", ".join(f"{name.replace('_', '.')} {value:,} ms" for name, value in figures)
    table.add_row("lateness at commit", lateness)
    if outcome["aborted_copies"] is not None:
        table.add_row("aborted copies", f"{outcome['aborted_copies']:,}, which no read_committed consumer sees")
    console.print(table)
    for verdict, samples in outcome["samples"].items():
        for sample in samples:
            console.print(f"  {verdict}: {json.dumps(sample)}", style="red", markup=False, soft_wrap=True)


def audit_agrees(outcome: Mapping[str, Any], exit_code: int, sent: int) -> bool:
    """True if the audit found every message delivered, and no violation."""
    return exit_code == 0 and bool(outcome) and outcome["counts"]["delivered"] == sent
