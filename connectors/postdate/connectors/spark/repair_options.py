"""What a repair is asked to do. Immutable; checked when made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from postdate.connectors.spark.bulk_options import BulkOptions
from postdate.connectors.spark.dialect_rows import DialectOptions, rules_of
from postdate.connectors.spark.errors import JobUsageError
from postdate.connectors.spark.limits import SAMPLES_DEFAULT, SETTLE_MS_DEFAULT
from postdate.connectors.spark.options import LEVELS_MS_DEFAULT
from postdate.connectors.wire.limits import HORIZON_MS_DEFAULT
from postdate.connectors.wire.topics import DEFAULT_REQUESTS, OwnTopics


@dataclass(frozen=True)
class RepairOptions:
    """One repair. Raises JobUsageError where it makes no sense.

    `audited` is what an audit has left: the directory or URL of its `write` or of its `state`. Without `apply` nothing
    is sent. The rest is as in `BulkOptions` and `AuditOptions`.
    """

    bootstrap_servers: str
    audited: str
    requests: str = DEFAULT_REQUESTS
    apply: bool = False
    levels_ms: tuple[int, ...] = LEVELS_MS_DEFAULT
    dialects: tuple[str, ...] = ()
    default_target: str = ""
    horizon_ms: int = HORIZON_MS_DEFAULT
    allow: tuple[str, ...] = ("*",)
    forbidden: frozenset[str] = frozenset()
    rate: int | None = None
    settle_ms: int = SETTLE_MS_DEFAULT
    samples: int = SAMPLES_DEFAULT
    output: Literal["text", "json"] = "text"
    master: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    spark_conf: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.audited:
            raise JobUsageError("Name what an audit has left: the directory of its --write or --state.")
        if self.settle_ms < 0:
            raise JobUsageError("The settle time is not negative.")
        self.bulk()
        try:
            rules_of(self.requests, self.levels_ms, self.dialect_options())
        except ValueError as error:
            raise JobUsageError(f"{error}.") from error

    def dialect_options(self) -> DialectOptions:
        """What requests may say beside Postdate's own headers."""
        return DialectOptions(self.dialects, self.default_target)

    def own(self) -> OwnTopics:
        """The request topic and those that belong to it."""
        return OwnTopics.of(self.requests)

    def bulk(self) -> BulkOptions:
        """How the requests are sent: those that were sent before are left out, those that are refused are told."""
        return BulkOptions(
            self.bootstrap_servers,
            self.requests,
            without_bad=True,
            rate=self.rate,
            only_new=True,
            dry_run=not self.apply,
            horizon_ms=self.horizon_ms,
            allow=self.allow,
            forbidden=self.forbidden,
            samples=self.samples,
            properties=self.properties,
        )
