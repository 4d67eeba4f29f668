"""What an audit is asked to do. Immutable; checked when made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from postdate.connectors.spark.dialect_rows import DialectOptions, rules_of
from postdate.connectors.spark.errors import JobUsageError
from postdate.connectors.spark.limits import SAMPLES_DEFAULT, SAMPLES_MAX, SETTLE_MS_DEFAULT, SLACK_MS_DEFAULT
from postdate.connectors.spark.unanswered import MODES, Mode
from postdate.connectors.wire.topics import DEFAULT_REQUESTS, OwnTopics

_MINUTE_MS: Final = 60_000
# 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h: the table of a request topic unless it has its own.
LEVELS_MS_DEFAULT: Final = (
    *(1_000, 5_000, 10_000, 30_000),
    *(minutes * _MINUTE_MS for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
)


@dataclass(frozen=True)
class AuditOptions:
    """One audit. Raises JobUsageError where it makes no sense.

    `properties` are settings of Kafka's Java clients (`security.protocol`, `sasl.jaas.config` and so on; see
    `kafka_properties` for those of librdkafka). `from_ms` and `to_ms` choose requests by their timestamp, epoch
    milliseconds, the upper one excluded. `targets` empty: those that the requests name; otherwise only these are
    read. `master` None: what `spark-submit` says, else all cores of this machine. `write` is a new directory or URL.
    `dialects` and `default_target` are those of the request topics, `verdicts` the answers that they owe (`none`: those
    that are there are checked all the same). `state` is a directory or URL that is kept from audit to audit: only what
    is new since the last is read then, all of it. `html` is a file or URL for the page. `count_aborted` reads the
    targets a second time to count the copies that aborted.
    """

    bootstrap_servers: str
    requests: tuple[str, ...] = (DEFAULT_REQUESTS,)
    targets: tuple[str, ...] = ()
    levels_ms: tuple[int, ...] = LEVELS_MS_DEFAULT
    dialects: tuple[str, ...] = ()
    default_target: str = ""
    verdicts: Mode = "none"
    from_ms: int | None = None
    to_ms: int | None = None
    slack_ms: int = SLACK_MS_DEFAULT
    settle_ms: int = SETTLE_MS_DEFAULT
    samples: int = SAMPLES_DEFAULT
    output: Literal["text", "json"] = "text"
    write: str | None = None
    count_aborted: bool = False
    state: str | None = None
    html: str | None = None
    master: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    spark_conf: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.bootstrap_servers:
            raise JobUsageError("No broker is named: give HOST:PORT.")
        if not self.requests:
            raise JobUsageError("No request topic is named.")
        if not 0 <= self.samples <= SAMPLES_MAX:
            raise JobUsageError(f"The number of samples lies between 0 and {SAMPLES_MAX}, not {self.samples}.")
        if self.slack_ms < 0 or self.settle_ms < 0:
            raise JobUsageError("Slack and settle time are not negative.")
        if not self.levels_ms or min(self.levels_ms) < 0:
            raise JobUsageError("The level table needs at least one level, and none is negative.")
        if self.from_ms is not None and self.to_ms is not None and self.from_ms >= self.to_ms:
            raise JobUsageError("The window is empty: its beginning does not lie before its end.")
        if self.state is not None and (self.write or self.targets or self.count_aborted or self.from_ms or self.to_ms):
            raise JobUsageError("With a state all that is new is audited: no window, no targets, no --write.")
        if self.verdicts not in MODES:
            raise JobUsageError(f"Verdicts are required for one of {', '.join(MODES)}, not {self.verdicts}.")
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
