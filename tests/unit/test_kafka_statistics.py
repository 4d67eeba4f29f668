"""Goal: the connections to brokers are read from the client library's statistics, and all else is ignored.

Method: a cut of what the library writes, for one broker, its bootstrap double and the coordinator.
"""

from __future__ import annotations

import json

import msgspec
import pytest

from postdate.kafka.statistics import BrokerStatistics, decode_statistics, knows_brokers


def _broker(name: str, nodeid: int, **figures: object) -> dict[str, object]:
    return {"name": name, "nodeid": nodeid, "state": "UP", "tx": 5, "rtt": {"p99": 2_500, "cnt": 3}, **figures}


def test_brokers_of_the_cluster_are_read_and_doubles_left_out() -> None:
    brokers = [
        _broker("b:9092/2", 2, req_timeouts=4, disconnects=1),
        _broker("a:9092/bootstrap", -1),
        _broker("a:9092/1", 1, state="DOWN", rtt={"p99": 0, "cnt": 0}),
        _broker("GroupCoordinator", -1),
    ]
    text = json.dumps({"name": "x", "brokers": {str(each["name"]): each for each in brokers}, "topics": {}})
    assert decode_statistics(text) == (
        BrokerStatistics("a:9092/1", False, -1.0, 0, 0),
        BrokerStatistics("b:9092/2", True, 2.5, 4, 1),
    )


def test_a_client_without_a_broker_logs_nothing() -> None:
    assert decode_statistics('{"name": "x"}') == ()


@pytest.mark.parametrize(
    ("sources", "knows"),
    [(["learned", "logical"], True), (["configured", "logical"], True), (["logical"], False), ([], False)],
)
def test_a_client_that_has_only_roles_knows_no_broker(sources: list[str], knows: bool) -> None:
    """A role is the coordinator of the group, wherever it is."""
    text = json.dumps({"brokers": {each: _broker(each, -1, source=each) for each in sources}})
    assert knows_brokers(text) is knows


@pytest.mark.parametrize("text", ["", "[]", '{"brokers": 3}'])
def test_something_else_is_an_error(text: str) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_statistics(text)
