"""Goal: with http.payloads = "never", no key, value or header value of a request appears outside of the topics. Only
the API shows ids.

Method: every field of the requests contains a marker: each header of Postdate and of each dialect, and the key, value
and headers of the message. Each `Reason` is provoked by at least one request, and each `HaltReason` by a halt. In a
shard, a route and a thread, exceptions with a record in their text and in a frame are raised. The test turns shard and
broker; server, log and status files are those of a process. Then the test searches everything that was written outside
of the topics. A new reason, halt or route fails the test until it is provoked here.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from postdate.kafka.interface import NewTopic, Partition
from postdate.sidecar.config.settings import HttpConfig, RequestTopicConfig
from postdate.sidecar.errors import HaltReason
from postdate.sidecar.group.hold_requests import HoldRequests
from postdate.sidecar.group.poller import Poller
from postdate.sidecar.http import limits
from postdate.sidecar.http.action_log import ActionLog
from postdate.sidecar.http.api import local
from postdate.sidecar.http.api.app import make_app
from postdate.sidecar.http.api.page_files import PATHS
from postdate.sidecar.http.port import claim
from postdate.sidecar.http.process_state import ProcessState
from postdate.sidecar.http.server.server import HttpServer
from postdate.sidecar.logs import configure_logging
from postdate.sidecar.shard import shard as shard_module
from postdate.sidecar.shard.shard import Shard
from postdate.sidecar.states import State
from postdate.wire.dialects.table import DIALECTS
from postdate.wire.dispatch_log import BEAT, VERSION_MAX, DispatchRecord, encode_record
from postdate.wire.headers import (
    ACTION,
    AT,
    ATTEMPT,
    DEAD_DETAIL,
    DEAD_REASON,
    DELAY,
    DROPPED_2,
    DUE,
    ERROR,
    FIRST_DUE,
    FIRST_ORIGIN,
    GRACE,
    ID,
    IF_ENDED,
    IF_PENDING,
    KEY,
    LATEST,
    LEVEL,
    MOVED,
    ORIGIN,
    PARTITION,
    RECORD_KEY,
    REQUEST,
    RETRY,
    SELECT_TOPIC,
    SPREAD,
    STORED,
    TOPIC,
    WINDOW,
    Headers,
)
from postdate.wire.reasons import Reason
from support.clients.dialect_examples import DEFAULT_TARGET, EXAMPLES
from support.deployments.ports import free_port
from support.deployments.sidecars import wait_until
from support.kafka_simulator.misbehaviour import Misbehaviour
from support.shards.simulated_shard import OWN, R, ShardEnvironment
from support.web.http_steps import Client, HttpAnswer

MARK = b"card-4111-1111"
CALLER_ID = b"id-of-somebody"
TOKEN = "the-token-of-this-test"  # noqa: S105
PART, LOG = Partition(R, 0), Partition(OWN.dispatch_log, 0)
SIZE_BYTES_MAX = 300_000
LATER_MS = 600_000

#: The routes whose answers may contain ids.
SHOWS_IDS = (
    "GET /api/v1/actions",
    "GET /api/v1/pending",
    "GET /api/v1/requests/",
    "GET /api/v1/dead-letters",
    "POST /api/v1/dead-letters",
)

TO, NOW, CANCEL = (TOPIC, b"orders"), (DELAY, b"0"), (ACTION, b"cancel")


class _AskedRequest(NamedTuple):
    """One request, with the marker in its key, its value and a header of the message."""

    headers: Headers | None
    key: bytes = MARK
    value: bytes = MARK * 20


# ---- requests --------------------------------------------------------------------------------------------------------

#: At least one request for each reason, with the marker in its invalid part.
REFUSED: Mapping[Reason, list[_AskedRequest]] = {
    Reason.MISSING_TARGET: [_AskedRequest([NOW])],
    Reason.BAD_TARGET: [
        _AskedRequest([(TOPIC, b"no topic " + MARK), NOW]),
        _AskedRequest([(TOPIC, b"\xff" + MARK), NOW]),
    ],
    Reason.FORBIDDEN_TARGET: [_AskedRequest([(TOPIC, MARK), NOW]), _AskedRequest([(TOPIC, b"__" + MARK), NOW])],
    Reason.MISSING_TIME: [_AskedRequest([TO])],
    Reason.CONFLICTING_TIME: [_AskedRequest([TO, NOW, (LEVEL, MARK)]), _AskedRequest([TO, NOW, ("x-delay", MARK)])],
    Reason.BAD_TIME: [
        *(_AskedRequest([TO, (name, value)]) for name in (DELAY, AT) for value in (MARK, MARK + b"9" * 400)),
        _AskedRequest([TO, NOW, (GRACE, MARK)]),
    ],
    Reason.BAD_RETRY: [
        *(_AskedRequest([TO, (RETRY, value)]) for value in (MARK, MARK + b"=1s", b"base=" + MARK, b"base=1s," + MARK)),
        *(_AskedRequest([TO, (RETRY, b"base=1s"), (name, MARK)]) for name in (ATTEMPT, FIRST_ORIGIN, FIRST_DUE)),
    ],
    Reason.ATTEMPTS_EXHAUSTED: [_AskedRequest([TO, (RETRY, b"base=1s,attempts=1"), (ATTEMPT, b"1"), (ERROR, MARK)])],
    Reason.BEYOND_HORIZON: [_AskedRequest([TO, (DELAY, b"5000d")])],
    Reason.BAD_LEVEL: [_AskedRequest([TO, (LEVEL, MARK)])],
    Reason.BAD_WINDOW: [_AskedRequest([TO, NOW, (WINDOW, MARK)])],
    Reason.BAD_IF_PENDING: [_AskedRequest([TO, NOW, (ID, CALLER_ID), (IF_PENDING, MARK)])],
    Reason.BAD_IF_ENDED: [_AskedRequest([TO, NOW, (ID, CALLER_ID), (IF_ENDED, MARK)])],
    Reason.BAD_LATEST: [_AskedRequest([TO, NOW, (ID, CALLER_ID), (LATEST, MARK)])],
    Reason.BAD_SELECTION: [_AskedRequest([CANCEL, (SELECT_TOPIC, b"no topic " + MARK)])],
    Reason.BAD_SPREAD: [_AskedRequest([TO, NOW, (WINDOW, b"1s"), (SPREAD, MARK)])],
    Reason.BAD_SCHEDULE: [
        _AskedRequest([TO, (ID, b"x"), ("postdate-cron", MARK)]),
        _AskedRequest([TO, (ID, b"x"), ("postdate-every", MARK)]),
        _AskedRequest([TO, (ID, b"x"), ("postdate-every", b"1s"), ("postdate-missed", MARK)]),
    ],
    Reason.BAD_KEY: [_AskedRequest([(TOPIC, b"target-compacted"), NOW, (KEY, None)])],
    Reason.BAD_PARTITION: [_AskedRequest([TO, NOW, (PARTITION, MARK)]), _AskedRequest([TO, NOW, (PARTITION, b"7")])],
    Reason.BAD_ID: [
        *(_AskedRequest([TO, NOW, (ID, value)]) for value in (MARK * 20, b"\xff" + MARK)),
        *(_AskedRequest([CANCEL, (ORIGIN, value)]) for value in (MARK, MARK + b"/0/0")),
    ],
    Reason.MISSING_ID: [_AskedRequest([CANCEL])],
    Reason.BAD_ACTION: [_AskedRequest([TO, NOW, (ACTION, MARK)]), _AskedRequest([CANCEL, (ID, CALLER_ID), TO])],
    Reason.BAD_HEADERS: [_AskedRequest(None)],
    Reason.DUPLICATE_HEADER: [_AskedRequest([TO, NOW, (ID, MARK), (ID, MARK)])],
    Reason.UNKNOWN_HEADER: [_AskedRequest([TO, NOW, (f"postdate-{MARK.decode()}", MARK)])],
    Reason.TOO_LARGE: [_AskedRequest([(TOPIC, b"target-small"), NOW], value=MARK * 400)],
    Reason.UNKNOWN_TARGET: [_AskedRequest([(TOPIC, b"target-nowhere"), NOW])],
    Reason.RECORD_REFUSED: [_AskedRequest([(TOPIC, b"target-picky"), NOW])],
    Reason.UNAUTHORIZED: [_AskedRequest([(TOPIC, b"target-denied"), NOW])],
    Reason.EXPIRED: [_AskedRequest([TO, (AT, b"1000"), (GRACE, b"1h")])],
    Reason.LIMIT_EXCEEDED: [_AskedRequest([TO, NOW], value=MARK + b"x" * SIZE_BYTES_MAX)],
    Reason.TARGET_UNAVAILABLE: [_AskedRequest([(TOPIC, b"target-away"), NOW])],
}


def in_own_words(due_ms: float) -> Iterator[_AskedRequest]:
    """Yields, for each header of Postdate, a request with the marker in it. The header of the id has CALLER_ID
    instead."""
    for name in sorted(REQUEST | DROPPED_2 | {ORIGIN, DUE, MOVED, DEAD_REASON, DEAD_DETAIL, RECORD_KEY, STORED}):
        base: Headers = [header for header in (TO, (AT, b"%d" % int(due_ms))) if header[0] != name]
        yield _AskedRequest([*base, (name, CALLER_ID if name == ID else MARK)])


def in_dialects(due_ms: float) -> Iterator[_AskedRequest]:
    """Yields the documented requests of each dialect, once for each header that the dialect knows, with the marker in
    that header."""
    for example in (each.at(int(due_ms) // 1000) for each in EXAMPLES):
        dialect = DIALECTS[example.dialect]
        parts = [*dialect.schedule.items(), *dialect.control.items()]
        names_id = {name for name, part in parts if part.header == ID}
        for name in sorted(dialect.read | dialect.left_over | {"card"}):
            others = [header for header in example.headers if header[0] != name]
            marked = CALLER_ID if name in names_id else MARK
            yield _AskedRequest([*others, (name, marked)], CALLER_ID if dialect.id_is_key else MARK)


def new_environment(directory: Path) -> ShardEnvironment:
    """Returns a cluster with a target for each reason that needs one."""
    directory.mkdir()
    env = ShardEnvironment(directory)
    env.format_version = 3
    sizes = {"target-small": {"max.message.bytes": "1000"}, "target-compacted": {"cleanup.policy": "compact"}}
    named = {example.target for example in EXAMPLES} | {"target-picky", "target-denied", "target-away"}
    env.admin.create_topics([NewTopic(name, 1, 1, sizes.get(name, {})) for name in sorted(named | sizes.keys())])
    env.broker.denied.add("target-denied")
    env.broker.misbehaving["target-picky"] = Misbehaviour(env.time, lambda _: True)
    env.broker.topics["target-away"].logs[0].has_leader = False
    return env


def topic() -> RequestTopicConfig:
    """Returns a topic that accepts every dialect, and answers every request on the verdicts topic."""
    return RequestTopicConfig(
        R,
        allow=("orders", "target-*", *sorted({example.target for example in EXAMPLES})),
        verdicts="all",
        pending_size_bytes_max=SIZE_BYTES_MAX,
        store_after_ms=60_000,
        dialects=tuple(DIALECTS),
        default_target=DEFAULT_TARGET,
    )


def ask_all(env: ShardEnvironment) -> int:
    """Writes every request; returns their number."""
    due_ms = env.time.now_ms + LATER_MS
    # Requests with Postdate's own headers come last, so that one of them still has the id: cancels in dialects end the
    # earlier ones.
    requests = [
        *in_dialects(due_ms),
        *(request for refused in REFUSED.values() for request in refused),
        *in_own_words(due_ms),
    ]
    for headers, key, value in requests:
        given: Headers | None = None if headers is None else [*headers, ("card", MARK)]
        env.broker.append(PART, key, value, given, int(env.time.now_ms))
    return len(requests)


# ---- what is written outside of the topics ---------------------------------------------------------------------------


def hides(where: str, text: str, *secrets: bytes) -> None:
    for secret in secrets:
        for form in (secret, base64.b64encode(secret)[:-4], secret.hex().encode()):
            at = text.find(form.decode())
            assert at < 0, f"{where} shows it: {text[max(at - 200, 0) : at + 200]}"


class Shown:
    """The HTTP port of a process that holds one shard at a time. `seen`: the texts of its answers, by method and
    path."""

    def __init__(self, env: ShardEnvironment, shard: Shard, token_file: Path) -> None:
        http = HttpConfig(port=free_port(), token_file=token_file)
        self._poller = SimpleNamespace(
            shards={},
            turned_at=math.inf,
            is_member=True,
            is_stopping=False,
            is_drained=False,
            failure=None,
            waits_for="",
            stands_by="",
            statistics=(),
            holds=HoldRequests(),
        )
        config = replace(shard.ctx.config, http=http)
        poller, counts = cast(Poller, self._poller), {PART: shard.ctx.counts}
        actions = ActionLog(token_file.parent)
        self.process = ProcessState(config, poller, counts, {}, env.kafka, env.admin, env.kafka.clock, actions=actions)
        self.client = Client(http.port, TOKEN)
        self.seen: dict[str, str] = {}
        self.hold(shard)

    def hold(self, shard: Shard) -> None:
        self._shard = shard
        self._poller.shards = {PART: SimpleNamespace(shard=shard, inbox=shard.inbox)}

    @contextmanager
    def serving(self) -> Iterator[None]:
        server = HttpServer(self.process, claim(self.process.config.http))
        server.start()
        try:
            wait_until(self.client.listens, "the server listens")
            yield
        finally:
            server.stop()

    def get(self, path: str) -> HttpAnswer:
        return self._ask(f"GET {path}", lambda: self.client.get(path))

    def post(self, path: str, body: object) -> HttpAnswer:
        return self._ask(f"POST {path}", lambda: self.client.post(path, body))

    def _ask(self, where: str, question: Callable[[], HttpAnswer]) -> HttpAnswer:
        """Returns the answer. Until it arrives, this thread serves the shard's index queries and nothing more."""
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(question)
            while not answer.done():
                if self._shard._index is not None:
                    self._shard.ctx.index_queries.serve(self._shard._index, self.process.clock.steady_ms())
                time.sleep(0.001)
        self.seen[where] = self.seen.get(where, "") + answer.result().text
        return answer.result()


@contextmanager
def logged() -> Iterator[None]:
    """Logs like a process with log_level = debug, on stderr."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    configure_logging("debug")
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


# ---- halts -----------------------------------------------------------------------------------------------------------


def fill(env: ShardEnvironment) -> None:
    """Lets a shard deliver some messages and keep others pending, all with the marker, and closes the shard."""
    shard = env.shard()
    for count, due_ms in ((3, 1), (6, env.time.now_ms + LATER_MS)):
        for _ in range(3):
            headers: Headers = [TO, (AT, b"%d" % int(due_ms)), ("card", MARK)]
            env.broker.append(PART, MARK, MARK * 20, headers, int(env.time.now_ms))
        env.until(shard, lambda count=count: shard.next_request == count)  # type: ignore[misc]
    env.until(shard, lambda: env.ended() == 3)
    shard.close()


def written(env: ShardEnvironment, value: bytes, part: Partition = LOG, key: bytes | None = None) -> None:
    env.broker.append(part, key, value, [("card", MARK)], int(env.time.now_ms))


def recreate(env: ShardEnvironment) -> str:
    env.admin.delete_topics([R])
    env.admin.create_topics([NewTopic(R, 1, 1, {"message.timestamp.type": "LogAppendTime"})])
    return "0"


def truncate(part: Partition) -> Callable[[ShardEnvironment], str]:
    def damage(env: ShardEnvironment) -> str:
        env.broker.log(part).truncate(2)
        return "0"

    return damage


def delete(part: Partition, kept: int, place: str, unread: int = 0) -> Callable[[ShardEnvironment], str]:
    """Returns a damage: it writes `unread` requests, then deletes all records of `part` but the last `kept`. The next
    owner has the disk `place`."""

    def damage(env: ShardEnvironment) -> str:
        for _ in range(unread):
            env.broker.append(PART, MARK, MARK, [TO, NOW], int(env.time.now_ms))
        env.admin.delete_records({part: env.broker.log(part).end - kept})
        return place

    return damage


def forge(value: bytes) -> Callable[[ShardEnvironment], str]:
    def damage(env: ShardEnvironment) -> str:
        written(env, value)
        return "0"

    return damage


def forge_stored(env: ShardEnvironment) -> str:
    shard = env.shard()
    env.until(shard, lambda: env.log()[-1].low_water > 0, 200_000)
    shard.close()
    written(env, MARK, Partition(OWN.store, 0), MARK)
    return "1"


def delete_store(env: ShardEnvironment) -> str:
    env.admin.delete_topics([OWN.store])
    return "0"


def changed(**fields: object) -> bytes:
    """Returns a record of the dispatch log with these fields, as if a foreign program had written it."""
    record: dict[str, object] = {"v": 1, "seq": 3, "takeover": 1, "instance": "x", "group": "x", "at": 1}
    record |= {"next_request": 3, "low_water": 0, "kind": "fates", "fates": [[1, 1, "dead"]]}
    return json.dumps(record | fields).encode()


_SKIPPED = DispatchRecord(
    seq=1_000, takeover=1, instance="x", group="x", at=1, next_request=3, low_water=0, kind=BEAT, fates=[]
)
#: Each halt, with the damage that causes it. A damage is done while the shard is closed, and returns the disk of the
#: next owner.
HALTS: list[tuple[HaltReason, Callable[[ShardEnvironment], str]]] = [
    (HaltReason.TOPIC_RECREATED, recreate),
    (HaltReason.REQUESTS_TRUNCATED, truncate(PART)),
    (HaltReason.REQUESTS_LOST, delete(PART, 0, "0", unread=2)),
    (HaltReason.DISPATCH_LOG_TRUNCATED, truncate(LOG)),
    (HaltReason.DISPATCH_LOG_EMPTY, delete(LOG, 0, "1")),
    (HaltReason.FATES_MISSING, delete(LOG, 2, "1")),
    (HaltReason.LOW_WATER_OUTSIDE, delete(PART, 0, "1")),
    (HaltReason.SEQ_BROKEN, forge(encode_record(_SKIPPED))),
    (HaltReason.NEWER_FORMAT, forge(changed(v=VERSION_MAX + 1, kind=MARK.decode()))),
    (HaltReason.FOREIGN_RECORD, forge(MARK)),
    *((HaltReason.FOREIGN_RECORD, forge(changed(**{name: MARK.decode()}))) for name in ("v", "seq", "kind", "fates")),
    (HaltReason.FOREIGN_RECORD, forge(changed(fates=[[MARK.decode(), 1, "moved"]]))),
    (HaltReason.FOREIGN_RECORD, forge(changed(fates=[[1, 1, MARK.decode()]]))),
    (HaltReason.FOREIGN_RECORD, forge(changed(instance=[MARK.decode()]))),
    (HaltReason.FOREIGN_RECORD, forge_stored),
    (HaltReason.TOPIC_RULES, delete_store),
]


def halted(env: ShardEnvironment, place: str) -> Shard:
    """Returns a shard that halts in its takeover, with the real pauses between its attempts."""
    shard = env.new_shard(place=place)
    deadline = env.time.now_ms + 120_000
    while shard.state is not State.HALTED:
        assert env.time.now_ms < deadline, f"{shard.state} {shard.why}"
        env.time.wait(max(shard.turn(), 1.0))
    return shard


def fail_in_the_shard(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> Shard:
    """Lets a shard fail until it halts, each time by an exception with a record in its text."""

    def ingest(_index: object, _intake: object, records: list[Any], *_: object) -> int:
        try:
            raise KeyError(records[0].value)
        except KeyError:
            return int(records[0].key)

    shard = env.shard()
    honest = shard.turn

    def turn() -> float:
        try:
            return honest()
        except ValueError as error:
            env.time.wait(shard.fail(error))
            return 1.0

    with monkeypatch.context() as patched:
        patched.setattr(shard_module, "ingest", ingest)
        patched.setattr(shard, "turn", turn)
        env.broker.append(PART, MARK, MARK, [TO, NOW], int(env.time.now_ms))
        env.until(shard, lambda: shard.state is State.HALTED, 600_000)
    return shard


# ---- the test --------------------------------------------------------------------------------------------------------


def test_no_field_of_a_request_is_written_outside_of_the_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert set(REFUSED) == set(Reason), "a reason is not provoked"
    assert {reason for reason, _ in HALTS} | {HaltReason.INTERNAL} == set(HaltReason), "a halt is not provoked"
    # `configure_logging` sets both hooks; the patches restore them after this test.
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(limits, "HOLD_TIMEOUT_S", 0.1)
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN)
    env = new_environment(tmp_path / "refused")
    with logged():
        shard = env.shard(topic())
        count = ask_all(env)
        env.until(shard, lambda: {reason for reason, _ in env.dead_letters()} == {*map(str.encode, Reason)}, 120_000)
        env.until(shard, lambda: shard.next_request == count)
        shown = Shown(env, shard, token_file)
        with shown.serving():
            ask_every_route(shown, count)
            fail_everywhere(shown, monkeypatch)
            reasons = halt_for_everything(shown, tmp_path, monkeypatch)
        shard.close()

    assert MARK in b"".join(value or b"" for _, value in env.dead_letters()), "the topics hold it"
    assert CALLER_ID.decode() in shown.seen["GET /api/v1/pending"], "the API shows ids"
    for where, text in shown.seen.items():
        hides(where, text, MARK, *([] if where.startswith(SHOWS_IDS) else [CALLER_ID]))
    status = list(tmp_path.rglob("status.json"))
    assert len(status) >= len(HALTS)
    for path in status:
        hides(str(path), path.read_text(), MARK, CALLER_ID)
    hides("the log of actions", (tmp_path / "actions.jsonl").read_text(), MARK)
    out, log = capfd.readouterr()
    hides("stdout", out, MARK, CALLER_ID)
    hides("the log", log, MARK, CALLER_ID)
    for reason in HaltReason:
        assert f"HALTED: {reason}" in log
        assert f"is HALTED: {reason}" in shown.seen["GET /readyz"]
    assert reasons == [*(reason for reason, _ in HALTS), HaltReason.INTERNAL]
    for failure in ("stopped it", "ended this thread", "Exception in ASGI application"):
        assert failure in log


def ask_every_route(shown: Shown, count: int) -> None:
    """Queries each route, and the history of each request."""
    for query in ("", "?limit=1000", "?payload=true", "?state=parked", f"?id={CALLER_ID.decode()}", "?scope=process"):
        shown.get(f"/api/v1/pending{query}")
    for offset in range(count):
        origin = f"{R}/0/{offset}"
        assert shown.get(f"/api/v1/requests/{origin}").status == 200
        assert shown.get(f"/api/v1/requests/{origin}?payload=true").status == 400
    more_of = {"reschedule": {"delay": "1h"}, "backfill": {"start": "1", "end": "2"}}
    for path in ("cancel", "reschedule", "deliver", "pause", "resume", "trigger", "backfill"):
        shown.post(f"/api/v1/{path}", {"origin": f"{R}/0/0", **more_of.get(path, {})})
    shown.get("/api/v1/pending/selected?target=orders")
    for path in ("cancel", "reschedule", "deliver"):
        more = {"by": "1h"} if path == "reschedule" else {}
        shown.post(f"/api/v1/{path}/selected", {"target": "nothing-for-it", **more})
        shown.post(f"/api/v1/{path}/selected", {"key": MARK.decode(), **more})
        shown.post(f"/api/v1/{path}/selected", {"key": MARK.decode(), "from": "never", **more})
    assert shown.get("/api/v1/dead-letters?limit=1000").json["letters"]
    assert shown.get("/api/v1/dead-letters?payload=true").status == 400
    for reason in Reason:
        assert shown.post("/api/v1/dead-letters/requeue", {"reason": reason}).status == 200
    for path in ("hold", "release"):
        shown.post(f"/api/v1/{path}", {"what": "intake"})
    shown.post("/api/v1/drain", {})
    assert len(shown.get("/api/v1/actions").json["actions"]) > 10
    assert shown.get("/api/v1/actions?payload=true").status == 400
    for path in PATHS:
        shown.get(path)
    paths = {where.partition(" ")[2].partition("?")[0] for where in shown.seen}
    for route in make_app(shown.process).routes:
        path = cast(Any, route).path
        if path not in paths and "{" not in path:
            assert shown.get(path).status == 200, f"{path} needs a query of its form"


def fail_everywhere(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises unexpected exceptions with the marker in their texts: in a route, in a thread, and in the main thread."""

    def broken(*_: object) -> dict[str, object]:
        raise ValueError(f"no record: {MARK!r}")

    with monkeypatch.context() as patched:
        patched.setattr(local, "page", broken)
        assert shown.get("/api/v1/pending?limit=5").status == 500
    thread = threading.Thread(target=broken)
    thread.start()
    thread.join()
    try:
        broken()
    except ValueError as error:
        sys.excepthook(type(error), error, error.__traceback__)


def halt_for_everything(shown: Shown, directory: Path, monkeypatch: pytest.MonkeyPatch) -> list[HaltReason | None]:
    """Halts one shard for each reason, and queries each; returns the reasons in their status files."""
    reasons = []
    damages: list[Callable[[ShardEnvironment], str] | None] = [*(damage for _, damage in HALTS), None]
    for number, damage in enumerate(damages):
        (directory / f"halt-{number}").mkdir()
        env = ShardEnvironment(directory / f"halt-{number}")
        if damage is None:
            shard = fail_in_the_shard(env, monkeypatch)
        else:
            fill(env)
            shard = halted(env, damage(env))
        shown.hold(shard)
        for path in ("/readyz", "/metrics", "/api/v1/shards?scope=process", "/api/v1/pending?scope=process"):
            shown.get(path)
        reasons.append(shard._operator.reason)
        shard.close()
    return reasons
