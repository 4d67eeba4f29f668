"""The options of a load and lateness report. Immutable; validated on construction."""

from __future__ import annotations

from dataclasses import dataclass

from postdate.spark.job.options import TopicsOptions, require_shown
from postdate.spark.limits import LATE_DEFAULT, LATE_MAX


@dataclass(frozen=True)
class ReportOptions(TopicsOptions):
    """One report. Raises JobUsageError if the options are invalid.

    The lateness covers the messages that were delivered from `since_ms` on, epoch ms; the upcoming load is always
    complete. `late` is the number of messages with the highest lateness to list. `write` is a new directory or URL for
    Parquet tables, `html` a file or URL for the page.
    """

    since_ms: int | None = None
    late: int = LATE_DEFAULT
    write: str | None = None
    html: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_shown("late messages", self.late, LATE_MAX)
