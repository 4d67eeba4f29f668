"""The results as a table and as JSON; the chart is in `chart`. Thread rule: none."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from postdate.tools.bench.figures import REFERENCE, Figure
from postdate.wire.values.texts import counted


def print_table(console: Console, figures: Sequence[Figure]) -> None:
    """Prints one row for each figure: median, spread, target, and whether it is met."""
    table = Table("case", "figure", "median", "least to most", "target", "")
    case = ""
    for figure in figures:
        if case and figure.case != case:
            table.add_section()
        verdict = {None: "", True: "met", False: "[bold red]missed[/]"}[figure.is_met]
        spread = f"{_number(min(figure.values))} to {_number(max(figure.values))}" if len(figure.values) > 1 else ""
        target = str(figure.target or "")
        name = figure.case if figure.case != case else ""
        table.add_row(name, figure.name, _number(figure.median), spread, target, verdict)
        case = figure.case
    if any(figure.target is not None for figure in figures):
        machine = counted(os.cpu_count() or 1, "core")
        table.caption = f"Targets are meant for {REFERENCE}; this machine has {machine}."
    console.print(table)


def as_json(figures: Sequence[Figure], settings: Mapping[str, Any]) -> str:
    """Returns one object: machine, settings, and each case with its figures."""
    cases: dict[str, dict[str, Any]] = {}
    for figure in figures:
        fields: dict[str, Any] = {
            "median": figure.median,
            "least": min(figure.values),
            "most": max(figure.values),
            "values": list(figure.values),
        }
        if figure.target is not None:
            fields |= {"target": str(figure.target), "met": figure.is_met}
        cases.setdefault(figure.case, {})[figure.name] = fields
    machine = {"cores": os.cpu_count(), "system": platform.system(), "python": platform.python_version()}
    return json.dumps(
        {"machine": machine, "targets_for": REFERENCE, "settings": dict(settings), "cases": cases}, indent=2
    )


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
