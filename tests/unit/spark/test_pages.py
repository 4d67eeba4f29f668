"""Goal: the pages of the Spark jobs are complete, self-contained and true to scale, and never treat data of a topic as
markup.

Method: builds pages from handwritten outcomes, and reads the pages with Python's HTML parser. No Spark runs.
"""

from __future__ import annotations

import io
import re
from dataclasses import replace
from datetime import date, timedelta
from html.parser import HTMLParser

import pytest

from postdate.spark.audit.chart_data import LATENESS_EDGES_MS, AuditPicture, TimeStep
from postdate.spark.audit.metrics import audit_metrics
from postdate.spark.audit.output import AuditOutcome, as_json, write_outcome
from postdate.spark.audit.page import audit_page
from postdate.spark.job.bounds import Range
from postdate.spark.job.cluster_queries import TopicPartition
from postdate.spark.judging.schedule_figures import COUNTS, ScheduleFigures, SchedulesSummary
from postdate.spark.judging.summary import Sample, Summary
from postdate.spark.output.charts import Bar, Line, bar_chart, line_chart
from postdate.spark.output.load import LoadHistogram, LoadStep
from postdate.spark.output.page import duration_label, page, table
from postdate.spark.report.output import ReportOutcome
from postdate.spark.report.page import report_page
from postdate.spark.rules.verdicts import VERDICTS
from postdate.spark.state.lateness_trend import TrendDay

_HOUR = 3_600_000
_ALONE = {"meta", "rect", "line", "path", "circle"}


class _Reader(HTMLParser):
    """Fails if elements do not nest, and keeps what it has read."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _ALONE
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(text: str) -> _Reader:
    """Returns the parsed page. Checks that the page fetches and runs nothing, and that each of its classes has a
    style."""
    found = _Reader(text)
    assert not {"script", "link", "img", "iframe", "a"} & set(found.tags)
    assert not {name for name, _ in found.attributes} & {"src", "href", "style", "onload", "onclick"}
    assert "url(" not in text
    assert "@import" not in text
    style = found.texts[found.texts.index(next(one for one in found.texts if ":root" in one))]
    used = {name for key, value in found.attributes if key == "class" for name in (value or "").split()}
    assert used - set(re.findall(r"\.([a-z0-9]+)", style)) <= {"number"}
    return found


def audit_outcome() -> AuditOutcome:
    counts = {**dict.fromkeys(VERDICTS, 0), "delivered": 1_234, "duplicate": 1}
    sample = Sample("r/0/7", ("2 committed records <script>alert(1)</script>",))
    summary = Summary(1_235, counts, {"p50": 4, "p99": 1_500, "max": 90_000}, {"duplicate": [sample]})
    span = Range("requests", TopicPartition("r", 0), 0, 0, 1_235, 1_240, True, -1)
    return AuditOutcome(("r",), 1_795_258_284_000, None, None, summary, (span,), notes=("a note & more",))


def test_the_result_of_an_audit_is_complete() -> None:
    lateness = [0] * len(LATENESS_EDGES_MS)
    lateness[2], lateness[10] = 1_000, 234
    moments = tuple(TimeStep(1_795_258_284_000 + n * 60_000, 100, 90 if n else 0, 90, 10 * n) for n in range(12))
    outcome = replace(audit_outcome(), html="reports/a.html")
    found = read(audit_page(outcome, AuditPicture(tuple(lateness), 60_000, moments)))
    text = " ".join(found.texts)
    for said in ("1,234", "VIOLATIONS: 1", "a note & more", "<script>alert(1)</script>", "1.5 min", "r/0/7", "1235"):
        assert said.replace("1235", "1,235") in text, said
    assert found.tags.count("svg") == 3
    assert "a.html" not in text, "the reader of the page has found it"
    assert "1.0 s to 2.0 s: 234 messages, 18.96 %" in text


def test_an_audit_without_the_order_check_reports_it() -> None:
    outcome = replace(audit_outcome(), summary=replace(audit_outcome().summary, counts=dict.fromkeys(VERDICTS, 0)))
    assert (outcome.is_clean, outcome.exit_code, as_json(outcome)["order_checked"]) == (True, 0, True)
    unchecked = replace(outcome, order_checked=False)
    assert (unchecked.is_clean, unchecked.exit_code, as_json(unchecked)["order_checked"]) == (False, 0, False)
    assert replace(unchecked, strict=True).exit_code == 5
    said = "order not checked: there are too many messages; an audit with --strict compares all of them"
    picture = AuditPicture(tuple([0] * len(LATENESS_EDGES_MS)), 1_000, ())
    for checked, one in ((True, outcome), (False, unchecked)):
        text = io.StringIO()
        write_outcome(one, "text", text)
        assert (said in text.getvalue(), said in read(audit_page(one, picture)).texts) == (not checked, not checked)


def trend() -> tuple[TrendDay, ...]:
    figures = {"p50": 4, "p90": 9, "p99": 1_500, "p99_9": 2_000, "max": 90_000}
    start = date(2026, 10, 25)
    days = [TrendDay(start + timedelta(days=n), 1_000 + n, {k: v + n for k, v in figures.items()}) for n in range(30)]
    return (*days[:12], TrendDay(days[12].day), *days[13:])


def test_the_lateness_by_day_is_a_chart_and_a_table() -> None:
    with_trend = replace(audit_outcome(), trend=trend())
    empty = AuditPicture(tuple([0] * len(LATENESS_EDGES_MS)), 1_000, ())
    found = read(audit_page(with_trend, empty))
    text = " ".join(found.texts)
    assert "Lateness of deliveries of this run" in text
    assert found.tags.count("svg") == 2
    assert "2026-11-05: p99 ms 1,511" in text
    assert "2026-11-06: p99" not in text, "a day without deliveries has no point"
    assert "2026-11-06 0" in " ".join(text.split())
    assert text.count("2026-11-23") == 4, "three points and a line of the table"
    assert "Lateness by day" not in audit_page(audit_outcome(), empty)


def test_the_lateness_by_day_is_a_table_of_the_text_and_a_list_of_the_json() -> None:
    with_trend = replace(audit_outcome(), trend=trend())
    stream = io.StringIO()
    write_outcome(with_trend, "text", stream)
    lines = stream.getvalue().splitlines()
    (place,) = [
        number
        for number, line in enumerate(lines)
        if line.startswith("Lateness by day of the due time (UTC), ms; all runs, without schedules")
    ]
    assert lines[place + 1].split() == ["day", "delivered", "p50", "p90", "p99", "p99.9", "max"]
    assert lines[place + 2].split() == ["2026-10-25", "1,000", "4", "9", "1,500", "2,000", "90,000"]
    assert lines[place + 14].split() == ["2026-11-06", "0"]
    assert lines[place + 31].split()[0] == "2026-11-23"
    assert len({len(line) for line in lines[place + 1 : place + 32]} - {len(lines[place + 14])}) == 1, "aligned"
    told = as_json(with_trend)["trend"]
    assert "lateness of this run  p50 4 ms  p99 1,500 ms  max 90,000 ms" in lines
    assert told[0] == {"day": "2026-10-25", "delivered": 1_000, "lateness_ms": trend()[0].lateness_ms}
    assert told[12] == {"day": "2026-11-06", "delivered": 0, "lateness_ms": None}
    assert len(told) == 30
    assert as_json(audit_outcome())["trend"] is None


def with_schedules() -> AuditOutcome:
    nothing = dict.fromkeys(COUNTS, 0)
    one = ScheduleFigures("r/0/7", "orders", None, 1_795_258_284_000, {**nothing, "verified": 40, "missing": 2}, {})
    found = SchedulesSummary(3, {**nothing, "occurred": 12, "verified": 11, "missing": 2, "gap": 1}, (one,))
    return replace(audit_outcome(), summary=replace(audit_outcome().summary, schedules=found))


def test_schedules_are_in_every_output() -> None:
    empty = AuditPicture(tuple([0] * len(LATENESS_EDGES_MS)), 1_000, ())
    page = " ".join(read(audit_page(with_schedules(), empty)).texts)
    assert "3 schedules. Their occurrences that this run judged:" in page
    assert "verified or rightly skipped" in page
    assert "r/0/7 orders 2026-11-21 10:51:24 40 2" in " ".join(page.split())
    stream = io.StringIO()
    write_outcome(with_schedules(), "text", stream)
    assert (
        "3 schedules; occurrences: occurred 12  verified or rightly skipped 11  missing 2  gap 1"
        in stream.getvalue().splitlines()
    )
    found = as_json(with_schedules())["schedules"]
    assert (found["judged"], found["occurrences"]["missing"]) == (3, 2)
    assert found["each"][0]["origin"] == "r/0/7"
    text = audit_metrics(with_schedules(), 0)
    assert 'postdate_audit_schedules{topic="r"} 3.0' in text
    assert 'postdate_audit_occurrences{outcome="missing",topic="r"} 2.0' in text


def test_an_audit_without_schedules_does_not_mention_them() -> None:
    empty = AuditPicture(tuple([0] * len(LATENESS_EDGES_MS)), 1_000, ())
    stream = io.StringIO()
    write_outcome(audit_outcome(), "text", stream)
    for text in (audit_page(audit_outcome(), empty), stream.getvalue(), audit_metrics(audit_outcome(), 0)):
        assert "occurrences" not in text
    assert as_json(audit_outcome())["schedules"] is None


def test_a_report_is_complete() -> None:
    steps = (LoadStep(10 * _HOUR, 5, 500), LoadStep(11 * _HOUR, 7, 900))
    spread = {"p50": 1, "p90": 2, "p99": 3, "p99_9": 4, "max": 5_000}
    outcome = ReportOutcome(
        *(("r",), 10 * _HOUR, 12, 3, 2, LoadHistogram(_HOUR, steps, LoadStep(10 * _HOUR, 4, 400))),
        loads=tuple(
            {"by": by, "name": by, "messages": 12, "size_bytes": 1_400} for by in ("all", "target", "partition")
        ),
        lateness=(
            {"by": "all", "name": "all", "messages": 9, **spread},
            *({"by": "hour", "name": str(hour * _HOUR), "messages": 4, **spread} for hour in (8, 9)),
        ),
        late=({"origin": "r/0/9", "target": None, "due_ms": 0, "ended_ms": 5_000, "lateness_ms": 5_000},),
    )
    found = read(report_page(outcome))
    text = " ".join(found.texts)
    for said in ("1970-01-01 11:00 UTC: 7 messages, 900 bytes", "5,000", "r/0/9", "unknown", "1970-01-01 08:00"):
        assert said in text, said
    assert found.tags.count("svg") == 2


def test_a_page_without_content_is_valid_html() -> None:
    picture = AuditPicture(tuple([0] * len(LATENESS_EDGES_MS)), 1_000, ())
    assert " ".join(read(audit_page(audit_outcome(), picture)).texts).count("nothing to show") == 3
    assert "nothing to show" in report_page(ReportOutcome(("r",), 0, 0, 0, 0))


def test_bars_are_to_scale() -> None:
    drawn = bar_chart([Bar("a", 50, "a"), Bar("b", 100, "b"), Bar("c", 0, "c"), Bar("d", 0.001, "d")], "what")
    half, whole, none, little = (float(height) for height in re.findall(r'<rect [^>]*height="([0-9.]+)"', drawn))
    assert half * 2 == pytest.approx(whole)
    assert none == 0
    assert little > 0, "what is there is seen"
    assert ">100</text>" in drawn
    assert ">25</text>" in drawn


def test_a_line_is_to_scale_and_named() -> None:
    drawn = line_chart(["8:00", "9:00", "10:00"], [Line("one", [0, None, 400]), Line("two", [200, 200, 200])], "what")
    heights = [float(y) for y in re.findall(r'cy="([0-9.]+)"', drawn)]
    assert len(heights) == 5
    assert heights[2] == pytest.approx((heights[0] + heights[1]) / 2, abs=0.2)
    assert "<title>10:00: one 400</title>" in drawn
    one, two = re.findall(r'<path [^>]*d="([^"]*)"', drawn)
    assert (one.count("M"), one.count("L")) == (2, 0), "a place without a value interrupts the line"
    assert (two.count("M"), two.count("L")) == (1, 2)


def test_text_of_a_topic_is_not_markup() -> None:
    assert "&lt;b&gt;" in table(("<b>",), [("<b>",)])
    assert "<b>" not in table(("<b>",), [("<b>",)])
    assert "&lt;" in page("<", "<", [])
    assert [duration_label(ms) for ms in (5, 1_500, 90_000, 7_200_000)] == ["5 ms", "1.5 s", "1.5 min", "2.0 h"]
