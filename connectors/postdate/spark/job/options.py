"""Options that several jobs share: the cluster, the interpretation of requests, and the limits on sending.

Each job has its own class that inherits the options it needs. Immutable; validated on construction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Literal

from postdate.spark.errors import JobUsageError
from postdate.spark.limits import SETTLE_MS_DEFAULT
from postdate.spark.records.dialects import DialectOptions, rules_of
from postdate.wire.limits import HORIZON_MS_DEFAULT
from postdate.wire.topics import DEFAULT_REQUESTS, OwnTopics

_MINUTE_MS: Final = 60_000
# The default level table of a request topic: 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h.
LEVELS_MS_DEFAULT: Final = (
    *(1_000, 5_000, 10_000, 30_000),
    *(minutes * _MINUTE_MS for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
)


@dataclass(frozen=True)
class JobOptions:
    """Options of every job. Raises JobUsageError if they are invalid.

    `properties` are settings of Kafka's Java clients (`security.protocol`, `sasl.jaas.config` and so on; see
    `kafka_properties` for those of librdkafka). If `master` is None, the job uses the master of `spark-submit`, or
    without `spark-submit` all cores of this machine. `is_brief` is True if the job reads few records; a JVM that the
    job starts then uses only the C1 compiler.
    """

    bootstrap_servers: str
    _: KW_ONLY
    output: Literal["text", "json"] = "text"
    master: str | None = None
    is_brief: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    spark_conf: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.bootstrap_servers:
            raise JobUsageError("No broker is given: name HOST:PORT.")

    @property
    def needs_delta(self) -> bool:
        """True if the job reads or writes Delta tables."""
        return False

    def client_settings(self) -> dict[str, str]:
        """Returns the settings of Kafka's Java clients, including the bootstrap servers."""
        return {**self.properties, "bootstrap.servers": self.bootstrap_servers}


@dataclass(frozen=True)
class ReadingOptions(JobOptions, ABC):
    """Options of jobs that read requests: level table, dialects, and the time to wait for an open transaction."""

    _: KW_ONLY
    levels_ms: tuple[int, ...] = LEVELS_MS_DEFAULT
    dialects: tuple[str, ...] = ()
    default_target: str = ""
    settle_ms: int = SETTLE_MS_DEFAULT

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.settle_ms < 0:
            raise JobUsageError("The settle time must not be negative.")
        if not self.levels_ms or min(self.levels_ms) < 0:
            raise JobUsageError("The level table needs at least one level, and no level may be negative.")
        try:
            for own in self.own_topics():
                rules_of(own.requests, self.levels_ms, self.dialect_options())
        except ValueError as error:
            raise JobUsageError(f"{error}.") from error

    def dialect_options(self) -> DialectOptions:
        """Returns the settings for reading dialects."""
        return DialectOptions(self.dialects, self.default_target)

    @abstractmethod
    def own_topics(self) -> tuple[OwnTopics, ...]:
        """Returns the request topics, each with the topics that belong to it, in the order of the options."""


@dataclass(frozen=True)
class TopicsOptions(ReadingOptions):
    """Options of jobs that read several request topics with the same level table and dialects."""

    requests: tuple[str, ...] = (DEFAULT_REQUESTS,)

    def __post_init__(self) -> None:
        if not self.requests:
            raise JobUsageError("No request topic is named.")
        super().__post_init__()

    def own_topics(self) -> tuple[OwnTopics, ...]:
        return tuple(OwnTopics.of(name) for name in dict.fromkeys(self.requests))


@dataclass(frozen=True)
class SendingOptions(JobOptions):
    """Options of jobs that send requests.

    `horizon_ms`, `allow` and `forbidden` are the limits of the request topic. `rate` is in rows per second; None means
    unlimited.
    """

    _: KW_ONLY
    horizon_ms: int = HORIZON_MS_DEFAULT
    allow: tuple[str, ...] = ("*",)
    forbidden: frozenset[str] = frozenset()
    rate: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rate is not None and self.rate < 1:
            raise JobUsageError("The rate must be at least one row a second.")


def require_shown(what: str, number: int, most: int) -> None:
    """Raises JobUsageError if `number`, an option for the number of `what` in the output, is not between 0 and
    `most`."""
    if not 0 <= number <= most:
        raise JobUsageError(f"The number of {what} must be between 0 and {most}, not {number}.")
