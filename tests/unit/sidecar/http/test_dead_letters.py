"""Goal: dead letters over HTTP are grouped by reason. A plan changes nothing. Each dead letter is requeued once, even
if two requests arrive at the same time. Reading is bounded. Without payloads, nothing of a refused request is shown.

Method: the functions of the endpoints over a simulated Kafka.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.datastructures import QueryParams

from postdate.kafka.interface import Partition
from postdate.sidecar.config.settings import Config, HttpConfig, RequestTopicConfig
from postdate.sidecar.dead_letters.reading import DeadLetter, read_dead_letters
from postdate.sidecar.dead_letters.requeue import run_plan
from postdate.sidecar.errors import TransientError
from postdate.sidecar.http import limits
from postdate.sidecar.http.access.access import Refused
from postdate.sidecar.http.api import dead_letters
from postdate.sidecar.http.api.dead_letters import list_dead_letters, requeue
from postdate.sidecar.http.process_state import ProcessState
from postdate.sidecar.http.queries.pending import BadQuery
from postdate.wire.headers import ATTEMPT, DELAY, GRACE, ID, TOPIC, Headers
from support.deployments.simulated_cluster import SimulatedCluster

ORDERS: Headers = [(TOPIC, b"orders"), (DELAY, b"5s")]
NOWHERE: Headers = [(TOPIC, b"nowhere"), (DELAY, b"5s")]
UNKNOWN = {"reason": "unknown-target"}


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster()


@pytest.fixture
def process(cluster: SimulatedCluster) -> ProcessState:
    config = Config(format_version=2, request_topics=(RequestTopicConfig("requests"),))
    clock = SimpleNamespace(wall_ms=cluster.broker.now_ms)
    parts = {"config": config, "admin": cluster.kafka.admin(), "kafka": cluster.kafka, "clock": clock}
    return cast(ProcessState, SimpleNamespace(**parts))


def listed(process: ProcessState, text: str = "") -> dict[str, Any]:
    return list_dead_letters(process, QueryParams(text))


def origins_of(answer: dict[str, Any]) -> list[str]:
    return [dead_letter["origin"] for dead_letter in answer["letters"]]


def requests_count(cluster: SimulatedCluster) -> int:
    return sum(len(cluster.records("requests", index)) for index in range(cluster.partitions))


def test_dead_letters_are_grouped_by_reason_and_the_newest_are_listed(
    cluster: SimulatedCluster, process: ProcessState
) -> None:
    first = cluster.bury(0, None, None, ORDERS, "expired")
    cluster.time.wait(60_000)
    second = cluster.bury(1, None, None, [*NOWHERE, (ID, b"o-1")], "unknown-target")
    cluster.time.wait(60_000)
    third = cluster.bury(2, None, b"v" * 9, ORDERS, "unknown-target")
    answer = listed(process)
    assert [(group["reason"], group["count"]) for group in answer["groups"]] == [("unknown-target", 2), ("expired", 1)]
    assert answer["groups"][0]["targets"] == [{"target": "nowhere", "count": 1}, {"target": "orders", "count": 1}]
    assert answer["groups"][0]["newest_ms"] - answer["groups"][0]["oldest_ms"] == 60_000
    assert origins_of(answer) == [third, second, first]
    assert (answer["letters"][1]["id"], answer["letters"][0]["value_size_bytes"]) == ("o-1", 9)
    assert answer["complete"]
    assert origins_of(listed(process, "limit=1")) == [third]
    assert origins_of(listed(process, "reason=expired")) == [first]
    assert origins_of(listed(process, "target=nowhere")) == [second]
    since = f"from={answer['groups'][0]['newest_ms']}"
    assert [group["count"] for group in listed(process, since)["groups"]] == [1]


def test_a_plan_changes_nothing_and_each_letter_is_requeued_once(
    cluster: SimulatedCluster, process: ProcessState
) -> None:
    origins = [
        cluster.bury(index, None, b"v", [*ORDERS, (ID, b"o-%d" % index)], "unknown-target") for index in range(3)
    ]
    lost = cluster.bury(3, None, b"v", NOWHERE, "unknown-target")
    expired: Headers = [(TOPIC, b"orders"), ("postdate-at", b"1000"), (GRACE, b"1s")]
    late = cluster.bury(3, None, b"v", expired, "expired")
    plan = requeue(process, UNKNOWN, payload=False)
    assert (plan["executed"], plan["requeued"], plan["with_id"], requests_count(cluster)) == (False, 4, 3, 5)
    assert plan["missing_targets"] == ["nowhere"]

    done = requeue(process, {**UNKNOWN, "target": "orders", "execute": True}, payload=False)
    assert (done["requeued"], done["requeued_before"], done["complete"]) == (3, 0, True)
    assert [outcome["origin"] for outcome in done["outcomes"]] == origins
    assert [cluster.records("requests", index)[-1].offset for index in range(3)] == [1, 1, 1]
    again = requeue(process, {**UNKNOWN, "execute": True}, payload=False)
    assert (again["requeued"], again["requeued_before"], requests_count(cluster)) == (1, 3, 9)
    assert again["outcomes"][0]["origin"] == lost

    impossible = requeue(process, {"reason": "expired", "execute": True}, payload=False)
    assert (impossible["requeued"], impossible["impossible"], requests_count(cluster)) == (0, 1, 9)
    assert impossible["outcomes"][0]["why"].startswith("it would expire again")
    moved = requeue(process, {"origins": [late], "delay": "5s", "execute": True}, payload=False)
    assert (moved["requeued"], requests_count(cluster)) == (1, 10)


def test_two_requeues_do_not_run_at_the_same_time(
    cluster: SimulatedCluster, process: ProcessState, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.bury(0, None, b"v", ORDERS, "unknown-target")
    refused = []

    def requeue_meanwhile(*arguments: Any) -> Any:
        with pytest.raises(Refused) as second:
            requeue(process, {**UNKNOWN, "execute": True}, payload=False)
        refused.append(second.value.status)
        return run_plan(*arguments)

    monkeypatch.setattr(dead_letters, "run_plan", requeue_meanwhile)
    assert requeue(process, {**UNKNOWN, "execute": True}, payload=False)["requeued"] == 1
    monkeypatch.undo()
    assert refused == [503]
    assert requeue(process, UNKNOWN, payload=False)["requeued_before"] == 1, "the next one may run"


def test_reading_is_bounded_in_dead_letters_and_time(
    cluster: SimulatedCluster, process: ProcessState, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, *new = [cluster.bury(0, None, b"v", ORDERS, "unknown-target") for _ in range(4)]
    monkeypatch.setattr(limits, "DEAD_LETTERS_MAX", 3)
    monkeypatch.setattr(limits, "DEAD_LETTERS_REQUEUED_MAX", 2)
    answer = listed(process)
    assert (answer["groups"][0]["count"], answer["complete"]) == (3, False)
    done = requeue(process, {**UNKNOWN, "execute": True}, payload=False)
    assert ([outcome["origin"] for outcome in done["outcomes"]], done["complete"]) == (new[:2], False)
    assert (done["has_more"], done["older_unread"]) == (True, True)
    done = requeue(process, {**UNKNOWN, "execute": True}, payload=False)
    assert (done["outcomes"][0]["origin"], done["requeued_before"]) == (new[2], 2)
    assert old not in [outcome["origin"] for outcome in done["outcomes"]]
    assert (done["has_more"], done["older_unread"]) == (False, True)
    monkeypatch.setattr(limits, "DEAD_LETTERS_READ_S_MAX", -1.0)
    with pytest.raises(TransientError, match="was not read within"):
        listed(process)
    with pytest.raises(TransientError, match=r"requests\.dead-letters/0 was not read within"):
        requeue(process, {"reason": "expired"}, payload=False)
    monkeypatch.setattr(dead_letters, "read_dead_letters", lambda *arguments: read_dead_letters(*arguments[:4]))
    with pytest.raises(TransientError, match="requests/0 was not read within"):
        requeue(process, UNKNOWN, payload=False)


def test_an_earlier_until_reaches_older_dead_letters(
    cluster: SimulatedCluster, process: ProcessState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DEAD_LETTERS_MAX", 3)
    old = cluster.bury(0, None, b"v", ORDERS, "unknown-target")
    cluster.time.wait(60_000)
    until = str(cluster.broker.now_ms())
    new = [cluster.bury(0, None, b"v", ORDERS, "unknown-target") for _ in range(3)]
    assert (len(listed(process)["letters"]), listed(process)["complete"]) == (3, False)
    answer = listed(process, f"until={until}")
    assert (origins_of(answer), answer["complete"]) == ([old], True)
    done = requeue(process, {**UNKNOWN, "until": until, "execute": True}, payload=False)
    assert [outcome["origin"] for outcome in done["outcomes"]] == [old]
    assert (done["complete"], done["older_unread"]) == (True, False)
    assert new[0] in origins_of(listed(process))


def test_listing_dead_letters_keeps_no_value(
    cluster: SimulatedCluster, process: ProcessState, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(process.config, http=HttpConfig(payloads="allowed"))
    allowed = cast(ProcessState, SimpleNamespace(**{**vars(process), "config": config}))
    cluster.bury(0, b"k", b"v" * 9, [*ORDERS, (ATTEMPT, b"2")], "expired")
    kept, as_json = [], dead_letters._dead_letter_as_json

    def recorded(dead_letter: DeadLetter, payload: bool) -> dict[str, Any]:
        kept.append(dead_letter)
        return as_json(dead_letter, payload)

    monkeypatch.setattr(dead_letters, "_dead_letter_as_json", recorded)
    for query in ("", "payload=true"):
        assert listed(allowed, query)["letters"][0]["value_size_bytes"] == 9
    assert [(dead_letter.key, dead_letter.value) for dead_letter in kept] == [(None, None)] * 2
    assert listed(allowed, "payload=true")["letters"][0]["attempt"] == "2"


def test_the_content_of_a_refused_request_is_shown_only_with_payloads(
    cluster: SimulatedCluster, process: ProcessState
) -> None:
    bad: Headers = [(TOPIC, b"orders"), (DELAY, b"card-4111"), (ID, b"card-4111")]
    cluster.bury(0, None, b"v", bad, "bad-time")
    answer, plan = listed(process), requeue(process, {"reason": "bad-time"}, payload=False)
    assert (answer["letters"][0]["id"], answer["letters"][0]["target"]) == (None, None)
    assert answer["groups"][0]["targets"] == [{"target": None, "count": 1}]
    assert plan["outcomes"][0]["why"] == "it would be refused again: bad-time"
    assert "card-4111" not in str([answer, plan])
    with pytest.raises(BadQuery, match=r"http\.payloads is never"):
        listed(process, "payload=true")
    config = replace(process.config, http=HttpConfig(payloads="allowed"))
    allowed = cast(ProcessState, SimpleNamespace(**{**vars(process), "config": config}))
    shown = listed(allowed, "payload=true")["letters"][0]
    assert (shown["id"], shown["target"], shown["detail"]) == ("card-4111", "orders", "why it was bad-time")
    assert "card-4111" in requeue(allowed, {"reason": "bad-time"}, payload=True)["outcomes"][0]["why"]


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"execute": True},
        {"reason": "unheard-of"},
        {"reason": 1},
        {"target": "no topic"},
        {"origins": "requests/0/0"},
        {"origins": ["requests/0"]},
        {**UNKNOWN, "execute": "yes"},
        {**UNKNOWN, "at": "yesterday"},
        {**UNKNOWN, "at": "now", "delay": "1s"},
        {**UNKNOWN, "topic": "others"},
        {**UNKNOWN, "limit": 5},
    ],
)
def test_a_wrong_body_requeues_nothing(cluster: SimulatedCluster, process: ProcessState, body: object) -> None:
    cluster.bury(0, None, b"v", ORDERS, "unknown-target")
    with pytest.raises(BadQuery):
        requeue(process, body, payload=False)
    assert requests_count(cluster) == 1


def test_a_foreign_record_is_not_listed_as_a_dead_letter(cluster: SimulatedCluster, process: ProcessState) -> None:
    cluster.broker.append(Partition(cluster.own.dead_letters, 0), None, b"v", [], cluster.broker.now_ms())
    assert listed(process)["groups"] == []
