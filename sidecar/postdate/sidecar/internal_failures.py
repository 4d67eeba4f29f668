"""Exceptions that nobody expected in a shard: retried with backoff a bounded number of times, then the shard halts.

Most are met by chance, by one interleaving of events, and a takeover leaves them behind; one that is met again and
again would only fill the log. Either way it is a mistake of Postdate's own, and each is logged with its trace.

Thread rule: belongs to the shard's thread.
"""

from __future__ import annotations

from postdate.sidecar.limits import (
    INTERNAL_ATTEMPTS_MAX,
    INTERNAL_BACKOFF_MS_MAX,
    INTERNAL_BACKOFF_MS_MIN,
    INTERNAL_CALM_MS,
)


class InternalFailures:
    """Counts the failures of one shard that follow one another; a long time without one ends the row."""

    def __init__(self) -> None:
        self.count = 0
        self._last_at = 0.0

    def retry_ms(self, steady_ms: float) -> float | None:
        """Note a failure; returns after how many ms the shard tries again, None if it must halt."""
        if steady_ms - self._last_at > INTERNAL_CALM_MS:
            self.count = 0
        self._last_at = steady_ms
        if self.count >= INTERNAL_ATTEMPTS_MAX:
            self.count = 0  # a person who resumes the shard gives it the same number of attempts
            return None
        self.count += 1
        return float(min(INTERNAL_BACKOFF_MS_MIN * 2 ** (self.count - 1), INTERNAL_BACKOFF_MS_MAX))
