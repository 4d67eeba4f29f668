"""Cases of the audit's verdicts for requests that were dropped for a delivered message."""

from __future__ import annotations

from support.audit_cases.verdicts import DUE, TO_ORDERS, Cases, T
from support.audits.written_records import REQUESTS

_DROP, _DELAY = ("postdate-if-ended", b"drop"), ("postdate-delay", b"1s")
_DAY_MS = 86_400_000


def _pair(
    cases: Cases,
    name: str,
    verdict: str,
    word: str = "",
    *,
    first: bool = True,
    second: bool = True,
    id: bytes = b"",
    at_ms: int = T,
) -> int:
    """Adds a case: the second of two requests is dropped for the first. Returns the offset of the first. `first` and
    `second`: whether that request has `postdate-if-ended: drop`. `id`: the id of the second request if it differs.
    `at_ms`: the timestamp of the second request."""
    o = cases.case(name, verdict, word, at=1)
    one, other = ("postdate-id", name.encode()), ("postdate-id", id or name.encode())
    cases.ask(o, TO_ORDERS, _DELAY, one, *([_DROP] if first else []))
    cases.ask(o + 1, TO_ORDERS, _DELAY, other, *([_DROP] if second else []), at_ms=at_ms)
    return o


def _deliver(cases: Cases, offset: int, name: str, at_ms: int | None = None) -> None:
    cases.commit([offset, DUE, "delivered"], at_ms=at_ms)
    cases.deliver(offset, id=name.encode())


def drop_cases() -> Cases:
    """Returns all cases of dropped requests, in a separate history."""
    cases = Cases()
    for name, verdict, given in (
        ("dropped for a delivered message", "dropped", {}),
        ("dropped without asking for it", "contradiction", {"second": False}),
        ("dropped for one without the header", "contradiction", {"first": False}),
        ("dropped for another id", "contradiction", {"id": b"other"}),
    ):
        o = _pair(cases, name, verdict, "does not follow" if verdict == "contradiction" else "", **given)
        _deliver(cases, o, name)
        cases.commit([o + 1, DUE, "dropped", o], v=2)
    name = "dropped together with the delivery"
    o = _pair(cases, name, "contradiction", "does not follow")
    cases.commit([o + 1, DUE, "dropped", o], [o, DUE, "delivered"], v=2)
    cases.deliver(o, id=name.encode())
    name = "dropped for a cancelled message"
    o = _pair(cases, name, "contradiction", "does not follow")
    cases.ask(o + 2, ("postdate-action", b"cancel"), ("postdate-id", name.encode()))
    cases.commit([o, DUE, "cancelled"], [o + 2, 0, "applied"])
    cases.commit([o + 1, DUE, "dropped", o], v=2)
    name = "dropped, and delivered"
    o = _pair(cases, name, "contradiction", "delivered although")
    _deliver(cases, o, name)
    cases.commit([o + 1, DUE, "dropped", o], v=2)
    cases.deliver(o + 1, id=name.encode())
    for name, more_ms, verdict in (("at the end of the window", 0, "dropped"), ("behind it", 1, "contradiction")):
        at_ms = DUE + _DAY_MS + more_ms
        o = _pair(cases, name, verdict, "does not follow" if more_ms else "", at_ms=at_ms)
        _deliver(cases, o, name, DUE)
        cases.commit([o + 1, at_ms + 1_000, "dropped", o], v=2, at_ms=at_ms)
    for name, by, verdict in (("answered dropped", 0, "dropped"), ("answered dropped by another", 1, "false-verdict")):
        o = _pair(cases, name, verdict)
        _deliver(cases, o, name)
        cases.commit([o + 1, DUE, "dropped", o], v=2)
        cases.answer(o + 1, "dropped", None, name, v=2, by=f"{REQUESTS}/0/{o + by}")
    retry = ("postdate-retry", b"base=1s")
    for name, header, time, verdict in (
        ("an unknown policy", ("postdate-if-ended", b"keep"), _DELAY, "dead"),
        ("a policy of a return", _DROP, retry, "dead"),
        ("a policy that is right", _DROP, _DELAY, "false-refusal"),
    ):
        o = cases.case(f"refused for {name}", verdict)
        headers = [TO_ORDERS, time, ("postdate-id", b"r"), header]
        cases.ask(o, *headers)
        cases.commit([o, 0, "dead"])
        cases.bury(o, *headers, reason=b"bad-if-ended")
    return cases
