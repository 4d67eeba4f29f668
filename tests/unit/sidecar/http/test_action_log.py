"""Goal: each change over HTTP is recorded with its user, its body and its answer, and can be read after a restart. The
log is bounded, contains no keys of messages, and never prevents the answer to a change.

Method: the real server on a port of this machine, over a simulated Kafka. `ActionLog` with full, torn and missing
files.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from postdate.kafka.interface import Partition
from postdate.sidecar.clock import SystemClock
from postdate.sidecar.cluster.topics import request_topic
from postdate.sidecar.config.settings import Config, HttpConfig, TopicsConfig
from postdate.sidecar.group.poller import Poller
from postdate.sidecar.http import limits
from postdate.sidecar.http.action_log import ActionLog, merged_actions
from postdate.sidecar.http.port import claim
from postdate.sidecar.http.process_state import ProcessState
from postdate.sidecar.http.server.server import HttpServer
from support.deployments.ports import free_port
from support.deployments.sidecars import wait_until
from support.kafka_simulator import SimBroker, SimKafka
from support.web.http_steps import Client

TOKEN = "a-token-of-some-length"  # noqa: S105
PART = Partition("postdate.requests", 0)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def serve(stack: ExitStack, directory: Path, **http: Any) -> Client:
    """Starts a process without shards that has this data directory, and returns a client with the token."""
    (directory / "token").write_text(TOKEN)
    kafka = SimKafka(SimBroker())
    kafka.admin().create_topics([request_topic(PART.topic, TopicsConfig(partitions=1))])
    config = Config(http=HttpConfig(port=free_port(), token_file=directory / "token", **http), format_version=3)
    facts = {"shards": {}, "turned_at": time.monotonic(), "is_member": True, "is_stopping": False, "failure": None}
    poller = cast(Poller, SimpleNamespace(**facts, is_drained=False, waits_for="", stands_by="", statistics=()))
    process = ProcessState(config, poller, {}, {}, kafka, kafka.admin(), SystemClock(), actions=ActionLog(directory))
    server = HttpServer(process, claim(config.http))
    server.start()
    stack.callback(server.stop)
    client = Client(config.http.port, TOKEN)
    wait_until(client.listens, "the server listens")
    return client


def actions(client: Client, query: str = "") -> list[dict[str, Any]]:
    answer = client.get(f"/api/v1/actions?scope=process{query}")
    assert answer.status == 200, answer.text
    return cast(list[dict[str, Any]], answer.json["actions"])


def test_each_change_is_recorded_with_user_body_and_answer_and_outlives_the_process(
    stack: ExitStack, tmp_path: Path
) -> None:
    with ExitStack() as first:
        client = serve(first, tmp_path)
        before_ms = SystemClock().wall_ms()
        done = client.post("/api/v1/cancel", {"id": "order-1"}, **{"Postdate-Actor": "Ann%20M%C3%BCller"})
        assert done.status == 202, done.text
        client.post("/api/v1/reschedule", {"id": "order-1", "at": "never"})
        client.post("/api/v1/cancel/selected", {"target": "orders", "id_prefix": "order-"})
        client.post("/api/v1/dead-letters/requeue", {"reason": "expired"})
        client.get("/api/v1/pending?scope=process")
    client = serve(stack, tmp_path)
    entries = actions(client)
    assert [(entry["action"], entry["status"]) for entry in entries] == [
        ("cancel/selected", 202),
        ("reschedule", 400),
        ("cancel", 202),
    ], "the newest first; a failed plan and queries are not recorded"
    bulk, refused, cancel = entries
    assert (cancel["who"], cancel["address"], cancel["asked"]) == ("Ann Müller", "127.0.0.1", {"id": "order-1"})
    assert (cancel["answer"]["origin"], refused["who"]) == (done.json["origin"], None)
    assert before_ms <= cancel["at_ms"] <= SystemClock().wall_ms()
    assert "at " in refused["answer"]["error"]
    assert bulk["asked"] == {"target": "orders", "id_prefix": "order-"}
    assert (bulk["answer"]["controls"], bulk["answer"]["origins"]) == (1, ["postdate.requests/0/1"])
    assert actions(client, "&limit=1") == [bulk]
    assert actions(client, f"&until={cancel['at_ms'] + 1}")[-1] == cancel
    assert (tmp_path / "actions.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_client_that_may_change_nothing_leaves_no_entry(stack: ExitStack, tmp_path: Path) -> None:
    client = serve(stack, tmp_path)
    for token in ("", "another-token-of-some-length"):
        stranger = Client(client.port, token)
        assert stranger.post("/api/v1/cancel", {"id": "a"}).status == 401
    assert actions(client) == []


@pytest.mark.parametrize("payloads", ["never", "allowed"])
def test_a_key_is_recorded_and_shown_only_if_payloads_are_allowed(
    stack: ExitStack, tmp_path: Path, payloads: str
) -> None:
    client = serve(stack, tmp_path, payloads=payloads)
    client.post("/api/v1/cancel/selected", {"key": "customer-17"})
    client.post("/api/v1/cancel/selected", {"key": "customer-17", "from": "never"})
    assert [each["status"] for each in actions(client)] == [400, 202]
    assert actions(client)[1]["answer"]["origins"] == ["postdate.requests/0/0"]
    assert "customer-17" not in json.dumps(actions(client))
    assert ("customer-17" in (tmp_path / "actions.jsonl").read_text()) == (payloads == "allowed")
    shown = client.get("/api/v1/actions?scope=process&payload=true")
    assert shown.status == (200 if payloads == "allowed" else 400)
    assert payloads == "never" or shown.json["actions"][1]["asked"] == {"key": "customer-17"}


def test_a_change_is_answered_even_if_it_cannot_be_recorded(
    stack: ExitStack, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = serve(stack, tmp_path)
    (tmp_path / "actions.jsonl").mkdir()
    assert client.post("/api/v1/cancel", {"id": "a"}).status == 202
    assert "the log of actions" in caplog.text
    assert client.get("/api/v1/actions?scope=process").status == 503


def log_entry(number: int, **more: Any) -> dict[str, Any]:
    named = {"at_ms": number, "action_id": f"{number:016}", "action": "hold", "asked": {}, "who": None}
    return {**named, "process": "p", "forwarded": False, **more}


def test_two_files_bound_the_log_and_keep_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ACTIONS_FILE_SIZE_BYTES_MAX", 1_000)
    logs = ActionLog(tmp_path), ActionLog(tmp_path)
    for number in range(100):
        logs[number % 2].record(log_entry(number))
    numbers = [each["at_ms"] for each in logs[0].read()]
    assert numbers == list(range(numbers[0], 100))
    assert 10 <= len(numbers) < 30
    assert sum(path.stat().st_size for path in tmp_path.glob("actions*")) <= 2_000


def test_a_line_that_a_crash_cut_off_does_not_affect_the_other_lines(tmp_path: Path) -> None:
    log = ActionLog(tmp_path)
    log.record(log_entry(1))
    with (tmp_path / "actions.jsonl").open("ab") as file:
        file.write(b'{"at_ms":2,"act')
    log.record(log_entry(3))
    assert [each["at_ms"] for each in log.read()] == [1, 3]


def test_a_forwarded_action_appears_once_with_the_answer_of_its_receiver() -> None:
    own = log_entry(5, answer={"shards": 4})
    part = log_entry(6, action_id=own["action_id"], forwarded=True, answer={"shards": 2})
    other = log_entry(7, action_id=own["action_id"], forwarded=True, asked={"what": "intake"})
    for answers in ([[own], [part, other]], [[part, other], [own]], [[own, part], [own, part, other]]):
        assert merged_actions([{"actions": each} for each in answers], 10) == [other, own]
    assert merged_actions([{"actions": [log_entry(1), log_entry(3), log_entry(2)]}], 2) == [log_entry(3), log_entry(2)]


def test_the_recorded_values_of_a_client_are_bounded(stack: ExitStack, tmp_path: Path) -> None:
    client = serve(stack, tmp_path)
    body = {"id": "i" * 5_000, "unheard": "of", "origins": ["x" * 500] * 20}
    client.post("/api/v1/cancel", body, **{"Postdate-Actor": "n" * 5_000 + "%0A"})
    client.post("/api/v1/cancel", b"[" * 9_000)
    client.post("/api/v1/cancel", {"id": 10**400})
    client.post("/api/v1/cancel", b'{"id": "\\ud800"}')
    client.post("/api/v1/cancel", b'{"partition": 1e999, "at": NaN}')
    entries = actions(client)
    assert [each["asked"] for each in entries[:2]] == [{"at": None, "partition": None}, {"id": "?"}]
    assert [each["asked"].keys() for each in entries[2:]] == [{"id"}, set(), {"id", "origins"}]
    assert len(entries[4]["asked"]["id"]) == limits.ACTION_VALUE_LENGTH_MAX
    assert entries[4]["who"] == "n" * limits.ACTOR_LENGTH_MAX
    assert (tmp_path / "actions.jsonl").stat().st_size < 12_000


def test_values_that_json_cannot_represent_are_replaced_in_entries_of_older_processes(
    stack: ExitStack, tmp_path: Path
) -> None:
    answered = {"action": "cancel", "asked": {"id": "\ud800", "partition": float("inf")}, "answer": {"error": "\udfff"}}
    (tmp_path / "actions.jsonl").write_text(json.dumps({**log_entry(SystemClock().wall_ms()), **answered}) + "\n")
    (shown,) = actions(serve(stack, tmp_path))
    assert (shown["asked"], shown["answer"]) == ({"id": "?", "partition": None}, {"error": "?"})


def test_each_process_that_a_command_called_is_shown() -> None:
    parts = [log_entry(number, action_id="a" * 16, forwarded=True, process=f"p{number}") for number in (1, 2)]
    parts[1]["status"] = 503
    for answers in ([[parts[0]], [parts[1]]], [parts, parts]):
        assert merged_actions([{"actions": each} for each in answers], 10) == parts[::-1]
