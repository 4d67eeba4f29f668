"""The options of an audit. Immutable; validated on construction."""

from __future__ import annotations

from dataclasses import dataclass

from postdate.spark.errors import JobUsageError
from postdate.spark.job.options import TopicsOptions, require_shown
from postdate.spark.limits import (
    KEEP_DAYS_DEFAULT,
    SAMPLES_DEFAULT,
    SAMPLES_MAX,
    SLACK_MS_DEFAULT,
    TREND_DAYS_DEFAULT,
    TREND_DAYS_MAX,
)
from postdate.spark.output.lateness import LatenessBound, parse_bound
from postdate.spark.rules.unanswered import MODES, Mode


@dataclass(frozen=True)
class AuditOptions(TopicsOptions):
    """The options of one audit. Raises JobUsageError if they are invalid.

    `from_ms` and `to_ms` select requests by timestamp, [from, to), epoch milliseconds. `targets` are the only targets
    to read; if it is empty, the audit reads all targets that the requests name. `verdicts` selects the requests that
    must have an answer; existing answers are always checked. `state` is the directory or URL of the tables that all
    audits with this state share: an audit then reads only the records since the last one. The tables keep closed rows
    for at least `keep_days`. `html` is a file or URL for the page, `openmetrics` one for the metrics. `count_aborted`
    reads the targets again to count records of aborted transactions. A `strict` audit fails if it left something
    unverified. `fail_on_lateness` has bounds such as `p99=250ms`: the audit fails if a figure of the lateness is above
    its bound. `trend` needs a state, and adds the lateness by day of the last `trend_days`. With a state, the page
    always shows this lateness.
    """

    targets: tuple[str, ...] = ()
    verdicts: Mode = "none"
    from_ms: int | None = None
    to_ms: int | None = None
    slack_ms: int = SLACK_MS_DEFAULT
    samples: int = SAMPLES_DEFAULT
    count_aborted: bool = False
    state: str | None = None
    keep_days: int = KEEP_DAYS_DEFAULT
    html: str | None = None
    openmetrics: str | None = None
    strict: bool = False
    fail_on_lateness: tuple[str, ...] = ()
    trend: bool = False
    trend_days: int = TREND_DAYS_DEFAULT

    @property
    def lateness_bounds(self) -> tuple[LatenessBound, ...]:
        """The bounds of `fail_on_lateness`."""
        return tuple(map(parse_bound, self.fail_on_lateness))

    @property
    def needs_delta(self) -> bool:
        return self.state is not None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_shown("samples", self.samples, SAMPLES_MAX)
        if self.slack_ms < 0:
            raise JobUsageError("Slack and settle time must not be negative.")
        if self.from_ms is not None and self.to_ms is not None and self.from_ms >= self.to_ms:
            raise JobUsageError("The window is empty: its beginning does not lie before its end.")
        has_window = self.from_ms is not None or self.to_ms is not None
        if self.state is not None and (self.targets or self.count_aborted or has_window):
            raise JobUsageError("With a state, everything new is audited: no window, no targets.")
        if self.trend and self.state is None:
            raise JobUsageError("--trend reads the lateness from a state: name one with --state.")
        if not 1 <= self.trend_days <= TREND_DAYS_MAX:
            raise JobUsageError(f"The trend shows between 1 and {TREND_DAYS_MAX} days, not {self.trend_days}.")
        if self.keep_days < 1:
            raise JobUsageError("Closed rows are kept for at least one day.")
        if self.verdicts not in MODES:
            raise JobUsageError(f"Verdicts are required for one of {', '.join(MODES)}, not {self.verdicts}.")
        try:
            _ = self.lateness_bounds
        except ValueError as error:
            raise JobUsageError(f"{error}.") from error
