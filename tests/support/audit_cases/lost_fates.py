"""Cases of the audit's verdicts if the dispatch log has lost its first records: the lost fates may explain some cases
and cannot explain others. Each case has an early part, whose fates are lost, and a late part, which the log still has.
Some have a first part whose fates the log has as well, as if an earlier run with a state had read them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from postdate.spark.limits import COMMIT_MS_MAX
from support.audit_cases.lost_graces import LOST_MS, known_move_grace_cases, lost_grace_cases, refused_later_cases
from support.audit_cases.lost_starts import lost_start_cases
from support.audit_cases.schedules import EVERY, TWICE, commit, deliver, deliver_extra, due, occurred
from support.audit_cases.verdicts import DUE, HOUR_MS, TO_ORDERS, Cases, Expected, T
from support.audits.written_records import REQUESTS

_BEFORE, _ASKED_MS = T + 500, T + 300
_LATE_MS = due(2) + 500
LAST = "a schedule cancelled in bulk behind a lost trigger"
"""The last of the cases with a lost trigger."""
Part = Callable[[Cases, int], None]


def _ask(cases: Cases, offset: int, action: str, *more: tuple[str, bytes], at_ms: int = _ASKED_MS) -> None:
    cases.ask(offset, ("postdate-action", action.encode()), *more, at_ms=at_ms)


def _id(offset: int) -> bytes:
    return b"x%d-" % offset


def _named(offset: int) -> tuple[str, bytes]:
    return "postdate-id", _id(offset)


def _schedule(cases: Cases, o: int, *more: tuple[str, bytes]) -> None:
    cases.ask(o, TO_ORDERS, *(more or (EVERY, TWICE)), _named(o))
    cases.commit([o, due(1), "stored"], at_ms=_BEFORE)


def _triggered(cases: Cases, o: int, *name: tuple[str, bytes], action: str = "trigger", at_ms: int = _ASKED_MS) -> None:
    """Adds a schedule with a trigger, or another control, whose effect is lost."""
    _schedule(cases, o)
    _ask(cases, o + 1, action, *(name or (_named(o),)), at_ms=at_ms)


def _twice(cases: Cases, o: int) -> None:
    for number, next_ms in ((1, None), (2, 0)):
        commit(cases, occurred(o, number, next_ms))
        deliver(cases, o, _id(o).decode(), number, next_ms)


def _extra(cases: Cases, o: int, *, control: int = 1, **record: Any) -> None:
    """Adds the occurrences, and then the extra delivery, which completes the schedule."""
    _twice(cases, o)
    deliver_extra(cases, o, _id(o).decode(), o + control, **{"due_ms": _ASKED_MS, **record})
    fate = [o, due(1), "extra", o + control, 1, _ASKED_MS, 0]
    cases.commit(fate, [o, due(1), "completed"], at_ms=_LATE_MS, v=3)


def _backfilled(cases: Cases, o: int) -> None:
    """Adds a schedule with a backfill of three times, whose effect is lost."""
    _schedule(cases, o)
    times = ("postdate-start", b"%d" % due(-5)), ("postdate-end", b"%d" % due(-3))
    _ask(cases, o + 1, "backfill", _named(o), *times)


def _fill(cases: Cases, o: int) -> None:
    """Adds the occurrences, and the three deliveries of the backfill; the fate of the first is lost."""
    _twice(cases, o)
    for m in (1, 2, 3):
        deliver_extra(cases, o, _id(o).decode(), o + 1, m=m, due_ms=due(m - 6))
    fates = [[o, due(1), "extra", o + 1, m, due(m - 6), due(m - 5) if m < 3 else 0] for m in (2, 3)]
    cases.commit(*fates, [o, due(1), "completed"], at_ms=_LATE_MS, v=3)


def _left(cases: Cases, o: int) -> None:
    """Adds the occurrences of a schedule, which completes with the last occurrence. The fate of the extra delivery is
    lost as well."""
    deliver_extra(cases, o, _id(o).decode(), o + 1, due_ms=_ASKED_MS)
    commit(cases, occurred(o, 1))
    commit(cases, occurred(o, 2, 0), [o, due(1), "completed"])
    deliver(cases, o, _id(o).decode(), 1)
    deliver(cases, o, _id(o).decode(), 2, 0)


def _refused(cases: Cases, o: int) -> None:
    """Adds the refusal of the control, in a record that the log has."""
    cases.commit([o + 1, 0, "dead"], at_ms=LOST_MS)


def _applied(cases: Cases, o: int) -> None:
    """Adds the control's `applied` to a record that the log has, without an effect there."""
    cases.commit([o + 1, 0, "applied"], at_ms=LOST_MS)


def _then(*parts: Part) -> Part:
    def all_of_them(cases: Cases, o: int) -> None:
        for part in parts:
            part(cases, o)

    return all_of_them


def _extra_cases() -> list[tuple[str, str, Part, Part]]:
    extra, nobody = _extra, "extra contradiction"

    def by_origin(cases: Cases, o: int) -> None:
        _triggered(cases, o, ("postdate-origin", f"{REQUESTS}/0/{o}".encode()))

    def of_another(cases: Cases, o: int) -> None:
        _triggered(cases, o, ("postdate-id", b"another"))

    return [
        ("a lost trigger", "unsettled", _triggered, extra),
        ("a lost trigger by origin", "unsettled", by_origin, extra),
        ("a lost trigger and its delivery", "unsettled", _triggered, _left),
        ("a lost trigger, another value", "unsettled mismatch", _triggered, partial(extra, value=b"other")),
        ("a lost backfill, and its first delivery", "unsettled", _backfilled, _fill),
        ("a trigger behind the losses without a fate", nobody, partial(_triggered, at_ms=LOST_MS), extra),
        ("a trigger that was applied without a fate", nobody, _triggered, _then(_applied, extra)),
        ("a trigger of another schedule", nobody, of_another, extra),
        ("no trigger but a lost pause", f"{nobody} unsettled", partial(_triggered, action="pause"), extra),
        ("a trigger that does not exist", nobody, _triggered, partial(extra, control=2)),
        ("without its lost fate, of an applied trigger", "extra", _triggered, _then(_applied, _left)),
    ]


def _message(cases: Cases, o: int) -> None:
    cases.schedule(o, _id(o))


def _moved(cases: Cases, o: int, *name: tuple[str, bytes], at_ms: int = T) -> None:
    """Adds a message with a reschedule whose effect is lost."""
    _message(cases, o)
    _move(cases, o, *name, at_ms=at_ms)


def _move(
    cases: Cases, o: int, *name: tuple[str, bytes], delay: bytes = b"3s", grace: bytes = b"", at_ms: int = T
) -> None:
    more = [("postdate-grace", grace)] if grace else []
    _ask(cases, o + 1, "reschedule", *(name or (_named(o),)), ("postdate-delay", delay), *more, at_ms=at_ms)


def _moved_in_bulk(cases: Cases, o: int, *, of: int = 0) -> None:
    """Adds a message, and a bulk reschedule that selects the ids of the case `of` places before this one."""
    _message(cases, o)
    _ask(cases, o + 1, "reschedule", ("postdate-by", b"2s"), ("postdate-select-id", _id(o - of * 10)))


def _select(cases: Cases, o: int, from_ms: int, *action: tuple[str, bytes], prefix: bytes = b"") -> None:
    times = ("postdate-select-from", b"%d" % from_ms), ("postdate-select-until", b"%d" % (from_ms + 1))
    cases.ask(o + 2, *(action or (("postdate-action", b"cancel"),)), *times, ("postdate-select-id", prefix or _id(o)))
    cases.commit([o + 2, 0, "swept", 0], at_ms=LOST_MS, v=2)


def _cancel(cases: Cases, o: int, *, from_ms: int = T + 3_000, prefix: bytes = b"") -> None:
    """Adds a bulk cancel that has cancelled the message. It selects ids with `prefix` that are due at `from_ms`."""
    _select(cases, o, from_ms, prefix=prefix)
    cases.commit([o, DUE, "cancelled", o + 2], [o + 2, 0, "applied", 1], at_ms=due(2) + 900, v=2)


def _move_on(cases: Cases, o: int, *, from_ms: int = T + 3_000, prefix: bytes = b"") -> None:
    """Moves the message in bulk from three to five seconds, and delivers it. `from_ms` and `prefix` are the
    selectors."""
    _select(cases, o, from_ms, ("postdate-action", b"reschedule"), ("postdate-by", b"2s"), prefix=prefix)
    cases.commit([o, DUE, "moved", T + 5_000, o + 2], [o + 2, 0, "applied", 1], at_ms=T + 2_500, v=2)
    cases.commit([o, DUE, "delivered"], at_ms=T + 5_005)
    cases.deliver(o, due_ms=T + 5_000, id=_id(o))


def _bulk_cases() -> list[tuple[str, str, Part, Part]]:
    wrong, other = "contradiction", ("postdate-id", b"another")

    def of_another(cases: Cases, o: int) -> None:
        _moved(cases, o, other)

    def often(cases: Cases, o: int) -> None:
        cases.ask(o, TO_ORDERS, ("postdate-every", b"100ms"), _named(o))

    def cancel_often(cases: Cases, o: int, *, from_ms: int = LOST_MS, prefix: bytes = b"") -> None:
        _select(cases, o, from_ms, prefix=prefix)
        cases.commit([o, T + 100, "cancelled", o + 2], [o + 2, 0, "applied", 1], at_ms=LOST_MS + 110, v=2)

    def occur(cases: Cases, o: int) -> None:
        cases.commit([o, T + 100, "occurred", 8, LOST_MS, LOST_MS + 100], at_ms=LOST_MS + 5, v=3)
        deliver(cases, o, _id(o).decode(), 8, LOST_MS + 100, nominal_ms=LOST_MS)

    at_trigger = partial(_cancel, from_ms=_ASKED_MS)
    return [
        ("cancelled in bulk behind a lost move", "unsettled", _moved, _cancel),
        ("cancelled in bulk behind a lost move in bulk", "unsettled", _moved_in_bulk, _then(_applied, _cancel)),
        ("cancelled in bulk behind a move in bulk that is lost", "unsettled", _moved_in_bulk, _cancel),
        ("moved in bulk behind a lost move", "unsettled", _moved, _move_on),
        ("moved in bulk behind a move in bulk that is lost", "unsettled", _moved_in_bulk, _move_on),
        ("cancelled in bulk and never moved", wrong, _message, _cancel),
        ("moved in bulk and never before", wrong, _message, _move_on),
        ("cancelled in bulk, moved behind the losses", wrong, partial(_moved, at_ms=LOST_MS), _cancel),
        ("cancelled in bulk, a move was applied without a fate", wrong, _moved, _then(_applied, _cancel)),
        ("cancelled in bulk, another was moved", wrong, of_another, _cancel),
        ("cancelled in bulk, others were moved in bulk", wrong, partial(_moved_in_bulk, of=1), _cancel),
        ("a schedule cancelled in bulk behind lost occurrences", "unsettled", often, cancel_often),
        (
            "a schedule cancelled in bulk at a lost time",
            "unsettled contradiction",
            often,
            _then(occur, partial(cancel_often, from_ms=T + 100)),
        ),
        (LAST, "unsettled", _triggered, _then(_twice, at_trigger)),
        (
            "a schedule cancelled in bulk behind an applied trigger",
            wrong,
            _triggered,
            _then(_applied, _twice, at_trigger),
        ),
        ("cancelled in bulk behind a lost move, not selected", wrong, _moved, partial(_cancel, prefix=b"none")),
        ("moved in bulk behind a lost move, not selected", wrong, _moved, partial(_move_on, prefix=b"none")),
        ("moved in bulk behind a lost move, by other times", wrong, _moved, partial(_move_on, from_ms=T + 4_000)),
        ("cancelled in bulk behind a refused move in bulk", wrong, _moved_in_bulk, _then(_refused, _cancel)),
        ("a schedule cancelled in bulk, not selected", wrong, often, partial(cancel_often, prefix=b"none")),
    ]


def _arrive(
    cases: Cases, o: int, *, due_ms: int = T + 3_000, late_ms: int = 5, first_ms: int = DUE, **record: Any
) -> None:
    """Delivers the message for this due time."""
    cases.commit([o, first_ms, "delivered"], at_ms=due_ms + late_ms)
    cases.deliver(o, due_ms=due_ms, id=_id(o), **record)


def _move_cases() -> list[tuple[str, str, Part, Part]]:
    arrive, other = _arrive, ("postdate-id", b"another")
    at_once = partial(_arrive, due_ms=T + 900)

    def by_origin(cases: Cases, o: int) -> None:
        _moved(cases, o, ("postdate-origin", f"{REQUESTS}/0/{o}".encode()))

    def twice_in_bulk(cases: Cases, o: int) -> None:
        _moved_in_bulk(cases, o)
        _ask(cases, o + 2, "reschedule", ("postdate-by", b"2s"), ("postdate-select-id", _id(o)))

    def earlier(cases: Cases, o: int) -> None:
        _message(cases, o)
        _move(cases, o, delay=b"900ms")

    def record_alone(cases: Cases, o: int) -> None:
        cases.deliver(o, due_ms=T + 3_000, id=_id(o))

    def of_another(cases: Cases, o: int) -> None:
        _moved(cases, o, other)

    later = partial(_arrive, due_ms=T + 4_000)
    return [
        ("delivered behind a lost move", "unsettled", _moved, arrive),
        ("delivered behind a lost move by origin", "unsettled", by_origin, arrive),
        ("delivered behind a lost move in bulk", "unsettled", _moved_in_bulk, arrive),
        ("delivered behind a lost move in bulk that has ended", "unsettled", _moved_in_bulk, _then(_applied, arrive)),
        ("delivered behind two lost moves in bulk", "unsettled", twice_in_bulk, partial(arrive, due_ms=T + 5_000)),
        ("delivered earlier behind a lost move", "unsettled", earlier, at_once),
        ("delivered behind a lost move in a lost fate", "unsettled", _moved, record_alone),
        ("delivered on time though a move is lost", "delivered", _moved, partial(arrive, due_ms=DUE)),
        ("delivered, others were moved in bulk", "mismatch", partial(_moved_in_bulk, of=1), arrive),
        ("delivered for another time and never moved", "mismatch", _message, arrive),
        ("delivered earlier and never moved", "mismatch early", _message, at_once),
        ("delivered, moved behind the losses", "mismatch", partial(_moved, at_ms=LOST_MS), arrive),
        ("delivered, a move was applied without a fate", "mismatch", _moved, _then(_applied, arrive)),
        ("delivered, another was moved", "mismatch", of_another, arrive),
        ("delivered, a move in bulk was refused", "mismatch", _moved_in_bulk, _then(_refused, arrive)),
        ("delivered for another time than the lost move's", "mismatch", _moved, later),
        ("delivered for another time than that of the move in bulk", "mismatch", _moved_in_bulk, later),
        ("delivered for the time between two moves in bulk", "mismatch", twice_in_bulk, later),
        ("delivered early behind a lost move", "unsettled early", _moved, partial(arrive, late_ms=-1)),
        ("delivered behind a lost move, another value", "unsettled mismatch", _moved, partial(arrive, value=b"other")),
    ]


def _known_move_cases() -> list[tuple[str, str, Part, Part, Part]]:
    wrong = "contradiction"

    def moved(cases: Cases, o: int, *, by: int = 1, grace: bytes = b"") -> None:
        """Adds a message that the control `by` offsets later has moved to three seconds."""
        cases.schedule(o, _id(o))
        more = [("postdate-grace", grace)] if grace else []
        time = ("postdate-at", b"%d" % (T + 3_000))
        _ask(cases, o + by, "reschedule", _named(o), time, *more, at_ms=T + by)
        cases.commit([o, DUE, "moved", T + 3_000, o + by], [o + by, 0, "applied"], at_ms=_BEFORE)

    def lost_move(cases: Cases, o: int, *, by: int = 2, at_ms: int = _ASKED_MS, grace: bytes = b"") -> None:
        more = [("postdate-grace", grace)] if grace else []
        time = ("postdate-at", b"%d" % (T + 5_000))
        _ask(cases, o + by, "reschedule", _named(o), time, *more, at_ms=at_ms)

    def cancel(cases: Cases, o: int) -> None:
        """Adds a bulk cancel of messages due at five seconds."""
        times = ("postdate-select-from", b"%d" % (T + 5_000)), ("postdate-select-until", b"%d" % (T + 5_001))
        cases.ask(o + 3, ("postdate-action", b"cancel"), *times, ("postdate-select-id", _id(o)))
        cases.commit([o + 3, 0, "swept", 0], at_ms=LOST_MS, v=2)
        cases.commit([o, DUE, "cancelled", o + 3], [o + 3, 0, "applied", 1], at_ms=due(2) + 900, v=2)

    def move_on(cases: Cases, o: int) -> None:
        """Adds a bulk reschedule from five to seven seconds."""
        cases.ask(o + 3, ("postdate-action", b"reschedule"), ("postdate-by", b"2s"), ("postdate-select-id", _id(o)))
        cases.commit([o + 3, 0, "swept", 0], at_ms=LOST_MS, v=2)
        cases.commit([o, DUE, "moved", T + 7_000, o + 3], [o + 3, 0, "applied", 1], at_ms=T + 2_500, v=2)
        _arrive(cases, o, due_ms=T + 7_000)

    arrive, known = partial(_arrive, due_ms=T + 5_000), partial(_arrive, due_ms=T + 3_000)
    late = partial(arrive, late_ms=COMMIT_MS_MAX + 1_001)
    superseded, before = partial(moved, by=2), partial(lost_move, by=1, at_ms=T + 1)
    later = partial(lost_move, at_ms=LOST_MS)
    return [
        ("delivered behind a known and a lost move", "unsettled", moved, lost_move, arrive),
        ("delivered by a known move though one is lost", "delivered", moved, lost_move, known),
        ("delivered by a lost move before a known one", "mismatch", superseded, before, arrive),
        ("delivered behind a known move, moved behind the losses", "mismatch", moved, later, arrive),
        ("cancelled in bulk behind a known and a lost move", "unsettled", moved, lost_move, cancel),
        ("cancelled in bulk behind a lost move before a known one", wrong, superseded, before, cancel),
        ("moved in bulk behind a known and a lost move", "unsettled", moved, lost_move, move_on),
        ("moved in bulk behind a lost move before a known one", wrong, superseded, before, move_on),
        (
            "delivered in the grace of a lost move behind a known one",
            "unsettled",
            partial(moved, grace=b"1s"),
            partial(lost_move, grace=b"2s"),
            late,
        ),
        (
            "delivered behind the grace of a lost move behind a known one",
            "unsettled past-grace",
            partial(moved, grace=b"2s"),
            partial(lost_move, grace=b"1s"),
            late,
        ),
    ]


def _drop_cases() -> list[tuple[str, str, Part, Part]]:
    """Returns cases with the verdicts on the survivor; `_SECOND` has those on the request that was dropped for it."""
    drop = ("postdate-if-ended", b"drop")

    def pair(cases: Cases, o: int, *, at_ms: int = T, later_ms: int = _ASKED_MS, first: bool = True) -> None:
        headers = [("postdate-delay", b"100ms"), _named(o)]
        cases.ask(o, TO_ORDERS, *headers, *([drop] if first else []), at_ms=at_ms)
        cases.ask(o + 1, TO_ORDERS, *headers, drop, at_ms=later_ms)

    def ended(cases: Cases, o: int, *, at_ms: int = LOST_MS, later_ms: int = _ASKED_MS, is_sent: bool = True) -> None:
        """Ends the pair; the fate of the delivery is lost."""
        if is_sent:
            cases.deliver(o, id=_id(o), due_ms=T + 100)
        cases.commit([o + 1, later_ms + 100, "dropped", o], at_ms=at_ms, v=2)

    day_ms = LOST_MS + 24 * HOUR_MS
    return [
        ("dropped for a lost delivery", "unsettled", pair, ended),
        (
            "dropped for one behind the losses",
            "missing",
            partial(pair, at_ms=LOST_MS, later_ms=LOST_MS),
            partial(ended, later_ms=LOST_MS, is_sent=False),
        ),
        ("dropped for a lost one without the header", "unsettled", partial(pair, first=False), ended),
        (
            "dropped at the end of the window of a lost delivery",
            "unsettled",
            partial(pair, later_ms=day_ms - 1),
            partial(ended, at_ms=day_ms, later_ms=day_ms - 1),
        ),
        (
            "dropped behind the window of a lost delivery",
            "unsettled",
            partial(pair, later_ms=day_ms),
            partial(ended, at_ms=day_ms, later_ms=day_ms),
        ),
    ]


def _series_cases() -> list[tuple[str, str, Part, Part]]:
    """Returns cases of two or three requests of a series; the fate `replaced` of the first, with the start, is lost.
    `_SECOND` has the verdicts on the second."""
    latest = ("postdate-latest", b"900ms")

    def two(cases: Cases, o: int, *, at_ms: int = _ASKED_MS) -> None:
        for offset, asked_ms in ((o, T), (o + 1, at_ms)):
            cases.ask(offset, TO_ORDERS, ("postdate-delay", b"1s"), _named(o), latest, at_ms=asked_ms)

    def arrive(cases: Cases, o: int, *, due_ms: int = T + 900) -> None:
        cases.commit([o + 1, due_ms, "delivered"], at_ms=due_ms + 5)
        cases.deliver(o + 1, due_ms=due_ms, id=_id(o))

    def three(cases: Cases, o: int) -> None:
        two(cases, o)
        cases.ask(o + 2, TO_ORDERS, ("postdate-delay", b"1s"), _named(o), latest, at_ms=_ASKED_MS)

    def go_on(cases: Cases, o: int, *, start_ms: int = T, due_ms: int = T + 900) -> None:
        cases.commit([o + 1, due_ms, "replaced", o + 2, start_ms], [o + 2, due_ms, "delivered"], at_ms=due_ms, v=2)
        cases.deliver(o + 2, due_ms=due_ms, id=_id(o))

    return [
        ("of a longer series whose start is lost", "unsettled", three, go_on),
        (
            "of a longer series with a start behind it",
            "unsettled",
            three,
            partial(go_on, start_ms=_ASKED_MS + 100, due_ms=_ASKED_MS + 900),
        ),
        ("of a series whose start is lost", "unsettled", two, arrive),
        ("of a series whose start is lost, by its own time", "unsettled", two, partial(arrive, due_ms=T + 1_200)),
        ("of a series behind the losses", "unsettled", partial(two, at_ms=LOST_MS), arrive),
    ]


def _answer_cases() -> list[tuple[str, str, Part, Part]]:
    """Returns cases of an answer that depends on a lost fate. If a control was answered, `_SECOND` has the verdict on
    it."""

    def answered(cases: Cases, o: int, *, at_ms: int = T) -> None:
        cases.ask(o, TO_ORDERS, ("postdate-delay", b"1s"), _named(o), at_ms=at_ms)
        cases.answer(o, "accepted", None, _id(o).decode())

    def control(
        cases: Cases, o: int, word: str, *, of: bool = False, action: str = "cancel", far: bool = False
    ) -> None:
        cases.ask(o, TO_ORDERS, ("postdate-delay", b"2h" if far else b"100ms"), _named(o))
        time = [("postdate-delay", b"3h")] if action == "reschedule" else []
        _ask(cases, o + 1, action, _named(o), *time, at_ms=LOST_MS)
        cases.answer(o + 1, word, o if of else None, _id(o).decode())

    def gone(cases: Cases, o: int) -> None:
        """Ends a message whose fate is lost; the log has the fate of the control."""
        cases.deliver(o, id=_id(o), due_ms=T + 100)
        _applied(cases, o)

    def replaced(cases: Cases, o: int) -> None:
        for offset in (o, o + 1):
            cases.schedule(offset, _id(o))
        cases.answer(o + 1, "replaced", o, _id(o).decode())

    def deliver_second(cases: Cases, o: int) -> None:
        cases.commit([o + 1, DUE, "delivered"])
        cases.deliver(o + 1, id=_id(o))

    arrive = partial(_arrive, due_ms=DUE)
    behind = partial(_arrive, due_ms=LOST_MS + 1_000, first_ms=LOST_MS + 1_000)
    return [
        ("accepted by a lost fate", "unsettled", answered, arrive),
        ("accepted behind the losses without a fate", "false-verdict", partial(answered, at_ms=LOST_MS), behind),
        ("too late for a lost end", "unsettled", partial(control, word="too-late"), gone),
        ("too late for a lost end by its origin", "unsettled", partial(control, word="too-late", of=True), gone),
        ("not found behind a lost end", "unsettled", partial(control, word="not-found"), gone),
        ("not found, though nothing has ended", "pending", partial(control, word="not-found", far=True), _applied),
        (
            "said to be rescheduled by an applied control",
            "pending",
            partial(control, word="rescheduled", of=True, action="reschedule", far=True),
            _applied,
        ),
        (
            "said to be cancelled by an applied control",
            "pending",
            partial(control, word="cancelled", of=True, far=True),
            _applied,
        ),
        ("replaced by a lost fate", "unsettled", replaced, deliver_second),
    ]


def _grace_cases() -> list[tuple[str, str, Part, Part]]:
    in_an_hour = T + HOUR_MS

    def far(cases: Cases, o: int, *, is_moved: bool = True, grace: bytes = b"") -> None:
        """Adds a message due in an hour with a grace of a second, which is moved to 900 ms."""
        cases.ask(o, TO_ORDERS, ("postdate-delay", b"1h"), ("postdate-grace", b"1s"), _named(o))
        if is_moved:
            _move(cases, o, delay=b"900ms", grace=grace)

    def die(cases: Cases, o: int, *, at_ms: int = T + 905, reason: bytes = b"unknown-target") -> None:
        cases.commit([o, in_an_hour, "dead"], at_ms=at_ms)
        asked = ("postdate-delay", b"1h"), ("postdate-grace", b"1s")
        cases.bury(o, TO_ORDERS, *asked, _named(o), reason=reason)

    unmoved, expire = partial(far, is_moved=False), partial(die, at_ms=T + 1_901, reason=b"expired")
    in_grace = partial(die, at_ms=T + 1_900, reason=b"expired")
    late = partial(_arrive, due_ms=T + 900, first_ms=in_an_hour, late_ms=COMMIT_MS_MAX + 1_001)
    return [
        ("dead behind a lost move", "unsettled", far, die),
        ("dead and never moved", "early", unmoved, die),
        ("dead before its lost move", "early", far, partial(die, at_ms=T + 899)),
        ("expired behind a lost move", "unsettled", far, expire),
        ("expired and never moved", "contradiction", unmoved, expire),
        ("expired in the grace of its lost move", "unsettled contradiction", far, in_grace),
        ("delivered in the grace of its lost move", "unsettled", partial(far, grace=b"2s"), late),
        ("delivered behind the grace with a lost move", "unsettled past-grace", far, late),
    ]


def _pause_cases() -> list[tuple[str, str, Part, Part]]:
    wrong = "wrong-skip"

    def paused(cases: Cases, o: int, *name: tuple[str, bytes], at_ms: int = _ASKED_MS) -> None:
        _triggered(cases, o, *name, action="pause", at_ms=at_ms)
        _ask(cases, o + 2, "resume", _named(o), at_ms=T + 1_500)

    def resume(cases: Cases, o: int, *, reason: str = "paused") -> None:
        """Adds a resume in the log, which skips the first occurrence; the second one completes the schedule."""
        cases.commit([o, due(1), "resumed", T + 1_500, o + 2], [o + 2, 0, "applied"], at_ms=T + 1_600, v=3)
        commit(cases, [o, due(1), "skipped", 1, 1, reason, due(2)], at_ms=T + 1_605)
        commit(cases, occurred(o, 2, 0), [o, due(1), "completed"])
        deliver(cases, o, _id(o).decode(), 2, 0)

    def twice(cases: Cases, o: int) -> None:
        """Delivers both occurrences, the first one before the resume."""
        commit(cases, occurred(o, 1))
        cases.commit([o, due(1), "resumed", T + 1_500, o + 2], [o + 2, 0, "applied"], at_ms=T + 1_600, v=3)
        commit(cases, occurred(o, 2, 0), [o, due(1), "completed"])
        deliver(cases, o, _id(o).decode(), 1)
        deliver(cases, o, _id(o).decode(), 2, 0)

    def by_origin(cases: Cases, o: int) -> None:
        paused(cases, o, ("postdate-origin", f"{REQUESTS}/0/{o}".encode()))

    def of_another(cases: Cases, o: int) -> None:
        paused(cases, o, ("postdate-id", b"another"))

    return [
        ("skipped in a lost pause", "unsettled", paused, resume),
        ("skipped in a lost pause by origin", "unsettled", by_origin, resume),
        ("skipped, paused behind the losses", wrong, partial(paused, at_ms=LOST_MS), resume),
        ("skipped, a pause was applied without a fate", wrong, paused, _then(_applied, resume)),
        ("skipped, another was paused", wrong, of_another, resume),
        ("skipped for another reason than its lost pause", wrong, paused, partial(resume, reason="missed")),
        ("delivered in a lost pause", "unsettled", paused, twice),
        ("delivered, a pause was applied without a fate", "completed", paused, _then(_applied, twice)),
    ]


_SECOND = {
    "a lost trigger": "unsettled",
    "a trigger behind the losses without a fate": "missing",
    "a trigger that was applied without a fate": "applied",
    "dropped for a lost delivery": "unsettled",
    "dropped for one behind the losses": "contradiction",
    "dropped for a lost one without the header": "contradiction",
    "dropped at the end of the window of a lost delivery": "unsettled",
    "dropped behind the window of a lost delivery": "contradiction",
    "of a longer series whose start is lost": "unsettled",
    "of a longer series with a start behind it": "contradiction",
    "of a series whose start is lost": "unsettled",
    "of a series whose start is lost, by its own time": "delivered",
    "of a series behind the losses": "contradiction",
    "too late for a lost end": "unsettled",
    "too late for a lost end by its origin": "unsettled",
    "not found behind a lost end": "unsettled",
    "not found, though nothing has ended": "unsettled",
    "said to be rescheduled by an applied control": "false-verdict",
    "said to be cancelled by an applied control": "false-verdict",
    "replaced by a lost fate": "unsettled",
    "kept, and its survivor delivered": "false-verdict",
}
"""The verdicts on the second request of each case."""


def lost_fate_cases() -> Cases:
    """Returns all cases in one history, whose log begins at LOST_MS except for the first parts."""
    cases, early, late = Cases(), [], []
    for name, verdicts, first, early_part, late_part in (*_known_move_cases(), *known_move_grace_cases()):
        o = cases.case(name, verdicts)
        first(cases, o)
        early.append((early_part, o))
        late.append((late_part, o))
    kept = len(cases.log)
    for part, o in early:
        part(cases, o)
    for name, verdicts, early_part, late_part in (
        *_pause_cases(),
        *lost_start_cases(),
        *_move_cases(),
        *(*_grace_cases(), *lost_grace_cases(), *refused_later_cases()),
        *_drop_cases(),
        *_series_cases(),
        *_answer_cases(),
        *_extra_cases(),
        *_bulk_cases(),
    ):
        o = cases.case(name, verdicts)
        early_part(cases, o)
        late.append((late_part, o))
    lost = len(cases.log)
    for part, o in late:
        part(cases, o)
    cases.log = [*cases.log[:kept], *cases.log[lost:]]
    for name, verdict in _SECOND.items():
        cases.expected[f"{name}: the second"] = Expected(cases.expected[name].offset + 1, {verdict})
    return cases
