"""The reasons for which a request ends as a dead letter: a closed set, so consumers of dead letters may switch on it.

Most reasons follow from the record and the rules of its request topic. `BAD_KEY`, `TOO_LARGE` and the reasons from
`UNKNOWN_TARGET` on depend on Kafka, on the state of the shard or on time, so parsing never gives them.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """The value of `postdate-dead-reason`."""

    MISSING_TARGET = "missing-target"
    BAD_TARGET = "bad-target"
    FORBIDDEN_TARGET = "forbidden-target"
    MISSING_TIME = "missing-time"
    CONFLICTING_TIME = "conflicting-time"
    BAD_RETRY = "bad-retry"
    ATTEMPTS_EXHAUSTED = "attempts-exhausted"
    BAD_TIME = "bad-time"
    BEYOND_HORIZON = "beyond-horizon"
    BAD_LEVEL = "bad-level"
    BAD_WINDOW = "bad-window"
    BAD_IF_PENDING = "bad-if-pending"
    BAD_IF_ENDED = "bad-if-ended"
    BAD_LATEST = "bad-latest"
    BAD_SELECTION = "bad-selection"
    BAD_SPREAD = "bad-spread"
    BAD_SCHEDULE = "bad-schedule"
    BAD_KEY = "bad-key"
    BAD_PARTITION = "bad-partition"
    BAD_ID = "bad-id"
    MISSING_ID = "missing-id"
    BAD_ACTION = "bad-action"
    BAD_HEADERS = "bad-headers"
    DUPLICATE_HEADER = "duplicate-header"
    UNKNOWN_HEADER = "unknown-header"
    TOO_LARGE = "too-large"
    UNKNOWN_TARGET = "unknown-target"
    RECORD_REFUSED = "record-refused"
    UNAUTHORIZED = "unauthorized"
    EXPIRED = "expired"
    LIMIT_EXCEEDED = "limit-exceeded"
    TARGET_UNAVAILABLE = "target-unavailable"
