"""Goal: probes report the state of the process with reasons. The API answers authorized clients and refuses all others.

Method: the real server on a port of this machine, over a process whose poll loop and shards the test sets up. Requests
use real connections.
"""

from __future__ import annotations

import logging
import re
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

import pytest

from postdate.kafka.interface import Isolation, Partition, PlainProducer
from postdate.sidecar.clock import SystemClock
from postdate.sidecar.cluster.topics import request_topic
from postdate.sidecar.config.settings import HttpConfig, TopicsConfig
from postdate.sidecar.errors import ConfigError, Exit
from postdate.sidecar.group.poller import ClientFailure
from postdate.sidecar.http import process_state
from postdate.sidecar.http.api.app import make_app
from postdate.sidecar.http.api.openapi import describe
from postdate.sidecar.http.api.page_files import PATHS
from postdate.sidecar.http.metrics.metrics import METRICS
from postdate.sidecar.http.port import claim
from postdate.sidecar.http.server import server, serving
from postdate.sidecar.http.server.server import HttpServer
from postdate.sidecar.logs import OneLine
from postdate.sidecar.states import State
from postdate.wire.requests.parser import parse_request
from postdate.wire.requests.request import Action
from postdate.wire.requests.rules import RequestRules
from postdate.wire.values.instants import format_instant, parse_instant_ms
from support.deployments.sidecars import wait_until
from support.web.http_server import TOKEN, HttpServerUnderTest, running
from support.web.http_steps import Client, value_of

PART = Partition("postdate.requests", 0)


@pytest.fixture
def http_server() -> Iterator[HttpServerUnderTest]:
    with ExitStack() as stack:
        yield HttpServerUnderTest(stack)


@pytest.fixture(scope="module")
def allowed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Yields a client with the right token. All tests with invalid requests share its server."""
    path = tmp_path_factory.mktemp("http") / "token"
    path.write_text(TOKEN)
    with ExitStack() as stack:
        yield Client(HttpServerUnderTest(stack).serve(path).port, TOKEN)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


# ---- probes ----------------------------------------------------------------------------------------------------------


def test_a_process_without_shards_is_alive_and_ready(http_server: HttpServerUnderTest) -> None:
    client = http_server.serve()
    assert (client.get("/healthz").status, client.get("/readyz").text) == (200, "ready\n")


def test_a_process_under_test_is_alive_however_slow_the_machine_is(
    http_server: HttpServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests may take minutes beside other programs."""
    monkeypatch.setattr(process_state, "POLL_SILENCE_S_MAX", 0.0)
    assert http_server.serve().get("/healthz").status == 200


def test_a_process_whose_poll_loop_hangs_is_neither_alive_nor_ready(http_server: HttpServerUnderTest) -> None:
    http_server.poller.turned_at -= 61
    client = http_server.serve()
    for path in ("/healthz", "/readyz"):
        answer = client.get(path)
        assert answer.status == 503
        assert "poll loop has not run for 6" in answer.text


def test_a_process_that_waits_for_kafka_is_alive_and_gives_the_reason(http_server: HttpServerUnderTest) -> None:
    http_server.poller.is_member, http_server.poller.waits_for = False, "connection refused"
    client = http_server.serve()
    assert client.get("/healthz").status == 200
    answer = client.get("/readyz")
    assert (answer.status, answer.text.splitlines()[0]) == (503, "waiting for Kafka: connection refused")


@pytest.mark.parametrize(("since_s", "alive"), [(5, 200), (61, 503)])
def test_a_process_whose_client_failed_is_not_ready_and_after_a_minute_not_alive(
    http_server: HttpServerUnderTest, since_s: float, alive: int
) -> None:
    http_server.poller.is_member = False
    http_server.poller.failure = ClientFailure(http_server.now_s - since_s, "somebody replaced it")
    client = http_server.serve()
    assert client.get("/healthz").status == alive
    answer = client.get("/readyz")
    assert answer.status == 503
    assert "somebody replaced it" in answer.text


def test_a_process_that_is_not_ready_gives_every_reason(http_server: HttpServerUnderTest) -> None:
    http_server.poller.is_member, http_server.poller.is_stopping = False, True
    answer = http_server.serve().get("/readyz")
    assert (answer.status, answer.text) == (503, "the process is stopping\nnot a member of the group postdate\n")


@pytest.mark.parametrize(
    ("state", "since_s", "status"),
    [
        (State.RECOVERING, 10, 200),
        (State.RECOVERING, 301, 503),
        (State.FENCING, 301, 503),
        (State.RUNNING, 301, 200),
        (State.CATCHING_UP, 301, 200),
        (State.HALTED, 301, 200),
    ],
)
def test_a_takeover_has_a_deadline_and_a_halt_is_a_note(
    http_server: HttpServerUnderTest, state: State, since_s: float, status: int
) -> None:
    http_server.add_shard(PART, state, "because", since_s)
    answer = http_server.serve().get("/readyz")
    assert answer.status == status, answer.text
    assert ("note: postdate.requests/0 is " in answer.text) == (state not in (State.RUNNING, State.CATCHING_UP))
    assert ("because" in answer.text) == (state not in (State.RUNNING, State.CATCHING_UP))


# ---- authorization ---------------------------------------------------------------------------------------------------


def test_on_a_loopback_port_queries_need_no_token_and_changes_need_it(
    http_server: HttpServerUnderTest, token_file: Path
) -> None:
    client = http_server.serve(token_file)
    assert client.get("/api/v1/pending").json == {"entries": [], "cursor": None, "shards": [], "not_asked": []}
    assert client.get("/api/v1/pending/count").json["count"] == 0
    for action in ("cancel", "reschedule", "deliver", "pause", "resume", "trigger", "backfill"):
        path = f"/api/v1/{action}"
        missing = client.post(path, {"id": "x"})
        assert (missing.status, "--token-file FILE" in missing.json["error"]) == (401, True)
        refused = client.post(path, {"id": "x"}, Authorization=f"Bearer {TOKEN}x")
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert client.post(path, {"id": "x"}, Authorization=TOKEN).status == 401
        answer = Client(client.port, TOKEN).post(path, {"id": "x"})
        assert answer.status != 401, answer.text  # it fails later: the cluster has no such topic


def test_on_a_public_port_queries_need_the_token_and_probes_do_not(
    http_server: HttpServerUnderTest, token_file: Path
) -> None:
    client = http_server.serve(token_file, host="0.0.0.0")  # noqa: S104
    assert client.get("/api/v1/pending").status == 401
    assert Client(client.port, TOKEN).get("/api/v1/pending").status == 200
    assert [client.get(path).status for path in ("/metrics", "/healthz", "/readyz")] == [200] * 3


def test_on_a_public_port_every_path_of_the_api_needs_the_token(
    http_server: HttpServerUnderTest, token_file: Path
) -> None:
    client = http_server.serve(token_file, host="0.0.0.0")  # noqa: S104
    methods = {route.path: route.methods for route in make_app(http_server.process(HttpConfig())).routes}  # type: ignore[attr-defined]
    paths = {path for path in methods if path.startswith("/api/v1/")} - {"/api/v1/openapi.json"}
    assert {
        path: client.ask("POST" if "POST" in methods[path] else "GET", path, b"{}", {}).status for path in paths
    } == (dict.fromkeys(paths, 401))


def test_without_a_token_file_nothing_can_be_changed(http_server: HttpServerUnderTest) -> None:
    refused = http_server.serve().post("/api/v1/cancel", {"id": "x"}, Authorization="Bearer ")
    assert (refused.status, "http.token_file" in refused.text) == (403, True)


@pytest.mark.parametrize(("text", "why"), [(None, "cannot be read"), ("short", "fewer than 16 characters")])
def test_an_unusable_token_prevents_the_start_and_names_the_remedy(tmp_path: Path, text: str | None, why: str) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        serving.check(HttpConfig(token_file=path))
    assert refused.value.exit_code == Exit.USAGE
    assert why in str(refused.value)
    assert f"head -c 24 /dev/urandom | base64 > {path})" in str(refused.value)


def test_the_token_can_be_replaced_and_a_short_or_missing_one_permits_nothing(
    http_server: HttpServerUnderTest, token_file: Path
) -> None:
    client = Client(http_server.serve(token_file).port, TOKEN)
    token_file.write_text("another-token-of-some-length")
    assert client.post("/api/v1/cancel", {}).status == 401
    token_file.write_text("short")
    assert Client(client.port, "short").post("/api/v1/cancel", {}).status == 503
    token_file.unlink()
    assert client.post("/api/v1/cancel", {}).status == 503


def test_a_foreign_web_page_cannot_read_the_api_through_a_browser(http_server: HttpServerUnderTest) -> None:
    client = http_server.serve()
    for host in ("[::1]:8080", "localhost.", "LOCALHOST:1", "localhost:", "127.0.0.9"):
        assert client.get("/api/v1/pending", Host=host).status == 200
    assert client.get("/api/v1/pending", Host="10.0.0.1").status == 421


#: No browser sends these.
_UNUSUAL = ("[::1].evil.example", "[::1", "localhost:80@evil.example", "localhost:8a", "localhost..")


@pytest.mark.parametrize("listen_host", ["127.0.0.1", "0.0.0.0"])  # noqa: S104
def test_every_path_refuses_foreign_host_names(
    http_server: HttpServerUnderTest, token_file: Path, listen_host: str
) -> None:
    client = Client(http_server.serve(token_file, host=listen_host).port, TOKEN)
    app = make_app(http_server.process(HttpConfig()))
    for path in [*(route.path for route in app.routes), "/nothing", "/healthz/"]:  # type: ignore[attr-defined]
        for host in (
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "",
            "[",
            "1.2.3.4.evil.example",
            *_UNUSUAL,
        ):
            assert client.get(path, Host=host).status == 421, (path, host)


def test_a_public_port_accepts_every_address_and_each_configured_name_as_host(http_server: HttpServerUnderTest) -> None:
    client = http_server.serve(host="0.0.0.0", names=("postdate.jobs.svc",))  # noqa: S104
    for host in ("10.1.2.3:8080", "[fd00::1]:8080", "postdate.jobs.svc:80", "Postdate.Jobs.svc.", socket.gethostname()):
        assert [client.get(path, Host=host).status for path in ("/metrics", "/healthz", "/readyz")] == [200] * 3, host


def test_no_body_forges_a_log_line(
    http_server: HttpServerUnderTest, token_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    http_server.poller.holds = SimpleNamespace(submit=lambda *_: {})
    client = Client(http_server.serve(token_file).port, TOKEN)
    forged = "x\n2026-01-01 00:00:00,000 WARNING [http] forged"
    for action in ("hold", "release", "cancel", "reschedule", "deliver", "drain"):
        for body in (forged, [forged], {forged: forged}, {"id": forged}, {"what": forged}, {"origin": forged}):
            client.post(f"/api/v1/{action}", body)
        client.post(f"/api/v1/{action}?{quote(forged)}={quote(forged)}", {})
    assert client.post("/api/v1/hold", {"what": "delivery"}).status == 200
    lines = [OneLine("%(message)s").format(record) for record in caplog.records]
    assert 'hold requested over HTTP: {"what": "delivery"}' in lines
    assert not [line for line in lines if "\n" in line or "forged" in line]


def test_a_text_that_is_not_unicode_is_refused_on_every_path(http_server: HttpServerUnderTest, allowed: Client) -> None:
    """An answer that quotes such a text could not be encoded. A drain is not tested, since it reads no body."""
    routes = cast(Any, make_app(http_server.process(HttpConfig())).routes)
    paths = [route.path for route in routes if "POST" in route.methods and route.path != "/api/v1/drain"]
    assert len(paths) > 10
    for path in paths:
        for body in (
            rb'{"\ud800": 1}',
            rb'{"target": "\udfff", "what": "target"}',
            rb'{"id": "x", "topic": ["\ud800"]}',
        ):
            answer = allowed.post(path, body)
            assert (answer.status, answer.json["error"]) == (400, "the body is not JSON, or has a lone surrogate")


# ---- queries and changes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "clause"),
    [
        ("frm=1", "unknown parameter frm"),
        ("from=tomorrow", "from is neither"),
        ("from=5&until=5", "from must be before until"),
        ("limit=0", "limit takes a number from 1"),
        ("limit=1001", "to 1000"),
        ("state=gone", "state takes"),
        ("topic=other", "does not serve"),
        ("partition=x", "partition takes a number"),
        ("target=no/topic", "is not a topic name"),
        ("cursor=zzz", "cursor"),
        ("origin=x", "is not an origin"),
        ("id=a&origin=r/0/0", "give one of id and origin"),
        ("payload=true", "http.payloads is never"),
    ],
)
def test_an_invalid_query_is_refused_with_the_reason(allowed: Client, query: str, clause: str) -> None:
    answer = allowed.get(f"/api/v1/pending?{query}")
    assert answer.status == 400
    assert clause in answer.json["error"]


@pytest.mark.parametrize(
    ("body", "status", "clause"),
    [
        (b"x" * 20_000, 413, "longer than"),
        (b"{", 400, "not JSON"),
        (b"[]", 400, "JSON object"),
        (b"{}", 400, "one of id and origin"),
        (b'{"id":"a","origin":"b"}', 400, "one of id and origin"),
        (b'{"origin":"b"}', 400, "is not an origin"),
        (b'{"id":"a","topic":"other"}', 400, "does not serve"),
        (b'{"id":"a","delay":"5s"}', 400, "unknown field delay"),
        (b'{"id":["a"]}', 400, "takes a text"),
    ],
)
def test_an_invalid_change_is_refused_with_the_reason(allowed: Client, body: bytes, status: int, clause: str) -> None:
    answer = allowed.post("/api/v1/cancel", body)
    assert (answer.status, clause in answer.json["error"]) == (status, True), answer.text


def test_a_range_may_be_relative_to_now(allowed: Client) -> None:
    assert allowed.get("/api/v1/pending?from=-2h&until=now").status == 200
    assert allowed.get("/api/v1/pending/count?from=now&until=10s").status == 200
    assert "from must be before until" in allowed.get("/api/v1/pending?from=10s&until=now").json["error"]


@pytest.mark.parametrize("form", ["10s", "now", "RFC 3339", "number"])
def test_a_reschedule_accepts_every_form_of_a_time(
    http_server: HttpServerUnderTest, token_file: Path, form: str
) -> None:
    http_server.kafka.admin().create_topics([request_topic(PART.topic, TopicsConfig(partitions=1))])
    client = Client(http_server.serve(token_file).port, TOKEN)
    before_ms = SystemClock().wall_ms()
    at = {"RFC 3339": format_instant(before_ms), "number": before_ms}.get(form, form)
    answer = client.post("/api/v1/reschedule", {"id": "a", "at": at})
    assert answer.status == 202, answer.text
    (record,), _ = http_server.kafka.broker.log(PART).read(0, Isolation.READ_COMMITTED, 10)
    at_ms = parse_instant_ms((dict(record.headers or [])["postdate-at"] or b"").decode())
    ahead_ms = 10_000 if form == "10s" else 0
    assert before_ms + ahead_ms <= at_ms <= SystemClock().wall_ms() + ahead_ms


def test_deliver_produces_a_reschedule_to_the_time_of_the_control(
    http_server: HttpServerUnderTest, token_file: Path
) -> None:
    http_server.kafka.admin().create_topics([request_topic(PART.topic, TopicsConfig(partitions=1))])
    client = Client(http_server.serve(token_file).port, TOKEN)
    answer = client.post("/api/v1/deliver", {"id": "a"})
    assert (answer.status, answer.json["action"]) == (202, "reschedule"), answer.text
    (record,), _ = http_server.kafka.broker.log(PART).read(0, Isolation.READ_COMMITTED, 10)
    request = parse_request(RequestRules(topic=PART.topic), 0, record.timestamp_ms, record.key, record.headers)
    assert (request.action, request.id, request.due_ms) == (Action.RESCHEDULE, b"a", answer.json["accepted_ms"])
    refused = client.post("/api/v1/deliver", {"id": "a", "delay": "1h"})
    assert (refused.status, "unknown field delay" in refused.text) == (400, True)


@pytest.mark.parametrize("action", ["pause", "resume", "trigger"])
def test_controls_of_schedules_are_produced_only_with_format_version_3(
    http_server: HttpServerUnderTest, token_file: Path, action: str
) -> None:
    http_server.kafka.admin().create_topics([request_topic(PART.topic, TopicsConfig(partitions=1))])
    client = Client(http_server.serve(token_file).port, TOKEN)
    refused = client.post(f"/api/v1/{action}", {"id": "a"})
    assert (refused.status, "needs format_version = 3" in refused.text) == (400, True), refused.text
    http_server.format_version = 3
    client = Client(http_server.serve(token_file).port, TOKEN)
    answer = client.post(f"/api/v1/{action}", {"id": "a"})
    assert (answer.status, answer.json["action"]) == (202, action), answer.text
    (record,), _ = http_server.kafka.broker.log(PART).read(0, Isolation.READ_COMMITTED, 10)
    assert dict(record.headers or []) == {"postdate-action": action.encode(), "postdate-id": b"a"}


def test_a_backfill_is_produced_with_its_range(http_server: HttpServerUnderTest, token_file: Path) -> None:
    http_server.kafka.admin().create_topics([request_topic(PART.topic, TopicsConfig(partitions=1))])
    http_server.format_version = 3
    client = Client(http_server.serve(token_file).port, TOKEN)
    body = {"id": "a", "start": "2025-01-01T00:00:00Z", "end": "2025-01-01T00:00:01Z"}
    answer = client.post("/api/v1/backfill", body)
    assert (answer.status, answer.json["action"]) == (202, "backfill"), answer.text
    (record,), _ = http_server.kafka.broker.log(PART).read(0, Isolation.READ_COMMITTED, 10)
    request = parse_request(
        RequestRules(topic=PART.topic, format_version=3), 0, record.timestamp_ms, record.key, record.headers
    )
    assert (request.action, request.times_ms) == (Action.BACKFILL, (1_735_689_600_000, 1_735_689_601_000))
    for wrong, reason in (
        ({"end": "10s"}, "after the record"),
        ({"start": "soon"}, "start"),
        ({"at": "now"}, "unknown field at"),
    ):
        refused = client.post("/api/v1/backfill", {**body, **wrong})
        assert (refused.status, reason in refused.text) == (400, True), refused.text
    refused = client.post("/api/v1/backfill", {"id": "a"})
    assert (refused.status, "needs postdate-start and postdate-end" in refused.text) == (400, True), refused.text


def test_changes_share_a_producer_which_is_replaced_after_a_fault(
    http_server: HttpServerUnderTest, token_file: Path
) -> None:
    """A new producer waits half a second for its producer id."""
    http_server.kafka.admin().create_topics([request_topic(PART.topic, TopicsConfig(partitions=1))])
    client = Client(http_server.serve(token_file).port, TOKEN)
    producers, make = list[PlainProducer](), http_server.kafka.plain_producer

    def counted() -> PlainProducer:
        producers.append(make())
        return producers[-1]

    http_server.kafka.plain_producer = counted  # type: ignore[method-assign,assignment]
    assert [client.post("/api/v1/cancel", {"id": "a"}).status for _ in range(3)] == [202] * 3
    assert len(producers) == 1
    producers[0].destroy()
    assert client.post("/api/v1/cancel", {"id": "a"}).status == 502
    assert client.post("/api/v1/cancel", {"id": "a"}).status == 202
    assert len(producers) == 2


def test_a_shard_that_cannot_answer_appears_in_not_asked_without_a_wait(http_server: HttpServerUnderTest) -> None:
    http_server.add_shard(PART, State.HALTED, "seq-broken: a record was lost")
    client = http_server.serve()
    unable = {"topic": PART.topic, "partition": 0, "state": "HALTED", "why": "seq-broken: a record was lost"}
    assert client.get("/api/v1/pending").json["not_asked"] == [unable]
    assert client.get("/api/v1/requests/postdate.requests/1/5").status == 404


# ---- descriptions, ports ---------------------------------------------------------------------------------------------


def test_the_description_names_every_path_and_method(http_server: HttpServerUnderTest) -> None:
    app = make_app(http_server.process(HttpConfig()))
    served = set()
    for route in app.routes:
        path = re.sub(r"\{(\w+):path\}", r"{\1}", route.path)  # type: ignore[attr-defined]
        served |= {(path, method.lower()) for method in route.methods - {"HEAD"}}  # type: ignore[attr-defined]
    assert {(path, method) for path, methods in describe()["paths"].items() for method in methods} == served
    assert http_server.serve().get("/api/v1/openapi.json").json == describe()


def test_the_description_refers_to_exactly_the_schemas_that_it_has() -> None:
    description = describe()
    names = re.findall(r"#/components/schemas/(\w+)", str(description["paths"]) + str(description["components"]))
    assert set(names) == set(description["components"]["schemas"])


def test_only_metrics_of_the_list_are_served(http_server: HttpServerUnderTest) -> None:
    http_server.add_shard(PART, State.RUNNING)
    text = http_server.serve().get("/metrics").text
    typed = dict(re.findall(r"^# TYPE (postdate_\w+) (\w+)$", text, re.MULTILINE))
    assert typed == {metric.name: metric.shape.value for metric in METRICS}
    for metric in METRICS:
        assert f"# HELP {metric.name} {metric.help}\n" in text


def test_the_metrics_of_a_topic_are_sums_over_its_shards(http_server: HttpServerUnderTest) -> None:
    other = Partition(PART.topic, 1)
    for part, times in ((PART, 1), (other, 2)):
        http_server.add_shard(part, State.RUNNING)
        counts = http_server.counts[part]
        counts.read(5 * times, ["refused"] * times)
        counts.rated = 7 * times
        counts.fates["delivered"] += 11 * times
        counts.dead["expired"] += 13 * times
        counts.transactions["aborted"] += 17 * times
    samples = http_server.serve().samples()
    expected = {
        ("postdate_requests_total", "outcome", "refused"): 3,
        ("postdate_requests_total", "outcome", "schedule"): 12,
        ("postdate_rate_limited_total", "topic", PART.topic): 21,
        ("postdate_fates_total", "fate", "delivered"): 33,
        ("postdate_dead_letters_total", "reason", "expired"): 39,
        ("postdate_transactions_total", "outcome", "aborted"): 51,
    }
    assert {key: value_of(samples, key[0], **{key[1]: key[2], "topic": PART.topic}) for key in expected} == expected


def test_the_page_loads_only_its_own_files_and_cannot_be_framed(http_server: HttpServerUnderTest) -> None:
    client = http_server.serve()
    for path in PATHS:
        headers = client.get(path).headers
        policy = dict(clause.split(" ", 1) for clause in headers["content-security-policy"].split("; "))
        assert policy == {
            **dict.fromkeys(("default-src", "base-uri", "form-action", "frame-ancestors"), "'none'"),
            **dict.fromkeys(("script-src", "style-src", "connect-src"), "'self'"),
            "img-src": "data:",
        }
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
    for name in ("index.html", "unknown.js", "..%2Fapp.py"):
        assert client.get(f"/page/{name}").status == 404


def test_a_server_whose_port_is_taken_waits_for_it_and_logs_that_the_process_delivers(
    http_server: HttpServerUnderTest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "HTTP_BIND_RETRY_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = HttpConfig(port=taken.getsockname()[1])
        http: AbstractContextManager[None] = running(HttpServer(http_server.process(config), claim(config)))
        http_server.stack.enter_context(http)
        assert f"port {config.port} of 127.0.0.1 is taken: this process delivers" in caplog.text
    wait_until(Client(config.port).listens, "the server has the port")


def test_a_foreign_address_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1"):
        claim(HttpConfig(host="192.0.2.1", port=8080))


def test_a_server_that_never_got_its_port_ends_at_once(http_server: HttpServerUnderTest) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        http = HttpServer(http_server.process(HttpConfig(port=taken.getsockname()[1])), None)
        http.start()
        ended: Callable[[], bool] = lambda: not http._thread.is_alive()  # noqa: E731
        http.stop()
        wait_until(ended, "the thread has ended")


def test_a_log_line_is_one_line_whatever_is_logged() -> None:
    format_ = OneLine("%(levelname)s %(message)s").format
    forged = "a\r\n\x1b[2Jb\u2028c\td"
    line = logging.makeLogRecord({"msg": "it is %s", "args": (forged,), "levelname": "INFO"})
    assert format_(line) == r"INFO it is a\r\n\x1b[2Jb\u2028c\td"
    try:
        raise ValueError("x\nERROR forged")
    except ValueError:
        line = logging.makeLogRecord({"msg": "failed", "levelname": "INFO", "exc_info": sys.exc_info()})
    first, *traceback = format_(line).splitlines()
    assert first == "INFO failed"
    assert traceback
    assert all(each.startswith("  ") for each in traceback)
    assert traceback[-1] == "  ValueError", "the text of an exception may quote a message"
