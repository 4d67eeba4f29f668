"""Requests that decide about others and that an audit does not read: expired, outside its window, or non-existent.
Goal: a request that depends on an expired one is not verifiable; requests outside the window cause no violation; a
request that never existed causes one.

Method: histories that differ in their bounds or in one header, judged by one plan.
"""

from __future__ import annotations

import pytest
from pyspark.sql import Row, SparkSession

from postdate.spark.limits import COMMIT_MS_MAX
from support.history import History
from support.judging import Bounds, Situation, judged_together
from support.verdict_cases import DUE, TO_ORDERS, T

_ID, _DELAY = ("postdate-id", b"a"), ("postdate-delay", b"1s")
_POLICIES = {"dropped": ("postdate-if-ended", b"drop"), "kept": ("postdate-if-pending", b"keep")}
_SURVIVOR, _LAST = 1, 2


def _survived(name: str) -> History:
    """A message that was dropped or kept for one that is no longer in the topic, or never was."""
    history = History(T)
    history.ask(_LAST, TO_ORDERS, _DELAY, _ID, _POLICIES[name])
    delivery, last = [_SURVIVOR, DUE, "delivered"], [_LAST, DUE, name, _SURVIVOR]
    for fate in (delivery, last) if name == "dropped" else (last, delivery):
        history.commit(fate, v=2 if fate is last else 1)
    history.deliver(_SURVIVOR, id=b"a")
    return history


def _nowhere(name: str) -> History:
    history = History(T)
    history.ask(_LAST, TO_ORDERS, _DELAY, _ID, _POLICIES[name])
    history.commit([_LAST, DUE, name, _SURVIVOR], v=2)
    return history


def _moved(*, grace: bytes = b"1s", is_read: bool = True, expires: bool = False) -> History:
    """A message with a grace of a second that a reschedule has moved to three seconds, with that grace. It is delivered
    or expires a second and a half after it was due."""
    history, asked = History(T), (TO_ORDERS, _DELAY, _ID, ("postdate-grace", b"1s"))
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


_EXPIRED = Bounds(log_start=_LAST, request_start=_LAST)
_BEFORE_WINDOW, _BEHIND_WINDOW = Bounds(request_start=_LAST), Bounds(request_end=_LAST)

_SITUATIONS = {
    **{f"{name} for an expired one": Situation(_survived(name), bounds=_EXPIRED) for name in _POLICIES},
    **{f"{name} for one before the window": Situation(_survived(name), bounds=_BEFORE_WINDOW) for name in _POLICIES},
    **{f"{name} for none": Situation(_nowhere(name)) for name in _POLICIES},
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
    "late by its reschedule": {_SURVIVOR: "past-grace", _LAST: "applied"},
    "in the grace of its reschedule": {_SURVIVOR: "delivered", _LAST: "applied"},
    "moved from behind the window": {_SURVIVOR: "delivered"},
    "expired in the grace of its reschedule": {_SURVIVOR: "contradiction", _LAST: "applied"},
    "expired by its reschedule": {_SURVIVOR: "dead", _LAST: "applied"},
    "expired behind the window": {_SURVIVOR: "dead"},
}


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str, dict[int, Row]]:
    """All of them judged at once."""
    return judged_together(spark, _SITUATIONS)


@pytest.mark.parametrize("name", _EXPECTED)
def test_what_is_not_read_decides_nothing(found: dict[str, dict[int, Row]], name: str) -> None:
    assert {offset: row["verdicts"] for offset, row in found[name].items()} == {
        offset: [verdict] for offset, verdict in _EXPECTED[name].items()
    }
