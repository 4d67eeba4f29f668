"""The result of a bulk schedule as text and as one JSON object, with a chart of the added load.

The keys of the JSON are a contract: keys may be added, but no key is removed or changes its meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TextIO

from postdate.spark.output.load import NO_LOAD, LoadHistogram, load_lines
from postdate.spark.output.result import write_result
from postdate.wire.values.texts import counted


@dataclass(frozen=True)
class BadRow:
    """A refused row: its problems, and the row as truncated JSON."""

    reasons: tuple[str, ...]
    details: tuple[str, ...]
    row: str


@dataclass(frozen=True)
class BulkOutcome:
    """The result of a bulk schedule. `rejects` is the path for the refused rows. If it is None, refused rows stop the
    job, or are skipped (`without_bad`).

    `skipped` counts rows whose id already had a request. `reasons` counts rows by reason; a row may have several.
    """

    requests: str
    dry_run: bool
    now_ms: int
    rows: int
    rejected: int
    due_already: int
    reasons: dict[str, int]
    samples: tuple[BadRow, ...]
    skipped: int = 0
    sent: int = 0
    targets: dict[str, int] = field(default_factory=dict)
    load: LoadHistogram = NO_LOAD
    rejects: str | None = None
    without_bad: bool = False
    notes: tuple[str, ...] = ()
    seconds: float = field(default=0.0)

    @property
    def exit_code(self) -> int:
        """1 if bad rows stop the job, otherwise 0."""
        return 1 if self.rejected and self.rejects is None and not self.without_bad else 0

    @property
    def accepted(self) -> int:
        """The number of rows that are neither refused nor skipped."""
        return self.rows - self.rejected - self.skipped


def write_bulk_outcome(outcome: BulkOutcome, form: str, stream: TextIO) -> None:
    """Writes the outcome as `json` or `text`."""
    lines = (*_count_lines(outcome), *_sample_lines(outcome), *load_lines(outcome.load), *_closing_lines(outcome))
    write_result(as_bulk_json(outcome), lines, form, stream)


def as_bulk_json(outcome: BulkOutcome) -> dict[str, Any]:
    """Returns the object that `--output json` prints."""
    return {
        "v": 1,
        "exit": outcome.exit_code,
        "requests": outcome.requests,
        "dry_run": outcome.dry_run,
        "now_ms": outcome.now_ms,
        "rows": outcome.rows,
        "accepted": outcome.accepted,
        "rejected": outcome.rejected,
        "skipped": outcome.skipped,
        "due_already": outcome.due_already,
        "sent": outcome.sent,
        "reasons": outcome.reasons,
        "samples": [vars(bad) for bad in outcome.samples],
        "targets": outcome.targets,
        "load": outcome.load.as_json(),
        "rejects": outcome.rejects if outcome.rejected else None,
        "notes": list(outcome.notes),
        "seconds": round(outcome.seconds, 1),
    }


def _count_lines(outcome: BulkOutcome) -> list[str]:
    lines = [f"rows               {outcome.rows:>12,}"]
    lines += [f"  {reason:<17}{count:>12,}" for reason, count in outcome.reasons.items()]
    lines += [f"refused            {outcome.rejected:>12,}"] if outcome.rejected else []
    lines += [f"already requested  {outcome.skipped:>12,}"] if outcome.skipped else []
    lines += [f"due already        {outcome.due_already:>12,}"] if outcome.due_already else []
    return lines


def _sample_lines(outcome: BulkOutcome) -> list[str]:
    lines = []
    for bad in outcome.samples:
        reasons = "; ".join(f"{reason}: {detail}" for reason, detail in zip(bad.reasons, bad.details, strict=True))
        lines.append(f"  {reasons}")
        lines.append(f"    {bad.row}")
    return lines


def _closing_lines(outcome: BulkOutcome) -> list[str]:
    lines = list(outcome.notes)
    if outcome.exit_code:
        lines.append(f"NOTHING WAS SENT: {outcome.rejected:,} rows are refused; with --rejects the others are sent")
        return lines
    if outcome.rejected:
        lines.append(f"the refused rows are in {outcome.rejects}")
    targets = ", ".join(f"{target} {count:,}" for target, count in outcome.targets.items())
    to = f" (targets: {targets})" if targets else ""
    if outcome.dry_run:
        lines.append(
            f"dry run, nothing was sent: {counted(outcome.accepted, 'request')} would go to {outcome.requests}{to}"
        )
    else:
        lines.append(f"sent {counted(outcome.sent, 'request')} to {outcome.requests}{to}")
    return lines
