"""The options of a repair. Immutable; validated on construction."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from postdate.spark.bulk.options import BulkOptions
from postdate.spark.errors import JobUsageError
from postdate.spark.job.options import ReadingOptions, SendingOptions
from postdate.spark.limits import SAMPLES_DEFAULT
from postdate.wire.topics import DEFAULT_REQUESTS, OwnTopics


@dataclass(frozen=True)
class RepairOptions(SendingOptions, ReadingOptions):
    """One repair. Raises JobUsageError if the options are invalid.

    `audited` is the state of an audit, a directory or URL. Without `apply`, the job sends nothing. With `any_share`, it
    may send any share of the audited requests.
    """

    audited: str
    requests: str = DEFAULT_REQUESTS
    _: KW_ONLY
    apply: bool = False
    any_share: bool = False
    samples: int = SAMPLES_DEFAULT

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.audited:
            raise JobUsageError("Name the state of an audit, its --state.")
        self.bulk()

    @property
    def needs_delta(self) -> bool:
        return True

    def own(self) -> OwnTopics:
        """Returns the request topic and the topics that belong to it."""
        return OwnTopics.of(self.requests)

    def own_topics(self) -> tuple[OwnTopics, ...]:
        return (self.own(),)

    def bulk(self) -> BulkOptions:
        """Returns the options for sending the requests. The job skips requests that were sent before, and reports
        refused requests."""
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
