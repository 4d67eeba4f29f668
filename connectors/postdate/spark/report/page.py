"""The page of a report: upcoming load, and lateness by hour, target and partition."""

from __future__ import annotations

from postdate.spark.limits import PICTURE_STEPS
from postdate.spark.output.charts import Bar, Line, bar_chart, line_chart
from postdate.spark.output.lateness import FIGURES, spelled_figure
from postdate.spark.output.load import widened
from postdate.spark.output.page import (
    duration_label,
    figures,
    page,
    paragraph,
    section,
    spelled_instant,
    table,
)
from postdate.spark.report.output import (
    ReportOutcome,
    late_rows,
    lateness_rows,
    load_rows,
    spelled_name,
)


def report_page(outcome: ReportOutcome) -> str:
    """Returns the document of a report."""
    every = next((group for group in outcome.lateness if group["by"] == "all"), None)
    shown = [(f"{outcome.ahead:,}", "messages ahead"), (f"{outcome.overdue:,}", "overdue")]
    shown += [(f"{outcome.stored:,}", "on the store topic")] if outcome.stored else []
    shown += [(f"{every['messages']:,}", "delivered")] if every else []
    shown += [(duration_label(every[name]), f"late, {spelled_figure(name)}") for name in FIGURES] if every else []
    return page(
        f"Load and lateness of {', '.join(outcome.requests)}",
        f"as of {spelled_instant(outcome.now_ms)} UTC",
        [
            figures(shown),
            *(paragraph(note, "faint") for note in outcome.notes),
            section("Ahead", *_ahead(outcome)),
            *(
                section(f"Ahead by {by}", table((by, "messages", "bytes"), load_rows(outcome, by)))
                for by in ("target", "partition")
            ),
            section("Lateness by hour of the due time", _lateness(outcome)),
            *(
                section(
                    f"Lateness by {by}, ms",
                    table((by, "messages", *(spelled_figure(name) for name in FIGURES)), lateness_rows(outcome, by)),
                )
                for by in ("hour", "target", "partition")
            ),
            section("Latest", table(("origin", "target", "due (UTC)", "late by ms"), late_rows(outcome))),
        ],
    )


def _ahead(outcome: ReportOutcome) -> list[str]:
    drawn = widened(outcome.load, PICTURE_STEPS)
    bars = [
        Bar(
            spelled_instant(step.start_ms)[5:16],
            step.rows,
            f"{spelled_instant(step.start_ms)[:16]} UTC: {step.rows:,} messages, {step.size_bytes:,} bytes",
        )
        for step in drawn.steps
    ]
    busiest = outcome.load.busiest
    caption = f"Steps of {duration_label(drawn.step_ms)}, UTC; what is overdue stands at the time of this report."
    if busiest is not None:
        caption += f" Busiest second: {busiest.rows:,} messages at {spelled_instant(busiest.start_ms)}."
    return [paragraph(caption, "faint"), bar_chart(bars, "messages ahead by due time")]


def _lateness(outcome: ReportOutcome) -> str:
    hours = outcome.by(outcome.lateness, "hour")[-PICTURE_STEPS:]
    lines = [Line(f"{name} ms", [hour[name] for hour in hours]) for name in ("p50", "p99", "max")]
    return line_chart([spelled_name(hour)[5:] for hour in hours], lines, "lateness percentiles by hour")
