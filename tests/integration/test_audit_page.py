"""Goal: the page of an audit is readable on phone and desktop, in light and dark mode, and needs no script.

Method: a real browser without scripts opens a page of a hand-written outcome from its file. From the colours that the
browser shows, the test computes the contrast between each text or mark and its background (WCAG 2.1: 4.5 for text, 3
for marks).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from postdate.spark.audit.chart_data import LATENESS_EDGES_MS, AuditPicture, TimeStep
from postdate.spark.audit.output import AuditOutcome, StateOutcome
from postdate.spark.audit.page import audit_page
from postdate.spark.job.bounds import Range
from postdate.spark.job.cluster_queries import TopicPartition
from postdate.spark.judging.summary import Outcomes, Sample, Summary
from postdate.spark.output.lateness import LatenessBound
from postdate.spark.rules.verdicts import VERDICTS
from postdate.spark.state.lateness_trend import TrendDay
from support.web.browser import DESK, PHONE, browser_page, check_layout

_START_MS = 1_795_258_284_000
_LEAST_CONTRAST = """(() => {
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => {
    const [red, green, blue] = numbers(color).slice(0, 3).map((part) => part / 255)
      .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const color = getComputedStyle(one).backgroundColor;
      if (numbers(color)[3] !== 0) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const ratio = (color, element) => {
    const [low, high] = [light(color), light(behind(element))].sort((one, other) => one - other);
    return (high + 0.05) / (low + 0.05);
  };
  const least = (selector, property) => Math.min(...[...document.querySelectorAll(selector)]
    .map((element) => ratio(getComputedStyle(element)[property], element)));
  return [least("h1, h2, p, th, td, b, span", "color"), least("svg text", "fill"), least("rect, circle", "fill"),
    least("path", "stroke")];
})()"""

_BROKEN_CELLS = """[...document.querySelectorAll("td:first-child, td.number")].filter((cell) => {
  const inside = document.createRange();
  inside.selectNodeContents(cell);
  return inside.getClientRects().length > 1;
}).map((cell) => cell.innerText)"""
_LEAST_LETTERS_PX = """Math.min(...[...document.querySelectorAll("svg text")].map((text) =>
  parseFloat(getComputedStyle(text).fontSize) * text.ownerSVGElement.getBoundingClientRect().width / 960))"""


@pytest.fixture
def page() -> Iterator[Page]:
    with browser_page(runs_scripts=False) as opened:
        yield opened


def outcome() -> AuditOutcome:
    """Returns the outcome of a run with violations, an exceeded lateness bound, and a range not yet verifiable."""
    counts = {**dict.fromkeys(VERDICTS, 0), "delivered": 120_034, "duplicate": 2, "capped": 12, "pending": 4_500}
    late = {"p50": 4, "p90": 21, "p99": 312, "p99_9": 1_900, "max": 92_000}
    samples = {"duplicate": [Sample("shop.requests/3/10177", ("2 committed records: shop.reminders/1/99",))]}
    days = tuple(
        TrendDay(
            date(2026, 10, 24) + timedelta(days=n),
            0 if n == 12 else 110_000 + 937 * n,
            {} if n == 12 else {name: int(value * (1 + 0.5 * math.sin(n))) for name, value in late.items()},
        )
        for n in range(30)
    )
    return AuditOutcome(
        ("shop.requests",),
        _START_MS,
        None,
        None,
        Summary(124_548, counts, late, samples, Outcomes(124_534, 2, {"capped": 12})),
        tuple(
            Range("requests", TopicPartition("shop.requests", n), 0, 0, 41_516, 41_520, n == 1, -1) for n in range(3)
        ),
        notes=("an open transaction hides offsets 41516 to 41520 of shop.requests/1",),
        state=StateOutcome("s3a://bucket/postdate-audit", 31, 4_512, 120_036, 1, counts),
        lateness_bounds=(LatenessBound("p99", 250),),
        trend=days,
    )


def picture() -> AuditPicture:
    lateness = tuple(max(0, 40_000 - 3_000 * number) for number in range(len(LATENESS_EDGES_MS)))
    moments = tuple(
        TimeStep(_START_MS + n * 900_000, 1_200, 1_100 + int(90 * math.sin(n / 5)), 1_100, 3_000 + 40 * n)
        for n in range(96)
    )
    return AuditPicture(lateness, 900_000, moments)


def test_the_page_reads_well_everywhere_without_a_script(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "audit.html"
    path.write_text(audit_page(outcome(), picture()), encoding="utf-8")
    page.goto(path.as_uri())
    expect(page.locator("svg")).to_have_count(5)
    for size in (PHONE, DESK):
        for scheme in ("dark", "light"):
            check_layout(page, size, scheme, "audit")
            texts, axis, marks, lines = page.evaluate(_LEAST_CONTRAST)
            assert min(texts, axis) >= 4.5, (scheme, texts, axis)
            assert min(marks, lines) >= 3, (scheme, marks, lines)
        assert page.evaluate(_BROKEN_CELLS) == [], "a number or a name has a line break"
        assert page.evaluate(_LEAST_LETTERS_PX) >= 8
    for text in ("TOO LATE: p99 of the lateness is 312ms", "Lateness by day of the due time (UTC), ms", "2026-11-22"):
        expect(page.locator("body")).to_contain_text(text)
