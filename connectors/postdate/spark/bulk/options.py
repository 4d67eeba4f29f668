"""The options of a bulk schedule. Immutable; validated on construction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from postdate.spark.errors import JobUsageError
from postdate.spark.job.options import SendingOptions, require_shown
from postdate.spark.limits import SAMPLES_DEFAULT, SAMPLES_MAX
from postdate.wire.requests.rules import RequestRules
from postdate.wire.topics import DEFAULT_REQUESTS, OwnTopics, is_topic_name

FIELDS: Final = ("target", "key", "value", "headers", "at", "delay", "id", "grace", "window", "spread", "partition")
"""The fields of a row. The job reads a field from the column of the same name, unless the options name another
column."""

_REFUSED: Final = {
    "acks": "a request that no replica has is lost",
    "enable.idempotence": "a request that is sent again in the network would be there twice",
    "partitioner.class": "the partition is chosen here, so that a control of the same id finds it",
    "partitioner.ignore.keys": "the partition is chosen here, so that a control of the same id finds it",
    "transactional.id": "Spark's Kafka sink has no transactions",
}


@dataclass(frozen=True)
class Source:
    """A source of rows: a path or URL in the Spark format `form` with the reader's `options`, or a table if `form` is
    `table`."""

    path: str
    form: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def named(cls, path: str, form: str | None, options: Mapping[str, str]) -> Source:
        """Returns the source at `path`; without `form`, the suffix decides. Raises JobUsageError for an unknown
        suffix."""
        ending = path.rstrip("/").removesuffix(".gz").rpartition(".")[2].lower()
        found = form or {"parquet": "parquet", "csv": "csv", "json": "json", "jsonl": "json", "orc": "orc"}.get(ending)
        if found is None:
            raise JobUsageError(f"the format of {path} is unknown: give --format, or --format table.")
        # The CSV files of programs that export tables have a header line and quoted line breaks.
        defaults = {"header": "true", "multiLine": "true", "escape": '"'} if found == "csv" else {}
        return cls(path, found, {**defaults, **options})


@dataclass(frozen=True)
class BulkOptions(SendingOptions):
    """One bulk schedule. Raises JobUsageError if the options are invalid.

    `columns` maps fields of `FIELDS` to columns with another name. `target` applies to all rows and replaces the
    column. `rejects` is a new directory or URL for refused rows. If it is None, one refused row stops the job before
    any request is sent; with `without_bad`, the job skips and reports refused rows instead. With `only_new`, it skips
    rows whose id already has a request on the topic; it searches the topic from `since_ms` on, epoch ms. With
    `unknown_targets`, it accepts targets that do not exist yet. With `dry_run`, it checks and reports, and sends
    nothing.
    """

    requests: str = DEFAULT_REQUESTS
    target: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    rejects: str | None = None
    without_bad: bool = False
    only_new: bool = False
    since_ms: int | None = None
    unknown_targets: bool = False
    dry_run: bool = False
    samples: int = SAMPLES_DEFAULT

    def __post_init__(self) -> None:
        super().__post_init__()
        require_shown("samples", self.samples, SAMPLES_MAX)
        for name in self.columns:
            if name not in FIELDS:
                near = get_close_matches(name, FIELDS, 1)
                meant = f" Is {near[0]} meant?" if near else ""
                raise JobUsageError(f"{name} is not a field of a row; the fields are {', '.join(FIELDS)}.{meant}")
        if self.target is not None and "target" in self.columns:
            raise JobUsageError("The target is given both by a column and for all rows: give only one.")
        if self.target is not None and not is_topic_name(self.target):
            raise JobUsageError(f"{self.target!r} is not a name that Kafka accepts for a topic.")
        if self.since_ms is not None and not self.only_new:
            raise JobUsageError("--from needs --only-new.")
        for name, why in _REFUSED.items():
            if name in self.properties:
                raise JobUsageError(f"{name} cannot be set: {why}.")
        try:
            self.rules()
        except ValueError as error:
            raise JobUsageError(f"{error}.") from error

    def rules(self) -> RequestRules:
        """Returns the sidecar's rules for the request topic: allowed targets, horizon."""
        return RequestRules(topic=self.requests, horizon_ms=self.horizon_ms, allow=self.allow, forbidden=self.forbidden)

    def own(self) -> OwnTopics:
        """Returns the request topic and the topics that belong to it."""
        return OwnTopics.of(self.requests)
