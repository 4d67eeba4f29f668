"""The outcome for a person, for a program, and as a picture.

The picture is one HTML file without anything from elsewhere: lateness against load, as SVG. Thread rule: none.
"""

from __future__ import annotations

import html
import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from postdate.sidecar.bench.figures import Figure

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 720, 360, 70, 50, 20
_LINES = (("arrival_p50_ms", "#2a6f97"), ("arrival_p99_ms", "#d1495b"), ("arrival_p99_9_ms", "#8d6a9f"))


def tell(console: Console, figures: Sequence[Figure]) -> None:
    """Print one row a figure: median, spread, target, and whether it is met."""
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
    console.print(table)


def as_json(figures: Sequence[Figure], settings: Mapping[str, Any]) -> str:
    """One object: machine, settings, and each case with its figures."""
    cases: dict[str, dict[str, Any]] = {}
    for figure in figures:
        said: dict[str, Any] = {
            "median": figure.median,
            "least": min(figure.values),
            "most": max(figure.values),
            "values": list(figure.values),
        }
        if figure.target is not None:
            said |= {"target": str(figure.target), "met": figure.is_met}
        cases.setdefault(figure.case, {})[figure.name] = said
    machine = {"cores": os.cpu_count(), "system": platform.system(), "python": platform.python_version()}
    return json.dumps({"machine": machine, "settings": dict(settings), "cases": cases}, indent=2)


def as_html(figures: Sequence[Figure]) -> str:
    """A page with lateness at the consumer against the rate of messages, both on logarithmic scales.

    Requires figures of at least one steady case.
    """
    rows = [figure for figure in figures if figure.case.startswith("steady ")]
    rates = {figure.case: float(figure.case.removeprefix("steady ").removesuffix("/s")) for figure in rows}
    names = {name for name, _ in _LINES}
    late = [figure.median for figure in rows if figure.name in names]
    x, y = (
        _scale(min(rates.values()), max(rates.values()), _LEFT, _WIDTH - 20),
        _scale(1.0, max(late), _HEIGHT - _BOTTOM, _TOP),
    )
    drawn = [_grid(x, y, sorted(set(rates.values())), max(late))]
    for number, (name, colour) in enumerate(_LINES):
        points = sorted((rates[each.case], each.median) for each in rows if each.name == name)
        path = " ".join(f"{x(rate):.1f},{y(value):.1f}" for rate, value in points)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for rate, value in points:
            title = f"<title>{rate:g}/s: {value:.1f} ms</title>"
            drawn.append(f'<circle cx="{x(rate):.1f}" cy="{y(value):.1f}" r="4" fill="{colour}">{title}</circle>')
        label = html.escape(name.removeprefix("arrival_").removesuffix("_ms").replace("p99_9", "p99.9"))
        drawn.append(f'<text x="{_LEFT + 20 + 70 * number}" y="{_TOP + 14}" fill="{colour}">{label}</text>')
    return _PAGE.format(width=_WIDTH, height=_HEIGHT, drawing="\n".join(drawn))


def _grid(x: Any, y: Any, rates: Sequence[float], most: float) -> str:
    lines = []
    for rate in rates:
        lines.append(f'<text x="{x(rate):.1f}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">{rate:g}/s</text>')
    value = 1.0
    while value <= most * 1.001:
        lines.append(f'<line x1="{_LEFT}" x2="{_WIDTH - 20}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#8884"/>')
        lines.append(f'<text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g} ms</text>')
        value *= 10
    return "\n".join(lines)


def _scale(low: float, high: float, start: float, end: float) -> Any:
    """A function from a value to its place on a logarithmic axis."""
    span = math.log(max(high, low * 1.01) / low)
    return lambda value: start + (end - start) * math.log(max(value, low) / low) / span


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Postdate: lateness against load</title>
<style>:root {{ color-scheme: light dark }}
body {{ font: 15px system-ui, sans-serif; margin: 2em auto; max-width: 46em }}
svg {{ width: 100%; height: auto }} svg text {{ font-size: 12px }}
svg text:not([fill]) {{ fill: currentColor }}</style>
<h1>Lateness against load</h1>
<p>Arrival at a <code>read_committed</code> consumer minus due time;
broker, sidecar, load and consumer on one machine.</p>
<svg viewBox="0 0 {width} {height}" role="img" aria-label="lateness in milliseconds against messages a second">
{drawing}
</svg>
</html>
"""
