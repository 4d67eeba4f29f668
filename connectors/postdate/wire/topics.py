"""Topic names: the legal names, Postdate's own, and the names that may never be a target."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from postdate.wire.limits import TOPIC_NAME_LENGTH_MAX

DEFAULT_REQUESTS: Final = "postdate.requests"

# Kafka reserves names with this prefix (consumer offsets, transaction state, cluster metadata).
_INTERNAL_PREFIX: Final = "__"
_TOPIC_NAME: Final = re.compile(rf"[a-zA-Z0-9._-]{{1,{TOPIC_NAME_LENGTH_MAX}}}")


def is_topic_name(name: str) -> bool:
    """Returns True if Kafka would accept a topic of this name."""
    return _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


def is_forbidden(target: str, own: frozenset[str]) -> bool:
    """Returns True if no rule can ever allow `target`, since it is an internal topic of Kafka or one of Postdate's
    topics, `own`."""
    return target.startswith(_INTERNAL_PREFIX) or target in own


@dataclass(frozen=True)
class OwnTopics:
    """The topics that belong to one request topic. All have its number of partitions."""

    requests: str
    dispatch_log: str
    store: str
    dead_letters: str
    verdicts: str

    @classmethod
    def of(cls, requests: str) -> OwnTopics:
        """Returns the topics of the request topic `requests`.

        Raises ValueError if one of the names is not legal for a topic: fix the configuration.
        """
        topics = cls(
            requests,
            f"{requests}.dispatch-log",
            f"{requests}.store",
            f"{requests}.dead-letters",
            f"{requests}.verdicts",
        )
        for name in topics.names():
            if not is_topic_name(name):
                raise ValueError(f"{name!r} is not a name that Kafka accepts for a topic")
        return topics

    def names(self) -> frozenset[str]:
        """Returns all five names. None of them may be a target."""
        return frozenset((self.requests, self.dispatch_log, self.store, self.dead_letters, self.verdicts))
