"""The cases of verdict records: one history in which every answer is a separate case, with its judgement. Beside each
true answer are false ones that differ in one respect.
"""

from __future__ import annotations

from support.audit_cases.verdicts import DUE, TO_ORDERS, Cases, T
from support.audits.written_records import REQUESTS


def _cancel_cases(cases: Cases) -> None:
    o = cases.case("cancelled", "applied", at=1)
    cases.schedule(o, b"a1")
    cases.cancel(o + 1, b"a1")
    cases.commit([o, DUE, "cancelled"], [o + 1, 0, "applied"])
    cases.answer(o + 1, "cancelled", o, "a1")
    o = cases.case("cancelled, and delivered all the same", "false-verdict", "and of", at=1)
    cases.schedule(o, b"a2")
    cases.cancel(o + 1, b"a2")
    cases.commit([o, DUE, "delivered"])
    cases.commit([o + 1, 0, "applied"])
    cases.deliver(o, id=b"a2")
    cases.answer(o + 1, "cancelled", o, "a2")
    o = cases.case("cancelled, and replaced just before", "false-verdict", "replaced", at=2)
    cases.schedule(o, b"a6")
    cases.schedule(o + 1, b"a6")
    cases.cancel(o + 2, b"a6")
    cases.commit([o, DUE, "replaced"], [o + 1, DUE, "cancelled"], [o + 2, 0, "applied"])
    cases.answer(o + 2, "cancelled", o, "a6")
    o = cases.case("cancelled by another than it says", "false-verdict", "answered cancelled", at=2)
    cases.schedule(o, b"a3")
    cases.cancel(o + 1, b"a3")
    cases.cancel(o + 2, b"other")
    cases.commit([o, DUE, "cancelled"], [o + 1, 0, "applied"], [o + 2, 0, "applied"])
    cases.answer(o + 1, "cancelled", o, "a3")
    cases.answer(o + 2, "cancelled", o, "other")
    o = cases.case("cancelled before that cancel came", "false-verdict", "answered cancelled", at=2)
    cases.schedule(o, b"a4")
    cases.cancel(o + 1, b"a4")
    cases.cancel(o + 2, b"a4")
    cases.commit([o, DUE, "cancelled"], [o + 1, 0, "applied"])
    cases.commit([o + 2, 0, "applied"])
    cases.answer(o + 1, "cancelled", o, "a4")
    cases.answer(o + 2, "cancelled", o, "a4")
    o = cases.case("a reschedule is no cancel", "false-verdict", "answered cancelled", at=1)
    cases.schedule(o, b"a5")
    cases.reschedule(o + 1, b"a5", b"9s")
    cases.cancel(o + 2, b"a5")
    cases.commit([o, DUE, "cancelled"], [o + 1, 0, "applied"], [o + 2, 0, "applied"])
    cases.answer(o + 1, "cancelled", o, "a5")


def _reschedule_cases(cases: Cases) -> None:
    for name, moves, verdict in (("rescheduled", True, "applied"), ("rescheduled, not moved", False, "false-verdict")):
        o = cases.case(name, verdict, at=1)
        id = f"b-{moves}"
        cases.schedule(o, id.encode())
        cases.reschedule(o + 1, id.encode(), b"1500ms")
        moved = [[o, DUE, "moved", T + 1_500, o + 1]] if moves else []
        cases.commit(*moved, [o + 1, 0, "applied"], [o, DUE, "delivered"])
        cases.deliver(o, id=id.encode(), due_ms=T + 1_500 if moves else DUE)
        cases.answer(o + 1, "rescheduled", o, id)
    for word in ("not-found", "too-late"):
        o = cases.case(f"{word}, though it moved", "false-verdict", f"answered {word}", at=1)
        id = f"b-{word}"
        cases.schedule(o, id.encode())
        cases.reschedule(o + 1, id.encode(), b"1500ms")
        cases.commit([o, DUE, "moved", T + 1_500, o + 1], [o + 1, 0, "applied"])
        cases.commit([o, DUE, "delivered"])
        cases.deliver(o, id=id.encode(), due_ms=T + 1_500)
        cases.answer(o + 1, word, None, id)

    o = cases.case("not-found, though it moved what was not read", "false-verdict", "answered not-found", at=1)
    cases.reschedule(o + 1, b"b-unread", b"1500ms")
    cases.commit([o, DUE, "moved", T + 1_500, o + 1], [o + 1, 0, "applied"])
    cases.answer(o + 1, "not-found", None, "b-unread")
    o = cases.case("too-late, though it moved what had ended", "false-verdict", "answered too-late", at=1)
    cases.schedule(o, b"b-ended")
    cases.reschedule(o + 1, b"b-ended", b"1s")
    cases.commit([o, DUE, "delivered"])
    cases.commit([o, DUE, "moved", DUE, o + 1], [o + 1, 0, "applied"])
    cases.deliver(o, id=b"b-ended")
    cases.answer(o + 1, "too-late", o, "b-ended")


def _replace_cases(cases: Cases) -> None:
    for name, id, verdict in (("replaced", "d1", "delivered"), ("replaced, of another id", "d2", "false-verdict")):
        o = cases.case(name, verdict, at=1)
        other = id if verdict == "delivered" else "d3"
        cases.schedule(o, id.encode())
        cases.schedule(o + 1, other.encode())
        cases.schedule(o + 2, id.encode())
        cases.commit([o, DUE, "replaced"], [o + 1, DUE, "delivered"], [o + 2, DUE, "delivered"])
        cases.deliver(o + 1, id=other.encode())
        cases.deliver(o + 2, id=id.encode())
        cases.answer(o + 1, "replaced", o, other)
    o = cases.case("replaced, but that was delivered", "false-verdict", "and of", at=1)
    cases.schedule(o, b"d4")
    cases.schedule(o + 1, b"d4")
    cases.commit([o, DUE, "delivered"], [o + 1, DUE, "delivered"])
    cases.deliver(o, id=b"d4")
    cases.deliver(o + 1, id=b"d4")
    cases.answer(o + 1, "replaced", o, "d4")


def _survivor_cases(cases: Cases) -> None:
    """Adds answers that name a survivor; the fate names one as well, or is of format version 1, which has no
    survivors."""
    for name, named, survivor, verdict in (
        ("replaced by the next one", True, 1, "replaced"),
        ("replaced by the next one, as format version 1 says", False, 1, "replaced"),
        ("replaced by the one behind it", True, 2, "false-verdict"),
        ("replaced by the one behind it, as format version 1 says", False, 2, "false-verdict"),
    ):
        o = cases.case(name, verdict)
        id = f"d5{o}"
        for offset in (o, o + 1, o + 2):
            cases.schedule(offset, id.encode())
        end = [o, DUE, "replaced", o + 1] if named else [o, DUE, "replaced"]
        cases.commit(end, [o + 1, DUE, "replaced"], [o + 2, DUE, "delivered"], v=2 if named else 1)
        cases.deliver(o + 2, id=id.encode())
        cases.answer(o, "replaced", None, id, by=f"{REQUESTS}/0/{o + survivor}")


def _too_late_cases(cases: Cases) -> None:
    # The end of the message, whether it precedes the cancel's application, and whether the answer names it.
    for name, end, before, names_it, verdict in (
        ("too-late", "delivered", True, True, "applied"),
        ("too-late, of what is not said", "delivered", True, False, "applied"),
        ("too-late for what died", "dead", True, True, "applied"),
        ("too-late for what was cancelled", "cancelled", True, True, "false-verdict"),
        ("too-late, cancelled, of what is not said", "cancelled", True, False, "false-verdict"),
        ("too-late before it was delivered", "delivered", False, True, "false-verdict"),
        ("too-late before it was delivered, not said", "delivered", False, False, "false-verdict"),
    ):
        o = cases.case(name, verdict, "" if verdict == "applied" else "answered too-late", at=2)
        id = f"e{o}"
        cases.schedule(o, id.encode())
        cases.cancel(o + 1, id.encode())
        cases.cancel(o + 2, id.encode())
        ended = [[o, DUE, end], [o + 1, 0, "applied"]]
        cases.commit(*(ended if before else [[o + 2, 0, "applied"]]))
        cases.commit(*([[o + 2, 0, "applied"]] if before else ended))
        if end == "delivered":
            cases.deliver(o, id=id.encode())
        elif end == "dead":
            cases.bury(o, TO_ORDERS, ("postdate-delay", b"1s"), ("postdate-id", id.encode()))
        cases.answer(o + 2, "too-late", o if names_it else None, id)
    o = cases.case("too-late for nobody", "false-verdict", "answered too-late")
    cases.cancel(o, b"nobody")
    cases.commit([o, 0, "applied"])
    cases.answer(o, "too-late", None, "nobody")


def _not_found_cases(cases: Cases) -> None:
    o = cases.case("not-found", "applied")
    cases.cancel(o, b"nobody")
    cases.commit([o, 0, "applied"])
    cases.answer(o, "not-found", None, "nobody")
    o = cases.case("not-found after a cancel", "applied", at=2)
    cases.schedule(o, b"f1")
    cases.cancel(o + 1, b"f1")
    cases.cancel(o + 2, b"f1")
    cases.commit([o, DUE, "cancelled"], [o + 1, 0, "applied"], [o + 2, 0, "applied"])
    cases.answer(o + 1, "cancelled", o, "f1")
    cases.answer(o + 2, "not-found", None, "f1")
    o = cases.case("not-found, though it was this that cancelled", "false-verdict", "answered not-found", at=1)
    cases.schedule(o, b"f2")
    cases.cancel(o + 1, b"f2")
    cases.commit([o, DUE, "cancelled"], [o + 1, 0, "applied"])
    cases.answer(o + 1, "not-found", None, "f2")
    for name, by_origin in (("by id", False), ("by origin", True)):
        o = cases.case(f"not-found while it was pending, {name}", "false-verdict", "was pending", at=1)
        id = f"f-{by_origin}"
        cases.schedule(o, id.encode())
        if by_origin:
            origin = f"postdate.requests/0/{o}".encode()
            cases.ask(o + 1, ("postdate-action", b"cancel"), ("postdate-origin", origin))
        else:
            cases.cancel(o + 1, id.encode())
        cases.commit([o + 1, 0, "applied"])
        cases.commit([o, DUE, "delivered"])
        cases.deliver(o, id=id.encode())
        cases.answer(o + 1, "not-found", None, None if by_origin else id)
    o = cases.case("not-found, what came later", "applied")
    cases.cancel(o, b"f3")
    cases.commit([o, 0, "applied"])
    cases.schedule(o + 1, b"f3")
    cases.commit([o + 1, DUE, "delivered"])
    cases.deliver(o + 1, id=b"f3")
    cases.answer(o, "not-found", None, "f3")
    o = cases.case("not-found, what was refused", "applied", at=1)
    bad = TO_ORDERS, ("postdate-delay", b"soon"), ("postdate-id", b"f4")
    cases.ask(o, *bad)
    cases.cancel(o + 1, b"f4")
    cases.commit([o + 1, 0, "applied"])
    cases.commit([o, 0, "dead"])
    cases.bury(o, *bad)
    cases.answer(o + 1, "not-found", None, "f4")


def _own_end_cases(cases: Cases) -> None:
    for word in ("delivered", "dead", "rejected"):
        for fate, first_due_ms in (("delivered", DUE), ("dead", DUE), ("dead", 0)):
            said = "rejected" if first_due_ms == 0 else fate
            verdict = fate if word == said else "false-verdict"
            o = cases.case(f"{word}, ended {said}", verdict, "" if word == said else f"answered {word}")
            cases.ask(o)
            cases.commit([o, first_due_ms, fate])
            (cases.deliver if fate == "delivered" else cases.bury)(o)
            cases.answer(o, word)
    o = cases.case("cancelled, of itself", "cancelled")
    cases.schedule(o, b"h1")
    cases.cancel(o + 1, b"h1")
    cases.commit([o, DUE, "cancelled"], [o + 1, 0, "applied"])
    cases.answer(o, "cancelled", None, "h1")
    o = cases.case("replaced, of itself, though delivered", "false-verdict", "answered replaced")
    cases.schedule(o, b"h2")
    cases.commit([o, DUE, "delivered"])
    cases.deliver(o, id=b"h2")
    cases.answer(o, "replaced", None, "h2")
    for name, more, verdict in (("accepted", ["stored"], "delivered"), ("accepted, not stored", [], "false-verdict")):
        o = cases.case(name, verdict)
        cases.ask(o)
        cases.commit(*([o, DUE, fate] for fate in (*more, "delivered")))
        cases.deliver(o)
        cases.answer(o, "accepted")
        cases.answer(o, "delivered")
    o = cases.case("answered without a fate", "false-verdict missing", "the dispatch log says nothing")
    cases.ask(o)
    cases.answer(o, "delivered")


def _form_cases(cases: Cases) -> None:
    o = cases.case("answered twice", "false-verdict", "one of 2 answers")
    cases.ask(o)
    cases.commit([o, DUE, "delivered"])
    cases.deliver(o)
    cases.answer(o, "delivered")
    cases.answer(o, "delivered")
    o = cases.case("its replacement answered twice", "false-verdict", "one of 2 answers", at=1)
    cases.schedule(o, b"i1")
    cases.schedule(o + 1, b"i1")
    cases.commit([o, DUE, "replaced"], [o + 1, DUE, "delivered"])
    cases.deliver(o + 1, id=b"i1")
    cases.answer(o + 1, "replaced", o, "i1")
    cases.answer(o + 1, "replaced", o, "i1")
    o = cases.case("a replacement and its own end", "delivered", at=1)
    cases.schedule(o, b"i2")
    cases.schedule(o + 1, b"i2")
    cases.commit([o, DUE, "replaced"], [o + 1, DUE, "delivered"])
    cases.deliver(o + 1, id=b"i2")
    cases.answer(o, "replaced", None, "i2")
    cases.answer(o + 1, "replaced", o, "i2")
    cases.answer(o + 1, "delivered", None, "i2")
    o = cases.case("under another id", "false-verdict", "under another id")
    cases.cancel(o, b"nobody")
    cases.commit([o, 0, "applied"])
    cases.answer(o, "not-found", None, "somebody")
    o = cases.case("to nobody", "orphan", "verdict delivered (postdate.requests.verdicts/0/")
    cases.answer(o, "delivered")


def answer_cases(before: Cases | None = None) -> Cases:
    """Adds these cases to those of `before`."""
    cases = Cases() if before is None else before
    parts = (_cancel_cases, _reschedule_cases, _replace_cases, _survivor_cases, _too_late_cases, _not_found_cases)
    for part in (*parts, _own_end_cases, _form_cases):
        part(cases)
    return cases
