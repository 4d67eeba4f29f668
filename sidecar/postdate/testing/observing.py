"""The interface of a sidecar for the tests of a service: create targets, and read deliveries.

Thread rule: one thread.
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
    """The expected messages did not arrive, or the sidecar did not start; the text ends with the sidecar's log."""


class Observed:
    """A sidecar that serves one request topic, seen from a test.

    `bootstrap_servers`: the address of Kafka for the test. `requests`: the request topic for `postdate.client`.
    """

    bootstrap_servers: str
    requests: RequestTopic

    @abstractmethod
    def log(self) -> str:
        """The end of the sidecar's log."""

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Creates a topic, such as a target, unless it exists. A request for a missing target becomes a dead letter."""
        admin = self._kafka().admin()
        admin.create_topics([NewTopic(name, partitions, -1, dict(config or {}))])
        admin.close()

    def delivered(self, topic: str, count: int, timeout_s: float = 60.0) -> list[Delivered]:
        """All messages that this sidecar has delivered to a topic, in order of time, once there are `count`.
        `timeout_s` includes the delays. Raises NotDelivered if there are fewer."""
        found = read_delivered(self._kafka(), self.requests.name, topic, count, timeout_s)
        if len(found) < count:
            raise NotDelivered(f"{topic} has {len(found)} of {count} records after {timeout_s:.0f} s.\n{self.log()}")
        return found

    def dead_letters(self, count: int, timeout_s: float = 60.0) -> list[Delivered]:
        """As `delivered`, for the dead letters."""
        return self.delivered(f"{self.requests.name}.dead-letters", count, timeout_s)

    def _kafka(self) -> ConfluentKafka:
        return ConfluentKafka(KafkaSettings(self.bootstrap_servers))
