"""Unexpected exceptions in a shard: retried with backoff a bounded number of times, then the shard halts.

Most of them depend on one interleaving of events and do not recur after a takeover. If an exception recurred without
end, it would only fill the log. Each is a defect of Postdate, so it is logged with its traceback, but without its text
(`logs`).

Thread rule: belongs to the shard's thread.
"""

from __future__ import annotations

from postdate.sidecar.shard.limits import (
    INTERNAL_ATTEMPTS_MAX,
    INTERNAL_BACKOFF_MS_MAX,
    INTERNAL_BACKOFF_MS_MIN,
    INTERNAL_CALM_MS,
)


class InternalFailures:
    """Counts the consecutive failures of one shard; a long time without a failure resets the count."""

    def __init__(self) -> None:
        self.count = 0
        self._last_at = 0.0

    def retry_ms(self, steady_ms: float) -> float | None:
        """Records a failure. Returns the pause before the next attempt in ms, or None if the shard must halt."""
        if steady_ms - self._last_at > INTERNAL_CALM_MS:
            self.count = 0
        self._last_at = steady_ms
        if self.count >= INTERNAL_ATTEMPTS_MAX:
            self.count = 0  # a person who resumes the shard gives it the same number of attempts
            return None
        self.count += 1
        return float(min(INTERNAL_BACKOFF_MS_MIN * 2 ** (self.count - 1), INTERNAL_BACKOFF_MS_MAX))
