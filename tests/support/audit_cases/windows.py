"""Cases of the audit's verdicts for messages with windows: the chosen time, and the times that count from it."""

from __future__ import annotations

from typing import Any

from postdate.spark.limits import COMMIT_MS_MAX
from support.audit_cases.verdicts import DUE, HOUR_MS, TO_ORDERS, Cases, T

_WINDOW_MS = 2_000
_WINDOW = ("postdate-window", b"2s")
_EVEN = ("postdate-spread", b"even")
_DELAY = ("postdate-delay", b"1s")


def _ended(cases: Cases, fate: list[Any], *more: tuple[str, bytes | None], at_ms: int | None = None) -> None:
    """Adds the request of the case that was added last, its fate and its record."""
    offset = cases.next
    cases.ask(offset, TO_ORDERS, _DELAY, *more)
    cases.commit([offset, DUE, *fate], at_ms=at_ms, v=2 if len(fate) > 1 else 1)
    cases.deliver(offset)


def chosen_cases(cases: Cases) -> None:
    """Adds cases of chosen times, which must lie within the window and not after the commit."""
    cases.case("chosen at the due time", "delivered")
    _ended(cases, ["delivered", DUE], _WINDOW)
    cases.case("chosen at the end of the window", "delivered")
    _ended(cases, ["delivered", DUE + _WINDOW_MS], _WINDOW, at_ms=DUE + _WINDOW_MS)
    cases.case("chosen before the due time", "mismatch", "chosen")
    _ended(cases, ["delivered", DUE - 1], _WINDOW)
    cases.case("chosen behind the window", "mismatch", "with the window 2000 ms")
    _ended(cases, ["delivered", DUE + _WINDOW_MS + 1], _WINDOW, at_ms=T + HOUR_MS)
    cases.case("a window, and no chosen time", "mismatch", "chosen no time")
    _ended(cases, ["delivered"], _WINDOW)
    cases.case("a chosen time, and no window", "mismatch", "with the window none")
    _ended(cases, ["delivered", DUE])
    cases.case("committed before the chosen time", "early", "due")
    _ended(cases, ["delivered", DUE + 1_500], _WINDOW, at_ms=DUE + 1_499)

    o = cases.case("pending within its window", "pending")
    cases.ask(o, TO_ORDERS, ("postdate-delay", b"58m"), ("postdate-window", b"5m"))
    o = cases.case("missing after its window", "missing", "no fate")
    cases.ask(o, TO_ORDERS, ("postdate-delay", b"58m"), ("postdate-window", b"59s"))

    o = cases.case("moved, and chosen after that", "delivered")
    cases.schedule(o, b"w1", _WINDOW)
    cases.reschedule(o + 1, b"w1", b"1500ms")
    cases.commit([o, DUE, "moved", DUE + 500, o + 1], [o + 1, 0, "applied"])
    cases.commit([o, DUE, "delivered", DUE + 2_500], at_ms=DUE + 2_500, v=2)
    cases.deliver(o, due_ms=DUE + 500, id=b"w1")
    o = cases.case("moved, and chosen before that", "mismatch", "chosen")
    cases.schedule(o, b"w2", _WINDOW)
    cases.reschedule(o + 1, b"w2", b"1500ms")
    cases.commit([o, DUE, "moved", DUE + 500, o + 1], [o + 1, 0, "applied"])
    cases.commit([o, DUE, "delivered", DUE + 499], at_ms=DUE + 2_500, v=2)
    cases.deliver(o, due_ms=DUE + 500, id=b"w2")


def grace_cases(cases: Cases) -> None:
    """Adds cases of graces, which count from the chosen time."""
    chosen_ms, grace = DUE + _WINDOW_MS, ("postdate-grace", b"0")
    cases.case("in its grace after the chosen time", "delivered")
    _ended(cases, ["delivered", chosen_ms], _WINDOW, grace, at_ms=chosen_ms + COMMIT_MS_MAX)
    cases.case("past its grace after the chosen time", "past-grace", "with a grace of 0 ms")
    _ended(cases, ["delivered", chosen_ms], _WINDOW, grace, at_ms=chosen_ms + COMMIT_MS_MAX + 1)
    for name, late_ms, verdict, word in (
        ("expired after the chosen time", 1, "dead", ""),
        ("expired at the chosen time", 0, "contradiction", "its grace ends at"),
    ):
        o = cases.case(name, verdict, word)
        headers = (TO_ORDERS, _DELAY, _WINDOW, grace)
        cases.ask(o, *headers)
        cases.commit([o, DUE, "dead", chosen_ms], at_ms=chosen_ms + late_ms, v=2)
        cases.bury(o, *headers, reason=b"expired")


def refusal_cases(cases: Cases) -> None:
    """Adds refusals: the reason `bad-window` needs an invalid window."""
    for name, window, verdict in (
        ("a window of 0", b"0", "dead"),
        ("an unreadable window", b"soon", "dead"),
        ("a window of 17 years and more", b"549755813888", "dead"),
        ("a window that is right", b"549755813887", "false-refusal"),
        ("no window", None, "false-refusal"),
        ("a window of a return", b"1s", "dead"),
    ):
        o = cases.case(f"refused for {name}", verdict, "bad-window" if verdict == "false-refusal" else "")
        time = ("postdate-retry", b"base=1s") if name == "a window of a return" else _DELAY
        headers = [TO_ORDERS, time, *([("postdate-window", window)] if window is not None else [])]
        cases.ask(o, *headers)
        cases.commit([o, 0, "dead"])
        cases.bury(o, *headers, reason=b"bad-window")


def spread_cases(cases: Cases) -> None:
    """Adds cases of spreads: an even spread permits any time of the window, and the reason `bad-spread` needs an
    invalid spread."""
    for name, chosen_ms, verdict in (
        ("the due time", DUE, "delivered"),
        ("the end of the window", DUE + _WINDOW_MS, "delivered"),
        ("a time before the window", DUE - 1, "mismatch"),
        ("a time behind the window", DUE + _WINDOW_MS + 1, "mismatch"),
    ):
        cases.case(f"evenly chosen: {name}", verdict)
        _ended(cases, ["delivered", chosen_ms], _WINDOW, _EVEN, at_ms=DUE + 2 * _WINDOW_MS)
    for name, headers, verdict in (
        ("another spread", [_WINDOW, ("postdate-spread", b"odd")], "dead"),
        ("a spread without a value", [_WINDOW, ("postdate-spread", None)], "dead"),
        ("a spread without a window", [_EVEN], "dead"),
        ("a spread that is right", [_WINDOW, _EVEN], "false-refusal"),
        ("no spread", [_WINDOW], "false-refusal"),
    ):
        o = cases.case(f"refused for {name}", verdict, "bad-spread" if verdict == "false-refusal" else "")
        cases.ask(o, TO_ORDERS, _DELAY, *headers)
        cases.commit([o, 0, "dead"])
        cases.bury(o, TO_ORDERS, _DELAY, *headers, reason=b"bad-spread")


def window_cases() -> Cases:
    """Returns all cases of windows, in a separate history."""
    cases = Cases()
    for part in (chosen_cases, grace_cases, refusal_cases, spread_cases):
        part(cases)
    return cases
