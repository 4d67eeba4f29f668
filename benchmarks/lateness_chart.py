"""`python -m benchmarks.lateness_chart`: draws docs/images/lateness.svg from bench.json and peers.json.

The chart shows the p99 of lateness against load. The values of Postdate and raw producers come from `make bench`, those
of RocketMQ and NATS from `make peers`. Both axes are logarithmic.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path

from benchmarks.conditions import ROOT

CHART = ROOT / "docs/images/lateness.svg"
_POSTDATE, _RAW = "Postdate", "raw producers"
_COLORS = {_POSTDATE: "#2358b8", _RAW: "#1b7a43", "RocketMQ": "#c4314b", "NATS JetStream": "#7d4fa0"}
_LEFT, _RIGHT, _TOP, _BOTTOM = 70.0, 560.0, 40.0, 300.0
_RATES = (1_000, 3_000, 10_000)
_TICKS = (20, 50, 100, 200, 500)

_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 360" role="img"
  font-family="sans-serif" font-size="15">
  <title>p99 of lateness against load: raw producers, Postdate, RocketMQ, NATS</title>
  <rect width="760" height="360" rx="8" fill="#fff"/>
"""

Lines = dict[str, dict[int, float]]
"""The p99 of each system in ms, by messages a second."""


def lines() -> Lines:
    """Reads the p99 values from both records."""
    cases = json.loads((ROOT / "benchmarks/bench.json").read_text())["result"]["cases"]
    found: Lines = {name: {} for name in _COLORS}
    for rate in _RATES:
        case = cases[f"steady {rate}/s"]
        found[_POSTDATE][rate] = case["arrival_p99_ms"]["median"]
        found[_RAW][rate] = case["raw_arrival_p99_ms"]["median"]
    for case in json.loads((ROOT / "benchmarks/peers.json").read_text())["cases"]:
        rate = case["case"].removesuffix("/s").replace(",", "")
        if case["system"] != _POSTDATE and rate.isdigit():
            found[case["system"]][int(rate)] = case["figures"]["p99_ms"]
    return found


def draw(found: Lines) -> str:
    """Returns the chart as SVG."""
    drawn = [_text((_LEFT - 55, _TOP - 18), "p99 of lateness, ms", "start")]
    for rate in _RATES:
        drawn += [
            _line([(_x(rate), _TOP), (_x(rate), _BOTTOM)]),
            _text((_x(rate), _BOTTOM + 20), f"{rate:,}", "middle"),
        ]
    for tick in _TICKS:
        drawn += [_line([(_LEFT, _y(tick)), (_RIGHT, _y(tick))]), _text((_LEFT - 8, _y(tick) + 5), str(tick), "end")]
    drawn.append(_text(((_LEFT + _RIGHT) / 2, _BOTTOM + 42), "messages a second", "middle"))
    for name, points in found.items():
        places = [(_x(rate), _y(value)) for rate, value in sorted(points.items())]
        drawn.append(_line(places, _COLORS[name], 2.5))
        for (x, y), (rate, value) in zip(places, sorted(points.items()), strict=True):
            title = f"<title>{name}, {rate:,}/s: {value:.0f} ms</title>"
            drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{_COLORS[name]}">{title}</circle>')
        drawn.append(_text((places[-1][0] + 12, places[-1][1] + 5), name, "start", _COLORS[name]))
    body = "\n  ".join(drawn)
    return f"{_HEAD}  {body}\n</svg>\n"


def _x(rate: float) -> float:
    return _between(rate, _RATES[0], _RATES[-1], _LEFT + 20, _RIGHT - 20)


def _y(value: float) -> float:
    return _between(value, _TICKS[0], _TICKS[-1], _BOTTOM, _TOP)


def _between(value: float, low: float, high: float, start: float, end: float) -> float:
    return start + (end - start) * math.log(value / low) / math.log(high / low)


def _text(place: tuple[float, float], text: str, anchor: str, color: str = "#1d2433") -> str:
    return f'<text x="{place[0]:.1f}" y="{place[1]:.1f}" text-anchor="{anchor}" fill="{color}">{text}</text>'


def _line(places: Iterable[tuple[float, float]], color: str = "#d5dae3", width: float = 1) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="{width}"/>'


def main(path: Path = CHART) -> None:
    """Writes the chart."""
    path.write_text(draw(lines()), encoding="utf-8")


if __name__ == "__main__":
    main()
