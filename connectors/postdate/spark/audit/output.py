"""The result of an audit as text (a table on a terminal, plain lines elsewhere) and as one JSON object.

The keys of the JSON are a contract: keys may be added, but no key is removed or changes its meaning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, TextIO

from rich.console import Console
from rich.table import Table

from postdate.spark.audit.chart_data import AuditPicture
from postdate.spark.job.bounds import Range
from postdate.spark.judging.schedule_figures import SchedulesSummary
from postdate.spark.judging.summary import Outcomes, Summary
from postdate.spark.output.lateness import FIGURES, Exceeded, LatenessBound, exceeded, spelled_figure
from postdate.spark.output.result import write_result
from postdate.spark.output.text_table import aligned_lines
from postdate.spark.rules.verdicts import CAPPED, EXPIRED, INFORMATION, OUTSIDE_WINDOW, VERDICTS, VERIFIABLE, VIOLATIONS
from postdate.spark.state.lateness_trend import TrendDay
from postdate.wire.values.texts import counted

MEANINGS = {
    "delivered": "one fate, one record, the same message",
    "pending": "no fate yet, and not overdue",
    "cancelled": "cancelled; no record was delivered",
    "replaced": "a later request with the same id replaced it",
    "kept": "an earlier message with the same id was pending and stayed",
    "dropped": "an earlier message with the same id had been delivered",
    "applied": "a control that was carried out, or found nothing to do",
    "dead": "refused or undeliverable; its dead letter has the reason",
    "completed": "a schedule whose last occurrence was delivered or skipped",
    "missing": "overdue, without a fate or without its record",
    "duplicate": "more than one final fate, or more than one committed record",
    "orphan": "a fate or a record without its request",
    "early": "committed before it was due",
    "mismatch": "differs from its request",
    "contradiction": "its fate contradicts the records or the requests",
    "chain": "the dispatch log has a gap, a repeat, a foreign record, or an unreadable one",
    "false-verdict": "an answer that is false, repeated or unreadable",
    "unanswered": "a fate without the answer that --verdicts requires",
    "past-grace": "delivered later than due time + grace",
    "order": "delivered after a message of its key and target that was due later",
    "false-refusal": "refused for a reason that the request does not justify",
    "extra": "an occurrence that its schedule does not have",
    "wrong-skip": "an occurrence was skipped for a reason that does not apply",
    "out-of-policy": "an occurrence was delivered that the schedule skips",
    "unreadable": "a dead letter, or a record on a target, whose origin cannot be read",
    "request-expired": "retention has deleted the request",
    "target-expired": "retention or compaction may have deleted the delivered record",
    "target-recreated": "the target was created again after the delivery",
    "target-younger": "the target has no record that old: it was created again, or the message is lost",
    "unsettled": "its fate may have left the dispatch log",
    "capped": "an open transaction may hide its records",
    "not-selected": "its target was not read",
    "overtaken": "as order, but the message was late: its target may have failed",
    "policy-unknown": "a return whose named policy is not in the dispatch log",
    "zone-version": "other versions of the time zone rules decided than the audit has",
}

_VERDICT_WIDTH: Final = max(map(len, VERDICTS))
TREND_HEADING: Final = "Lateness by day of the due time (UTC), ms; all runs, without schedules"
TREND_COLUMNS: Final = ("day", "delivered", *map(spelled_figure, FIGURES))


@dataclass(frozen=True)
class Hole:
    """A range of offsets with requests that cannot be judged, because their fates have left the dispatch log."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    requests: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition} offsets {self.first_offset} to {self.last_offset} ({self.requests})"


@dataclass(frozen=True)
class VerdictTopicCounts:
    """The number of verdict records that the audit has `read`, and the number of `malformed` records among them.
    `required` is the mode of `--verdicts`."""

    required: str = "none"
    read: int = 0
    malformed: int = 0


@dataclass(frozen=True)
class StateOutcome:
    """The result of an incremental audit with the state at `path`.

    `closed` is the number of rows that this `run` has closed or closed again, `open` the number that stay open.
    `standing` is the number of violations of earlier runs that nobody has acknowledged. `counts` has the number of
    origins by verdict over all runs.
    """

    path: str
    run: int
    open: int
    closed: int
    standing: int
    counts: dict[str, int]


@dataclass(frozen=True)
class AuditOutcome:
    """The result of an audit. Times are epoch milliseconds.

    `aborted_copies` is the number of records of aborted transactions, or None if they were not counted. `picture` is
    the chart data of the page at `html`, or None without a page. `openmetrics` is the path or URL of the metrics.
    `order_checked` is True if the order of messages was compared. `left_unread` is the number of offsets that left the
    request topics before any run with the state had read them, and that have no row. `trend` is the lateness by day, or
    None if it was not computed. `returned_again` is the number of returns whose message
    an earlier return had returned already.
    """

    requests: tuple[str, ...]
    snapshot_ms: int
    from_ms: int | None
    to_ms: int | None
    summary: Summary
    ranges: tuple[Range, ...]
    verdict_records: VerdictTopicCounts = VerdictTopicCounts()
    holes: tuple[Hole, ...] = ()
    aborted_copies: int | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    state: StateOutcome | None = None
    picture: AuditPicture | None = None
    html: str | None = None
    openmetrics: str | None = None
    strict: bool = False
    order_checked: bool = True
    left_unread: int = 0
    lateness_bounds: tuple[LatenessBound, ...] = ()
    trend: tuple[TrendDay, ...] | None = None
    returned_again: int = 0

    @property
    def exceeded(self) -> tuple[Exceeded, ...]:
        """The figures of lateness above their bounds; empty if nothing was delivered."""
        return exceeded(self.lateness_bounds, self.summary.lateness_ms)

    @property
    def outcomes(self) -> Outcomes:
        """The numbers of verified and unverified requests, including requests that were not read, with reasons."""
        requests = [span for span in self.ranges if span.role == "requests"]
        outside, hidden = sum(span.outside for span in requests), sum(span.hidden for span in requests)
        return self.summary.outcomes.with_unread({OUTSIDE_WINDOW: outside, CAPPED: hidden, EXPIRED: self.left_unread})

    @property
    def unverified(self) -> dict[str, int]:
        """The numbers of requests that a different audit could verify, by reason."""
        return {reason: count for reason, count in self.outcomes.reasons.items() if reason in VERIFIABLE}

    @property
    def is_clean(self) -> bool:
        """True if no violation is open, and everything verifiable was verified."""
        is_complete = self.order_checked and not (self.holes or self.unverified)
        return is_complete and not (self.summary.violations or self.standing)

    @property
    def exit_code(self) -> int:
        """The first code that applies: 4 if a violation is open, 1 if the audit could not judge a request (`holes`),
        5 if a strict audit left something unverified, 3 if messages were later than a bound allows, otherwise 0."""
        if self.summary.violations or self.standing:
            return 4
        if self.holes:
            return 1
        if self.strict and not self.is_clean:
            return 5
        return 3 if self.exceeded else 0

    @property
    def standing(self) -> int:
        """The number of violations of earlier runs that nobody has acknowledged."""
        return self.state.standing if self.state is not None else 0


def write_outcome(outcome: AuditOutcome, form: str, stream: TextIO) -> None:
    """Writes the outcome as `json` or `text`."""
    summary = outcome.summary
    counts = [_table(summary)] if Console(file=stream).is_terminal else _count_lines(summary)
    trend = aligned_lines(TREND_HEADING, TREND_COLUMNS, trend_rows(outcome)) if outcome.trend else []
    trend += [""] if trend else []
    shown = (*counts, *_lateness_lines(summary), *trend, *_sample_lines(summary), *closing_lines(outcome))
    write_result(as_json(outcome), shown, form, stream)


def as_json(outcome: AuditOutcome) -> dict[str, Any]:
    """Returns the object that `--output json` prints."""
    summary = outcome.summary
    return {
        "v": 1,
        "clean": outcome.is_clean,
        "exit": outcome.exit_code,
        "requests": list(outcome.requests),
        "snapshot_ms": outcome.snapshot_ms,
        "from_ms": outcome.from_ms,
        "to_ms": outcome.to_ms,
        "origins": summary.rows,
        "violations": summary.violations,
        "counts": summary.counts,
        "outcomes": _outcomes(outcome.outcomes),
        "order_checked": outcome.order_checked,
        "lateness_ms": summary.lateness_ms or None,
        "schedules": _schedules(summary.schedules) if summary.schedules is not None else None,
        "lateness_exceeded": [vars(figure) for figure in outcome.exceeded],
        "trend": _trend(outcome.trend) if outcome.trend is not None else None,
        "samples": {
            verdict: [{"origin": sample.origin, "details": list(sample.details), **sample.facts} for sample in samples]
            for verdict, samples in summary.samples.items()
        },
        "verdict_records": vars(outcome.verdict_records),
        "holes": [vars(hole) for hole in outcome.holes],
        "aborted_copies": outcome.aborted_copies,
        "returned_again": outcome.returned_again,
        "ranges": [_range(span) for span in outcome.ranges],
        "notes": list(outcome.notes),
        "written": None,
        "html": outcome.html,
        "openmetrics": outcome.openmetrics,
        "state": vars(outcome.state) if outcome.state is not None else None,
        "seconds": round(outcome.seconds, 1),
    }


def _schedules(schedules: SchedulesSummary) -> dict[str, Any]:
    each = [{**vars(schedule), "lateness_ms": schedule.lateness_ms or None} for schedule in schedules.each]
    return {"judged": schedules.judged, "occurrences": schedules.occurrences, "each": each}


def trend_rows(outcome: AuditOutcome) -> list[tuple[object, ...]]:
    """Returns the lateness by day as table rows with TREND_COLUMNS; days without deliveries have no figures."""
    return [
        (day.day.isoformat(), day.delivered, *(day.lateness_ms.get(name) for name in FIGURES))
        for day in outcome.trend or ()
    ]


def _trend(days: Iterable[TrendDay]) -> list[dict[str, Any]]:
    return [
        {"day": day.day.isoformat(), "delivered": day.delivered, "lateness_ms": day.lateness_ms or None} for day in days
    ]


def _outcomes(outcomes: Outcomes) -> dict[str, Any]:
    counts = {"verified": outcomes.verified, "violated": outcomes.violated, "not_verifiable": outcomes.not_verifiable}
    reasons = dict(outcomes.reasons)
    return {**counts, "pending": outcomes.pending, "reasons": reasons, "verified_share": outcomes.verified_share}


def occurrences_label(name: str) -> str:
    """Returns the label of the count of occurrences with this name, one of COUNTS."""
    return "verified or rightly skipped" if name == "verified" else name.replace("_", " ")


def _schedule_line(schedules: SchedulesSummary) -> str:
    counts = "  ".join(f"{occurrences_label(name)} {count:,}" for name, count in schedules.occurrences.items() if count)
    return f"{counted(schedules.judged, 'schedule')}; occurrences: {counts or 'none yet'}"


def outcome_lines(outcomes: Outcomes) -> list[str]:
    """Returns lines with the numbers of verified and unverified requests, and the reasons."""
    if outcomes.verified_share is None and not outcomes.pending:
        return []
    share = f" ({100 * outcomes.verified_share:.2f} %)" if outcomes.verified_share is not None else ""
    lines = [
        f"verified {outcomes.verified:,}{share}  violated {outcomes.violated:,}  "
        f"not verifiable {outcomes.not_verifiable:,}  pending {outcomes.pending:,}"
    ]
    return lines + [f"  not verifiable, {reason}: {count:,}" for reason, count in outcomes.reasons.items()]


def range_lines(ranges: Iterable[Range]) -> list[str]:
    """Returns one line for each topic, with the offsets to read in its first eight partitions, and the partitions that
    open transactions cap."""
    by_topic: dict[tuple[str, str], list[Range]] = {}
    for span in ranges:
        by_topic.setdefault((span.role, span.partition.topic), []).append(span)
    lines = []
    for (role, topic), spans in by_topic.items():
        ends = " ".join(f"{span.partition.number}:{span.start}-{span.end}" for span in spans[:8])
        more = f" and {len(spans) - 8} more partitions" if len(spans) > 8 else ""
        capped = [str(span.partition.number) for span in spans if span.capped]
        hidden = f" (open transactions cap partitions {', '.join(capped)})" if capped else ""
        lines.append(f"{role} {topic}: {ends}{more}{hidden}")
    return lines


def _range(span: Range) -> dict[str, Any]:
    return {
        "role": span.role,
        "topic": span.partition.topic,
        "partition": span.partition.number,
        "start": span.start,
        "end": span.end,
        "log_start": span.log_start,
        "high_watermark": span.high_watermark,
        "capped": span.capped,
    }


def shown_verdicts(summary: Summary) -> list[str]:
    """Returns the verdicts to show: all kinds of violations, and all other verdicts that occur."""
    return [verdict for verdict in VERDICTS if verdict in VIOLATIONS or summary.counts[verdict]]


def _count_lines(summary: Summary) -> list[str]:
    return [
        f"{verdict:<{_VERDICT_WIDTH}} {summary.counts[verdict]:>12,}  {MEANINGS[verdict]}"
        for verdict in shown_verdicts(summary)
    ]


def _table(summary: Summary) -> Table:
    table = Table("verdict", "meaning")
    table.add_column("origins", justify="right")
    for verdict in shown_verdicts(summary):
        count = summary.counts[verdict]
        colour = "bold red" if verdict in VIOLATIONS and count else "yellow" if verdict in INFORMATION else None
        table.add_row(verdict, MEANINGS[verdict], f"{count:,}", style=colour)
    return table


def _lateness_lines(summary: Summary) -> list[str]:
    if not summary.lateness_ms:
        return []
    spelled = "  ".join(f"{spelled_figure(name)} {value:,} ms" for name, value in summary.lateness_ms.items())
    return [f"lateness of this run  {spelled}"]


def _sample_lines(summary: Summary) -> list[str]:
    lines = []
    for verdict, samples in summary.samples.items():
        lines.append(f"{verdict}:")
        lines += [f"  {sample.origin}: {'; '.join(sample.details)}" for sample in samples]
        if summary.counts[verdict] > len(samples):
            lines.append(f"  and {summary.counts[verdict] - len(samples):,} more")
    return lines


def closing_lines(outcome: AuditOutcome) -> list[str]:
    """Returns the last lines: notes, locations of results, and the overall result."""
    lines = list(outcome.notes)
    records = outcome.verdict_records
    if records.read:
        spoilt = f", {records.malformed:,} of them unreadable" if records.malformed else ""
        lines.append(f"verdict records: {records.read:,}{spoilt}")
    if outcome.aborted_copies is not None:
        lines.append(f"copies that aborted, which no read_committed consumer sees: {outcome.aborted_copies:,}")
    if outcome.returned_again:
        lines.append(f"returned more than once by their consumers: {counted(outcome.returned_again, 'message')}")
    if outcome.html is not None:
        lines.append(f"the page is {outcome.html}")
    if outcome.openmetrics is not None:
        lines.append(f"the metrics are in {outcome.openmetrics}")
    if outcome.state is not None:
        state = outcome.state
        lines.append(f"run {state.run} of {state.path}: {state.closed:,} judged for good, {state.open:,} stay open")
        if state.standing:
            lines.append(
                f"open violations of earlier runs: {state.standing:,}; "
                "`postdate audit acknowledge RUN` closes those of a run"
            )
    lines += outcome_lines(outcome.outcomes)
    if outcome.summary.schedules is not None:
        lines.append(_schedule_line(outcome.summary.schedules))
    if not outcome.order_checked:
        lines.append("order not checked: there are too many messages; an audit with --strict compares all of them")
    lines += [str(figure) for figure in outcome.exceeded]
    lines += [f"cannot judge, the fates have left the dispatch log: {hole}" for hole in outcome.holes]
    if outcome.summary.violations:
        lines.append(f"VIOLATIONS: {outcome.summary.violations:,}")
    elif outcome.is_clean:
        lines.append(f"clean: {counted(outcome.outcomes.verified, 'request')} verified, no violation")
    elif not outcome.holes and not outcome.standing:
        lines.append("no violation, but something was not verified, so the result is not clean")
    return lines
