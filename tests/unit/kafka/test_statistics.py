"""Goal: the connections to brokers are read from the client library's statistics, and all other figures are ignored.

Method: an excerpt of the library's statistics, with one broker, its bootstrap duplicate and the coordinator.
"""

from __future__ import annotations

import json

import msgspec
import pytest

from postdate.kafka.statistics import BrokerLoss, BrokerStatistics, decode_statistics


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


def _report(*sources: str) -> str:
    return json.dumps({"brokers": {source: _broker(source, -1, source=source) for source in sources}})


@pytest.mark.parametrize(
    ("reports", "is_lost"),
    [
        ([["logical"], []], True),
        ([["logical"]], False),
        ([["logical"], ["learned", "logical"], ["logical"]], False),
        ([["configured", "logical"], ["configured"]], False),
    ],
)
def test_two_reports_in_a_row_with_roles_alone_mean_that_all_brokers_are_lost(
    reports: list[list[str]], is_lost: bool
) -> None:
    """The coordinator of the group is a role, which any broker may have."""
    loss = BrokerLoss()
    for sources in reports:
        loss.observe(_report(*sources))
    assert loss.is_lost is is_lost


@pytest.mark.parametrize("text", ["", "[]", '{"brokers": 3}'])
def test_statistics_of_another_form_are_an_error(text: str) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_statistics(text)
