"""Cases of the audit's verdicts for recurring schedules, across dispatch log, targets and dead letters.
`tests/unit/spark/test_schedules.py` has the detailed cases of the occurrences of one schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from postdate.spark.limits import COMMIT_MS_MAX
from postdate.spark.rules.times.zone_files import tz_version
from support.audit_cases.verdicts import DUE, HOUR_MS, TO_ORDERS, Cases
from support.audits.written_records import REQUESTS, Headers

EVERY = ("postdate-every", b"1s")
TWICE = ("postdate-count", b"2")
# 2026-11-22T02:30 in Berlin, the first night after the requests, and the next one.
NIGHT, NEXT_NIGHT = 1_795_311_000_000, 1_795_397_400_000


def due(number: int) -> int:
    """Returns the nominal time of an occurrence of EVERY."""
    return DUE + (number - 1) * 1_000


def ask(cases: Cases, offset: int, id: str, *more: tuple[str, bytes | None]) -> None:
    """Adds a schedule, and its fate `stored`."""
    cases.ask(offset, TO_ORDERS, EVERY, ("postdate-id", id.encode()), *more)
    cases.commit([offset, due(1), "stored"])


def occurred(offset: int, number: int, next_ms: int | None = None, *, nominal_ms: int | None = None) -> list[Any]:
    nominal_ms = due(number) if nominal_ms is None else nominal_ms
    return [offset, due(1), "occurred", number, nominal_ms, nominal_ms + 1_000 if next_ms is None else next_ms]


def deliver(
    cases: Cases,
    offset: int,
    id: str,
    number: int,
    next_ms: int | None = None,
    *,
    nominal_ms: int | None = None,
    **changes: Any,
) -> None:
    """Adds the record of an occurrence; without a next time if `next_ms` is 0."""
    nominal_ms = due(number) if nominal_ms is None else nominal_ms
    next_ms = nominal_ms + 1_000 if next_ms is None else next_ms
    behind: Headers = [("postdate-occurrence", b"%d" % number)]
    behind += [("postdate-next", b"%d" % next_ms)] if next_ms else []
    cases.deliver(offset, due_ms=nominal_ms, id=id.encode(), behind=behind, **changes)


def deliver_extra(
    cases: Cases, offset: int, id: str, control: int, *, m: int = 1, occurrence: int = 0, **changes: Any
) -> None:
    """Adds the record of an extra delivery."""
    behind: Headers = [("postdate-occurrence", b"%d" % occurrence)] if occurrence else []
    behind.append(("postdate-extra", f"{REQUESTS}/0/{control}/{m}".encode()))
    cases.deliver(offset, id=id.encode(), behind=behind, **changes)


def commit(cases: Cases, *fates: Sequence[Any], late_ms: int = 5, at_ms: int | None = None) -> None:
    """Adds a log record, `late_ms` after the nominal time of its first fate."""
    stamped = fates[0][4] + late_ms if at_ms is None else at_ms
    cases.commit(*[[*fate] for fate in fates], at_ms=stamped, v=3)


def twice(cases: Cases, offset: int, id: str, *more: tuple[str, bytes | None]) -> None:
    """Adds a schedule that has occurred twice and has completed."""
    ask(cases, offset, id, TWICE, *more)
    commit(cases, occurred(offset, 1))
    commit(cases, occurred(offset, 2, 0), [offset, due(1), "completed"])
    deliver(cases, offset, id, 1)
    deliver(cases, offset, id, 2, 0)


def open_twice(cases: Cases, offset: int, id: str) -> None:
    """Adds a schedule that has occurred twice and continues."""
    ask(cases, offset, id)
    for number in (1, 2):
        commit(cases, occurred(offset, number))
        deliver(cases, offset, id, number)


def _ending_cases(cases: Cases) -> None:
    o = cases.case("it has completed", "completed")
    twice(cases, o, "a1")
    o = cases.case("it goes on", "pending")
    cases.ask(o, TO_ORDERS, ("postdate-every", b"2h"), ("postdate-id", b"a2"))
    cases.commit([o, 1_795_262_400_000, "stored"])
    o = cases.case("it was never stored", "missing", "no fate")
    cases.ask(o, TO_ORDERS, EVERY, ("postdate-id", b"a3"))
    o = cases.case("its next occurrence is overdue", "missing", f"due {due(3)}")
    open_twice(cases, o, "a4")
    o = cases.case("it was refused", "dead")
    wrong = [TO_ORDERS, ("postdate-cron", b"never"), ("postdate-id", b"a5")]
    cases.ask(o, *wrong)
    cases.commit([o, 0, "dead"])
    cases.bury(o, *wrong, reason=b"bad-schedule")
    o = cases.case("it was refused, and another dead letter is there", "mismatch", "dead letter differs")
    cases.ask(o, *wrong)
    cases.commit([o, 0, "dead"])
    cases.bury(o, TO_ORDERS, reason=b"bad-schedule")
    for name, verdict, word, names in (
        ("behind an occurrence", "dead", "", ("stored", "occurred", "dead")),
        ("before an occurrence", "contradiction", "dead, though occurrence 1", ("stored", "dead", "occurred")),
        ("behind an occurrence without being stored", "contradiction", "though it was refused", ("occurred", "dead")),
    ):
        o = cases.case(f"it was refused {name}", verdict, word)
        own, fates = ("postdate-id", name.encode()), {"stored": [o, due(1), "stored"], "dead": [o, 0, "dead"]}
        cases.ask(o, TO_ORDERS, EVERY, own)
        for one in names:
            cases.commit(fates.get(one, occurred(o, 1)), at_ms=due(1) + 5, v=3)
        deliver(cases, o, name, 1)
        cases.bury(o, TO_ORDERS, EVERY, own, reason=b"forbidden-target")
    o = cases.case("it was accepted though it cannot be read", "contradiction", "cannot be read")
    cases.ask(o, *wrong)
    cases.commit(occurred(o, 1), at_ms=due(1), v=3)
    o = cases.case("it was delivered like a message", "mismatch missing contradiction", "of a request to recurring")
    cases.ask(o, TO_ORDERS, EVERY, ("postdate-id", b"a6"))
    cases.commit([o, due(1), "delivered"])
    o = cases.case("a message has completed", "mismatch", "fate completed")
    cases.ask(o)
    cases.commit([o, DUE, "completed"], v=3)
    o = cases.case("a message has occurrences", "contradiction", "though it is no schedule")
    cases.ask(o)
    cases.commit([o, DUE, "delivered"])
    cases.deliver(o)
    commit(cases, occurred(o, 1))
    o = cases.case("a message has the record of an occurrence", "contradiction", "though it is no schedule")
    cases.ask(o)
    cases.commit([o, DUE, "delivered"])
    cases.deliver(o)
    deliver(cases, o, "a8", 1)
    o = cases.case("a pending message has the record of an occurrence", "contradiction", "though it is no schedule")
    cases.ask(o, TO_ORDERS, ("postdate-delay", b"3h"))
    deliver(cases, o, "a9", 1)
    o = cases.case("a message beside schedules", "delivered")
    cases.ask(o)
    cases.commit([o, DUE, "delivered"])
    cases.deliver(o)
    o = cases.case("occurrences of no request", "orphan", "occurrences")
    commit(cases, occurred(o, 1))
    deliver(cases, o, "a7", 1)


def _occurrence_cases(cases: Cases) -> None:
    o = cases.case("an occurrence without its record", "missing", "no record on orders")
    ask(cases, o, "b1", ("postdate-count", b"1"))
    commit(cases, occurred(o, 1, 0), [o, due(1), "completed"])
    o = cases.case("an occurrence without its fate", "extra", "occurrence 3 has the record")
    twice(cases, o, "b2")
    deliver(cases, o, "b2", 3)
    o = cases.case("a record beside the occurrences", "contradiction", "delivered although completed")
    twice(cases, o, "b3")
    cases.deliver(o, id=b"b3")
    o = cases.case("two records of an occurrence", "duplicate", "2 records")
    twice(cases, o, "b5")
    deliver(cases, o, "b5", 2, 0)
    o = cases.case("an early occurrence", "early", f"due {due(1)}")
    ask(cases, o, "b6", ("postdate-count", b"1"))
    commit(cases, occurred(o, 1, 0), [o, due(1), "completed"], late_ms=-1)
    deliver(cases, o, "b6", 1, 0)
    o = cases.case("one occurrence too many", "extra", "occurrence 3 does not exist")
    ask(cases, o, "b7", TWICE)
    for number in (1, 2):
        commit(cases, occurred(o, number))
        deliver(cases, o, "b7", number)
    commit(cases, occurred(o, 3, 0), [o, due(1), "completed"])
    deliver(cases, o, "b7", 3, 0)
    others: dict[str, dict[str, Any]] = {
        "value": {"value": b"other"},
        "key": {"key": b"other"},
        "headers": {"headers": [("a", b"1")]},
    }
    for name, content in others.items():
        o = cases.case(f"an occurrence with another {name}", "mismatch", name)
        ask(cases, o, "b8", ("postdate-count", b"1"))
        commit(cases, occurred(o, 1, 0), [o, due(1), "completed"])
        deliver(cases, o, "b8", 1, 0, **content)


def _skip_cases(cases: Cases) -> None:
    late_ms = 30_000
    for name, header, reason, verdicts in (
        ("by catch-up", ("postdate-catch-up", b"1s"), "missed", "completed"),
        ("within catch-up", ("postdate-catch-up", b"1h"), "missed", "wrong-skip"),
        ("beyond its grace", ("postdate-grace", b"1s"), "grace", "completed"),
        ("within its grace", ("postdate-grace", b"1h"), "grace", "wrong-skip"),
        ("in no gap", ("postdate-grace", b"1s"), "gap", "wrong-skip"),
        ("in no pause", ("postdate-grace", b"1s"), "paused", "wrong-skip"),
    ):
        o = cases.case(f"skipped {name}", verdicts, "" if verdicts == "completed" else f"skipped as {reason}")
        ask(cases, o, "c1", TWICE, header)
        skip = [o, due(1), "skipped", 1, 2, reason, 0]
        cases.commit(skip, [o, due(1), "completed"], at_ms=due(2) + late_ms, v=3)
    for name, late, verdicts in (("within", COMMIT_MS_MAX, "completed"), ("beyond", late_ms, "out-of-policy")):
        o = cases.case(f"delivered {name} its grace", verdicts)
        ask(cases, o, "c2", ("postdate-count", b"1"), ("postdate-grace", b"0"))
        commit(cases, occurred(o, 1, 0), [o, due(1), "completed"], late_ms=late)
        deliver(cases, o, "c2", 1, 0)
    dead_letters: list[tuple[str, str, dict[str, Any] | None]] = [
        ("with its dead letter", "completed", {}),
        ("with another dead letter", "mismatch", {"value": b"other"}),
        ("without a dead letter", "missing", None),
    ]
    for name, verdicts, content in dead_letters:
        o = cases.case(f"skipped as dead {name}", verdicts)
        ask(cases, o, "c3", ("postdate-count", b"1"))
        cases.commit([o, due(1), "skipped", 1, 1, "dead", 0], [o, due(1), "completed"], at_ms=due(1) + 5, v=3)
        if content is not None:
            cases.bury(o, TO_ORDERS, ("postdate-at", b"%d" % due(1)), **content)
    o = cases.case("a dead letter of a delivered occurrence", "contradiction", "belongs to no skip")
    twice(cases, o, "c4")
    _bury(cases, o, 1)


def _control_cases(cases: Cases) -> None:
    for at, verdicts in ((0, "cancelled"), (1, "applied")):
        o = cases.case(f"cancelled, {verdicts}", verdicts, at=at)
        open_twice(cases, o, f"d{at}")
        cases.cancel(o + 1, f"d{at}".encode())
        cases.commit([o, DUE, "cancelled"], [o + 1, 0, "applied"], at_ms=DUE + 1_500)
        cases.answer(o + 1, "cancelled", o, f"d{at}")
    _pause_cases(cases)
    _trigger_cases(cases)
    _backfill_cases(cases)
    _answer_cases(cases)
    o = cases.case("cancelled by nobody", "contradiction", "no later request")
    open_twice(cases, o, "d2")
    cases.commit([o, DUE, "cancelled"], at_ms=DUE + 1_500)
    o = cases.case("an occurrence after the cancel", "contradiction", "cancelled before occurrence 2")
    ask(cases, o, "d3")
    cases.cancel(o + 1, b"d3")
    commit(cases, occurred(o, 1))
    cases.commit([o, DUE, "cancelled"], [o + 1, 0, "applied"], at_ms=DUE + 900)
    commit(cases, occurred(o, 2))
    for number in (1, 2):
        deliver(cases, o, "d3", number)
    for name, survivor, verdicts in (("a schedule", 1, "replaced"), ("another request", 2, "contradiction")):
        o = cases.case(f"a message replaced by {name}", verdicts)
        cases.schedule(o, b"d4")
        twice(cases, o + 1, "d4")
        cases.ask(o + 2)
        cases.commit([o, DUE, "replaced", o + survivor], v=2)
        cases.answer(o + 1, "replaced", o, "d4")
        cases.commit([o + 2, DUE, "delivered"])
        cases.deliver(o + 2)
    o = cases.case("a schedule that has replaced a message, and said so", "completed", at=1)
    cases.schedule(o, b"d5")
    twice(cases, o + 1, "d5")
    cases.commit([o, DUE, "replaced"])
    cases.answer(o + 1, "replaced", o, "d5")
    o = cases.case("a cancel that comes behind the last occurrence", "applied", at=1)
    twice(cases, o, "d6")
    cases.cancel(o + 1, b"d6")
    cases.commit([o + 1, 0, "applied"], at_ms=DUE + 9_500)
    cases.answer(o + 1, "too-late", o, "d6")
    for name, number, verdicts in (("", 3, "cancelled"), (" at its first due time", 1, "contradiction")):
        o = cases.case(f"a bulk cancel of its next occurrence{name}", verdicts)
        open_twice(cases, o, "d7")
        _cancel_in_bulk(cases, o, o + 1, due(number))
    at_ms = due(2) + 500
    for name, from_ms, verdicts in (
        ("", at_ms, "cancelled"),
        (" at its first due time", DUE, "contradiction"),
        (" before it", at_ms - 1, "contradiction"),
    ):
        o = cases.case(f"a bulk cancel of its extra delivery{name}", verdicts)
        _cancel_in_bulk(cases, o, _triggered(cases, o, "d8", at_ms) + 1, from_ms)
    for name, from_ms, verdicts in (("second", at_ms + 100, "cancelled"), ("first", at_ms, "contradiction")):
        o = cases.case(f"a bulk cancel of its {name} extra delivery, which is the next", verdicts)
        control = _triggered(cases, o, "d9", at_ms)
        second = trigger(cases, o, "d9", at_ms + 100)
        extra(cases, o, control, at_ms, late_ms=200, ends=False)
        deliver_extra(cases, o, "d9", control, due_ms=at_ms)
        _cancel_in_bulk(cases, o, second + 1, from_ms)
    o = cases.case("triggered after the bulk cancel that has ended it", "contradiction", "after the end of its request")
    open_twice(cases, o, "d10")
    _cancel_in_bulk(cases, o, o + 1, due(3))
    trigger(cases, o, "d10", due(2) + 950)


def _cancel_in_bulk(cases: Cases, offset: int, control: int, from_ms: int) -> None:
    """Adds a bulk cancel of messages due at one time, which has cancelled the schedule."""
    start, until = ("postdate-select-from", b"%d" % from_ms), ("postdate-select-until", b"%d" % (from_ms + 1))
    cases.ask(control, ("postdate-action", b"cancel"), start, until)
    cases.commit([control, 0, "swept", 0], v=2)
    cases.commit([offset, DUE, "cancelled", control], [control, 0, "applied", 1], at_ms=due(2) + 900, v=2)


def _pause(cases: Cases, offset: int, id: str, at_ms: int, *, name: str = "pause", said_ms: int | None = None) -> None:
    """Adds the pause or resume of a schedule, as the next request, and its effect."""
    control = len(cases.requests) and max(request[2] for request in cases.requests) + 1
    fate = {"pause": "paused", "resume": "resumed"}[name]
    cases.ask(control, ("postdate-action", name.encode()), ("postdate-id", id.encode()), at_ms=at_ms)
    switch = [offset, due(1), fate, at_ms if said_ms is None else said_ms, control]
    cases.commit([offset, due(1), "stored"], switch, [control, 0, "applied"], at_ms=due(1) + 2_500, v=3)
    cases.answer(control, fate, offset, id, v=3)


def _pause_cases(cases: Cases) -> None:
    for name, said_ms, verdicts in (("", None, "completed"), (" from another time", due(2), "contradiction")):
        o = cases.case(f"paused and resumed{name}", verdicts)
        ask(cases, o, "p1", ("postdate-count", b"4"))
        commit(cases, occurred(o, 1))
        deliver(cases, o, "p1", 1)
        _pause(cases, o, "p1", due(1) + 500, said_ms=said_ms)
        _pause(cases, o, "p1", due(4) - 500, name="resume")
        commit(cases, [o, due(1), "skipped", 2, 3, "paused", due(4)], at_ms=due(4))
        commit(cases, occurred(o, 4, 0), [o, due(1), "completed"])
        deliver(cases, o, "p1", 4, 0)
    o = cases.case("paused for an hour", "pending")
    open_twice(cases, o, "p2")
    _pause(cases, o, "p2", due(2) + 500)
    o = cases.case("delivered in a pause", "out-of-policy", "a pause skips it")
    ask(cases, o, "p3", TWICE)
    _pause(cases, o, "p3", due(2) - 500)
    commit(cases, occurred(o, 1))
    commit(cases, occurred(o, 2, 0), [o, due(1), "completed"])
    deliver(cases, o, "p3", 1)
    deliver(cases, o, "p3", 2, 0)
    o = cases.case("a message was paused", "mismatch", "of a request to schedule")
    cases.schedule(o, b"p4")
    _pause(cases, o, "p4", DUE - 500)
    cases.commit([o, DUE, "delivered"])
    cases.deliver(o, id=b"p4")
    o = cases.case("a pause that found nothing", "applied")
    cases.ask(o, ("postdate-action", b"pause"), ("postdate-id", b"p5"))
    cases.commit([o, 0, "applied"], at_ms=DUE + 1_500)
    cases.answer(o, "not-found", None, "p5")
    o = cases.case("an answer to a cancel that a pause would have", "false-verdict", at=1)
    open_twice(cases, o, "p6")
    cases.cancel(o + 1, b"p6")
    cases.commit([o, DUE, "cancelled"], [o + 1, 0, "applied"], at_ms=DUE + 1_500)
    cases.answer(o + 1, "paused", o, "p6", v=3)


def trigger(cases: Cases, offset: int, id: str, at_ms: int, *, said_ms: int | None = None) -> int:
    """Adds the trigger of a schedule, as the next request, and its effect. Returns the offset of the trigger."""
    control = max(request[2] for request in cases.requests) + 1
    cases.ask(control, ("postdate-action", b"trigger"), ("postdate-id", id.encode()), at_ms=at_ms)
    fate = [offset, due(1), "triggered", at_ms if said_ms is None else said_ms, control]
    cases.commit([offset, due(1), "stored"], fate, [control, 0, "applied"], at_ms=at_ms + 5, v=3)
    cases.answer(control, "triggered", offset, id, v=3)
    return control


def extra(cases: Cases, offset: int, control: int, at_ms: int, *, late_ms: int = 9, **changes: Any) -> None:
    """Adds the fate of an extra delivery, which completes its schedule unless `ends` is false."""
    number, next_ms, name = (changes.get(key, other) for key, other in (("m", 1), ("next_ms", 0), ("name", "extra")))
    fates = [[offset, due(1), name, control, number, at_ms, next_ms], [offset, due(1), "completed"]]
    cases.commit(*fates[: 2 if changes.get("ends", True) else 1], at_ms=at_ms + late_ms, v=3)


def _triggered(cases: Cases, offset: int, id: str, at_ms: int, **changes: Any) -> int:
    """Adds a schedule that has occurred twice, with a pending trigger. Returns the offset of the trigger."""
    ask(cases, offset, id, TWICE)
    for number, next_ms in ((1, None), (2, 0)):
        commit(cases, occurred(offset, number, next_ms))
        deliver(cases, offset, id, number, next_ms)
    return trigger(cases, offset, id, at_ms, **changes)


def _trigger_cases(cases: Cases) -> None:
    at_ms = due(2) + 500
    others: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
        "triggered": ("completed", "", {}, {}),
        "triggered, early": ("early", "committed at", {"late_ms": -1}, {}),
        "triggered, with another number": ("extra missing", "1 has no fate", {"m": 2}, {"m": 2}),
        "triggered, and another one follows": (
            "extra missing contradiction",
            "published as due",
            {"next_ms": at_ms + 1},
            {},
        ),
        "triggered, with another value": ("mismatch", "value", {}, {"value": b"other"}),
        "triggered, with a number of an occurrence": ("mismatch", "own headers", {}, {"occurrence": 3}),
        "triggered, with another due time": ("mismatch", "postdate-due", {}, {"due_ms": at_ms + 1}),
    }
    for name, (verdicts, detail, fate, record) in others.items():
        o = cases.case(name, verdicts, detail)
        control = _triggered(cases, o, "t1", at_ms)
        extra(cases, o, control, at_ms, **fate)
        deliver_extra(cases, o, "t1", control, **{"due_ms": at_ms, **record})
    o = cases.case("triggered from another time", "contradiction", "does not ask for it")
    control = _triggered(cases, o, "t2", at_ms, said_ms=at_ms - 1)
    extra(cases, o, control, at_ms - 1)
    deliver_extra(cases, o, "t2", control, due_ms=at_ms - 1)
    o = cases.case("an extra delivery without its record", "missing", "no record on orders")
    extra(cases, o, _triggered(cases, o, "t3", at_ms), at_ms)
    o = cases.case("an extra delivery without its fate", "extra missing contradiction", "and no fate")
    deliver_extra(cases, o, "t4", _triggered(cases, o, "t4", at_ms), due_ms=at_ms)
    cases.commit([o, due(1), "completed"], at_ms=at_ms + 9, v=3)
    o = cases.case("an extra delivery twice", "duplicate", "2 records")
    control = _triggered(cases, o, "t5", at_ms)
    extra(cases, o, control, at_ms)
    for _ in range(2):
        deliver_extra(cases, o, "t5", control, due_ms=at_ms)
    o = cases.case("an extra delivery decided twice", "duplicate contradiction", "decided again")
    control = _triggered(cases, o, "t6", at_ms)
    for ends in (False, True):
        extra(cases, o, control, at_ms, ends=ends)
    deliver_extra(cases, o, "t6", control, due_ms=at_ms)
    o = cases.case("an extra delivery that nobody asked for", "extra contradiction", "behind the last one")
    twice(cases, o, "t7")
    extra(cases, o, o + 1, at_ms, ends=False)
    deliver_extra(cases, o, "t7", o + 1, due_ms=at_ms)
    for name, verdicts, is_buried in (("with", "completed", True), ("without", "missing", False)):
        o = cases.case(f"an extra delivery that is dead {name} a dead letter", verdicts)
        extra(cases, o, _triggered(cases, o, "t8", at_ms), at_ms, name="extra-dead")
        if is_buried:
            cases.bury(o, TO_ORDERS, ("postdate-at", b"%d" % at_ms))


def _backfill(
    cases: Cases,
    offset: int,
    id: str,
    *,
    start: int = -3,
    end_ms: int = due(-1),
    said: tuple[int, int] | None = None,
    action: str = "backfill",
) -> int:
    """Adds a schedule that has occurred twice, and its backfill from `start` on. Returns the offset of the backfill.
    `said`: the first and last time in the fate `backfilled`, if they differ from the correct ones."""
    ask(cases, offset, id, TWICE)
    for number, next_ms in ((1, None), (2, 0)):
        commit(cases, occurred(offset, number, next_ms))
        deliver(cases, offset, id, number, next_ms)
    return _ask_backfill(cases, offset, id, start=start, end_ms=end_ms, said=said, action=action)


def _ask_backfill(
    cases: Cases,
    offset: int,
    id: str,
    *,
    start: int,
    end_ms: int,
    said: tuple[int, int] | None = None,
    action: str = "backfill",
) -> int:
    """Adds the backfill of a schedule, as the next request, and its effect. Returns the offset of the backfill."""
    at_ms, control = due(2) + 500, max(request[2] for request in cases.requests) + 1
    times = [("postdate-start", b"%d" % (due(start) - 1)), ("postdate-end", b"%d" % end_ms)]
    named = [("postdate-action", action.encode()), ("postdate-id", id.encode())]
    cases.ask(control, *named, *(times if action == "backfill" else []), at_ms=at_ms)
    fate = [offset, due(1), "backfilled", at_ms, control, *(said or (due(start), end_ms))]
    cases.commit([offset, due(1), "stored"], fate, [control, 0, "applied"], at_ms=at_ms + 5, v=3)
    cases.answer(control, "backfilled", offset, id, v=3)
    return control


def _fill(cases: Cases, offset: int, id: str, control: int, *numbers: int, until: int = -1, late_ms: int = 9) -> None:
    """Adds the deliveries of these nominal times by a backfill, which complete the schedule."""
    fates: list[list[Any]] = []
    for m, number in enumerate(numbers, 1):
        next_ms = due(numbers[m]) if m < len(numbers) else due(number + 1) if number < until else 0
        fates.append([offset, due(1), "extra", control, m, due(number), next_ms])
        deliver_extra(cases, offset, id, control, m=m, due_ms=due(number))
    cases.commit(*fates, [offset, due(1), "completed"], at_ms=due(2) + 500 + late_ms, v=3)


def _cases_of_two_runs(cases: Cases) -> None:
    """Adds cases of which a run reads only a part if it ends within "an occurrence decided twice"."""
    dead = cases.case("dead letters of a backfill ahead of their fates", "completed")
    control = _backfill(cases, dead, "f7")
    fates = [
        [dead, due(1), "extra-dead", control, m, due(m - 4), due(m - 3) if m < 3 else 0]  # from due(-3) to due(-1)
        for m in (1, 2, 3)
    ]
    cases.commit(fates[0], at_ms=due(2) + 509, v=3)
    for number in (-3, -2, -1):
        _bury(cases, dead, number)
    again = cases.case("a backfill of an occurrence that was skipped as dead", "completed")
    ask(cases, again, "f8", TWICE)
    cases.commit([again, due(1), "skipped", 1, 1, "dead", due(2)], at_ms=due(1) + 5, v=3)
    _bury(cases, again, 1)
    commit(cases, occurred(again, 2, 0))
    deliver(cases, again, "f8", 2, 0)
    control = _ask_backfill(cases, again, "f8", start=1, end_ms=due(2))
    o = cases.case("an occurrence decided twice", "duplicate", "1 is decided again")
    twice(cases, o, "b4")
    commit(cases, occurred(o, 1))
    cases.commit(*fates[1:], [dead, due(1), "completed"], at_ms=due(2) + 510, v=3)
    _fill(cases, again, "f8", control, 1, 2, until=2)


def _bury(cases: Cases, offset: int, number: int) -> None:
    """Adds the dead letter of an occurrence."""
    cases.bury(offset, TO_ORDERS, ("postdate-at", b"%d" % due(number)))


def _backfill_cases(cases: Cases) -> None:
    o = cases.case("backfilled", "completed")
    _fill(cases, o, "f1", _backfill(cases, o, "f1"), -3, -2, -1)
    for name, verdicts, numbers, said in (
        ("a time of a backfill is left out", "missing", (-3, -1), "passed over"),
        ("a backfill completes too early", "missing contradiction", (-3, -2), "completed, though"),
        ("a backfill goes on too long", "extra", (-3, -2, -1, 0), "is published as due"),
    ):
        o = cases.case(name, verdicts, said)
        _fill(cases, o, "f2", _backfill(cases, o, "f2"), *numbers)
    o = cases.case("backfilled, early", "early", "was committed at")
    _fill(cases, o, "f3", _backfill(cases, o, "f3"), -3, -2, -1, late_ms=-1)
    fates: dict[str, tuple[tuple[int, int], tuple[int, ...]]] = {
        "from a later time": ((due(-2), due(-1)), (-2, -1)),
        "from an earlier time": ((due(-4), due(-1)), (-4, -3, -2, -1)),
        "until another time": ((due(-3), due(-2)), (-3, -2)),
    }
    for name, (range_ms, left) in fates.items():
        o = cases.case(f"backfilled {name}", "contradiction", f"which asks for {due(-3)} to {due(-1)}")
        _fill(cases, o, "f4", _backfill(cases, o, "f4", said=range_ms), *left, until=left[-1])
    o = cases.case("backfilled by a trigger", "contradiction", "does not ask for it")
    _fill(cases, o, "f5", _backfill(cases, o, "f5", action="trigger"), -3, -2, -1)
    refused: dict[str, tuple[str, str, int]] = {
        "without times": ("missing-time", "dead", -1),
        "of times that have passed": ("missing-time", "false-refusal", 1),
        "that is readable": ("bad-time", "false-refusal", 1),
        "of times to come": ("bad-time", "dead", 9_999),
    }
    for name, (reason, verdict, end) in refused.items():
        o = cases.case(f"a backfill {name} is refused as {reason}", verdict)
        named = [("postdate-action", b"backfill"), ("postdate-id", b"f6")]
        times = [("postdate-start", b"%d" % due(-3)), ("postdate-end", b"%d" % due(end))] if end > 0 else []
        cases.ask(o, *named, *times, at_ms=due(2))
        cases.commit([o, 0, "dead"], at_ms=due(2) + 5)
        cases.bury(o, *named, *times, reason=reason.encode())
        cases.answer(o, "rejected", None, "f6")


def _answer_cases(cases: Cases) -> None:
    """Adds answers to controls of a schedule. The log lacks the fate of the control, or contradicts the answer."""
    words = {"pause": "paused", "resume": "resumed", "trigger": "triggered", "backfill": "backfilled"}
    times = ("postdate-start", b"%d" % due(-3)), ("postdate-end", b"%d" % due(-1))
    for action, word in words.items():
        for is_in_log, answer in ((False, word), (True, "not-found")):
            o = cases.case(
                f"{answer} to a {action}, {'with' if is_in_log else 'without'} its fate", "false-verdict", at=1
            )
            open_twice(cases, o, "g1")
            named = ("postdate-action", action.encode()), ("postdate-id", b"g1")
            cases.ask(o + 1, *named, *(times if action == "backfill" else ()), at_ms=due(1))
            fate = [o, due(1), word, due(1), o + 1, *((due(-3), due(-1)) if action == "backfill" else ())]
            cases.commit(
                *([fate] if is_in_log else []), [o + 1, 0, "applied"], at_ms=due(1) + 9, v=3 if is_in_log else 1
            )
            cases.answer(o + 1, answer, None if is_in_log else o, "g1", v=1 if is_in_log else 3)


def _nightly(cases: Cases, offset: int, id: str, next_ms: int) -> None:
    """Adds a schedule in Berlin that has occurred once, with this next time."""
    cron = ("postdate-cron", b"30 2 * * *"), ("postdate-zone", b"Europe/Berlin")
    cases.ask(offset, TO_ORDERS, *cron, ("postdate-id", id.encode()), at_ms=NIGHT - HOUR_MS)
    cases.commit([offset, NIGHT, "stored"])
    fate = occurred(offset, 1, next_ms, nominal_ms=NIGHT)
    commit(cases, [offset, NIGHT, *fate[2:]])
    deliver(cases, offset, id, 1, next_ms, nominal_ms=NIGHT)


def schedule_cases() -> Cases:
    """Returns all cases of schedules, in a separate history. Its second owner has other time zone rules than the
    audit."""
    cases = Cases()
    cases.commit(kind="owner", tz=tz_version())
    _ending_cases(cases)
    _occurrence_cases(cases)
    _cases_of_two_runs(cases)
    _skip_cases(cases)
    _control_cases(cases)
    o = cases.case("by the rules of a zone", "pending")
    _nightly(cases, o, "e1", NEXT_NIGHT)
    o = cases.case("against the rules of a zone", "extra", f"published as due {NEXT_NIGHT + 3_600_000}")
    _nightly(cases, o, "e2", NEXT_NIGHT + 3_600_000)
    cases.commit(kind="owner", takeover=2, tz="2020a")
    for name, next_ms in (("the same", NEXT_NIGHT), ("another", NEXT_NIGHT + 3_600_000)):
        o = cases.case(f"by other rules of a zone, {name} time", "zone-version", "occurrences: 1")
        _nightly(cases, o, "e3", next_ms)
    o = cases.case("by other rules, without a zone", "completed")
    twice(cases, o, "e4")
    return cases
