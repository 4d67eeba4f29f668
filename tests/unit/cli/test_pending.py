"""Goal: `postdate pending get` shows the due time of a message and its lateness. `pending count` counts the given
state, or both.

Method: the commands over answers in the form of the API, which the test supplies.
"""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from postdate.cli import postdate
from postdate.sidecar.http.queries.deployment import Deployment

ORIGIN = "requests/0/7"
LOG = "requests.dispatch-log/0/9"
ASKED = {"accepted_ms": 1_000, "action": "schedule", "target": "orders", "due_ms": 6_000}


def lines(monkeypatch: pytest.MonkeyPatch, **history: Any) -> list[str]:
    whole = {"origin": ORIGIN, "request": ASKED, "entry": None, "events": [], "complete": True} | history
    monkeypatch.setattr(Deployment, "history", lambda *_: whole)
    result = CliRunner().invoke(postdate, ["pending", "get", ORIGIN, "--url", "http://127.0.0.1:1"])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_a_delivery_has_its_due_time_and_lateness(monkeypatch: pytest.MonkeyPatch) -> None:
    event = {"fate": "delivered", "at_ms": 9_023, "dispatch_log": LOG}
    assert lines(monkeypatch, state="delivered", events=[event]) == [
        f"{ORIGIN}  delivered",
        "  1970-01-01T00:00:01.000Z  requested: schedule to orders, due 1970-01-01T00:00:06.000Z",
        f"  1970-01-01T00:00:09.023Z  delivered, 3.023s late  ({LOG})",
    ]


def test_after_a_reschedule_the_new_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = {"fate": "moved", "at_ms": 2_000, "dispatch_log": LOG, "by": "requests/0/8", "due_ms": 8_900}
    event = {"fate": "delivered", "at_ms": 9_000, "dispatch_log": LOG}
    *_, end = lines(monkeypatch, state="delivered", events=[moved, event])
    assert "delivered, 100ms late" in end


def test_a_time_before_the_request_makes_nothing_late(monkeypatch: pytest.MonkeyPatch) -> None:
    event = {"fate": "delivered", "at_ms": 1_010, "dispatch_log": LOG}
    *_, end = lines(monkeypatch, state="delivered", request=ASKED | {"due_ms": 1}, events=[event])
    assert "delivered, 10ms late" in end


@pytest.mark.parametrize(("due_ms", "is_late"), [(6_000, True), (32_503_680_000_000, False)])
def test_a_pending_message_is_late_only_after_its_due_time(
    monkeypatch: pytest.MonkeyPatch, due_ms: int, is_late: bool
) -> None:
    *_, end = lines(monkeypatch, state="parked", entry={"due_ms": due_ms, "target": "orders"})
    assert "  due, for orders" in end
    assert end.endswith(" late so far") == is_late


def test_a_pending_message_with_a_window_shows_when_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"due_ms": 32_503_680_000_000, "target": "orders", "window_ms": 900_000, "chosen_ms": 32_503_680_001_500}
    *_, end = lines(monkeypatch, state="waiting", entry=entry)
    assert end == "  3000-01-01T00:00:00.000Z  due within 15m, to leave at 3000-01-01T00:00:01.500Z, for orders"


@pytest.mark.parametrize(
    ("options", "queries", "shown"),
    [
        ((), [{}], "14"),
        (("--state", "waiting"), [{"state": "waiting"}], "9"),
        (("--state", "parked"), [{"state": "parked"}], "5"),
        (("--requests", "r"), [{"topic": "r"}], "14"),
    ],
)
def test_a_count_without_a_state_counts_both(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], queries: list[dict[str, str]], shown: str
) -> None:
    asked: list[dict[str, str]] = []

    def count(_: Deployment, query: list[tuple[str, str]]) -> dict[str, Any]:
        asked.append(dict(query))
        number = {"waiting": 9, "parked": 5}.get(dict(query).get("state", ""), 14)
        return {"count": number, "exact": True, "shards": [], "not_asked": []}

    monkeypatch.setattr(Deployment, "count", count)
    result = CliRunner().invoke(postdate, ["pending", "count", "--url", "http://127.0.0.1:1", *options])
    assert (asked, result.stdout) == (queries, f"{shown}\n"), result.output


@pytest.mark.parametrize(("verb", "default"), [("list", "[waiting]"), ("count", "[both]")])
def test_the_help_shows_the_default_state_of_each_command(verb: str, default: str) -> None:
    text = " ".join(CliRunner().invoke(postdate, ["pending", verb, "--help"]).stdout.split())
    assert f"is over its rate. {default}" in text
