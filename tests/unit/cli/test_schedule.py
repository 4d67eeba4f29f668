"""Goal: `schedule create --dry-run` prints the times at which the sidecar would deliver, without a broker. Without
--dry-run, the request contains the same schedule.

Method: the command in this process, at literal times around clock changes, and over a simulated Kafka.
"""

from __future__ import annotations

import json
import re
import shlex

import pytest

from postdate.wire.values.instants import parse_instant_ms
from postdate.wire.values.murmur2 import partition_for
from support.deployments.command import call_postdate, command_output
from support.deployments.simulated_cluster import SimulatedCluster
from support.repository import ROOT

BERLIN = ("--cron", "30 2 * * *", "--zone", "Europe/Berlin")


def create(*arguments: str) -> str:
    return command_output("schedule", "create", "--dry-run", *arguments)


def next_times(*arguments: str) -> list[int]:
    printed = json.loads(create(*arguments, "--output", "json"))
    assert list(printed) == ["next"]
    times: list[int] = printed["next"]
    return times


def test_the_next_ten_nominal_times_are_one_object() -> None:
    first_ms = parse_instant_ms("2026-10-24T00:30:00Z")
    times = next_times(*BERLIN, "--after", "2026-10-24T00:00:00Z")
    assert len(times) == 10
    # The second one lies before the clock change of that night, the third one after it.
    assert [time_ms - first_ms for time_ms in times[:3]] == [0, 86_400_000, 2 * 86_400_000 + 3_600_000]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--every", "15m/5m", "--count", "2"), ["2026-03-28T00:05:00Z", "2026-03-28T00:20:00Z"]),
        (("--cron", "0 9 * * *", "--end", "2026-03-28T09:00:00Z"), ["2026-03-28T09:00:00Z"]),
        (("--cron", "0 9 * * *", "--start", "2026-03-30T09:00:00Z", "--count", "1"), ["2026-03-30T09:00:00Z"]),
        # The start lies before --after: of five occurrences, three have passed.
        (
            ("--cron", "0 9 * * *", "--start", "2026-03-25T00:00:00Z", "--count", "5"),
            ["2026-03-28T09:00:00Z", "2026-03-29T09:00:00Z"],
        ),
        ((*BERLIN, "--count", "2", "--gap", "next"), ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z"]),
        # A skipped occurrence counts and is not printed.
        ((*BERLIN, "--count", "2", "--gap", "skip"), ["2026-03-28T01:30:00Z"]),
        (
            (*BERLIN, "--start", "2026-10-25T00:00:00Z", "--count", "2", "--fold", "both"),
            ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"],
        ),
        (("--cron", "0 0 */30 * 5#3"), []),
    ],
)
def test_each_option_changes_the_times(options: tuple[str, ...], expected: list[str]) -> None:
    assert next_times(*options, "--after", "2026-03-28T00:00:00Z") == [parse_instant_ms(text) for text in expected]


def test_the_text_has_words_local_times_and_clock_changes() -> None:
    lines = create(*BERLIN, "--after", "2026-10-24T00:00:00Z").splitlines()
    assert lines[0].startswith("At 02:30 every day, in Europe/Berlin (tzdata 20")
    assert lines[1].split() == ["1", "2026-10-24T02:30:00+02:00", "2026-10-24T00:30:00Z"]
    assert lines[3].split() == ["3", "2026-10-26T02:30:00+01:00", "2026-10-26T01:30:00Z"]
    assert lines[11:] == [
        "clocks are set back by 1h at 2026-10-25T01:00:00Z: 02:00 to 03:00 exists twice; matching times are delivered "
        "the first time only",
        "clocks are set forward by 1h at 2027-03-28T01:00:00Z: 02:00 to 03:00 does not exist; matching times are "
        "delivered once, at 03:00",
    ]


@pytest.mark.parametrize(
    ("options", "effect"),
    [
        (("--cron", "*/20 2 * * *"), "the schedule follows elapsed time"),
        (("--cron", "30 4 * * *"), "the schedule has no time in it"),
        (("--cron", "30 2 * * *", "--gap", "skip"), "matching times are skipped"),
        (("--cron", "0 2,3 * * *", "--gap", "skip"), "matching times are delivered once, at 03:00"),
        (("--cron", "30 2 * * *", "--fold", "last"), "matching times are delivered the second time only"),
        (("--cron", "30 2 * * *", "--fold", "both"), "matching times are delivered both times"),
    ],
)
def test_the_preview_describes_clock_changes(options: tuple[str, ...], effect: str) -> None:
    changes = [line for line in create(*options, "--zone", "Europe/Berlin").splitlines() if line.startswith("clocks")]
    assert len(changes) == 2
    assert any(line.endswith(effect) for line in changes)


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("*/10 * * * * *", "Every 10 seconds, in"),
        ("*/10 * * * *", "Every 10 minutes, in"),
        ("*/2 * * * *", "Every 2 minutes, in"),
        ("*/5 9-17 * * MON-FRI", "Every 5 minutes from 09:00 through 17:59 on Monday through Friday, in"),
        ("*/7 * * * *", "Every seventh minute of every hour, in"),
        ("5/10 * * * *", "Every 10th minute from 5 through 59 of every hour, in"),
        ("*/10 */2 * * * *", "Every 10th second every second minute past every hour, in"),
        ("* * * * *", "Every minute, in"),
    ],
)
def test_even_steps_are_described_as_intervals(cron: str, words: str) -> None:
    assert create("--cron", cron).startswith(words)


def test_the_text_of_an_interval_and_of_two_days() -> None:
    assert create("--every", "15m/5m").startswith("Every 15m: at its multiples since 1970-01-01T00:00:00Z, 5m after")
    assert "one of the two days is enough" in create("--cron", "0 9 1,15 * FRI")
    assert "no occurrence follows" in create("--every", "1h", "--end", "-2h")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "give one of --cron and --every"),
        (("--cron", "0 9 * * *", "--every", "1h"), "only one of postdate-cron and postdate-every"),
        (("--cron", "0 9 * *"), "has 4 fields"),
        (("--cron", "0 9 * * *", "--zone", "Berlin"), "is not the name of a zone"),
        (("--cron", "0 9 * * *", "--after", "yesterday"), "--after"),
    ],
)
def test_an_invalid_schedule_is_a_usage_error(options: tuple[str, ...], message: str) -> None:
    done = call_postdate("schedule", "create", "--dry-run", *options)
    assert (done.exit_code, message in done.stderr, done.stdout) == (2, True, "")


def test_the_page_shows_what_the_preview_prints() -> None:
    page = (ROOT / "docs" / "calendar.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^postdate (schedule create --dry-run .*)$", page, re.MULTILINE)
    printed = command_output(*shlex.split(command)).splitlines()
    shown = page.partition(f"{command}\n```\n\n```\n")[2].partition("\n```")[0].splitlines()
    assert shown[0].partition("(")[0] == printed[0].partition("(")[0]
    assert [line for line in shown[1:] if line != "…"] == [*printed[1:4], *printed[-2:]]


ENVIRON = {"POSTDATE_FORMAT_VERSION": "3"}
NIGHTLY = ("--id", "nightly", "--topic", "orders", *BERLIN, "--requests", "requests")


def test_a_schedule_is_sent_to_the_partition_of_its_id() -> None:
    cluster = SimulatedCluster()
    options = ("--key", "k", "--value", "v", "-H", "a=1", "--gap", "skip", "--count", "3", "--window", "5m")
    done = cluster.call("schedule", "create", *NIGHTLY, *options, "--output", "json", environ=ENVIRON)
    assert done.exit_code == 0, done.stderr
    partition = partition_for(b"nightly", cluster.partitions)
    (record,) = cluster.records("requests", partition)
    assert json.loads(done.stdout)["origin"] == f"requests/{partition}/0"
    assert (record.key, record.value) == (b"nightly", b"v")
    assert dict(record.headers or []) == {
        "a": b"1",
        "postdate-cron": b"30 2 * * *",
        "postdate-zone": b"Europe/Berlin",
        "postdate-gap": b"skip",
        "postdate-count": b"3",
        "postdate-topic": b"orders",
        "postdate-id": b"nightly",
        "postdate-window": b"5m",
        "postdate-key": b"k",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--cron", "0 9 * * *", "--topic", "orders"), "give --topic and --id, or --dry-run"),
        (("--cron", "0 9 * * *", "--id", "nightly"), "give --topic and --id, or --dry-run"),
        ((*NIGHTLY, "--after", "now"), "--after needs --dry-run"),
        ((*NIGHTLY, "--end", "2020-01-01T00:00:00Z"), "no occurrence"),
    ],
)
def test_a_schedule_that_would_be_refused_is_not_sent(options: tuple[str, ...], message: str) -> None:
    cluster = SimulatedCluster()
    done = cluster.call("schedule", "create", *options, environ=ENVIRON)
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
    assert [each for index in range(4) for each in cluster.records("requests", index)] == []


def test_the_setting_that_is_missing_is_named() -> None:
    done = SimulatedCluster().call("schedule", "create", *NIGHTLY)
    assert (done.exit_code, "needs format_version = 3" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("times", "number"),
    [(("--every", "1s"), 823_023_600), (("--cron", "* * * * *", "--zone", "Europe/Berlin"), 13_717_060)],
)
def test_a_preview_may_begin_decades_after_the_start(times: tuple[str, ...], number: int) -> None:
    since = ("--start", "2000-10-01T00:00:00Z", "--after", "2026-10-30T17:39:59Z")
    done = SimulatedCluster().call("schedule", "create", "--dry-run", *times, *since)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[1].split()[0] == str(number + 1)


@pytest.mark.parametrize("action", ["cancel", "pause", "resume", "trigger"])
def test_a_schedule_is_changed_by_its_id(action: str) -> None:
    cluster = SimulatedCluster()
    done = cluster.call("schedule", action, "--requests", "requests", "--id", "nightly", environ=ENVIRON)
    assert done.exit_code == 0, done.stderr
    (record,) = cluster.records("requests", partition_for(b"nightly", cluster.partitions))
    assert dict(record.headers or []) == {"postdate-action": action.encode(), "postdate-id": b"nightly"}


@pytest.mark.parametrize("action", ["pause", "resume", "trigger"])
def test_a_pause_needs_the_setting_and_takes_no_selector(action: str) -> None:
    cluster = SimulatedCluster()
    done = cluster.call("schedule", action, "--requests", "requests", "--id", "nightly")
    assert (done.exit_code, "needs format_version = 3" in done.stderr) == (2, True), done.stderr
    done = cluster.call("schedule", action, "--requests", "requests", "--target", "reports", environ=ENVIRON)
    assert (done.exit_code, "No such option" in done.stderr) == (2, True), done.stderr
    assert [each for index in range(4) for each in cluster.records("requests", index)] == []


def test_a_schedule_is_backfilled_for_times_that_have_passed() -> None:
    cluster = SimulatedCluster()
    command = ("schedule", "backfill", "--requests", "requests", "--id", "nightly", "--start", "2025-01-01T00:00:00Z")
    done = cluster.call(*command, "--end", "1735776000000", environ=ENVIRON)
    assert done.exit_code == 0, done.stderr
    (record,) = cluster.records("requests", partition_for(b"nightly", cluster.partitions))
    assert dict(record.headers or []) == {
        "postdate-action": b"backfill",
        "postdate-start": b"2025-01-01T00:00:00Z",
        "postdate-end": b"1735776000000",
        "postdate-id": b"nightly",
    }
    late, early = "2030-01-01T00:00:00Z", "2024-12-31T00:00:00Z"
    for end, message in (
        ("1h", "Z' lies after the record's timestamp"),
        (late, f"postdate-end '{late}' lies after the record's timestamp"),
        (early, f"postdate-end '{early}' lies before postdate-start '2025-01-01T00:00:00Z'"),
    ):
        refused = cluster.call(*command, "--end", end, environ=ENVIRON)
        assert (refused.exit_code, message in refused.stderr) == (2, True), refused.stderr
    assert cluster.call(*command, environ=ENVIRON).exit_code == 2, "both bounds are required"
