"""Goal: `cancel`, `reschedule`, `deliver` and `send --wait-verdict` produce their request to the right partition, and
report the verdict in text and exit code.

Method: the real commands over a simulated Kafka. The test writes the verdicts, encoded as a sidecar encodes them. The
parser of the sidecar reads the records of the request topic.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from postdate.cli import postdate
from postdate.cli.requests.waiting import is_positive
from postdate.kafka.errors import FatalClient, KafkaFault, NotAuthorized
from postdate.kafka.interface import Isolation, LogReader, Partition, Record
from postdate.sidecar.errors import Exit, TransientError
from postdate.sidecar.http.queries.deployment import Deployment
from postdate.wire.headers import ACTION, ID, ORIGIN
from postdate.wire.origins import format_origin
from postdate.wire.requests.parser import parse_request
from postdate.wire.requests.request import Action, Request
from postdate.wire.requests.rules import RequestRules
from postdate.wire.requests.selection import Selection
from postdate.wire.values.murmur2 import partition_for
from postdate.wire.verdicts import Verdict, VerdictRecord, encode_verdict
from support.deployments.simulated_cluster import Answering, SimulatedCluster

SOON = ("--wait-verdict", "--timeout", "300ms")


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster()


def format_2(directory: Path) -> Path:
    """Returns a configuration with format 2."""
    config = directory / "postdate.toml"
    config.write_text("format_version = 2\n")
    return config


def fail_at(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch, partition: int, fault: KafkaFault | None = None
) -> None:
    """Makes every produce request fail from this partition on."""
    honest = cluster.broker.append

    def append(part: Partition, *more: Any) -> tuple[int, int]:
        if part.topic == "requests" and part.index >= partition:
            raise fault or FatalClient("the connection is lost")
        return honest(part, *more)

    monkeypatch.setattr(cluster.broker, "append", append)


def says(verdict: Verdict, of: str = "") -> Answering:
    return lambda part, record: (verdict, of.encode())


def request_at(cluster: SimulatedCluster, origin: str) -> Request:
    topic, partition, offset = origin.split("/")
    assert topic == cluster.requests
    record = cluster.records(topic, int(partition))[int(offset)]
    return parse_request(RequestRules(topic=topic), int(partition), record.timestamp_ms, record.key, record.headers)


@pytest.mark.parametrize("id", ["order-9", "order-10", "ä", "x" * 256])
def test_a_control_by_id_goes_to_the_partition_of_the_id(cluster: SimulatedCluster, id: str) -> None:
    sent = cluster.call(
        "send", "--requests", "requests", "--topic", "orders", "--delay", "1h", "--id", id, "--key", "k"
    )
    moved = cluster.call("reschedule", "--requests", "requests", "--id", id, "--delay", "2h", "--grace", "1m")
    cancelled = cluster.call("cancel", "--requests", "requests", "--id", id)
    assert [result.exit_code for result in (sent, moved, cancelled)] == [0, 0, 0]
    origins = [result.stdout.strip() for result in (sent, moved, cancelled)]
    partition = partition_for(id.encode(), cluster.partitions)
    assert origins == [f"requests/{partition}/{offset}" for offset in range(3)]
    scheduled, later, ended = (request_at(cluster, origin) for origin in origins)
    assert (scheduled.key, scheduled.id) == (b"k", id.encode())
    assert (later.action, later.id, later.grace_ms) == (Action.RESCHEDULE, id.encode(), 60_000)
    assert (ended.action, ended.id) == (Action.CANCEL, id.encode())


def test_a_control_by_origin_goes_to_its_topic_and_partition(cluster: SimulatedCluster) -> None:
    for partition in range(cluster.partitions):
        origin = f"requests/{partition}/1017"
        for command in (["cancel"], ["reschedule", "--level", "3"]):
            result = cluster.call(*command, "--origin", origin)
            assert result.exit_code == 0, result.stderr
            assert request_at(cluster, result.stdout.strip()).acts_on == 1017
            assert result.stdout.startswith(f"requests/{partition}/")


def test_deliver_is_a_reschedule_to_its_own_timestamp(cluster: SimulatedCluster) -> None:
    for named in (["--origin", "requests/2/7"], ["--id", "order-9", "--requests", "requests"]):
        result = cluster.call("deliver", *named, "--output", "json")
        printed = json.loads(result.stdout)
        assert (result.exit_code, printed["action"], printed["due_ms"]) == (0, "reschedule", printed["sent_ms"])
        request = request_at(cluster, printed["origin"])
        assert (request.action, request.due_ms) == (Action.RESCHEDULE, printed["sent_ms"])


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_bulk_cancel_goes_to_every_partition_and_adds_the_counts_up(
    cluster: SimulatedCluster, tmp_path: Path, output: str
) -> None:
    cluster.kafka.counts = lambda part: part.index
    config = ["--config", str(format_2(tmp_path))]
    selectors = ["--target", "orders", "--id-prefix", "c-", "--key", "k", "--from", "5", "--until", "9"]
    result = cluster.call("cancel", "--requests", "requests", *selectors, *config, "--output", output, *SOON)
    assert result.exit_code == 0, result.stderr
    expected = [(f"requests/{index}/0", index) for index in range(cluster.partitions)]
    if output == "json":
        printed = [json.loads(line) for line in result.stdout.splitlines()]
        assert [(each["origin"], each["count"]) for each in printed] == expected
        assert {each["verdict"] for each in printed} == {"applied"}
    else:
        assert result.stdout.splitlines() == [f"{origin} {count}" for origin, count in expected]
        assert "6 messages cancelled" in result.stderr
    for index in range(cluster.partitions):
        (record,) = cluster.records("requests", index)
        request = parse_request(RequestRules(topic="requests", format_version=2), index, 1, None, record.headers)
        assert request.selection == Selection("orders", b"c-", b"k", 5, 9)


@pytest.mark.parametrize(
    ("command", "due", "by_ms"),
    [
        (["deliver"], True, 0),
        (["reschedule", "--by", "2h"], False, 7_200_000),
        (["reschedule", "--by", "-1s"], False, -1000),
    ],
)
def test_many_messages_are_moved_or_delivered(
    cluster: SimulatedCluster, tmp_path: Path, command: list[str], due: bool, by_ms: int
) -> None:
    cluster.kafka.counts = lambda part: part.index
    config = ["--config", str(format_2(tmp_path))]
    result = cluster.call(*command, "--requests", "requests", "--key", "k", *config, *SOON)
    assert result.exit_code == 0, result.stderr
    assert "6 messages moved" in result.stderr
    for index in range(cluster.partitions):
        (record,) = cluster.records("requests", index)
        request = parse_request(RequestRules(topic="requests", format_version=2), index, 1, None, record.headers)
        assert (request.selection, request.by_ms, request.due_ms) == (Selection(key=b"k"), by_ms, 1 if due else -1)


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_partly_produced_bulk_control_reports_which_partitions_have_it(
    cluster: SimulatedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    """A repeated move by a duration would move the messages of the first partitions twice."""
    fail_at(cluster, monkeypatch, 2)
    given = ["--requests", "requests", "--key", "k", "--config", str(format_2(tmp_path)), "--output", output]
    moved = cluster.call("reschedule", "--by", "2h", *given, *SOON)
    cancelled = cluster.call("cancel", *given)
    for result, offset in ((moved, 0), (cancelled, 1)):
        origins = [f"requests/0/{offset}", f"requests/1/{offset}"]
        lines = result.stdout.splitlines()
        assert result.exit_code == Exit.FAILED
        assert [json.loads(line)["origin"] if output == "json" else line for line in lines] == origins
        assert f"sent: {', '.join(origins)}; may be sent: requests/2; not sent: requests/3" in result.stderr
    assert "only with --partition 3 " in moved.stderr
    assert "--partition 2 only if its messages have not moved" in moved.stderr
    assert "repeat the command" in cancelled.stderr
    assert "--partition" not in cancelled.stderr


def test_the_rest_of_a_bulk_control_goes_to_the_chosen_partitions(cluster: SimulatedCluster, tmp_path: Path) -> None:
    cluster.kafka.counts = lambda part: part.index
    given = ["--requests", "requests", "--key", "k", "--config", str(format_2(tmp_path))]
    result = cluster.call("reschedule", "--by", "2h", *given, "--partition", "3", "--partition", "1", *SOON)
    assert (result.exit_code, result.stdout.splitlines()) == (0, ["requests/1/0 1", "requests/3/0 3"])
    assert [len(cluster.records("requests", index)) for index in range(cluster.partitions)] == [0, 1, 0, 1]
    absent = cluster.call("cancel", *given, "--partition", "0", "--partition", "4")
    assert (absent.exit_code, "no partition 4" in absent.stderr) == (Exit.USAGE, True)
    assert cluster.records("requests", 0) == []


def test_a_refusal_by_the_first_partition_is_reported_as_such(
    cluster: SimulatedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at(cluster, monkeypatch, 0, NotAuthorized("requests may not be written"))
    given = ["--requests", "requests", "--key", "k", "--config", str(format_2(tmp_path))]
    result = cluster.call("reschedule", "--by", "2h", *given)
    assert (result.exit_code, result.stdout, result.stderr) == (Exit.USAGE, "", "error: requests may not be written\n")


def test_a_bulk_cancel_without_a_count_ends_with_1(cluster: SimulatedCluster, tmp_path: Path) -> None:
    config = str(format_2(tmp_path))
    result = cluster.call("cancel", "--requests", "requests", "--target", "t", "--config", config, *SOON)
    assert (result.exit_code, "no count from 4 partitions" in result.stderr) == (Exit.FAILED, True)


def test_a_successful_cancel_prints_its_verdict(cluster: SimulatedCluster) -> None:
    cluster.kafka.answering = says(Verdict.CANCELLED, "requests/2/7")
    result = cluster.call("cancel", "--origin", "requests/2/7", *SOON)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "requests/2/0\ncancelled requests/2/7\n"


def test_a_successful_reschedule_prints_its_verdict_as_json(cluster: SimulatedCluster) -> None:
    cluster.kafka.answering = says(Verdict.RESCHEDULED, "requests/2/7")
    result = cluster.call("reschedule", "--origin", "requests/2/7", "--delay", "90s", *SOON, "--output", "json")
    printed = json.loads(result.stdout)
    assert result.exit_code == 0
    assert printed["due_ms"] == printed["sent_ms"] + 90_000
    assert (printed["origin"], printed["action"], printed["verdict"]) == ("requests/2/0", "reschedule", "rescheduled")
    assert printed["of"] == "requests/2/7"
    assert printed["sent_ms"] <= printed["verdict_ms"] <= cluster.broker.now_ms()


@pytest.mark.parametrize("verdict", [Verdict.TOO_LATE, Verdict.NOT_FOUND, Verdict.REJECTED])
@pytest.mark.parametrize("command", [["cancel"], ["reschedule", "--level", "0"]], ids=" ".join)
def test_a_negative_verdict_is_printed_and_ends_with_1(
    cluster: SimulatedCluster, command: list[str], verdict: Verdict
) -> None:
    cluster.kafka.answering = says(verdict)
    result = cluster.call(*command, "--id", "i", "--requests", "requests", *SOON)
    assert result.exit_code == Exit.FAILED
    assert result.stdout.splitlines()[1] == verdict, "no origin is named"
    assert result.stderr.startswith(f"error: {verdict}: ")
    as_json = cluster.call(*command, "--id", "i", "--requests", "requests", *SOON, "--output", "json")
    assert (as_json.exit_code, json.loads(as_json.stdout)["verdict"]) == (Exit.FAILED, verdict)


def test_a_schedule_that_replaces_gets_the_replaced_origin(cluster: SimulatedCluster) -> None:
    cluster.kafka.answering = says(Verdict.REPLACED, "requests/1/5")
    result = cluster.call("send", "--requests", "requests", "--topic", "orders", "--level", "9", "--id", "i", *SOON)
    assert (result.exit_code, result.stdout.splitlines()[1]) == (0, "replaced requests/1/5")


@pytest.mark.parametrize(
    ("verdict", "of", "yes"),
    [
        (Verdict.ACCEPTED, None, True),
        (Verdict.DELIVERED, None, True),
        (Verdict.CANCELLED, "R/0/1", True),
        (Verdict.RESCHEDULED, "R/0/1", True),
        (Verdict.REPLACED, "R/0/1", True),
        (Verdict.CANCELLED, None, False),
        (Verdict.REPLACED, None, False),
        (Verdict.DEAD, None, False),
        (Verdict.REJECTED, None, False),
        (Verdict.NOT_FOUND, None, False),
        (Verdict.TOO_LATE, "R/0/1", False),
    ],
)
def test_which_verdicts_are_positive(verdict: Verdict, of: str | None, yes: bool) -> None:
    assert is_positive(VerdictRecord(origin="R/0/2", id=None, verdict=verdict, of=of, at_ms=1)) is yes


def test_a_missing_verdict_prints_what_to_check(cluster: SimulatedCluster) -> None:
    result = cluster.call("cancel", "--requests", "requests", "--id", "i", *SOON)
    assert result.exit_code == Exit.FAILED
    assert result.stdout.startswith("requests/"), "the request is there all the same"
    assert "no verdict within 300ms" in result.stderr
    assert "postdate run" in result.stderr
    assert "`verdicts` is not none" in result.stderr
    as_json = cluster.call("cancel", "--requests", "requests", "--id", "i", *SOON, "--output", "json")
    assert (json.loads(as_json.stdout)["verdict"], as_json.exit_code) == (None, Exit.FAILED)


def test_the_origin_is_printed_even_if_the_verdict_cannot_be_read(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(part: Partition, offset: int, isolation: Isolation) -> LogReader:
        raise NotAuthorized(f"{part.topic} may not be read")

    monkeypatch.setattr(cluster.kafka, "log_reader", forbidden)
    result = cluster.call("cancel", "--origin", "requests/0/0", *SOON, "--output", "json")
    assert (result.exit_code, "may not be read" in result.stderr) == (Exit.USAGE, True)
    printed = json.loads(result.stdout)
    assert (printed["origin"], printed["verdict"]) == ("requests/0/0", None)


@pytest.mark.parametrize("command", [["cancel", "--id", "i"], ["send", "--topic", "orders", "--level", "1"]])
def test_an_acknowledgement_without_an_offset_names_no_origin(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    """The library reports no offset if it repeated a record that the broker already had."""
    monkeypatch.setattr(cluster.broker, "append", lambda *arguments: (-1001, -1))
    result = cluster.call(*command, "--requests", "requests")
    assert (result.exit_code, result.stdout) == (Exit.FAILED, "")
    assert "did not report its offset" in result.stderr


def test_only_a_verdict_on_this_request_counts(cluster: SimulatedCluster) -> None:
    """The partition also has older verdicts, verdicts on other requests, and a record that is not a verdict."""
    verdicts = Partition(cluster.own.verdicts, 0)

    def disturb(part: Partition, record: Record) -> tuple[Verdict, bytes]:
        for offset in (record.offset + 1, record.offset + 10):
            other = encode_verdict(Verdict.NOT_FOUND, format_origin("requests", 0, offset), b"", b"", 1)
            cluster.broker.append(verdicts, *other, [], 1)
        cluster.broker.append(verdicts, None, b"not a verdict", [], 1)
        return Verdict.CANCELLED, b"requests/0/0"

    own = encode_verdict(Verdict.TOO_LATE, b"requests/0/0", b"", b"", 1)
    cluster.broker.append(verdicts, *own, [], 1)  # from an earlier topic of the same name
    cluster.kafka.answering = disturb
    result = cluster.call("cancel", "--origin", "requests/0/0", *SOON)
    assert (result.exit_code, result.stdout.splitlines()[1]) == (0, "cancelled requests/0/0")
    assert "does not parse" in result.stderr


def test_nothing_is_sent_if_no_verdict_can_arrive(cluster: SimulatedCluster, tmp_path: Path) -> None:
    cluster.kafka.admin().delete_topics([cluster.own.verdicts])
    result = cluster.call("cancel", "--origin", "requests/0/0", "--wait-verdict")
    assert result.exit_code == Exit.USAGE
    assert "postdate topics create -b sim:1 --requests requests --allow-existing" in result.stderr
    config = tmp_path / "postdate.toml"
    config.write_text('[[request_topics]]\nname = "requests"\nverdicts = "none"\n')
    result = cluster.call("cancel", "--origin", "requests/0/0", "--wait-verdict", "--config", str(config))
    assert (result.exit_code, "verdicts = none" in result.stderr) == (Exit.USAGE, True)
    assert cluster.records("requests", 0) == []
    assert cluster.call("cancel", "--origin", "requests/0/0", "--config", str(config)).exit_code == 0


def test_the_origin_is_printed_even_if_the_brokers_clock_is_wrong(cluster: SimulatedCluster) -> None:
    """The due time is beyond the horizon by the clock of the broker, and within the horizon by the local clock."""
    cluster.broker.skew_ms = -500 * 86_400_000
    at = str(int(cluster.time.now_ms) + 3_600_000)
    for command in (
        ["send", "--requests", "requests", "--topic", "orders"],
        ["reschedule", "--origin", "requests/0/1"],
    ):
        result = cluster.call(*command, "--at", at, "--output", "json")
        assert result.exit_code == 0, result.stderr
        printed = json.loads(result.stdout)
        assert (printed["origin"].partition("/")[0], printed["due_ms"]) == ("requests", None)


def test_an_origin_that_cannot_exist_is_not_sent(cluster: SimulatedCluster) -> None:
    result = cluster.call("cancel", "--origin", "requests/4/1")
    assert (result.exit_code, "requests has 4 partitions" in result.stderr) == (Exit.USAGE, True)
    absent = cluster.call("cancel", "--origin", "nowhere/0/1")
    assert (absent.exit_code, "request topic nowhere does not exist" in absent.stderr) == (Exit.USAGE, True)


def test_a_reschedule_beyond_the_horizon_is_not_sent(cluster: SimulatedCluster) -> None:
    result = cluster.call("reschedule", "--origin", "requests/0/1", "--delay", "401d")
    assert (result.exit_code, "beyond-horizon" in result.stderr) == (Exit.USAGE, True)
    assert cluster.records("requests", 0) == []


@pytest.mark.parametrize(
    ("arguments", "expected_text"),
    [
        (["cancel"], "one of --id and --origin, or selectors such as --target"),
        (["cancel", "--id", "i", "--origin", "R/0/1"], "one of --id and --origin"),
        (["cancel", "--origin", "R/0"], "not an origin"),
        (["cancel", "--origin", "R/0/1", "--requests", "S"], "names a request on R, --requests is S"),
        (["cancel", "--id", ""], "bad-id"),
        (["cancel", "--id", "i", "--timeout", "5s"], "--wait-verdict"),
        (["cancel", "--id", "i", "--wait-verdict", "--timeout", "soon"], "not a duration"),
        (["deliver"], "one of --id and --origin"),
        (["cancel", "--target", "a b", "--config", "2"], "bad-selection"),
        (["cancel", "--id-prefix", "", "--config", "2"], "bad-selection"),
        (["cancel", "--from", "5", "--until", "5", "--config", "2"], "bad-selection"),
        (["cancel", "--target", "t"], "format_version = 2"),
        (["cancel", "--target", "t", "--id", "i"], "not both"),
        (["cancel", "--dry-run"], "needs a selector"),
        (["deliver", "--dry-run"], "needs a selector"),
        (["cancel", "--id", "i", "--partition", "1"], "--partition needs a selector"),
        (["cancel", "--key", "k", "--dry-run", "--partition", "1", "--partition", "3"], "one --partition"),
        (["cancel", "--requests", "requests", "--key", "\udcff", "--dry-run"], "only UTF-8 text"),
        (["reschedule", "--by", "2h", "--id", "i"], "--by needs a selector"),
        (["reschedule", "--by", "2h", "--delay", "1h", "--target", "t"], "one time, or --by"),
        (["reschedule", "--target", "t"], "one time, or --by"),
        (["reschedule", "--by", "2x", "--target", "t", "--config", "2"], "bad-time"),
        (["reschedule", "--by", "2h", "--target", "t", "--grace", "1s"], "--grace needs"),
        (["reschedule", "--id", "i"], "exactly one of --at, --delay, --level"),
        (["reschedule", "--id", "i", "--at", "1", "--level", "2"], "exactly one of --at, --delay, --level"),
        (["reschedule", "--id", "i", "--delay", "5x"], "bad-time"),
        (["reschedule", "--id", "i", "--level", "1", "--grace", "x"], "bad-time"),
        (["send", "--topic", "t", "--level", "1", "--timeout", "5s"], "--wait-verdict"),
    ],
)
def test_a_mistake_of_usage_sends_nothing(
    cluster: SimulatedCluster, tmp_path: Path, arguments: list[str], expected_text: str
) -> None:
    result = cluster.call(*(str(format_2(tmp_path)) if each == "2" else each for each in arguments))
    assert (result.exit_code, result.stdout) == (Exit.USAGE, "")
    assert expected_text in result.stderr
    assert all(cluster.records("requests", partition) == [] for partition in range(cluster.partitions))


@pytest.mark.parametrize(
    ("arguments", "need"),
    [
        (("cancel", "--target", "orders"), "header 'postdate-select-topic' needs format_version = 2"),
        (
            ("send", "--topic", "orders", "--delay", "1h", "--window", "1h"),
            "header 'postdate-window' needs format_version = 2",
        ),
        (("schedule", "pause", "--id", "nightly"), "postdate-action 'pause' needs format_version = 3"),
    ],
)
def test_a_command_does_not_claim_to_know_the_format_version_of_the_sidecars(
    cluster: SimulatedCluster, arguments: tuple[str, ...], need: str
) -> None:
    result = cluster.call(*arguments, "--requests", "requests")
    remedy = "and this command has 1: set POSTDATE_FORMAT_VERSION to the number of the sidecars"
    assert (result.exit_code, result.stderr) == (Exit.USAGE, f"error: {need}, {remedy}\n")


def test_a_control_is_an_ordinary_record(cluster: SimulatedCluster) -> None:
    cluster.call("cancel", "--origin", "requests/0/9")
    (record,) = cluster.records("requests", 0)
    assert (record.key, record.value) == (None, None)
    assert record.headers == [(ACTION, b"cancel"), (ORIGIN, b"requests/0/9")]
    cluster.call("cancel", "--requests", "requests", "--id", "i")
    (by_id,) = cluster.records("requests", partition_for(b"i", 4))[-1:]
    assert (by_id.key, by_id.headers) == (b"i", [(ACTION, b"cancel"), (ID, b"i")])


@pytest.mark.parametrize(
    ("answer", "question"),
    [
        ({"count": 10, "exact": True, "not_asked": []}, "Cancel 10 messages in 2 partitions?"),
        ({"count": 1, "exact": False, "not_asked": []}, "Cancel at least 1 message in 2 partitions?"),
        (None, "Cancel every pending message that matches?"),
    ],
)
@pytest.mark.parametrize("reply", ["y", "n"])
def test_on_a_terminal_a_bulk_control_asks_with_the_number_of_messages(
    cluster: SimulatedCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: dict[str, object] | None,
    question: str,
    reply: str,
) -> None:
    def selected(*_: object) -> dict[str, object]:
        if answer is None:
            raise TransientError("nobody answers")
        return answer | {"shards": [{}, {}]}

    def confirm(text: str, **_: object) -> None:
        asked.append(text)
        if reply == "n":
            raise click.Abort

    asked = list[str]()
    monkeypatch.setattr(Deployment, "selected", selected)
    monkeypatch.setattr(click, "confirm", confirm)
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
    options = ("--requests", "requests", "--config", str(format_2(tmp_path)), "--url", "http://127.0.0.1:1")
    result = cluster.call("cancel", "--target", "orders", *options)
    assert asked == [question]
    assert ("the messages cannot be counted: nobody answers" in result.stderr) == (answer is None)
    sent = sum(len(cluster.records("requests", partition)) for partition in range(cluster.partitions))
    assert (result.exit_code, sent) == ((0, cluster.partitions) if reply == "y" else (1, 0))


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_target_that_does_not_exist_is_reported(
    cluster: SimulatedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    nothing = {"shards": [], "count": 0, "exact": True, "not_asked": []}
    monkeypatch.setattr(Deployment, "selected", lambda *_: nothing)
    more = ["--dry-run", "--url", "http://127.0.0.1:1"] if dry_run else []
    for target, warning in (("requests", ""), ("remindres", "warning: target topic remindres does not exist\n")):
        command = ("cancel", "--requests", "requests", "--target", target, *more)
        result = cluster.call(*command, "--config", str(format_2(tmp_path)))
        assert (result.exit_code, result.stderr) == (0, warning)


@pytest.mark.parametrize(("exact", "total"), [(True, "3 messages selected"), (False, "at least 3 messages selected")])
def test_a_dry_run_ends_with_the_number_of_selected_messages(
    exact: bool, total: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = [{"topic": "requests", "partition": 1, "targets": {"orders": 3}}]
    found = {"shards": shards, "count": 3, "exact": exact, "not_asked": []}
    monkeypatch.setattr(Deployment, "selected", lambda *_: found)
    asked = ["cancel", "--target", "orders", "--dry-run", "--url", "http://127.0.0.1:1"]
    result = CliRunner().invoke(postdate, [*asked, "--config", str(format_2(tmp_path))])
    assert result.stdout.splitlines() == ["requests/1 orders 3", total]
