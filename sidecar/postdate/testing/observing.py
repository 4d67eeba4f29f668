"""What the test of a service does with a sidecar, wherever that one runs: make targets, and see what was delivered.

One thread.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from postdate.client import RequestTopic
from postdate.kafka.client import ConfluentKafka
from postdate.kafka.interface import NewTopic
from postdate.kafka.settings import KafkaSettings
from postdate.testing.reading import Delivered, read_delivered


class NotDelivered(AssertionError):
    """What a test waited for did not come, or the sidecar did not start; the text ends with what the sidecar logged."""


class Observed:
    """A sidecar that serves one request topic, seen from a test.

    `bootstrap_servers`: Kafka as the test reaches it. `requests`: the request topic, as `postdate.client` wants it.
    """

    bootstrap_servers: str
    requests: RequestTopic

    @abstractmethod
    def log(self) -> str:
        """The end of what the sidecar has logged."""

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Makes a topic, such as a target; nothing happens where it exists. A target that does not exist makes a dead
        letter of its request."""
        admin = self._kafka().admin()
        admin.create_topics([NewTopic(name, partitions, -1, dict(config or {}))])
        admin.close()

    def delivered(self, topic: str, count: int, timeout_s: float = 60.0) -> list[Delivered]:
        """All that requests of this sidecar brought to a topic, in order of time, once there are `count`; a delay
        counts into `timeout_s`. Raises NotDelivered: there are fewer."""
        found = read_delivered(self._kafka(), self.requests.name, topic, count, timeout_s)
        if len(found) < count:
            raise NotDelivered(f"{topic} has {len(found)} of {count} records after {timeout_s:.0f} s.\n{self.log()}")
        return found

    def dead_letters(self, count: int, timeout_s: float = 60.0) -> list[Delivered]:
        """As `delivered`, of the requests that were refused or could not be delivered."""
        return self.delivered(f"{self.requests.name}.dead-letters", count, timeout_s)

    def _kafka(self) -> ConfluentKafka:
        return ConfluentKafka(KafkaSettings(self.bootstrap_servers))
