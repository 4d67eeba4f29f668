"""Cases of the audit's verdicts for policies of ids: the survivor, and the due times of a series."""

from __future__ import annotations

from typing import Any

from support.audit_cases.verdicts import DUE, TO_ORDERS, Cases, T
from support.audits.written_records import REQUESTS

_KEEP, _LATEST = ("postdate-if-pending", b"keep"), ("postdate-latest", b"600ms")
_LIMIT = T + 600


def _keep(cases: Cases, name: str, verdict: str, word: str = "", *, keeps: bool = True, id: bytes = b"") -> int:
    """Adds a case of two requests of an id; the second, which is judged, may ask to keep the first. Returns the offset
    of the first."""
    o = cases.case(name, verdict, word, at=1)
    cases.schedule(o, name.encode())
    cases.schedule(o + 1, id or name.encode(), *([_KEEP] if keeps else []))
    return o


def _deliver(cases: Cases, offset: int, name: str, due_ms: int = DUE, at_ms: int | None = None) -> None:
    cases.commit([offset, due_ms, "delivered"], at_ms=at_ms)
    cases.deliver(offset, due_ms=due_ms, id=name.encode())


def keep_cases(cases: Cases) -> None:
    """Adds cases of `kept`, which must name an earlier request of the id that has not ended before."""
    o = _keep(cases, "kept, and then delivered", "kept")
    cases.commit([o + 1, DUE, "kept", o], v=2)
    _deliver(cases, o, "kept, and then delivered")
    name = "kept together with the delivery"
    o = _keep(cases, name, "kept")
    cases.commit([o + 1, DUE, "kept", o], [o, DUE, "delivered"], v=2)
    cases.deliver(o, id=name.encode())
    name = "kept after the delivery"
    o = _keep(cases, name, "contradiction", "kept by the request at offset")
    _deliver(cases, o, name)
    cases.commit([o + 1, DUE, "kept", o], v=2)
    name = "kept without asking for it"
    o = _keep(cases, name, "contradiction", "does not follow from the requests", keeps=False)
    cases.commit([o + 1, DUE, "kept", o], v=2)
    _deliver(cases, o, name)
    name = "kept by another id"
    o = _keep(cases, name, "contradiction", "kept by the request at offset", id=b"other")
    cases.commit([o + 1, DUE, "kept", o], v=2)
    _deliver(cases, o, name)
    name = "kept, and delivered"
    o = _keep(cases, name, "contradiction", "delivered although")
    cases.commit([o + 1, DUE, "kept", o], v=2)
    cases.deliver(o + 1, id=name.encode())
    _deliver(cases, o, name)


def _replace(cases: Cases, name: str, verdict: str, word: str, fate: list[Any], *more: tuple[str, bytes]) -> int:
    """Adds a case of a request that a later one of its id replaces. Returns the offset of the later one, the
    survivor."""
    o = cases.case(name, verdict, word)
    cases.schedule(o, name.encode(), *more)
    cases.ask(o + 1, TO_ORDERS, ("postdate-delay", b"1s"), ("postdate-id", name.encode()), *more, at_ms=T + 200)
    cases.commit([o, min(DUE, _LIMIT) if more else DUE, "replaced", o + 1, *fate], v=2)
    return o + 1


def replace_cases(cases: Cases) -> None:
    """Adds cases of `replaced`: the survivor that it names replaces the request, and continues its series."""
    survivor = _replace(cases, "replaced", "replaced", "", [])
    _deliver(cases, survivor, "replaced", DUE + 200, T + 2_000)
    name = "replaced in no series"
    survivor = _replace(cases, name, "contradiction", f"in a series from {T}", [T])
    _deliver(cases, survivor, name, DUE + 200)
    name = "replaced in a series"
    survivor = _replace(cases, name, "replaced", "", [T], _LATEST)
    _deliver(cases, survivor, name, _LIMIT)
    name = "replaced in a series with another start"
    survivor = _replace(cases, name, "contradiction", f"in a series from {T - 1}", [T - 1], _LATEST)
    _deliver(cases, survivor, name, _LIMIT - 1)
    name = "replaced as if there were no series"
    survivor = _replace(cases, name, "contradiction", "replaced by the request at offset", [], _LATEST)
    _deliver(cases, survivor, name, _LIMIT + 200)
    name = "replaced by one that keeps"
    o = cases.case(name, "contradiction", "replaced by the request at offset")
    cases.schedule(o, name.encode())
    cases.schedule(o + 1, name.encode(), _KEEP)
    cases.commit([o, DUE, "replaced", o + 1], v=2)
    _deliver(cases, o + 1, name)


def series_cases(cases: Cases) -> None:
    """Adds cases of series: the due time of each request follows from the start of its series."""
    for name, due_ms, verdict, word in (
        ("first of a series", _LIMIT, "delivered", ""),
        ("first of a series, too early", _LIMIT - 1, "contradiction", "by its series"),
        ("first of a series, too late", _LIMIT + 1, "contradiction mismatch", "first due"),
    ):
        o = cases.case(name, verdict, word)
        cases.schedule(o, name.encode(), _LATEST)
        _deliver(cases, o, name, due_ms)
    for name, due_ms, verdict, word in (
        ("second of a series", _LIMIT, "delivered", ""),
        ("second of a series, by its own timestamp", _LIMIT + 200, "contradiction", "by its series"),
    ):
        o = cases.case(name, verdict, word, at=1)
        cases.schedule(o, name.encode(), _LATEST)
        cases.ask(o + 1, TO_ORDERS, ("postdate-delay", b"1s"), ("postdate-id", name.encode()), _LATEST, at_ms=T + 200)
        cases.commit([o, _LIMIT, "replaced", o + 1, T], v=2)
        _deliver(cases, o + 1, name, due_ms)


def answer_cases(cases: Cases) -> None:
    """Adds cases of answers, which must name the survivor."""
    for name, by, verdict in (("answered kept", 0, "kept"), ("answered kept by another", 1, "false-verdict")):
        o = _keep(cases, name, verdict)
        cases.commit([o + 1, DUE, "kept", o], v=2)
        _deliver(cases, o, name)
        cases.answer(o + 1, "kept", None, name, v=2, by=f"{REQUESTS}/0/{o + by}")
    for name, by, verdict in (
        ("answered replaced", 1, "replaced"),
        ("answered replaced by another", 0, "false-verdict"),
    ):
        survivor = _replace(cases, name, verdict, "", [])
        cases.answer(survivor - 1, "replaced", None, name, by=f"{REQUESTS}/0/{survivor - 1 + by}")
        _deliver(cases, survivor, name, DUE + 200)


_DROP = ("postdate-if-ended", b"drop")


def _refuse(cases: Cases, offset: int, name: str, *more: tuple[str, bytes]) -> None:
    """Adds the refusal of a request by another owner, which permits fewer targets."""
    cases.commit([offset, 0, "dead"])
    asked = TO_ORDERS, ("postdate-delay", b"1s"), ("postdate-id", name.encode()), *more
    cases.bury(offset, *asked, reason=b"forbidden-target")


def other_owner_cases(cases: Cases) -> None:
    """Adds cases in which one owner accepted the survivor before it wrote the end, and another owner with other
    settings refused or dropped the survivor later. A request that was refused before the end is no survivor."""
    for what, version in (("", 2), (", as format version 1 says", 1)):
        for when, verdict in (("behind it", "replaced"), ("before it", "contradiction")):
            name = f"replaced by one that was refused {when}{what}"
            o = cases.case(name, verdict, "replaced" if verdict == "contradiction" else "")
            cases.schedule(o, name.encode())
            cases.schedule(o + 1, name.encode())
            end = [o, DUE, "replaced", *([o + 1] if version == 2 else [])]
            if verdict == "contradiction":
                _refuse(cases, o + 1, name)
            cases.commit(end, v=version)
            if verdict == "replaced":
                _refuse(cases, o + 1, name)
    name = "replaced by one that was refused with it"
    o = cases.case(name, "contradiction", "replaced by the request at offset")
    cases.schedule(o, name.encode())
    cases.schedule(o + 1, name.encode())
    cases.commit([o + 1, 0, "dead"], [o, DUE, "replaced", o + 1], v=2)
    asked = TO_ORDERS, ("postdate-delay", b"1s"), ("postdate-id", name.encode())
    cases.bury(o + 1, *asked, reason=b"forbidden-target")
    for when, verdict in (("behind it", "kept"), ("before it", "contradiction")):
        name = f"kept by one that was refused {when}"
        o = _keep(cases, name, verdict, "does not follow" if verdict == "contradiction" else "")
        if verdict == "contradiction":
            _refuse(cases, o, name)
        cases.commit([o + 1, DUE, "kept", o], v=2)
        if verdict == "kept":
            _refuse(cases, o, name)
    for when, verdict in (("behind it", "replaced"), ("before it", "contradiction")):
        name = f"replaced by one that was dropped {when}"
        o = cases.case(name, verdict, "does not follow" if verdict == "contradiction" else "", at=1)
        cases.schedule(o, name.encode(), _DROP)
        cases.schedule(o + 1, name.encode())
        cases.schedule(o + 2, name.encode(), _DROP)
        _deliver(cases, o, name)
        fates = [o + 1, DUE, "replaced", o + 2], [o + 2, DUE, "dropped", o]
        for fate in fates if verdict == "replaced" else reversed(fates):
            cases.commit(fate, v=2)
    name = "replaced by one that its owner had not read"
    o = cases.case(name, "contradiction", "replaced by the request at offset")
    cases.schedule(o, name.encode())
    cases.schedule(o + 1, name.encode())
    cases.commit([o, DUE, "replaced", o + 1], v=2, next_request=o + 1)
    _deliver(cases, o + 1, name)


def other_owner_answers(cases: Cases) -> None:
    """Adds answers to replaced requests. One owner accepted the replacement, and another owner refused it later."""
    for what, by, verdict in (
        ("it", 1, "replaced"),
        ("the one behind it", 2, "replaced"),
        ("another", 3, "false-verdict"),
    ):
        name = f"answered replaced by {what}, which was refused"
        o = cases.case(name, verdict)
        for offset in (o, o + 1, o + 2):
            cases.schedule(offset, name.encode())
        cases.commit([o, DUE, "replaced"])
        _refuse(cases, o + 1, name)
        _deliver(cases, o + 2, name)
        cases.answer(o, "replaced", None, name, by=f"{REQUESTS}/0/{o + by}")
    name = "answered replaced by the last of twenty, which was refused"
    o = cases.case(name, "replaced")
    cases.next += 20
    for offset in range(o, o + 21):
        cases.schedule(offset, name.encode())
    for offset in range(o + 1, o + 20):
        _refuse(cases, offset, name)
    cases.commit([o, DUE, "replaced"])
    _refuse(cases, o + 20, name)
    cases.answer(o, "replaced", None, name, by=f"{REQUESTS}/0/{o + 20}")
    for when, verdict in (("behind it", "dead"), ("before it", "false-verdict")):
        name = f"answered replaced of another, refused {when}"
        o = cases.case(name, verdict, at=1)
        cases.schedule(o, name.encode())
        cases.schedule(o + 1, name.encode())
        cases.schedule(o + 2, name.encode())
        if when == "before it":
            _refuse(cases, o + 1, name)
        cases.commit([o, DUE, "replaced"])
        if when == "behind it":
            _refuse(cases, o + 1, name)
        _deliver(cases, o + 2, name)
        cases.answer(o + 1, "replaced", o, name)


def refusal_cases(cases: Cases) -> None:
    """Adds refusals: the reasons `bad-if-pending` and `bad-latest` need an invalid header."""
    id_, delay, retry = ("postdate-id", b"r"), ("postdate-delay", b"1s"), ("postdate-retry", b"base=1s")
    for reason, name, header, time, verdict in (
        ("bad-if-pending", "an unknown policy", ("postdate-if-pending", b"drop"), delay, "dead"),
        ("bad-if-pending", "a policy of a return", _KEEP, retry, "dead"),
        ("bad-if-pending", "a policy that is right", _KEEP, delay, "false-refusal"),
        ("bad-latest", "a limit of 0", ("postdate-latest", b"0"), delay, "dead"),
        ("bad-latest", "an unreadable limit", ("postdate-latest", b"soon"), delay, "dead"),
        ("bad-latest", "a limit of a return", _LATEST, retry, "dead"),
        ("bad-latest", "a limit that is right", _LATEST, delay, "false-refusal"),
    ):
        o = cases.case(f"refused for {name}", verdict)
        headers = [TO_ORDERS, time, id_, header]
        cases.ask(o, *headers)
        cases.commit([o, 0, "dead"])
        cases.bury(o, *headers, reason=reason.encode())


def id_policy_cases() -> Cases:
    """Returns all cases of id policies, in a separate history."""
    cases = Cases()
    for part in (
        *(keep_cases, replace_cases, series_cases, answer_cases),
        *(other_owner_cases, other_owner_answers, refusal_cases),
    ):
        part(cases)
    return cases
