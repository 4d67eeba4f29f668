"""Cases of the audit's verdicts for bulk controls: the messages that they may end, and their counts."""

from __future__ import annotations

from support.audit_cases.schedules import ask, deliver, due, occurred
from support.audit_cases.verdicts import DUE, Cases, redelivered


def _select(cases: Cases, offset: int, **selectors: bytes) -> None:
    headers = [(f"postdate-select-{name}", value) for name, value in selectors.items()]
    cases.ask(offset, ("postdate-action", b"cancel"), *headers)


def selection_cases(cases: Cases) -> None:
    """Adds cases of bulk controls that end messages that they select or do not select."""
    wrong = "which does not select it"
    for number, (name, selectors, is_right) in enumerate(
        (
            ("the prefix of its id", {"id": b"b0-"}, True),
            ("its target", {"topic": b"orders"}, True),
            ("its key", {"key": b"k"}, True),
            ("its due time", {"from": b"%d" % DUE, "until": b"%d" % (DUE + 1)}, True),
            ("another id", {"id": b"c"}, False),
            ("another target", {"topic": b"mails"}, False),
            ("another key", {"key": b"k2"}, False),
            ("later due times", {"from": b"%d" % (DUE + 1)}, False),
            ("earlier due times", {"until": b"%d" % DUE}, False),
            ("one of two selectors", {"topic": b"orders", "id": b"c"}, False),
        )
    ):
        o = cases.case(f"selected by {name}", "cancelled" if is_right else "contradiction", "" if is_right else wrong)
        cases.schedule(o, b"b%d-" % number)
        _select(cases, o + 1, **selectors)
        cases.commit([o + 1, 0, "swept", 0], v=2)
        cases.commit([o, DUE, "cancelled", o + 1], [o + 1, 0, "applied", 1], v=2)

    for name, prefix, verdict in (("its id", b"b19", "cancelled"), ("another id", b"b18", "contradiction")):
        o = cases.case(f"a return selected by {name}", verdict, wrong * (verdict != "cancelled"))
        cases.give_back(o, ("postdate-id", b"b19-"))
        _select(cases, o + 1, id=prefix)
        cases.commit([o + 1, 0, "swept", 0], v=2)
        cases.commit([o, DUE, "cancelled", o + 1], [o + 1, 0, "applied", 1], v=2)

    o = cases.case("moved into the selection", "cancelled")
    cases.schedule(o, b"b20")
    cases.reschedule(o + 1, b"b20", b"3s")
    cases.commit([o, DUE, "moved", DUE + 2_000, o + 1], [o + 1, 0, "applied"])
    _select(cases, o + 2, **{"from": b"%d" % (DUE + 2_000)})
    cases.commit([o, DUE, "cancelled", o + 2], [o + 2, 0, "applied", 1], v=2)
    o = cases.case("moved by a later control", "contradiction", wrong)
    cases.schedule(o, b"b21")
    _select(cases, o + 1, id=b"b21")
    cases.reschedule(o + 2, b"b21", b"3s")
    cases.commit([o, DUE, "moved", DUE + 2_000, o + 2], [o + 2, 0, "applied"])
    cases.commit([o, DUE, "cancelled", o + 1], [o + 1, 0, "applied", 1], v=2)
    o = cases.case("ended by a cancel of one message", "contradiction", wrong)
    cases.schedule(o, b"b22")
    cases.ask(o + 1, ("postdate-action", b"cancel"), ("postdate-id", b"b22"))
    cases.commit([o, DUE, "cancelled", o + 1], [o + 1, 0, "applied"], v=2)


def move_cases(cases: Cases) -> None:
    """Adds cases of bulk reschedules, which move the selected messages by a duration or to a time."""
    wrong = "which does not ask for it"
    for number, (name, time, new_ms, is_right) in enumerate(
        (
            ("by a time", ("postdate-by", b"2s"), DUE + 2_000, True),
            ("by a negative time", ("postdate-by", b"-500ms"), DUE - 500, True),
            ("to the time of the control", ("postdate-delay", b"0"), DUE - 1_000, True),
            ("by another time", ("postdate-by", b"2s"), DUE + 2_001, False),
            ("to another time", ("postdate-delay", b"0"), DUE - 999, False),
        )
    ):
        verdict, word = ("delivered", "") if is_right else ("contradiction", wrong)
        o = cases.case(f"moved in bulk {name}", verdict, word)
        caller = b"v%d-" % number
        cases.schedule(o, caller)
        cases.ask(o + 1, ("postdate-action", b"reschedule"), time, ("postdate-select-id", caller))
        cases.commit([o + 1, 0, "swept", 0], v=2)
        cases.commit([o, DUE, "moved", new_ms, o + 1], [o + 1, 0, "applied", 1], v=2)
        cases.commit([o, DUE, "delivered"], at_ms=DUE + 4_000)
        cases.deliver(o, due_ms=new_ms, id=caller)
    o = cases.case("a return moved in bulk", "delivered")
    cases.give_back(o, ("postdate-id", b"v19-"))
    cases.ask(o + 1, ("postdate-action", b"reschedule"), ("postdate-by", b"2s"), ("postdate-select-id", b"v19"))
    cases.commit([o, DUE, "moved", DUE + 2_000, o + 1], [o + 1, 0, "applied", 1], v=2)
    cases.commit([o, DUE, "delivered"], at_ms=DUE + 4_000)
    cases.deliver(o, due_ms=DUE + 2_000, behind=redelivered(o, first_due=DUE), id=b"v19-")
    o = cases.case("moved in bulk, not selected", "contradiction", wrong)
    cases.schedule(o, b"v20")
    cases.ask(o + 1, ("postdate-action", b"reschedule"), ("postdate-by", b"1s"), ("postdate-select-id", b"v21"))
    cases.commit([o, DUE, "moved", DUE + 1_000, o + 1], [o + 1, 0, "applied", 1], v=2)
    cases.commit([o, DUE, "delivered"], at_ms=DUE + 4_000)
    cases.deliver(o, due_ms=DUE + 1_000, id=b"v20")
    message = cases.case("moved, and counted wrongly: its message", "delivered")
    cases.schedule(message, b"v22")
    o = cases.case("moved, and counted wrongly", "contradiction", "counts 2 messages, and 1 fates name it")
    cases.ask(o, ("postdate-action", b"reschedule"), ("postdate-by", b"1s"), ("postdate-select-id", b"v22"))
    cases.commit([message, DUE, "moved", DUE + 1_000, o], [o, 0, "applied", 2], v=2)
    cases.commit([message, DUE, "delivered"], at_ms=DUE + 4_000)
    cases.deliver(message, due_ms=DUE + 1_000, id=b"v22")


def count_cases(cases: Cases) -> None:
    """Adds cases of counts: the number of fates that name the control, repeated by the answer."""
    for name, count, verdict, word in (
        ("counted", 1, "applied", ""),
        ("counted one too many", 2, "contradiction", "counts 2 messages, and 1 fates name it"),
        ("counted none", 0, "contradiction", "counts 0 messages, and 1 fates name it"),
    ):
        o = cases.case(f"{name}: its message", "cancelled")
        cases.schedule(o, b"n%d" % o)
        control = cases.case(name, verdict, word)
        _select(cases, control, id=b"n%d" % o)
        cases.commit([control, 0, "swept", 0], v=2)
        cases.commit([o, DUE, "cancelled", control], [control, 0, "applied", count], v=2)
    o = cases.case("counted over two transactions", "applied")
    _select(cases, o, id=b"nobody")
    cases.commit([o, 0, "swept", 0], v=2)
    cases.commit([o, 0, "applied", 0], v=2)
    for name, count, verdict, word in (
        ("answered with its count", 0, "applied", ""),
        ("answered with another count", 1, "false-verdict", "answered applied"),
    ):
        o = cases.case(name, verdict, word)
        _select(cases, o, id=b"nobody")
        cases.commit([o, 0, "swept", 0], [o, 0, "applied", 0], v=2)
        cases.answer(o, "applied", count=count, v=2)
    o = cases.case("answered as one cancel is", "false-verdict", "answered not-found")
    _select(cases, o, id=b"nobody")
    cases.commit([o, 0, "swept", 0], [o, 0, "applied", 0], v=2)
    cases.answer(o, "not-found")
    o = cases.case("a later cancel finds nothing", "applied", at=2)
    cases.schedule(o, b"later")
    _select(cases, o + 1, id=b"later")
    cases.cancel(o + 2, b"later")
    cases.commit([o + 1, 0, "swept", 0], v=2)
    cases.commit([o + 2, 0, "applied"])
    cases.answer(o + 2, "not-found", None, "later")
    cases.commit([o, DUE, "cancelled", o + 1], [o + 1, 0, "applied", 1], v=2)
    o = cases.case("no bulk control has a count", "mismatch", "of a request to cancel")
    cases.ask(o, ("postdate-action", b"cancel"), ("postdate-id", b"nobody"))
    cases.commit([o, 0, "applied", 0], v=2)


def control_cases(cases: Cases) -> None:
    """Adds cases of schedules that a bulk cancel in force selects: for a later control, they are no longer pending."""
    wrong, at_ms = "while the bulk control at offset", due(1) - 500
    trigger, pause, moves = ("trigger", "triggered"), ("pause", "paused"), {"from": b"%d" % due(2)}
    for number, (name, (action, fate), begun, selectors, is_right) in enumerate(
        (
            ("triggered behind the first fate of a bulk cancel", trigger, {}, {}, False),
            ("paused behind the first fate of a bulk cancel", pause, {}, {}, False),
            ("triggered before the bulk cancel was in force", trigger, {"next_request": 3}, {}, True),
            ("triggered by the next owner", trigger, {"takeover": 0}, {}, True),
            ("triggered before it was due in the range", trigger, {}, moves, True),
            ("triggered while it was due in the range", trigger, {}, {"until": b"%d" % due(2)}, False),
        )
    ):
        verdict, word = ("cancelled", "") if is_right else ("contradiction", wrong)
        o = cases.case(name, verdict, word)
        caller = f"c{number}-"
        ask(cases, o, caller)
        cases.commit([o, due(1), "stored"])
        _select(cases, o + 1, id=caller.encode(), **selectors)
        cases.commit([o + 1, 0, "swept", 0], v=2, **{**begun, "next_request": o + begun.get("next_request", 2)})
        cases.ask(o + 2, ("postdate-action", action.encode()), ("postdate-id", caller.encode()), at_ms=at_ms)
        effect = [o, due(1), fate, at_ms, o + 2]
        cases.commit([o, due(1), "stored"], effect, [o + 2, 0, "applied"], at_ms=at_ms + 5, v=3)
        cases.answer(o + 2, fate, o, caller, v=3)
        last = [occurred(o, 1)] if selectors is moves else []
        end = [o, due(1), "cancelled", o + 1], [o + 1, 0, "applied", 1]
        cases.commit(*last, *end, at_ms=due(1) + 5 if last else at_ms + 9, v=3)
        if last:
            deliver(cases, o, caller, 1)


def bulk_cases() -> Cases:
    """Returns all cases for bulk controls, in a separate history."""
    cases = Cases()
    selection_cases(cases)
    move_cases(cases)
    count_cases(cases)
    control_cases(cases)
    return cases
