"""Builds the rules for parsing the requests of a topic from the configuration, for shards, commands and HTTP."""

from __future__ import annotations

from postdate.sidecar.config.settings import Config
from postdate.wire.requests.rules import RequestRules
from postdate.wire.topics import OwnTopics


def forbidden_targets(config: Config) -> frozenset[str]:
    """Returns the names of all of Postdate's own topics in this deployment: none of them may be a target."""
    return frozenset().union(*(OwnTopics.of(name).names() for name in config.request_topic_names))


def rules_of(config: Config, requests: str, retention_ms: int = -1) -> RequestRules:
    """Returns the rules for the request topic `requests`. Raises KeyError if it is not configured.

    `retention_ms`: the retention of the existing topic; -1: infinite or unknown. If long delays are not stored, the
    horizon is at most half of the retention, since each entry is rebuilt from its request.
    """
    topic = config.request_topic(requests)
    horizon_ms = topic.horizon_ms
    if retention_ms >= 0 and not topic.store_after_ms:
        horizon_ms = min(horizon_ms, retention_ms // 2)
    return RequestRules(
        topic=topic.name,
        levels_ms=topic.levels_ms,
        horizon_ms=horizon_ms,
        forbidden=forbidden_targets(config),
        allow=topic.allow,
        dialects=topic.dialects,
        default_target=topic.default_target,
        format_version=config.format_version,
    )
