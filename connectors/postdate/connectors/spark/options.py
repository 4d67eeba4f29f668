"""What an audit is asked to do. Immutable; checked when made."""

from __future__ import annotations

from dataclasses import dataclass

from postdate.connectors.spark.errors import JobUsageError
from postdate.connectors.spark.job_options import TopicsOptions, require_shown
from postdate.connectors.spark.limits import KEEP_DAYS_DEFAULT, SAMPLES_DEFAULT, SAMPLES_MAX, SLACK_MS_DEFAULT
from postdate.connectors.spark.unanswered import MODES, Mode


@dataclass(frozen=True)
class AuditOptions(TopicsOptions):
    """One audit. Raises JobUsageError where it makes no sense.

    `from_ms` and `to_ms` choose requests by their timestamp, epoch milliseconds, the upper one excluded. `targets`
    empty: those that the requests name; otherwise only these are read. `verdicts` are the answers that the request
    topics owe (`none`: those that are there are checked all the same). `state` is a directory or URL that holds the
    tables of all audits that name it: an audit reads what is new since the last one, all of it. They keep closed rows
    for `keep_days`. `html` is a file or URL for the page. `count_aborted` reads the targets a second time to count the
    copies that aborted. `strict`: an audit that left something unverified has failed.
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
    strict: bool = False

    @property
    def needs_delta(self) -> bool:
        return self.state is not None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_shown("samples", self.samples, SAMPLES_MAX)
        if self.slack_ms < 0:
            raise JobUsageError("Slack and settle time are not negative.")
        if self.from_ms is not None and self.to_ms is not None and self.from_ms >= self.to_ms:
            raise JobUsageError("The window is empty: its beginning does not lie before its end.")
        if self.state is not None and (self.targets or self.count_aborted or self.from_ms or self.to_ms):
            raise JobUsageError("With a state all that is new is audited: no window, no targets.")
        if self.keep_days < 1:
            raise JobUsageError("Closed rows are kept for at least one day.")
        if self.verdicts not in MODES:
            raise JobUsageError(f"Verdicts are required for one of {', '.join(MODES)}, not {self.verdicts}.")
