"""Requests that others depend on and that an audit does not read: expired, outside its window, or non-existent. Goal: a
request that depends on an expired request is not verifiable if the dispatch log proves that the expired one existed; a
request outside the window causes no violation; a request that never existed causes a violation. Method: histories that
differ in their bounds or in one header, judged by one plan.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from postdate.spark.limits import COMMIT_MS_MAX
from postdate.spark.state.origins import CLOSED, PENDING
from postdate.spark.state.store import StateStore
from support.audit_cases.schedules import EVERY, due
from support.audit_cases.verdicts import DUE, HOUR_MS, SNAPSHOT, TO_ORDERS, T
from support.audits.judging import JudgingBounds, Situation, judged_together
from support.audits.runs_with_state import Ends, Runs
from support.audits.written_records import RandomHistory

_ID, _DELAY = ("postdate-id", b"a"), ("postdate-delay", b"1s")
_POLICIES = {"dropped": ("postdate-if-ended", b"drop"), "kept": ("postdate-if-pending", b"keep")}
_SURVIVOR, _LAST = 1, 2


def _survived(name: str) -> RandomHistory:
    """Returns a message that was dropped or kept for a delivered message whose request is not in the topic."""
    history = RandomHistory(T)
    history.ask(_LAST, TO_ORDERS, _DELAY, _ID, _POLICIES[name])
    delivery, last = [_SURVIVOR, DUE, "delivered"], [_LAST, DUE, name, _SURVIVOR]
    for fate in (delivery, last) if name == "dropped" else (last, delivery):
        history.commit(fate, v=2 if fate is last else 1)
    history.deliver(_SURVIVOR, id=b"a")
    return history


def _nowhere(name: str) -> RandomHistory:
    history = RandomHistory(T)
    history.ask(_LAST, TO_ORDERS, _DELAY, _ID, _POLICIES[name])
    history.commit([_LAST, DUE, name, _SURVIVOR], v=2)
    return history


def _moved(*, grace: bytes = b"1s", is_read: bool = True, expires: bool = False) -> RandomHistory:
    """Returns a message with a grace of one second, which a reschedule has moved to three seconds with the given grace.
    It is delivered or expires 1.5 seconds after its due time."""
    history, asked = RandomHistory(T), (TO_ORDERS, _DELAY, _ID, ("postdate-grace", b"1s"))
    history.ask(_SURVIVOR, *asked)
    if is_read:
        time = ("postdate-delay", b"3s")
        history.ask(_LAST, ("postdate-action", b"reschedule"), time, _ID, ("postdate-grace", grace))
    history.commit([_SURVIVOR, DUE, "moved", T + 3_000, _LAST], [_LAST, 0, "applied"])
    if expires:
        history.commit([_SURVIVOR, DUE, "dead"], at_ms=T + 3_500)
        history.bury(_SURVIVOR, *asked, reason=b"expired")
    else:
        history.commit([_SURVIVOR, DUE, "delivered"], at_ms=T + 4_500 + COMMIT_MS_MAX)
        history.deliver(_SURVIVOR, due_ms=T + 3_000, id=b"a")
    return history


_MOVED = T + 3_000
_CAUSED: dict[str, list[list[Any]]] = {
    "cancelled": [[_SURVIVOR, DUE, "cancelled"], [_LAST, 0, "applied"]],
    "cancelled in bulk": [[_SURVIVOR, DUE, "cancelled", _LAST], [_LAST, 0, "applied", 1]],
    "replaced": [[_SURVIVOR, DUE, "replaced"], [_LAST, DUE, "stored"]],
    "replaced, by name": [[_SURVIVOR, DUE, "replaced", _LAST], [_LAST, DUE, "stored"]],
    "moved": [[_SURVIVOR, DUE, "moved", _MOVED, _LAST], [_LAST, 0, "applied"]],
    "moved in bulk": [[_SURVIVOR, DUE, "moved", _MOVED, _LAST], [_LAST, 0, "applied", 1]],
    "moved, and expired": [[_SURVIVOR, DUE, "moved", _MOVED, _LAST], [_LAST, 0, "applied"]],
    "paused": [[_SURVIVOR, due(1), "paused", T, _LAST], [_LAST, 0, "applied"]],
}
"""The fates of a message or of a schedule, and of its cause. A state has kept the request; no run has read the
cause."""
_AGAIN = ("moved", "moved in bulk")
_OF_ONE = ("cancelled", "moved", "paused")


def _caused(name: str, *, apart: bool = False, alone: bool = False) -> RandomHistory:
    """Returns a history for a name in the table. `apart`: the fate of the cause is in a separate record. `alone`: the
    log lacks the fate of the cause."""
    history, fates = RandomHistory(T), _CAUSED[name]
    more = [EVERY] if name == "paused" else [_DELAY, ("postdate-grace", b"1s")]
    asked = [TO_ORDERS, _ID, *more]
    history.ask(_SURVIVOR, *asked)
    version = 3 if name == "paused" else 2 if name.endswith(("bulk", "by name")) else 1
    if name == "paused":
        history.commit([_SURVIVOR, due(1), "stored"])
    if alone or apart:
        history.commit(fates[0], v=version)
    if not alone:
        history.commit(*(fates[1:] if apart else fates), v=version)
    if name == "moved, and expired":
        history.commit([_SURVIVOR, DUE, "dead"], at_ms=_MOVED + 500)
        history.bury(_SURVIVOR, *asked, reason=b"expired")
    elif name.startswith("moved"):
        history.commit([_SURVIVOR, DUE, "delivered"], at_ms=_MOVED + 5)
        history.deliver(_SURVIVOR, due_ms=_MOVED, id=b"a")
    return history


def _moved_again(name: str) -> RandomHistory:
    """Returns a history in which a control moves the message twice to the same time."""
    history, (move, applied) = RandomHistory(T), _CAUSED[name]
    history.ask(_SURVIVOR, TO_ORDERS, _ID, _DELAY)
    history.commit(move, applied, v=2)
    history.commit(move, v=2)
    history.commit([_SURVIVOR, DUE, "delivered"], at_ms=_MOVED + 5)
    history.deliver(_SURVIVOR, due_ms=_MOVED, id=b"a")
    return history


_EXPIRED = JudgingBounds(log_start=_LAST, request_start=_LAST)
_GONE = JudgingBounds(log_start=_LAST + 1, request_start=_LAST + 1)
_BEFORE_WINDOW, _BEHIND_WINDOW = JudgingBounds(request_start=_LAST), JudgingBounds(request_end=_LAST)

_SITUATIONS = {
    **{f"{name} for an expired one": Situation(_survived(name), bounds=_EXPIRED) for name in _POLICIES},
    **{f"{name} for one before the window": Situation(_survived(name), bounds=_BEFORE_WINDOW) for name in _POLICIES},
    **{f"{name} for none": Situation(_nowhere(name)) for name in _POLICIES},
    **{f"{name} by an unread one": Situation(_caused(name), bounds=_GONE) for name in _CAUSED},
    **{f"{name} without its fate": Situation(_caused(name, alone=True), bounds=_GONE) for name in _CAUSED},
    **{f"{name} in another record": Situation(_caused(name, apart=True), bounds=_GONE) for name in _OF_ONE},
    **{f"{name} by one that never was": Situation(_caused(name)) for name in _CAUSED},
    **{f"{name} twice by an unread one": Situation(_moved_again(name), bounds=_GONE) for name in _AGAIN},
    "late by its reschedule": Situation(_moved()),
    "in the grace of its reschedule": Situation(_moved(grace=b"2s")),
    "moved from behind the window": Situation(_moved(is_read=False), bounds=_BEHIND_WINDOW),
    "expired in the grace of its reschedule": Situation(_moved(expires=True)),
    "expired by its reschedule": Situation(_moved(grace=b"100ms", expires=True)),
    "expired behind the window": Situation(_moved(is_read=False, expires=True), bounds=_BEHIND_WINDOW),
}
_EXPECTED = {
    **{f"{name} for an expired one": {_SURVIVOR: "request-expired", _LAST: "request-expired"} for name in _POLICIES},
    **{f"{name} for one before the window": {_LAST: name} for name in _POLICIES},
    **{f"{name} for none": {_LAST: "contradiction"} for name in _POLICIES},
    **{f"{name} by an unread one": {_SURVIVOR: "request-expired", _LAST: "request-expired"} for name in _CAUSED},
    **{f"{name} without its fate": {_SURVIVOR: "contradiction"} for name in _CAUSED},
    **{f"{name} in another record": {_SURVIVOR: "contradiction", _LAST: "request-expired"} for name in _OF_ONE},
    **{f"{name} by one that never was": {_SURVIVOR: "contradiction", _LAST: "orphan"} for name in _CAUSED},
    **{
        f"{name} twice by an unread one": {_SURVIVOR: "contradiction request-expired", _LAST: "request-expired"}
        for name in _AGAIN
    },
    "late by its reschedule": {_SURVIVOR: "past-grace", _LAST: "applied"},
    "in the grace of its reschedule": {_SURVIVOR: "delivered", _LAST: "applied"},
    "moved from behind the window": {_SURVIVOR: "delivered"},
    "expired in the grace of its reschedule": {_SURVIVOR: "contradiction", _LAST: "applied"},
    "expired by its reschedule": {_SURVIVOR: "dead", _LAST: "applied"},
    "expired behind the window": {_SURVIVOR: "dead"},
}


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str, dict[int, Row]]:
    """Returns the rows of all histories, judged at once."""
    return judged_together(spark, _SITUATIONS)


@pytest.mark.parametrize("name", _EXPECTED)
def test_an_unread_request_does_not_decide_a_verdict(found: dict[str, dict[int, Row]], name: str) -> None:
    assert {offset: row["verdicts"] for offset, row in found[name].items()} == {
        offset: verdicts.split() for offset, verdicts in _EXPECTED[name].items()
    }


@pytest.mark.parametrize("name", ["cancelled", "replaced"])
def test_an_unread_cause_is_remembered_when_its_effect_is_judged_again(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """The cause leaves the topic between the first two runs. A record that names the message arrives in the third."""
    history, bounds = RandomHistory(T), {0: {"log_start": _LAST + 1, "request_start": _LAST + 1}}
    history.ask(_SURVIVOR, TO_ORDERS, _DELAY, _ID)
    runs = Runs(spark, history, tmp_path)
    runs.audit(Ends(requests=_LAST))
    history.commit(*_CAUSED[name])
    runs.audit(bounds=bounds)
    assert runs.union()[_SURVIVOR]["verdicts"] == ["request-expired"]
    history.answer(_SURVIVOR, "accepted", None, "a")  # it was not stored
    runs.audit(bounds=bounds)
    assert runs.union()[_SURVIVOR]["verdicts"] == ["request-expired", "false-verdict"]


@pytest.mark.parametrize("is_one_run", [True, False], ids=["both in one run", "one in each run"])
def test_an_unread_control_explains_one_move_in_all_runs_together(
    spark: SparkSession, tmp_path: Path, is_one_run: bool
) -> None:
    history, far_ms, bounds = (
        RandomHistory(T),
        SNAPSHOT + HOUR_MS,
        {0: {"log_start": _LAST + 1, "request_start": _LAST + 1}},
    )
    history.ask(_SURVIVOR, TO_ORDERS, _DELAY, _ID)
    runs = Runs(spark, history, tmp_path)
    runs.audit(Ends(requests=_LAST))
    move = [_SURVIVOR, DUE, "moved", far_ms, _LAST]
    history.commit(move, [_LAST, 0, "applied"], v=2)
    if not is_one_run:
        runs.audit(bounds=bounds)
        assert runs.union()[_SURVIVOR]["verdicts"] == ["request-expired"]
    history.commit(move, v=2)
    runs.audit(bounds=bounds)
    assert runs.union()[_SURVIVOR]["verdicts"] == ["contradiction", "request-expired"]
    history.commit([_SURVIVOR, DUE, "delivered"], at_ms=far_ms)
    history.deliver(_SURVIVOR, due_ms=far_ms, id=b"a")
    runs.audit(bounds=bounds)
    assert runs.union()[_SURVIVOR]["verdicts"] == ["contradiction", "request-expired"]


def test_a_message_that_an_unread_control_has_moved_stays_open(spark: SparkSession, tmp_path: Path) -> None:
    """The message is judged again when it is overdue. The control leaves the topic between the first two runs."""
    history, far_ms, bounds = (
        RandomHistory(T),
        SNAPSHOT + HOUR_MS,
        {0: {"log_start": _LAST + 1, "request_start": _LAST + 1}},
    )
    history.ask(_SURVIVOR, TO_ORDERS, _DELAY, _ID)
    runs = Runs(spark, history, tmp_path)
    runs.audit(Ends(requests=_LAST))
    history.commit([_SURVIVOR, DUE, "moved", far_ms, _LAST], [_LAST, 0, "applied"])
    runs.audit(bounds=bounds)
    found = {row["offset"]: row for row in StateStore(spark, runs.path).origins().collect()}
    assert found[_SURVIVOR]["verdicts"] == found[_LAST]["verdicts"] == ["request-expired"]
    assert (found[_SURVIVOR]["state"], found[_LAST]["state"]) == (PENDING, CLOSED)
    history.answer(_SURVIVOR, "accepted", None, "a")  # another violation does not close it
    runs.audit(bounds=bounds)
    found = {row["offset"]: row for row in StateStore(spark, runs.path).origins().collect()}
    assert found[_SURVIVOR]["state"] == PENDING
    history.commit([_SURVIVOR, DUE, "delivered"], at_ms=far_ms)
    history.deliver(_SURVIVOR, due_ms=far_ms, id=b"a")
    runs.audit(bounds=bounds)
    assert {offset: row["verdicts"] for offset, row in runs.union().items()} == {
        _SURVIVOR: ["request-expired", "false-verdict"],
        _LAST: ["request-expired"],
    }


def test_a_missing_message_that_an_unread_control_has_moved_closes(spark: SparkSession, tmp_path: Path) -> None:
    history, bounds = RandomHistory(T), {0: {"log_start": _LAST + 1, "request_start": _LAST + 1}}
    history.ask(_SURVIVOR, TO_ORDERS, _DELAY, _ID)
    runs = Runs(spark, history, tmp_path)
    runs.audit(Ends(requests=_LAST))
    history.commit(*_CAUSED["moved"])
    runs.audit(bounds=bounds)
    found = {row["offset"]: row for row in StateStore(spark, runs.path).origins().collect()}
    assert found[_SURVIVOR]["verdicts"] == ["missing", "request-expired"]
    assert found[_SURVIVOR]["state"] == CLOSED
