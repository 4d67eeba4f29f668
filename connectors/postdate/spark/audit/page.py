"""The page of an audit: verdicts; lateness; accepted, delivered and pending messages over time; samples of
violations."""

from __future__ import annotations

from dataclasses import replace

from postdate.spark.audit.chart_data import LATENESS_EDGES_MS, AuditPicture
from postdate.spark.audit.output import (
    MEANINGS,
    TREND_COLUMNS,
    TREND_HEADING,
    AuditOutcome,
    closing_lines,
    occurrences_label,
    shown_verdicts,
    trend_rows,
)
from postdate.spark.judging.schedule_figures import PROBLEMS, SchedulesSummary
from postdate.spark.output.charts import Bar, Line, bar_chart, line_chart
from postdate.spark.output.lateness import spelled_figure
from postdate.spark.output.page import (
    duration_label,
    figures,
    page,
    paragraph,
    section,
    spelled_instant,
    table,
)
from postdate.spark.rules.verdicts import INFORMATION, VIOLATIONS

_GRAVE = ("VIOLATIONS", "TOO LATE", "cannot judge", "no violation, but", "order not checked")


def audit_page(outcome: AuditOutcome, picture: AuditPicture) -> str:
    """Returns the HTML document of an audit, with its charts."""
    summary = outcome.summary
    closing = closing_lines(replace(outcome, html=None))
    share = outcome.outcomes.verified_share
    headline = [(f"{summary.rows:,}", "requests judged"), (f"{summary.violations:,}", "violations")]
    headline += [(f"{100 * share:.2f} %", "verified")] if share is not None else []
    headline += [
        (duration_label(value), f"late, {spelled_figure(name)}") for name, value in summary.lateness_ms.items()
    ]
    return page(
        f"Audit of {', '.join(outcome.requests)}",
        f"as of {spelled_instant(outcome.snapshot_ms)} UTC",
        [
            figures(headline),
            *(paragraph(line, "bad" if line.startswith(_GRAVE) else "faint") for line in closing),
            section("Verdicts", _verdicts(outcome)),
            section("Lateness of deliveries of this run", _histogram(picture)),
            *([section(TREND_HEADING, *_trend(outcome))] if outcome.trend is not None else []),
            section("Over time", *_over_time(picture)),
            *([section("Schedules", *_schedules(summary.schedules))] if summary.schedules is not None else []),
            section("Samples", _samples(outcome)),
            section("What was read", _ranges(outcome)),
        ],
    )


def _verdicts(outcome: AuditOutcome) -> str:
    counts = outcome.summary.counts
    shown = shown_verdicts(outcome.summary)
    marks = [
        "bad" if name in VIOLATIONS and counts[name] else "warn" if name in INFORMATION and counts[name] else ""
        for name in shown
    ]
    return table(("verdict", "origins", "meaning"), [(name, counts[name], MEANINGS[name]) for name in shown], marks)


def _histogram(picture: AuditPicture) -> str:
    total = max(1, sum(picture.lateness))
    edges = [*LATENESS_EDGES_MS, None]
    bars = []
    for number, count in enumerate(picture.lateness):
        first, end = LATENESS_EDGES_MS[number], edges[number + 1]
        until = f"to {duration_label(end)}" if end is not None else "and more"
        title = f"{duration_label(first)} {until}: {count:,} messages, {100 * count / total:.2f} %"
        bars.append(Bar(duration_label(first), count, title))
    while bars and not bars[-1].value:
        bars.pop()
    return bar_chart(bars, "how many messages were late by how much")


def _trend(outcome: AuditOutcome) -> list[str]:
    days = outcome.trend or ()
    places = [day.day.isoformat() for day in days]

    def chart(*names: str) -> str:
        lines = [Line(f"{name} ms", [day.lateness_ms.get(name) for day in days]) for name in names]
        return line_chart(places, lines, f"{' and '.join(names)} of the lateness by day")

    # The maximum needs a separate chart: on its scale, the lines of the percentiles would coincide with the axis.
    return [chart("p50", "p99"), chart("max"), table(TREND_COLUMNS, trend_rows(outcome))]


def _over_time(picture: AuditPicture) -> list[str]:
    places = [spelled_instant(step.start_ms)[5:16] for step in picture.moments]
    flows = [
        Line("delivered", [step.delivered for step in picture.moments]),
        Line("accepted", [step.accepted for step in picture.moments]),
    ]
    pending = [Line("pending", [step.pending for step in picture.moments])]
    return [
        paragraph(f"Steps of {duration_label(picture.step_ms)}, UTC.", "faint"),
        line_chart(places, flows, "messages delivered and requests accepted over time"),
        line_chart(places, pending, "messages pending over time"),
    ]


def _schedules(schedules: SchedulesSummary) -> list[str]:
    totals = [(occurrences_label(name), count) for name, count in schedules.occurrences.items()]
    columns = ("schedule", "target", "fate", "next", "verified", "problems", "late, max")
    rows = [
        (
            *(
                schedule.origin,
                schedule.target,
                schedule.fate,
                spelled_instant(schedule.next_ms) if schedule.next_ms else "",
            ),
            *(schedule.occurrences["verified"], sum(schedule.occurrences[name] for name in PROBLEMS)),
            duration_label(schedule.lateness_ms["max"]) if schedule.lateness_ms else "",
        )
        for schedule in schedules.each
    ]
    marks = ["bad" if any(schedule.occurrences[name] for name in PROBLEMS) else "" for schedule in schedules.each]
    introduction = f"{schedules.judged:,} schedules. Their occurrences that this run judged:"
    return [paragraph(introduction, "faint"), table(("occurrences", "number"), totals), table(columns, rows, marks)]


def _samples(outcome: AuditOutcome) -> str:
    rows = [
        (verdict, sample.origin, "; ".join(sample.details))
        for verdict, samples in outcome.summary.samples.items()
        for sample in samples
    ]
    return table(("verdict", "origin", "details"), rows)


def _ranges(outcome: AuditOutcome) -> str:
    rows = [
        (
            span.role,
            f"{span.partition.topic}/{span.partition.number}",
            span.start,
            span.end,
            "yes" if span.capped else "",
        )
        for span in outcome.ranges
    ]
    return table(("role", "partition", "from", "to", "capped"), rows)
