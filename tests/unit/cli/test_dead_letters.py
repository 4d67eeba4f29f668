"""Goal: `dead-letters list` shows exactly the selected dead letters. `requeue` sends each of them once, complete, to
the partition of its id, and only with --apply.

Method: the real commands over a simulated Kafka, with dead letters written as the sidecar writes them. The parser of
the sidecar reads the records of the request topic.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from postdate.cli.operation import dead_letters
from postdate.kafka.interface import Headers, Isolation, LogReader, Partition
from postdate.sidecar.dead_letters import limits
from postdate.sidecar.errors import Exit
from postdate.wire.delivered import VALUE_LEFT_OUT, dead_letter_headers
from postdate.wire.headers import AT, CRON, DELAY, GRACE, ID, KEY, ORIGIN, TOPIC
from postdate.wire.requests.parser import parse_request
from postdate.wire.requests.request import Request
from postdate.wire.requests.rules import RequestRules
from support.deployments.simulated_cluster import SimulatedCluster

ORDERS: Headers = [(TOPIC, b"orders"), (DELAY, b"5s")]


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster()


def listed(cluster: SimulatedCluster, *arguments: str) -> list[str]:
    """Returns the origins of the listed dead letters."""
    result = cluster.call("dead-letters", "list", "--requests", cluster.requests, *arguments, "--output", "json")
    assert result.exit_code == 0, result.stderr
    return [json.loads(line)["origin"] for line in result.stdout.splitlines()]


def requeue(cluster: SimulatedCluster, *arguments: str, code: int = 0) -> dict[str, tuple[str, str | None]]:
    """Returns the status of each dead letter and the request that replaces it, by the origin of the dead letter."""
    result = cluster.call("dead-letters", "requeue", "--requests", cluster.requests, *arguments, "--output", "json")
    assert result.exit_code == code, result.stderr
    printed = [json.loads(line) for line in result.stdout.splitlines()]
    return {each["origin"]: (each["status"], each["now"]) for each in printed}


def requests_in(cluster: SimulatedCluster, partition: int) -> list[Request]:
    rules = RequestRules(topic=cluster.requests)
    return [
        parse_request(rules, partition, record.timestamp_ms, record.key, record.headers)
        for record in cluster.records(cluster.requests, partition)
    ]


def test_the_list_shows_each_dead_letter_and_its_reason(cluster: SimulatedCluster) -> None:
    origin = cluster.bury(2, b"k", b"value", [("a", b"1"), *ORDERS, (ID, b"order-9")], "unknown-target")
    text = cluster.call("dead-letters", "list", "--requests", "requests")
    heading, line = text.stdout.splitlines()
    assert heading.split() == ["died", "reason", "origin", "target", "id", "key", "detail"]
    assert line.split()[1:6] == ["unknown-target", origin, "orders", "order-9", "k"]
    assert line.endswith("  why it was unknown-target")
    printed = json.loads(cluster.call("dead-letters", "list", "--requests", "requests", "--output", "json").stdout)
    died_ms = cluster.records(cluster.own.dead_letters, 2)[0].timestamp_ms
    assert printed == {
        **{"origin": "requests/2/0", "dead_letter": "requests.dead-letters/2/0", "died_ms": died_ms},
        **{"reason": "unknown-target", "detail": "why it was unknown-target", "target": "orders", "id": "order-9"},
        **{"key": "k", "request_key": "k", "value_size_bytes": 5, "attempt": None},
    }


@pytest.mark.parametrize(("given", "shown"), [(b"k\xff", "k\\xff"), (b"", ""), (None, None)])
def test_the_delivered_key_is_the_messages_even_if_the_request_key_is_its_id(
    cluster: SimulatedCluster, given: bytes | None, shown: str | None
) -> None:
    cluster.bury(0, b"order-9", None, [*ORDERS, (KEY, b"not the last"), (ID, b"order-9"), (KEY, given)], "expired")
    printed = json.loads(cluster.call("dead-letters", "list", "--requests", "requests", "--output", "json").stdout)
    assert (printed["id"], printed["key"], printed["request_key"]) == ("order-9", shown, "order-9")
    _, line = cluster.call("dead-letters", "list", "--requests", "requests").stdout.splitlines()
    assert ("order-9  k" in line) == (given == b"k\xff")


def test_the_former_name_of_apply_is_valid_and_hidden(cluster: SimulatedCluster) -> None:
    assert requeue(cluster, "--execute") == {}
    text = cluster.call("dead-letters", "requeue", "--help").stdout
    assert "--apply " in text
    assert "--execute" not in text


def test_an_empty_list_ends_with_0(cluster: SimulatedCluster) -> None:
    result = cluster.call("dead-letters", "list", "--requests", "requests")
    assert (result.exit_code, result.stdout) == (0, "")
    assert requeue(cluster, "--apply") == {}


def test_filters(cluster: SimulatedCluster) -> None:
    first = cluster.bury(0, None, None, [(TOPIC, b"orders"), (DELAY, b"1")], "unknown-target")
    cluster.time.wait(60_000)
    middle_ms = cluster.broker.now_ms()
    second = cluster.bury(1, b"\xff", b"", [(TOPIC, b"other"), (DELAY, b"1")], "expired")
    cluster.time.wait(60_000)
    third = cluster.bury(0, None, None, [(DELAY, b"1")], "missing-target")
    assert listed(cluster) == [first, second, third]
    assert listed(cluster, "--reason", "expired", "--reason", "missing-target") == [second, third]
    assert listed(cluster, "--target", "orders") == [first]
    assert listed(cluster, "--origin", third, "--origin", second) == [second, third]
    assert listed(cluster, "--from", str(middle_ms)) == [second, third]
    assert listed(cluster, "--until", str(middle_ms)) == [first]
    assert listed(cluster, "--since", str(middle_ms), "--until", str(middle_ms + 1)) == [second]
    assert listed(cluster, "--reason", "expired", "--target", "orders") == []
    assert listed(cluster, "--origin", "requests/9/1") == []


@pytest.mark.parametrize("output", ["text", "json"])
def test_an_empty_list_is_reported_on_stderr(cluster: SimulatedCluster, output: str) -> None:
    command = ("dead-letters", "list", "--requests", "requests", "--output", output)
    every, filtered = cluster.call(*command), cluster.call(*command, "--target", "orders")
    assert every.stdout == filtered.stdout == ""
    assert every.stderr.endswith("no dead letter of requests\n")
    assert filtered.stderr.endswith("no dead letter of requests matches\n")


def test_a_duration_is_a_time_ago(cluster: SimulatedCluster) -> None:
    cluster.time.now_ms -= 3 * 3_600_000
    cluster.bury(0, None, None, ORDERS, "expired")
    cluster.time.now_ms += 3 * 3_600_000
    late = cluster.bury(0, None, None, ORDERS, "expired")
    assert listed(cluster, "--from", "-2h") == [late]
    assert len(listed(cluster, "--since", "-4h")) == 2


def test_a_list_beyond_the_maximum_is_reported(cluster: SimulatedCluster) -> None:
    for _ in range(3):
        cluster.bury(0, None, None, ORDERS, "expired")
    result = cluster.call("dead-letters", "list", "--requests", "requests", "--max", "2", "--output", "json")
    assert (len(result.stdout.splitlines()), "only the first 2" in result.stderr) == (2, True)
    exactly = cluster.call("dead-letters", "list", "--requests", "requests", "--max", "3")
    assert (exactly.stderr, len(exactly.stdout.splitlines())) == ("", 4)


def test_a_truncated_list_closes_its_readers_before_the_notice(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the progress bar would overwrite the notice."""
    open_readers: set[LogReader] = set()
    words: list[str] = []
    make = cluster.kafka.log_reader

    def counted(part: Partition, offset: int, isolation: Isolation) -> LogReader:
        reader = make(part, offset, isolation)
        open_readers.add(reader)
        monkeypatch.setattr(reader, "close", lambda: open_readers.discard(reader))
        return reader

    def noted(text: str) -> None:
        words.append(text)
        assert not open_readers

    monkeypatch.setattr(cluster.kafka, "log_reader", counted)
    monkeypatch.setattr(dead_letters, "print_note", noted)
    for _ in range(3):
        cluster.bury(0, None, None, ORDERS, "expired")
    assert len(listed(cluster, "--max", "2")) == 2
    assert words == ["only the first 2 are used; use --max for more"]


def test_foreign_records_are_skipped_with_a_warning(cluster: SimulatedCluster) -> None:
    part = Partition(cluster.own.dead_letters, 0)
    foreign: list[Headers] = [[], ORDERS, dead_letter_headers(ORDERS, "expired", "", b"requests/1/5"), [(ORIGIN, None)]]
    for headers in foreign:
        cluster.broker.append(part, b"k", b"v", headers, cluster.broker.now_ms())
    result = cluster.call("dead-letters", "list", "--requests", "requests")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.count("is not a dead letter of Postdate") == 4


def test_nothing_is_requeued_without_execute(cluster: SimulatedCluster) -> None:
    origin = cluster.bury(1, b"k", b"v", [*ORDERS, (ID, b"i")], "unknown-target")
    result = cluster.call("dead-letters", "requeue", "--requests", "requests")
    assert (result.exit_code, result.stdout) == (0, f"{origin} would be requeued (unknown-target, orders)\n")
    assert result.stderr == (
        "dry run: 1 would be requeued, 0 already requeued, 0 not possible; 1 with an id, which replace pending messages"
        " with the same id; --apply does it\n"
    )
    assert len(cluster.records("requests", 1)) == 1


def test_a_requeued_dead_letter_is_complete_and_in_its_partition(cluster: SimulatedCluster) -> None:
    headers: Headers = [("a", b"1"), ("a", None), *ORDERS, ("b", b""), (ID, b"order-9"), (GRACE, b"1h")]
    origin = cluster.bury(3, b"order-9", b"\x00\xff", headers, "unknown-target")
    cluster.time.wait(60_000)
    assert requeue(cluster, "--apply") == {origin: ("put-back", "requests/3/1")}
    record = cluster.records("requests", 3)[1]
    assert (record.key, record.value) == (b"order-9", b"\x00\xff")
    assert record.headers == [*headers, (ORIGIN, origin.encode())]
    before, again = requests_in(cluster, 3)
    assert again.headers == before.headers == [("a", b"1"), ("a", None), ("b", b"")]
    assert (again.id, again.key, again.grace_ms) == (b"order-9", b"order-9", 3_600_000)
    assert again.due_ms == record.timestamp_ms + 5_000, "the delay counts from the new request"


@pytest.mark.parametrize("time", [["--delay", "1m"], ["--level", "5"], ["--at", "+1m"]], ids=str)
def test_a_new_time_replaces_the_old_one(cluster: SimulatedCluster, time: list[str]) -> None:
    name, text = time
    time = [name, str(cluster.broker.now_ms() + 60_000) if text.startswith("+") else text]
    cluster.bury(0, None, b"", [(TOPIC, b"orders"), (AT, b"1000"), (GRACE, b"5s")], "expired")
    requeue(cluster, "--apply", *time)
    (_, again) = requests_in(cluster, 0)
    late_ms = again.due_ms - cluster.records("requests", 0)[1].timestamp_ms - 60_000
    assert late_ms == 0 if name != "--at" else -1_000 < late_ms <= 0
    assert again.grace_ms == 5_000


def test_a_target_that_is_still_missing_causes_a_warning(cluster: SimulatedCluster) -> None:
    for target in (b"orders", b"gone", b"not a name"):
        cluster.bury(0, None, b"", [(TOPIC, target), (DELAY, b"5s")], "unknown-target")
    result = cluster.call("dead-letters", "requeue", "--requests", "requests")
    assert "target topics that do not exist: gone;" in result.stderr


def test_a_second_run_puts_nothing_back_again(cluster: SimulatedCluster) -> None:
    origins = [cluster.bury(partition, None, b"", ORDERS, "expired") for partition in (0, 0, 1)]
    first = requeue(cluster, "--apply")
    assert {status for status, _ in first.values()} == {"put-back"}
    late = cluster.bury(0, None, b"", ORDERS, "expired")
    second = requeue(cluster, "--apply")
    assert second.pop(late)[0] == "put-back"
    assert second == {origin: ("put-back-before", first[origin][1]) for origin in origins}
    lines = cluster.call("dead-letters", "requeue", "--requests", "requests").stdout
    assert lines.count("was already requeued as") == 4
    third = requeue(cluster, "--apply", "--again", "--origin", origins[2])
    assert third == {origins[2]: ("put-back", "requests/1/2")}


def test_requeued_dead_letters_do_not_count_towards_the_maximum(cluster: SimulatedCluster) -> None:
    origins = [cluster.bury(0, None, b"", [*ORDERS, (ID, b"i")], "expired") for _ in range(5)]
    for done in (0, 2, 4):
        outcomes = requeue(cluster, "--apply", "--max", "2")
        assert [outcomes[origin][0] for origin in origins[:done]] == ["put-back-before"] * done
        assert {outcomes[origin][0] for origin in origins[done : done + 2]} == {"put-back"}
        assert len(outcomes) == min(done + 2, 5)
    assert len(cluster.records("requests", 0)) == 10


def test_a_dead_letter_of_a_requeued_message_can_be_requeued(cluster: SimulatedCluster) -> None:
    origin = cluster.bury(0, None, b"", ORDERS, "expired")
    requeue(cluster, "--apply")
    again = cluster.records("requests", 0)[1]
    letter = dead_letter_headers(again.headers or [], "expired", "", b"requests/0/1")
    cluster.broker.append(Partition(cluster.own.dead_letters, 0), None, b"", letter, cluster.broker.now_ms())
    assert requeue(cluster, "--apply") == {
        origin: ("put-back-before", "requests/0/1"),
        "requests/0/1": ("put-back", "requests/0/2"),
    }
    assert [value for name, value in cluster.records("requests", 0)[2].headers or [] if name == ORIGIN] == [
        b"requests/0/1"
    ]


def test_a_cancel_of_the_dead_request_is_not_taken_for_its_return(cluster: SimulatedCluster) -> None:
    origin = cluster.bury(0, None, b"", ORDERS, "expired")
    assert cluster.call("cancel", "--origin", origin).exit_code == 0
    assert requeue(cluster) == {origin: ("would-be-put-back", None)}


def test_a_dead_letter_that_would_be_refused_again_is_not_requeued(cluster: SimulatedCluster) -> None:
    long_ago = str(cluster.broker.now_ms() - 60_000).encode()
    cases: list[tuple[Headers, str, str]] = [
        ([(TOPIC, b"orders")], "missing-time", "missing-time"),
        ([(TOPIC, b"orders"), (DELAY, b"5x")], "bad-time", "bad-time"),
        ([(TOPIC, b"orders"), (AT, long_ago), (GRACE, b"1s")], "expired", "would expire again"),
        ([("postdate-action", b"cancel"), (ORIGIN, b"requests/1/0")], "bad-id", "it is a control"),
        ([], "bad-headers", "headers could not be read"),
    ]
    for headers, why, _ in cases:
        cluster.bury(0, None, b"", headers, why)
    result = cluster.call("dead-letters", "requeue", "--requests", "requests", "--apply")
    assert result.exit_code == Exit.FAILED
    for line, (_, _, expected_text) in zip(result.stdout.splitlines(), cases, strict=True):
        assert "cannot be requeued" in line
        assert expected_text in line
    assert len(cluster.records("requests", 0)) == len(cases)


def test_the_setting_that_a_requeue_needs_is_that_of_the_command(cluster: SimulatedCluster) -> None:
    cluster.bury(0, b"n", b"", [(TOPIC, b"orders"), (CRON, b"0 9 * * *"), (ID, b"n")], "unknown-header")
    line = cluster.call("dead-letters", "requeue", "--requests", "requests").stdout
    need = "header 'postdate-cron' needs format_version = 3, and this process has 1: set POSTDATE_FORMAT_VERSION"
    assert (need in line, "is served" in line) == (True, False), line


def test_a_dead_letter_that_cannot_be_requeued_does_not_stop_the_others(cluster: SimulatedCluster) -> None:
    cluster.bury(0, None, b"", [(DELAY, b"1")], "missing-target")
    good = [cluster.bury(0, None, b"", ORDERS, "expired") for _ in range(2 * limits.REQUEUED_AT_ONCE_MAX + 1)]
    outcomes = requeue(cluster, "--apply", code=Exit.FAILED)
    assert [outcomes[origin][0] for origin in good] == ["put-back"] * len(good)
    numbers = [int((outcomes[origin][1] or "").rpartition("/")[2]) for origin in good]
    assert numbers == [*range(numbers[0], numbers[0] + len(good))], "in their order"


def test_a_request_too_large_for_the_client_is_reported_and_the_others_are_sent(cluster: SimulatedCluster) -> None:
    admin = cluster.kafka.admin()
    for topic in (cluster.requests, cluster.own.dead_letters):
        admin.alter_topic_config(topic, {"max.message.bytes": "3000000"})
    large = cluster.bury(0, None, b"x" * 2_000_000, ORDERS, "too-large")
    small = cluster.bury(0, None, b"x", ORDERS, "too-large")
    outcomes = requeue(cluster, "--apply", code=Exit.FAILED)
    assert (outcomes[large][0], outcomes[small][0]) == ("cannot", "put-back")


@pytest.mark.parametrize("left", [ORDERS, []], ids=["without-value", "without-headers"])
def test_parts_dropped_for_size_come_from_the_request(cluster: SimulatedCluster, left: Headers) -> None:
    part, letters = Partition("requests", 0), Partition(cluster.own.dead_letters, 0)
    cluster.broker.append(part, b"k", b"x" * 1000, ORDERS, 0)
    headers = dead_letter_headers(left, "too-large", f"{VALUE_LEFT_OUT}, it is elsewhere", b"requests/0/0")
    cluster.broker.append(letters, b"k", None, headers, 0)
    assert requeue(cluster, "--apply") == {"requests/0/0": ("put-back", "requests/0/1")}
    again = cluster.records("requests", 0)[1]
    assert (again.key, again.value) == (b"k", b"x" * 1000)
    assert again.headers == [*ORDERS, (ORIGIN, b"requests/0/0")]
    cluster.kafka.admin().delete_records({part: -1})
    assert requeue(cluster, "--again", code=Exit.FAILED) == {"requests/0/0": ("cannot", None)}


def test_a_null_value_is_a_value(cluster: SimulatedCluster) -> None:
    origin = cluster.bury(0, b"k", None, ORDERS, "expired")
    cluster.kafka.admin().delete_records({Partition("requests", 0): -1})
    assert requeue(cluster, "--again", "--apply")[origin][0] == "put-back"


def test_if_requests_were_deleted_an_earlier_requeue_is_unknown(cluster: SimulatedCluster) -> None:
    """The deleted requests may have included the requeue of this dead letter."""
    cluster.time.now_ms -= 5 * 3_600_000
    old = cluster.bury(0, None, b"", ORDERS, "expired")
    assert requeue(cluster, "--apply")[old][0] == "put-back"
    cluster.time.now_ms += 5 * 3_600_000
    young = cluster.bury(0, None, b"", ORDERS, "expired")
    cluster.kafka.admin().delete_records({Partition("requests", 0): 2})
    outcomes = requeue(cluster, "--apply", code=Exit.FAILED)
    assert (outcomes[old][0], outcomes[young][0]) == ("cannot", "put-back")
    cluster.kafka.admin().delete_records({Partition("requests", 0): -1})
    assert requeue(cluster, code=Exit.FAILED)[old][0] == "cannot"
    assert requeue(cluster, "--again")[old][0] == "would-be-put-back"


def test_a_dead_letter_newer_than_the_retained_requests_can_be_requeued(cluster: SimulatedCluster) -> None:
    """Its request has been deleted, which is common after a long delay."""
    part = Partition("requests", 0)

    def others_arrive() -> None:
        cluster.broker.append(part, None, b"", ORDERS, 0)
        cluster.broker.append(part, None, b"", ORDERS, 0)

    cluster.time.at(cluster.time.now_ms + 3_600_000, others_arrive)
    late = cluster.bury(0, None, b"", ORDERS, "expired", lived_ms=5 * 3_600_000)
    cluster.kafka.admin().delete_records({part: 2})
    assert requeue(cluster, "--apply") == {late: ("put-back", "requests/0/3")}
    assert requeue(cluster, "--apply") == {late: ("put-back-before", "requests/0/3")}


def test_exhausted_attempts_begin_again_and_keep_their_root(cluster: SimulatedCluster, tmp_path: Path) -> None:
    config = tmp_path / "postdate.toml"
    config.write_text('format_version = 2\n[[request_topics]]\nname = "requests"\n')
    retry = ("postdate-retry", b"base=1s,attempts=3")
    state: Headers = [
        ("postdate-first-origin", b"requests/0/77"),
        ("postdate-first-due", b"5"),
        ("postdate-error", b"x"),
    ]
    last: Headers = [("postdate-origin", b"requests/0/99"), ("postdate-due", b"7"), ("postdate-attempt", b"3")]
    exhausted = cluster.bury(0, b"k", b"v", [*ORDERS[:1], retry, *last, *state], "attempts-exhausted")
    first = cluster.bury(0, b"k", b"v", [*ORDERS[:1], retry, *last[:2]], "unknown-target")
    second = cluster.bury(0, b"k", b"v", [*ORDERS[:1], retry, *last, *state], "unknown-target")
    plain = cluster.bury(0, b"k", b"v", [*ORDERS, *last, *state], "expired")
    printed = requeue(cluster, code=Exit.FAILED)
    assert [printed[each][0] for each in (exhausted, plain)] == ["cannot", "would-be-put-back"], "format_version is 1"
    outcomes = requeue(cluster, "--apply", "--config", str(config))
    assert {status for status, _ in outcomes.values()} == {"put-back"}
    again = {dict(each.headers or [])["postdate-origin"]: each.headers for each in cluster.records("requests", 0)[4:]}
    counted = [retry, *state]
    assert again[exhausted.encode()] == [*ORDERS[:1], *counted, (ORIGIN, exhausted.encode())]
    roots = [("postdate-first-origin", b"requests/0/99"), ("postdate-first-due", b"7")]
    assert again[first.encode()] == [*ORDERS[:1], retry, *roots, (ORIGIN, first.encode())]
    assert again[second.encode()] == [*ORDERS[:1], retry, last[2], *state, (ORIGIN, second.encode())]
    assert again[plain.encode()] == [*ORDERS, (ORIGIN, plain.encode())]


def test_a_dead_letter_in_a_dialect_is_requeued(cluster: SimulatedCluster, tmp_path: Path) -> None:
    """The target of such a dead letter is not in a header of Postdate, and a cancel may lack the action header."""
    config = tmp_path / "postdate.toml"
    config.write_text(
        '[[request_topics]]\nname = "requests"\ndialects = ["rabbitmq", "etf1"]\ndefault_target = "orders"\n'
    )
    delayed = cluster.bury(0, b"k", b"v", [("a", b"1"), ("x-delay", b"5000")], "expired")
    cancel = cluster.bury(0, b"k", None, [], "limit-exceeded")
    assert listed(cluster, "--config", str(config), "--target", "orders") == [delayed]
    outcomes = requeue(cluster, "--apply", "--config", str(config), code=Exit.FAILED)
    assert outcomes == {delayed: ("put-back", "requests/0/2"), cancel: ("cannot", None)}
    again = cluster.records("requests", 0)[2]
    rules = RequestRules(topic="requests", dialects=("rabbitmq",), default_target="orders")
    request = parse_request(rules, 0, again.timestamp_ms, again.key, again.headers)
    assert (request.target, request.due_ms - again.timestamp_ms, request.headers) == ("orders", 5000, [("a", b"1")])


@pytest.mark.parametrize(
    ("arguments", "expected_text"),
    [
        (["list", "--reason", "tired"], "tired"),
        (["list", "--from", "yesterday"], "not relative to now, such as now or -2h"),
        (["list", "--since", "2h"], "'2h' is in the future; write -2h for 2h ago"),
        (["list", "--origin", "R/0"], "not an origin"),
        (["list", "--max", "0"], "--max"),
        (["requeue", "--delay", "1s", "--level", "2"], "only one of --at, --delay, --level"),
        (["requeue", "--requests", "nowhere"], "request topic nowhere does not exist"),
    ],
)
def test_a_mistake_of_usage(cluster: SimulatedCluster, arguments: list[str], expected_text: str) -> None:
    result = cluster.call("dead-letters", *arguments)
    assert (result.exit_code, result.stdout) == (Exit.USAGE, "")
    assert expected_text in result.stderr


def test_a_request_topic_without_dead_letters(cluster: SimulatedCluster) -> None:
    cluster.kafka.admin().delete_topics([cluster.own.dead_letters])
    result = cluster.call("dead-letters", "list", "--requests", "requests")
    assert (result.exit_code, "topic requests.dead-letters does not exist" in result.stderr) == (Exit.USAGE, True)
