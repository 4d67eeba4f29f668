"""A chart of lateness against load: one self-contained HTML file, for light and dark screens.

The chart has a line for each percentile with a point for each rate; both axes are logarithmic. If a case ran more than
once, a bar extends from its lowest to its highest value. A table below has the numbers. Thread rule: none.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from html import escape

from postdate.tools.bench.figures import Figure

_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 640, 20, 330
#: The smallest vertical distance between two labels at the ends of lines.
_NAME_HEIGHT = 15
_LINES = (("arrival_p50_ms", "p50"), ("arrival_p99_ms", "p99"), ("arrival_p99_9_ms", "p99.9"))
_STEPS = (1.0, 2.0, 5.0)

Scale = Callable[[float], float]
"""Converts a value to its position on an axis."""


def as_html(figures: Sequence[Figure]) -> str:
    """Returns a page with lateness at the consumer against the rate of messages. Requires figures of at least one
    steady case."""
    lines = {
        name: sorted((_rate(each), each) for each in figures if each.case.startswith("steady ") and each.name == figure)
        for figure, name in _LINES
    }
    rates = [rate for rate, _ in lines["p50"]]
    values = [value for points in lines.values() for _, each in points for value in each.values]
    ticks = _ticks(min(values), max(values))
    x, y = _scale(rates[0], rates[-1], _LEFT + 30, _RIGHT - 30), _scale(ticks[0], ticks[-1], _BOTTOM, _TOP)
    drawn = [_grid(rates, ticks, x, y)]
    ends: list[float] = []
    for name, points in sorted(lines.items(), key=lambda line: -line[1][-1][1].median):
        drawn.append(_line(name, points, x, y))
        ends.append(max(y(points[-1][1].median), ends[-1] + _NAME_HEIGHT if ends else 0.0))
        drawn.append(f'<text x="{_RIGHT}" y="{ends[-1] + 4:.1f}" class="{_class(name)}">{escape(name)}</text>')
    head = "".join(f"<th>{escape(name)}</th>" for name in lines)
    rows = [
        f"<tr><th>{rate:,g}</th>" + "".join(f"<td>{points[place][1].median:,.1f}</td>" for points in lines.values())
        for place, rate in enumerate(rates)
    ]
    runs = len(lines["p50"][0][1].values)
    return _PAGE.format(
        width=_WIDTH,
        height=_HEIGHT,
        drawing="\n".join(drawn),
        head=head,
        rows="\n".join(f"{row}</tr>" for row in rows),
        cores=os.cpu_count(),
        runs="" if runs == 1 else f" Medians of {runs} runs; a bar goes from the least to the most.",
    )


def _rate(figure: Figure) -> float:
    """Returns the rate of a steady case, messages a second."""
    return float(figure.case.removeprefix("steady ").removesuffix("/s"))


def _line(name: str, points: Sequence[tuple[float, Figure]], x: Scale, y: Scale) -> str:
    path = " ".join(f"{x(rate):.1f},{y(each.median):.1f}" for rate, each in points)
    drawn = [f'<polyline points="{path}" class="{_class(name)}"/>']
    for rate, each in points:
        at, low, high = x(rate), y(min(each.values)), y(max(each.values))
        if low != high:
            drawn.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{low:.1f}" y2="{high:.1f}" class="{_class(name)}"/>')
        title = f"<title>{rate:g}/s: {each.median:.1f} ms</title>"
        drawn.append(f'<circle cx="{at:.1f}" cy="{y(each.median):.1f}" r="4" class="{_class(name)}">{title}</circle>')
    return "\n".join(drawn)


def _class(name: str) -> str:
    return name.replace(".", "-")


def _grid(rates: Sequence[float], ticks: Sequence[float], x: Scale, y: Scale) -> str:
    drawn = []
    for rate in rates:
        drawn.append(f'<line x1="{x(rate):.1f}" x2="{x(rate):.1f}" y1="{_TOP}" y2="{_BOTTOM}" class="grid"/>')
        drawn.append(f'<text x="{x(rate):.1f}" y="{_BOTTOM + 20}" text-anchor="middle">{rate:,g}</text>')
    for value in ticks:
        drawn.append(f'<line x1="{_LEFT}" x2="{_RIGHT - 10}" y1="{y(value):.1f}" y2="{y(value):.1f}" class="grid"/>')
        drawn.append(f'<text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:,g} ms</text>')
    middle = (_LEFT + _RIGHT) // 2
    drawn.append(f'<text x="{middle}" y="{_BOTTOM + 45}" text-anchor="middle">messages a second</text>')
    return "\n".join(drawn)


def _ticks(least: float, most: float) -> list[float]:
    """Returns the values 1, 2, 5, 10 …, from the largest that is at most `least` to the smallest that is at least
    `most`."""
    low, high = math.floor(math.log10(max(least, 0.1))), math.ceil(math.log10(max(most, 1.0))) + 1
    steps = [step * 10.0**power for power in range(low, high) for step in _STEPS]
    first = max([step for step in steps if step <= least], default=steps[0])
    last = min([step for step in steps if step >= most and step > first])
    return [step for step in steps if first <= step <= last]


def _scale(low: float, high: float, start: float, end: float) -> Scale:
    """Returns a logarithmic axis. If `low` and `high` are equal, every value is placed in its middle."""
    if high <= low:
        return lambda value: (start + end) / 2
    span = math.log(high / low)
    return lambda value: start + (end - start) * math.log(max(value, low) / low) / span


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Postdate: lateness against load</title>
<style>:root {{ color-scheme: light dark; --p50: #1d6fa5; --p99: #c4314b; --p99-9: #7d4fa0 }}
@media (prefers-color-scheme: dark) {{ :root {{ --p50: #6cb8ea; --p99: #f2899a; --p99-9: #c9a3e6 }} }}
body {{ font: 15px system-ui, sans-serif; margin: 2em auto; padding: 0 1em; max-width: 46em }}
svg {{ width: 100%; height: auto }} svg text {{ font-size: 13px }} svg text, circle {{ fill: currentColor }}
polyline, line {{ stroke: currentColor; stroke-width: 2; fill: none }}
.grid {{ stroke: #8884; stroke-width: 1 }}
.p50 {{ color: var(--p50) }} .p99 {{ color: var(--p99) }} .p99-9 {{ color: var(--p99-9) }}
table {{ border-collapse: collapse }} th, td {{ padding: 0.2em 1em 0.2em 0; text-align: right; font-weight: normal }}
thead th {{ border-bottom: 1px solid #8888 }}</style>
<h1>Lateness against load</h1>
<p>Arrival at a <code>read_committed</code> consumer minus due time; broker, sidecar, load and consumer on one machine
with {cores} cores.{runs}</p>
<svg viewBox="0 0 {width} {height}" role="img" aria-label="lateness in milliseconds against messages a second">
{drawing}
</svg>
<table><thead><tr><th>messages a second</th>{head}</tr></thead><tbody>
{rows}
</tbody></table>
<p>Milliseconds.</p>
</html>
"""
