"""Which entries go to STORE because of their delay or their age, by the settings and retention of a request topic."""

from __future__ import annotations

from dataclasses import dataclass

from postdate.sidecar.config.settings import RequestTopicConfig


@dataclass(frozen=True, slots=True)
class LongDelays:
    """When an entry is stored: a delay beyond `store_after_ms`, a request older than `sweep_age_ms`; 0: never."""

    store_after_ms: int
    sweep_age_ms: int

    @classmethod
    def of(cls, topic: RequestTopicConfig, retention_ms: int) -> LongDelays:
        """The rule for a request topic that keeps its requests for `retention_ms` (-1: for ever)."""
        after_ms = topic.store_after_ms
        if not after_ms or retention_ms < 0:
            return cls(after_ms, 0)
        return cls(min(after_ms, max(retention_ms // 4, 1)), retention_ms // 2)
