"""Cases of the audit's verdicts for recurring schedules, whose occurrences no rule verifies yet."""

from __future__ import annotations

from typing import Any

from support.history import REQUESTS, Headers
from support.verdict_cases import DUE, TO_ORDERS, Cases, T

_EVERY = ("postdate-every", b"1s")


def _occurred(offset: int, number: int) -> list[Any]:
    due_ms = DUE + (number - 1) * 1_000
    return [offset, DUE, "occurred", number, due_ms, due_ms + 1_000]


def _deliver(cases: Cases, offset: int, id: bytes, number: int) -> None:
    behind: Headers = [("postdate-occurrence", b"%d" % number), ("postdate-next", b"%d" % (DUE + number * 1_000))]
    cases.deliver(offset, due_ms=DUE + (number - 1) * 1_000, id=id, behind=behind)


def _schedule(cases: Cases, offset: int, id: bytes) -> None:
    """A schedule that has occurred twice."""
    cases.ask(offset, TO_ORDERS, _EVERY, ("postdate-id", id))
    cases.commit([offset, DUE, "stored"])
    cases.commit(_occurred(offset, 1), at_ms=DUE + 5, v=3)
    cases.commit(_occurred(offset, 2), at_ms=DUE + 1_005, v=3)
    for number in (1, 2):
        _deliver(cases, offset, id, number)


def schedule_cases() -> Cases:
    """All of them, in a history of their own."""
    cases = Cases()
    o = cases.case("a schedule that goes on", "unverified-schedule")
    _schedule(cases, o, b"c1")
    o = cases.case("a schedule that has completed", "unverified-schedule")
    _schedule(cases, o, b"c2")
    cases.commit([o, DUE, "skipped", 3, 7, "missed", 0], [o, DUE, "completed"], at_ms=DUE + 9_000, v=3)
    o = cases.case("the cancel of a schedule", "applied", at=1)
    _schedule(cases, o, b"c3")
    cases.cancel(o + 1, b"c3")
    cases.commit([o, DUE, "cancelled"], [o + 1, 0, "applied"], at_ms=DUE + 1_500)
    cases.answer(o + 1, "cancelled", o, "c3")
    o = cases.case("a message that a schedule has replaced", "replaced")
    cases.schedule(o, b"c4")
    _schedule(cases, o + 1, b"c4")
    cases.commit([o, DUE, "replaced"])
    cases.answer(o + 1, "replaced", o, "c4")
    o = cases.case("a cancel that comes behind the last occurrence", "applied", at=1)
    _schedule(cases, o, b"c5")
    cases.commit([o, DUE, "skipped", 3, 3, "grace", 0], [o, DUE, "completed"], at_ms=DUE + 9_000, v=3)
    cases.cancel(o + 1, b"c5")
    cases.commit([o + 1, 0, "applied"], at_ms=DUE + 9_500)
    cases.answer(o + 1, "too-late", o, "c5")
    o = cases.case("a schedule that was paused and resumed", "unverified-schedule")
    _schedule(cases, o, b"c6")
    for at, action in enumerate(("pause", "resume"), 1):
        cases.ask(o + at, ("postdate-action", action.encode()), ("postdate-id", b"c6"))
        fate = "paused" if action == "pause" else "resumed"
        cases.commit([o, DUE, "stored"], [o, DUE, fate, T + at, o + at], [o + at, 0, "applied"], at_ms=DUE + 1_500, v=3)
        cases.answer(o + at, fate, o, "c6", v=3)
    cases.commit([o, DUE, "skipped", 3, 4, "paused", DUE + 4_000], at_ms=DUE + 9_000, v=3)
    o = cases.case("a pause by the origin of its schedule", "applied", at=1)
    _schedule(cases, o, b"c7")
    cases.ask(o + 1, ("postdate-action", b"pause"), ("postdate-origin", f"{REQUESTS}/0/{o}".encode()))
    cases.commit([o, DUE, "paused", T + 1, o + 1], [o + 1, 0, "applied"], at_ms=DUE + 1_500, v=3)
    cases.answer(o + 1, "paused", o, v=3)
    o = cases.case("a pause that found nothing", "applied")
    cases.ask(o, ("postdate-action", b"pause"), ("postdate-id", b"c8"))
    cases.commit([o, 0, "applied"], at_ms=DUE + 1_500)
    cases.answer(o, "not-found", None, "c8")
    o = cases.case("an answer to a cancel that a pause would have", "false-verdict", at=1)
    _schedule(cases, o, b"c9")
    cases.cancel(o + 1, b"c9")
    cases.commit([o, DUE, "cancelled"], [o + 1, 0, "applied"], at_ms=DUE + 1_500)
    cases.answer(o + 1, "paused", o, "c9", v=3)
    o = cases.case("a message beside schedules", "delivered")
    cases.ask(o)
    cases.commit([o, DUE, "delivered"])
    cases.deliver(o)
    return cases
