"""The verdicts at the end: of the ledger, and of the audit, which reads only the topics.

Pure, except for printing. Thread rule: main thread.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from postdate.tools.demo.ledger import Account, Ledger, percentile

#: The most numbers of messages that a line lists.
_NAMED_MAX = 10


def tell_account(console: Console, ledger: Ledger, account: Account) -> None:
    """Print the result of the ledger."""
    lateness = ledger.lateness_ms()
    table = Table("own count", "", title="what the readers of the targets saw", title_justify="left")
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
    """The audit's result, the last line of its output; empty if there is none."""
    lines = [line for line in stdout.splitlines() if line.startswith("{")]
    outcome: Mapping[str, Any] = json.loads(lines[-1]) if lines else {}
    return outcome


def tell_audit(console: Console, outcome: Mapping[str, Any]) -> None:
    """Print the audit's counts and lateness, and its samples of violations."""
    table = Table("audit", "", title="what Spark found in the topics", title_justify="left")
    for verdict, count in outcome["counts"].items():
        if count or verdict in ("delivered", "missing", "duplicate", "early"):
            table.add_row(verdict, f"{count:,}")
    lateness = ", ".join(f"{name} {value:,} ms" for name, value in (outcome["lateness_ms"] or {}).items())
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
