"""What a load and lateness report is asked to tell. Immutable; checked when made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from postdate.connectors.spark.dialect_rows import DialectOptions, rules_of
from postdate.connectors.spark.errors import JobUsageError
from postdate.connectors.spark.limits import LATE_DEFAULT, LATE_MAX, SETTLE_MS_DEFAULT
from postdate.connectors.spark.options import LEVELS_MS_DEFAULT
from postdate.connectors.wire.topics import DEFAULT_REQUESTS, OwnTopics


@dataclass(frozen=True)
class ReportOptions:
    """One report. Raises JobUsageError where it makes no sense.

    `since_ms`: lateness of what was delivered from then on, epoch ms; what is ahead is always all of it. `late`: how
    many of the latest messages are named. `write` is a new directory or URL for Parquet, `html` a file or URL for the
    page. The rest is as in `AuditOptions`.
    """

    bootstrap_servers: str
    requests: tuple[str, ...] = (DEFAULT_REQUESTS,)
    levels_ms: tuple[int, ...] = LEVELS_MS_DEFAULT
    dialects: tuple[str, ...] = ()
    default_target: str = ""
    since_ms: int | None = None
    late: int = LATE_DEFAULT
    settle_ms: int = SETTLE_MS_DEFAULT
    write: str | None = None
    html: str | None = None
    output: Literal["text", "json"] = "text"
    master: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    spark_conf: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.bootstrap_servers:
            raise JobUsageError("No broker is named: give HOST:PORT.")
        if not self.requests:
            raise JobUsageError("No request topic is named.")
        if not 0 <= self.late <= LATE_MAX:
            raise JobUsageError(f"The number of late messages lies between 0 and {LATE_MAX}, not {self.late}.")
        if self.settle_ms < 0:
            raise JobUsageError("The settle time is not negative.")
        try:
            for own in self.own_topics():
                rules_of(own.requests, self.levels_ms, self.dialect_options())
        except ValueError as error:
            raise JobUsageError(f"{error}.") from error

    def dialect_options(self) -> DialectOptions:
        """What requests may say beside Postdate's own headers."""
        return DialectOptions(self.dialects, self.default_target)

    def own_topics(self) -> tuple[OwnTopics, ...]:
        """The topics that belong to each request topic, in the order given."""
        return tuple(OwnTopics.of(name) for name in dict.fromkeys(self.requests))
