"""Goal: a look-up reports a topic as hidden only if an ACL hides it.

Method: futures as the client library returns them. The description of a topic and its settings come from two requests,
which different brokers may answer.
"""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from postdate.kafka.admin.descriptions import ConfluentLookUp
from postdate.kafka.interface import TopicInfo


def _future(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(result, int):
        future.set_exception(KafkaException(KafkaError(result)))
    else:
        future.set_result(result)
    return future


class _Client:
    """Describes every topic. `settings` is the answer to the request for settings, or the code of an error."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        described = SimpleNamespace(topic_id="an-id", partitions=[], authorized_operations=None)
        return {name: _future(described) for name in topics.topic_names}

    def describe_configs(self, resources: list[Any], **_: Any) -> dict[Any, Future[Any]]:
        return {resource: _future(self.settings) for resource in resources}


@pytest.mark.parametrize(
    ("settings", "config"),
    [
        ({"retention.ms": SimpleNamespace(value="5")}, {"retention.ms": "5"}),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, {}),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, None),
    ],
    ids=["readable", "hidden", "a broker that does not know it yet"],
)
def test_a_topic_that_a_broker_does_not_know_is_absent_and_not_hidden(
    settings: Any, config: dict[str, str] | None
) -> None:
    client: Any = _Client(settings)
    infos = ConfluentLookUp(client, 5.0, ["orders"], ["retention.ms"]).poll(5.0)
    expected = {} if config is None else {"orders": TopicInfo("orders", "an-id", {}, config, writable=True)}
    assert infos == expected
