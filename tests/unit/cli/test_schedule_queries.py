"""Goal: `postdate schedule list` and `show` print the next times of a schedule, and the outcome of the latest ones.

Method: the commands over answers in the form of the API, which the test supplies.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from postdate.cli import postdate
from postdate.sidecar.http.queries.deployment import Deployment

ORIGIN = "requests/0/7"
SCHEDULE = {"cron": "30 2 * * *", "zone": "Europe/Berlin"}
ENTRY = {
    "origin": ORIGIN,
    "id": "nightly",
    "target": "reports",
    "due_ms": 120_000,
    "occurrence": 12,
    "schedule": SCHEDULE,
    "next_ms": [120_000, 180_000],
}
OCCURRED = {"fate": "occurred", "occurrence": 9, "due_ms": 60_000, "at_ms": 61_500}
SKIPPED = {"fate": "skipped", "occurrence": 10, "last": 11, "reason": "missed", "at_ms": 61_500}


HISTORY = {"entry": ENTRY, "events": [{"fate": "stored"}, OCCURRED, SKIPPED], "complete": True}


def call(
    monkeypatch: pytest.MonkeyPatch, entries: list[dict[str, Any]], *arguments: str, history: dict[str, Any] = HISTORY
) -> tuple[Result, list[Any]]:
    """Returns the result of a command, and the queries that it made."""
    asked: list[Any] = []

    def find(self: Deployment, query: list[tuple[str, str]], entries_max: int) -> list[dict[str, Any]]:
        asked.append(query)
        state = dict(query).get("state", "waiting")
        return [each for each in entries if each.get("state", "waiting") == state][:entries_max]

    monkeypatch.setattr(Deployment, "entries", find)
    monkeypatch.setattr(Deployment, "history", lambda *_: history)
    return CliRunner().invoke(postdate, ["schedule", *arguments, "--url", "http://127.0.0.1:1"]), asked


def test_a_list_queries_only_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = call(monkeypatch, [ENTRY], "list", "--target", "reports", "--requests", "requests")
    query = [("recurring", "true"), ("target", "reports"), ("topic", "requests")]
    assert asked == [[*query, ("state", state)] for state in ("waiting", "parked")]
    assert result.stdout.splitlines() == [
        "next                      id       target   origin        times",
        "1970-01-01T00:02:00.000Z  nightly  reports  requests/0/7  cron='30 2 * * *' zone='Europe/Berlin'",
    ]
    result, _ = call(monkeypatch, [ENTRY, ENTRY], "list", "--max", "1", "--output", "json")
    assert [json.loads(line) for line in result.stdout.splitlines()] == [ENTRY]
    assert "only the first 1 are listed" in result.stderr
    result, _ = call(monkeypatch, [], "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no recurring schedule is pending" in result.stderr


def test_a_list_has_the_schedules_of_a_failing_target(monkeypatch: pytest.MonkeyPatch) -> None:
    parked = {**ENTRY, "id": "parked", "due_ms": 60_000, "state": "parked"}
    paused = {**ENTRY, "id": "paused", "due_ms": None, "paused": True}
    result, _ = call(monkeypatch, [paused, ENTRY, parked], "list", "--output", "json")
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == ["parked", "nightly", "paused"]
    result, _ = call(monkeypatch, [parked], "list")
    assert (len(result.stdout.splitlines()), result.stderr) == (2, "")


def test_controls_hide_none_of_the_latest_ten_occurrences(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [{**OCCURRED, "occurrence": number} for number in range(1, 13)]
    trigger = {"fate": "triggered", "due_ms": 60_000, "by": "requests/0/9", "at_ms": 60_100}
    history = {"entry": ENTRY, "events": [*times, *[trigger] * 12], "complete": True}
    result, _ = call(monkeypatch, [ENTRY], "show", "--id", "nightly", "--output", "json", history=history)
    shown = json.loads(result.stdout)["events"]
    assert [event.get("occurrence") for event in shown] == [*range(3, 13), *[None] * 10]


def test_a_schedule_is_shown_with_its_latest_and_next_occurrences(monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = call(monkeypatch, [ENTRY], "show", "--id", "nightly")
    assert asked == [[("id", "nightly")]]
    assert result.stdout.splitlines()[2:] == [
        "latest:",
        "     9  1970-01-01T00:01:00.000Z  delivered 1.5s late",
        "    10 to 11  skipped: missed",
        "next:",
        "    12  1970-01-01T00:02:00.000Z",
        "    13  1970-01-01T00:03:00.000Z",
    ]
    result, _ = call(monkeypatch, [ENTRY], "show", "--id", "nightly", "--output", "json")
    assert json.loads(result.stdout) == {**ENTRY, "events": [OCCURRED, SKIPPED], "complete": True}


def test_extra_deliveries_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    by = {"due_ms": 60_000, "by": "requests/0/9", "at_ms": 60_100}
    events = [{"fate": "extra", "number": 5_000, "deliveries": 4_998, **by}, {"fate": "extra-dead", "number": 7, **by}]
    events += [
        {"fate": "triggered", **by},
        *[OCCURRED] * 8,
        {"fate": "backfilled", "first_ms": 0, "end_ms": 60_000, **by},
    ]
    triggered = {"by": "requests/0/9", "number": 1, "due_ms": 120_000, "end_ms": 120_000}
    pending = {**ENTRY, "extras": [triggered, {**triggered, "end_ms": 180_000}]}
    history = {"entry": pending, "events": events, "complete": True}
    result, _ = call(monkeypatch, [pending], "show", "--id", "nightly", history=history)
    last = "at 1970-01-01T00:01:00.100Z"
    lines = result.stdout.splitlines()
    assert lines[3] == "        1970-01-01T00:01:00.000Z  triggered by requests/0/9", (
        "the latest ten without the extras"
    )
    assert lines[12:18] == [
        "        1970-01-01T00:00:00.000Z to 1970-01-01T00:01:00.000Z  backfilled by requests/0/9",
        f"extra:  1970-01-01T00:01:00.000Z  4,998 delivered by requests/0/9; the last one, number 5,000, {last}",
        f"extra:  1970-01-01T00:01:00.000Z  1 dead-lettered by requests/0/9; the last one, number 7, {last}",
        "pending: 1970-01-01T00:02:00.000Z, by requests/0/9",
        "pending: 1970-01-01T00:02:00.000Z, until 1970-01-01T00:03:00.000Z, by requests/0/9",
        "next:",
    ]


def test_a_paused_schedule_is_shown_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    paused = {**ENTRY, "paused": True, "chosen_ms": None}
    result, _ = call(monkeypatch, [paused], "list")
    assert result.stdout.splitlines()[1].split()[:2] == ["paused", "nightly"]
    event = {"fate": "paused", "due_ms": 60_000, "by": "requests/0/9", "at_ms": 60_100}
    history = {"entry": paused, "events": [event], "complete": True}
    result, _ = call(monkeypatch, [paused], "show", "--id", "nightly", history=history)
    assert result.stdout.splitlines()[3:6] == [
        "        1970-01-01T00:01:00.000Z  paused by requests/0/9",
        "next, once it is resumed:",
        "        1970-01-01T00:02:00.000Z",
    ]


def test_a_message_is_not_shown_as_a_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    message = {name: value for name, value in ENTRY.items() if name != "schedule"}
    result, _ = call(monkeypatch, [message], "show", "--id", "nightly")
    assert (result.exit_code, "no schedule with the id nightly" in result.stderr) == (1, True)
