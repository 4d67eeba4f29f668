"""Goal: a process does not flood its log, and warns at its start about settings without effect.

Method: the log filter gets made-up records, with a clock that the test moves. The real check at the start runs over a
simulated cluster. Some processes must not start.
"""

from __future__ import annotations

import json
import logging
import resource
import threading
from pathlib import Path

import pytest

from postdate.kafka.settings import log as client_log
from postdate.sidecar import logs
from postdate.sidecar.config.settings import Config, HttpConfig, RequestTopicConfig
from postdate.sidecar.errors import ConfigError
from postdate.sidecar.http.server import serving
from postdate.sidecar.limits import CLIENT_LOG_REPEAT_S, LOG_REPEAT_S
from postdate.sidecar.process.children import Child
from postdate.sidecar.process.daemon import announce, check_topics, end_watches
from postdate.sidecar.process.limits import OPEN_FILES_PER_SHARD
from support.deployments.command import run_postdate
from support.deployments.ports import free_port
from support.deployments.simulated_cluster import SimulatedCluster


def test_repeated_log_lines_are_counted_and_logged_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("postdate.sidecar.logs.time.monotonic", lambda: now)
    seldom = logs.RateLimitedFilter()

    def logged(level: int, text: str) -> str | None:
        record = logging.LogRecord("kafka", level, "", 0, text, None, None)
        return record.getMessage() if seldom.filter(record) else None

    assert logged(logging.ERROR, "broker 1 is away after 17 ms") == "broker 1 is away after 17 ms"
    assert [logged(logging.ERROR, f"broker 1 is away after {ms} ms") for ms in range(5)] == [None] * 5
    assert logged(logging.ERROR, "something else") == "something else"
    assert logged(logging.INFO, "info") == logged(logging.INFO, "info") == "info"
    now += LOG_REPEAT_S + 1
    assert logged(logging.ERROR, "broker 1 is away after 9 ms") == "broker 1 is away after 9 ms (and 5 times like it)"


@pytest.mark.parametrize(
    ("text", "first", "other"),
    [
        ("shard %s: an abort: %s", ("orders-2026/3", ValueError("17 ms")), ("orders-2026/4", ValueError("17 ms"))),
        ("shard %s: an abort: %s", ("orders-2026/3", ValueError("17 ms")), ("orders-2027/3", ValueError("17 ms"))),
        ("shard %s/%d: held by an operator: %s", ("orders", 3, "delivery"), ("orders", 4, "delivery")),
        ("%s/%d refuses a seek and is assigned again", ("orders", 3), ("orders", 4)),
        ("lost to another member: %s; nothing more", ("orders/1, orders/2",), ("orders/1, orders/3",)),
        ("target %s fails (%s): %s", ("mails.v2", "refused", "no"), ("mails.v3", "refused", "no")),
        ("the topics of %s could not be checked", ("2026-orders",), ("2027-orders",)),
        ("[thrd:%s]: %s: Disconnected", ("kafka-0:9092/1",) * 2, ("kafka-1:9092/2",) * 2),
    ],
)
def test_log_lines_about_two_shards_topics_or_brokers_are_different(
    text: str, first: tuple[object, ...], other: tuple[object, ...]
) -> None:
    assert not _are_coalesced(text, first, other)


@pytest.mark.parametrize(
    ("text", "first", "other"),
    [
        (
            "shard %s: an abort, next try in %d ms: %s",
            ("R/3", 50, ValueError("1 ms")),
            ("R/3", 100, ValueError("2 ms")),
        ),
        (
            "%s in a transaction: slow",
            ("target A, with at most 100 messages",),
            ("target A, with at most 50 messages",),
        ),
        ("Kafka does not answer for %.1f s: %s", (9.5, "no (after 5ms)"), (12.0, "no (after 1,017ms)")),
        ("%s", ("12 of 40 records at -1.",), ("9 of 41 records at -1.",)),
    ],
)
def test_log_lines_that_differ_in_quantities_are_the_same(
    text: str, first: tuple[object, ...], other: tuple[object, ...]
) -> None:
    assert _are_coalesced(text, first, other)


def _are_coalesced(text: str, first: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """True if the second of two lines is suppressed."""
    seldom = logs.RateLimitedFilter()
    passed, other_passed = (
        seldom.filter(logging.LogRecord("shard", logging.WARNING, "", 0, text, args, None)) for args in (first, other)
    )
    assert passed
    return not other_passed


def test_a_line_with_wrong_arguments_is_left_to_the_handler() -> None:
    """The handler reports the wrong arguments. The filter runs in the calling thread, which must not fail because of a
    log line."""
    assert logs.RateLimitedFilter().filter(logging.LogRecord("shard", logging.WARNING, "", 0, "%d ms", ("no",), None))


def test_lines_of_the_client_library_are_counted_for_each_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds at every level: while a broker is away, the library reports it to each shard at INFO, some 50 times at
    once."""
    now = 100.0
    monkeypatch.setattr("postdate.sidecar.logs.time.monotonic", lambda: now)
    seldom = logs.RateLimitedFilter()

    def logged(level: int, text: str, shard: int = 0) -> str | None:
        record = logging.LogRecord(client_log.name, level, "", 0, text, None, None)
        record.threadName = f"shard R/{shard}"
        return record.getMessage() if seldom.filter(record) else None

    for shard in range(2):
        assert logged(logging.INFO, "broker 1 is away after 17 ms", shard) == "broker 1 is away after 17 ms"
    assert [logged(logging.INFO, f"broker 1 is away after {ms} ms") for ms in range(5)] == [None] * 5
    assert logged(logging.INFO, "the password is refused") == "the password is refused"
    assert logged(logging.DEBUG, "sent") == logged(logging.DEBUG, "sent") == "sent"
    assert logged(logging.CRITICAL, "fatal") == logged(logging.CRITICAL, "fatal") == "fatal"
    now += LOG_REPEAT_S + 1
    assert logged(logging.INFO, "broker 1 is away after 8 ms") is None
    now += CLIENT_LOG_REPEAT_S - LOG_REPEAT_S
    assert logged(logging.INFO, "broker 1 is away after 9 ms") == "broker 1 is away after 9 ms (and 6 times like it)"


@pytest.mark.parametrize(
    ("shards", "line"), [(0, "running: 0 shards"), (1, "running: 1 shard"), (12, "running: 12 shards")]
)
def test_the_number_of_shards_is_printed_for_people_and_read_by_the_parent(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, shards: int, line: str
) -> None:
    announce(shards)
    printed = capsys.readouterr().out
    assert printed == f"{line}\n"
    child = Child("it", tmp_path, ())
    child.stdout_file.write_text(printed)
    assert child.shards() == shards


def test_a_rate_that_matches_no_target_is_logged_at_the_start() -> None:
    cluster = SimulatedCluster()
    topic = RequestTopicConfig(cluster.requests, messages_per_second_max=("mails=20", "*=1000", "sms-*=0.5"))
    warnings = [
        text for text in check_topics(Config(request_topics=(topic,)), cluster.kafka.admin()).warnings if "rate" in text
    ]
    assert len(warnings) == 1
    assert "'sms-*=0.5' applies to no target, since '*=1000' precedes it" in warnings[0]


def test_topics_with_the_same_remedy_are_reported_with_it_once() -> None:
    config = Config(request_topics=(RequestTopicConfig("no.such"),))
    with pytest.raises(ConfigError) as raised:
        check_topics(config, SimulatedCluster().kafka.admin())
    (line,) = str(raised.value).splitlines()
    assert line.startswith("no.such does not exist; no.such.dispatch-log does not exist; ")
    assert line.count("fix it with: postdate topics create") == 1


@pytest.mark.parametrize(("content", "words"), [(None, "cannot be read"), ("short", "fewer than 16 characters")])
def test_a_process_does_not_start_with_an_unusable_token(tmp_path: Path, content: str | None, words: str) -> None:
    token, config = tmp_path / "token", tmp_path / "postdate.toml"
    if content is not None:
        token.write_text(content)
    config.write_text(f"[http]\ntoken_file = {json.dumps(str(token))}\n")
    command = ("run", "-b", "127.0.0.1:1", "--config", str(config), "--data", str(tmp_path), "--http-port")
    done = run_postdate(*command, str(free_port()))
    assert done.returncode == 2, done.stderr
    assert f"http.token_file {token}: " in done.stderr
    assert words in done.stderr


def test_without_http_a_token_file_does_not_matter(tmp_path: Path) -> None:
    serving.check(HttpConfig(port=0, token_file=tmp_path / "missing"))


def test_a_process_does_not_wait_for_a_watch_that_waits_for_a_broker() -> None:
    """Otherwise a process would take 15 s, the time-out of a request, to end while its brokers are down."""
    ended, answered = threading.Event(), threading.Event()
    watch = threading.Thread(target=answered.wait, daemon=True)
    watch.start()
    end_watches(ended, [watch])
    assert ended.is_set()
    assert watch.is_alive()
    answered.set()
    watch.join()


def test_the_open_files_of_all_request_topics_must_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SimulatedCluster()
    topics = tuple(RequestTopicConfig(cluster.requests) for _ in range(3))
    admin = cluster.kafka.admin()
    partitions = len(admin.describe([cluster.requests], ())[cluster.requests].partitions)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (3 * partitions * OPEN_FILES_PER_SHARD - 1, 0))
    with pytest.raises(ConfigError, match=f"{3 * partitions * OPEN_FILES_PER_SHARD} open files may be needed"):
        check_topics(Config(request_topics=topics), admin)
