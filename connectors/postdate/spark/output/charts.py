"""Charts as inline SVG: bars over steps, and lines over time. Pure functions from numbers to text.

Colours are CSS classes; the page defines their values for light and dark mode. Every bar and every point of a line has
its numbers in a `<title>`, which browsers show as a tooltip. A chart fetches nothing and runs no script. Cost: linear
in the number of bars and points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

_WIDTH, _HEIGHT = 960, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 12, 28
_PLOT_WIDTH, _PLOT_HEIGHT = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
_LABELS: Final = 8
_GAP: Final = 0.2  # the share of a bar's width that stays free


@dataclass(frozen=True)
class Bar:
    """One bar: its label, its value, which is not negative, and its tooltip (`title`)."""

    label: str
    value: float
    title: str


@dataclass(frozen=True)
class Line:
    """One line: its name, and its value at each place of the x axis, or None."""

    name: str
    values: Sequence[float | None]


def bar_chart(bars: Sequence[Bar], what: str) -> str:
    """Returns a chart of the bars from left to right; `what` is its accessible name."""
    if not bars:
        return _nothing()
    top = _round_top(max(bar.value for bar in bars))
    place = _PLOT_WIDTH / len(bars)
    gap = min(_GAP * place, 2.0) if place > 2 else 0.0
    marks = []
    for number, bar in enumerate(bars):
        # A bar of a positive value is visible, however small the value.
        height = max(1.5, _PLOT_HEIGHT * bar.value / top) if bar.value else 0.0
        x, y = _LEFT + number * place + gap / 2, _TOP + _PLOT_HEIGHT - height
        marks.append(
            f'<rect class="series1" x="{x:.1f}" y="{y:.1f}" width="{max(0.5, place - gap):.1f}" height="{height:.1f}">'
            f"<title>{escape(bar.title)}</title></rect>"
        )
    labels = [(_LEFT + (number + 0.5) * place, bars[number].label) for number in _labelled(len(bars))]
    return _framed([*_grid(top), *marks, *_below(labels)], what)


def line_chart(places: Sequence[str], lines: Sequence[Line], what: str) -> str:
    """Returns a chart of the lines over `places`, the labels of the x axis, with a legend above. A value None
    interrupts a line."""
    known = [value for line in lines for value in line.values if value is not None]
    if not places or not known:
        return _nothing()
    top = _round_top(max(known))
    step = _PLOT_WIDTH / max(1, len(places) - 1)
    marks = []
    for number, line in enumerate(lines, 1):
        points = [
            (_LEFT + place * step, _TOP + _PLOT_HEIGHT * (1 - value / top), places[place], value)
            for place, value in enumerate(line.values)
            if value is not None
        ]
        begins = [
            not place or line.values[place - 1] is None for place, value in enumerate(line.values) if value is not None
        ]
        path = " ".join(f"{'M' if new else 'L'}{x:.1f} {y:.1f}" for new, (x, y, *_) in zip(begins, points, strict=True))
        marks.append(f'<path class="line{number}" d="{path}"/>')
        marks += [
            f'<circle class="series{number}" cx="{x:.1f}" cy="{y:.1f}" r="{3 if len(points) <= 60 else 1.5}">'
            f"<title>{escape(f'{place}: {line.name} {value:,.0f}')}</title></circle>"
            for x, y, place, value in points
        ]
    labels = [(_LEFT + number * step, places[number]) for number in _labelled(len(places))]
    legend = "".join(
        f'<span><i class="key{number}"></i>{escape(line.name)}</span>' for number, line in enumerate(lines, 1)
    )
    return f'<p class="legend">{legend}</p>' + _framed([*_grid(top), *marks, *_below(labels)], what)


def _framed(marks: Sequence[str], what: str) -> str:
    inner = "\n".join(marks)
    drawn = (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(what, quote=True)}">\n{inner}\n</svg>'
    )
    return f'<div class="scroll">{drawn}</div>'


def _nothing() -> str:
    return '<p class="nothing">nothing to show</p>'


def _round_top(value: float) -> float:
    """Returns the end of the axis: the smallest number that is at least `value` and 1, and is 1, 2, 4 or 5 times a
    power of ten."""
    size = 1.0
    while size < value:
        for factor in (2, 4, 5, 10):
            if size * factor >= value:
                return size * factor
        size *= 10
    return size


def _grid(top: float) -> list[str]:
    lines = []
    for part in range(5):
        y = _TOP + _PLOT_HEIGHT * (1 - part / 4)
        lines.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(
            f'<text class="axis" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_short(top * part / 4)}</text>'
        )
    return lines


def _below(labels: Sequence[tuple[float, str]]) -> list[str]:
    return [
        f'<text class="axis" x="{min(max(x, _LEFT + 20), _WIDTH - 50):.1f}" y="{_HEIGHT - 8}" text-anchor="middle">'
        f"{escape(label)}</text>"
        for x, label in labels
    ]


def _labelled(count: int) -> list[int]:
    """Returns the indices of the places that get a label: at most eight of `count`, evenly spaced."""
    step = -(-count // _LABELS)
    return list(range(0, count, step))


def _short(value: float) -> str:
    """Returns the label of a number on an axis: 1.5k for 1500."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
