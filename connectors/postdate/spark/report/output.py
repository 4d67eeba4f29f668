"""The result of a report as text (aligned lines) and as one JSON object.

The keys of the JSON are a contract: keys may be added, but no key is removed or changes its meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from postdate.spark.limits import ROWS_SHOWN
from postdate.spark.output.lateness import FIGURES, spelled_figure
from postdate.spark.output.load import NO_LOAD, LoadHistogram, load_lines
from postdate.spark.output.page import duration_label, spelled_instant
from postdate.spark.output.result import write_result
from postdate.spark.output.text_table import aligned_lines

Group = dict[str, Any]
"""One group of messages: `by`, `name`, `messages`, and either `size_bytes` or the FIGURES. An entry of
`ReportOutcome.late` has the fields of one message instead."""


@dataclass(frozen=True)
class ReportOutcome:
    """The result of a report. Times are epoch milliseconds.

    `ahead` counts the pending messages. `overdue` counts those that should have been delivered by now, and `stored`
    those on the store topic. `load` is the upcoming load over time. `loads` and `lateness` are in total and by hour,
    target and partition. `late` lists the delivered messages with the highest lateness.
    """

    requests: tuple[str, ...]
    now_ms: int
    ahead: int
    overdue: int
    stored: int
    load: LoadHistogram = NO_LOAD
    loads: tuple[Group, ...] = ()
    lateness: tuple[Group, ...] = ()
    late: tuple[Group, ...] = ()
    notes: tuple[str, ...] = ()
    written: str | None = None
    html: str | None = None
    seconds: float = 0.0

    def by(self, groups: Sequence[Group], by: str) -> list[Group]:
        """Returns the groups of the kind `by`: hours in order of time, groups of another kind by descending size."""
        found = [group for group in groups if group["by"] == by]
        if by == "hour":
            return sorted(found, key=lambda group: int(group["name"]))
        return sorted(found, key=lambda group: (-group["messages"], group["name"]))


def write_report_outcome(outcome: ReportOutcome, form: str, stream: TextIO) -> None:
    """Writes the outcome as `json` or `text`."""
    write_result(as_report_json(outcome), _lines(outcome), form, stream)


def as_report_json(outcome: ReportOutcome) -> dict[str, Any]:
    """Returns the object that `--output json` prints."""
    return {"v": 1, **vars(outcome), "load": outcome.load.as_json(), "seconds": round(outcome.seconds, 1)}


def load_rows(outcome: ReportOutcome, by: str) -> list[tuple[object, ...]]:
    """Returns the upcoming load as table rows: name, messages, bytes."""
    return [(spelled_name(group), group["messages"], group["size_bytes"]) for group in outcome.by(outcome.loads, by)]


def lateness_rows(outcome: ReportOutcome, by: str) -> list[tuple[object, ...]]:
    """Returns the lateness of past deliveries as table rows: name, messages, percentiles in ms."""
    return [
        (spelled_name(group), group["messages"], *(group[name] for name in FIGURES))
        for group in outcome.by(outcome.lateness, by)
    ]


def late_rows(outcome: ReportOutcome) -> list[tuple[object, ...]]:
    """Returns the messages with the highest lateness as table rows: origin, target, due, lateness in ms."""
    return [
        (message["origin"], message["target"] or "unknown", spelled_instant(message["due_ms"]), message["lateness_ms"])
        for message in outcome.late
    ]


def spelled_name(group: Group) -> str:
    """Returns the name of a group; for an hour, its start."""
    return spelled_instant(int(group["name"]))[:16] if group["by"] == "hour" else str(group["name"])


def _lines(outcome: ReportOutcome) -> list[str]:
    lines = [f"messages ahead     {outcome.ahead:>12,}", f"  overdue          {outcome.overdue:>12,}"]
    lines += [f"  stored           {outcome.stored:>12,}"] if outcome.stored else []
    lines += load_lines(outcome.load, "load ahead")
    for by in ("hour", "target", "partition"):
        lines += aligned_lines(f"ahead by {by}", (by, "messages", "bytes"), load_rows(outcome, by), ROWS_SHOWN)
    for by in ("all", "hour", "target", "partition"):
        names = (by, "messages", *(spelled_figure(name) for name in FIGURES))
        lines += aligned_lines(f"lateness in ms by {by}", names, lateness_rows(outcome, by), ROWS_SHOWN)
    lines += aligned_lines("latest", ("origin", "target", "due (UTC)", "late by ms"), late_rows(outcome), ROWS_SHOWN)
    lines += outcome.notes
    if outcome.written is not None:
        lines.append(f"the tables are in {outcome.written}")
    if outcome.html is not None:
        lines.append(f"the page is {outcome.html}")
    worst = max((group["max"] for group in outcome.lateness if group["by"] == "all"), default=None)
    lines.append(
        "nothing was delivered" if worst is None else f"the latest message was late by {duration_label(worst)}"
    )
    return lines
