"""Cases of the audit's verdicts on graces and windows if the fate of the deciding reschedule may be lost, and on
requests that another owner refused after lost fates.

`lost_fate_cases` adds them to its history, and explains their parts. All messages are due at DUE.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from postdate.spark.limits import COMMIT_MS_MAX
from support.audit_cases.schedules import deliver
from support.audit_cases.verdicts import DUE, TO_ORDERS, Cases, T

LOST_MS = T + 800
"""The time of the first record that the log still has."""
_ASKED_MS, _BEFORE_MS, _MOVED = T + 300, T + 500, T + 3_000
_DELAY, _WINDOW = ("postdate-delay", b"1s"), ("postdate-window", b"2s")
Part = Callable[[Cases, int], None]


def _name(offset: int) -> str:
    return f"g{offset}-"


def _headers(offset: int, *more: tuple[str, bytes]) -> list[tuple[str, bytes]]:
    return [TO_ORDERS, _DELAY, ("postdate-id", _name(offset).encode()), *more]


def _grace(grace: bytes) -> tuple[str, bytes]:
    return "postdate-grace", grace


def _move(cases: Cases, o: int, *, due_ms: int = DUE, grace: bytes = b"", by: int = 1) -> None:
    named, more = ("postdate-id", _name(o).encode()), [_grace(grace)] if grace else []
    time = ("postdate-at", b"%d" % due_ms)
    cases.ask(o + by, ("postdate-action", b"reschedule"), named, time, *more, at_ms=_ASKED_MS)


def _ask(cases: Cases, o: int, *more: tuple[str, bytes], moves: tuple[tuple[int, bytes], ...] = ()) -> None:
    """Adds a message, and reschedules with these due times and graces. The fates of the reschedules are lost."""
    cases.ask(o, *_headers(o, *more))
    for number, (due_ms, grace) in enumerate(moves):
        _move(cases, o, due_ms=due_ms, grace=grace, by=number + 1)


def _arrive(cases: Cases, o: int, *, due_ms: int = DUE, late_ms: int, is_sent: bool = True) -> None:
    """Delivers a message `late_ms` after its due time and the longest transaction."""
    cases.commit([o, DUE, "delivered"], at_ms=due_ms + COMMIT_MS_MAX + late_ms)
    if is_sent:
        cases.deliver(o, due_ms=due_ms, id=_name(o).encode())


def _die(
    cases: Cases, o: int, *more: tuple[str, bytes], at_ms: int, chosen_ms: int = 0, reason: bytes = b"expired"
) -> None:
    cases.commit([o, DUE, "dead", *([chosen_ms] if chosen_ms else [])], at_ms=at_ms, v=2 if chosen_ms else 1)
    cases.bury(o, *_headers(o, *more), reason=reason)


def lost_grace_cases() -> list[tuple[str, str, Part, Part]]:
    """Returns the name, the verdicts and the two parts of each case."""
    same, wider, narrower = ((DUE, b"1s"),), ((DUE, b"2s"),), ((DUE, b"100ms"),)
    later, twice, missing = ((_MOVED, b""),), ((_MOVED, b"1s"), (_MOVED, b"3s")), "missing contradiction"
    window = _WINDOW, _grace(b"1s")
    chosen_ms, far_ms = DUE + 1_500, _MOVED + 2_000

    def ask(*more: tuple[str, bytes], moves: tuple[tuple[int, bytes], ...] = ()) -> Part:
        return lambda cases, o: _ask(cases, o, *more, moves=moves)

    def expire(*more: tuple[str, bytes], late_ms: int, chosen_ms: int = 0) -> Part:
        return lambda cases, o: _die(cases, o, *more, at_ms=(chosen_ms or DUE) + late_ms, chosen_ms=chosen_ms)

    def die(chosen_ms: int) -> Part:
        return lambda cases, o: _die(cases, o, _WINDOW, at_ms=far_ms + 5, chosen_ms=chosen_ms, reason=b"unknown-target")

    late, none, once = partial(_arrive, late_ms=1_001), ask(_grace(b"0")), ask(_grace(b"0"), moves=later)
    gone = partial(_arrive, due_ms=_MOVED, late_ms=0, is_sent=False)
    second, two = ask(_grace(b"1s")), ask(moves=twice)
    to_wider, to_same = (ask(_grace(b"1s"), moves=moves) for moves in (wider, same))
    expires, in_window, far = ask(moves=narrower), ask(*window, moves=narrower), ask(_WINDOW, moves=later)
    at_end = partial(_arrive, due_ms=_MOVED, late_ms=3_000)
    behind = partial(_arrive, due_ms=_MOVED, late_ms=3_001)
    in_chosen, behind_chosen = (expire(*window, late_ms=late_ms, chosen_ms=chosen_ms) for late_ms in (100, 101))
    return [
        ("late in the grace of a lost move to its time", "unsettled", to_wider, late),
        ("late behind the grace of a lost move to its time", "past-grace", to_same, late),
        ("late and never moved", "past-grace", second, late),
        ("late behind a lost move, without a record", f"{missing} unsettled", once, gone),
        ("late without a record, and never moved", f"{missing} past-grace", none, gone),
        ("expired by the grace of a lost move to its time", "unsettled", expires, expire(late_ms=101)),
        ("expired in the grace of a lost move to its time", "contradiction", expires, expire(late_ms=100)),
        ("expired behind its chosen time by a lost grace", "unsettled", in_window, behind_chosen),
        ("expired behind its chosen time in a lost grace", "contradiction", in_window, in_chosen),
        ("late in the second grace of two lost moves", "unsettled", two, at_end),
        ("late behind the graces of two lost moves", "unsettled past-grace", two, behind),
        ("dead in the window of a lost move", "unsettled", far, die(far_ms)),
        ("dead behind the window of a lost move", "unsettled mismatch", far, die(far_ms + 1)),
        ("dead behind its window, and never moved", "mismatch", ask(_WINDOW), die(far_ms)),
    ]


def known_move_grace_cases() -> list[tuple[str, str, Part, Part, Part]]:
    """Returns cases with a first part, a reschedule to _MOVED whose fates the log has. An earlier, lost reschedule gave
    a grace. The known one keeps that grace unless it gives one, too."""

    def moved(cases: Cases, o: int, *, grace: bytes = b"") -> None:
        cases.ask(o, *_headers(o, _grace(b"1s")))
        _move(cases, o, due_ms=_MOVED, grace=grace, by=2)
        cases.commit([o, DUE, "moved", _MOVED, o + 2], [o + 2, 0, "applied"], at_ms=_BEFORE_MS)

    def twice(cases: Cases, o: int) -> None:
        _move(cases, o, grace=b"5s")
        _move(cases, o, due_ms=_MOVED + 1_000, by=3)

    lost, late = partial(_move, grace=b"5s"), partial(_arrive, due_ms=_MOVED, late_ms=5_000)
    last = partial(_arrive, due_ms=_MOVED + 1_000, late_ms=5_000)
    return [
        ("late in the grace of a lost move before a known one", "unsettled", moved, lost, late),
        ("late behind that grace", "past-grace", moved, lost, partial(_arrive, due_ms=_MOVED, late_ms=5_001)),
        ("late behind the grace of a known move", "past-grace", partial(moved, grace=b"1s"), lost, late),
        ("late in the grace of a lost move, a known and a lost one", "unsettled", moved, twice, last),
        (
            "late behind the grace of a known move between lost ones",
            "unsettled past-grace",
            *(partial(moved, grace=b"1s"), twice, last),
        ),
    ]


def refused_later_cases() -> list[tuple[str, str, Part, Part]]:
    """Returns cases of a request that one owner accepted in a lost fate, and that another owner refused later."""
    every = ("postdate-every", b"100ms")

    def accepted(cases: Cases, o: int, *more: tuple[str, bytes], at_ms: int = T) -> None:
        cases.ask(o, *_headers(o, *more), at_ms=at_ms)
        cases.answer(o, "accepted", None, _name(o))

    def refuse(cases: Cases, o: int) -> None:
        cases.commit([o, 0, "dead"], at_ms=LOST_MS)
        cases.bury(o, *_headers(o), reason=b"forbidden-target")

    def keep(cases: Cases, o: int) -> None:
        named = _headers(o)
        cases.ask(o, *named)
        cases.ask(o + 1, *named, ("postdate-if-pending", b"keep"))
        cases.answer(o + 1, "accepted", None, _name(o))

    def kept(cases: Cases, o: int) -> None:
        cases.commit([o + 1, DUE, "kept", o], at_ms=LOST_MS, v=2)
        cases.commit([o, DUE, "delivered"])
        cases.deliver(o, id=_name(o).encode())

    def recurring(cases: Cases, o: int, *, at_ms: int = T) -> None:
        """Adds a schedule; the fates of its first occurrence are lost."""
        cases.ask(o, TO_ORDERS, every, ("postdate-id", _name(o).encode()), at_ms=at_ms)
        deliver(cases, o, _name(o), 1, at_ms + 200, nominal_ms=at_ms + 100)

    def refuse_schedule(cases: Cases, o: int) -> None:
        cases.commit([o, 0, "dead"], at_ms=LOST_MS + 5)
        cases.bury(o, TO_ORDERS, every, ("postdate-id", _name(o).encode()), reason=b"forbidden-target")

    return [
        ("accepted by a lost fate, and then refused", "unsettled", accepted, refuse),
        ("accepted behind the losses, and refused", "false-verdict", partial(accepted, at_ms=LOST_MS), refuse),
        ("kept, and its survivor delivered", "delivered", keep, kept),
        ("a schedule refused behind lost occurrences", "unsettled", recurring, refuse_schedule),
        (
            "a schedule refused behind the losses",
            "contradiction",
            *(partial(recurring, at_ms=LOST_MS), refuse_schedule),
        ),
    ]
