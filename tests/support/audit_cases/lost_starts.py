"""Cases of the audit's verdicts on schedules whose first `stored` is lost. Only this fate had the first nominal time
that the owner computed.

`lost_fate_cases` adds them to its history, and explains their parts. A control cancels each schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from postdate.spark.rules.times.zone_files import tz_version
from support.audit_cases.schedules import EVERY, NEXT_NIGHT, NIGHT, commit, deliver, due, occurred
from support.audit_cases.verdicts import HOUR_MS, TO_ORDERS, Cases

_BERLIN = ("postdate-cron", b"30 2 * * *"), ("postdate-zone", b"Europe/Berlin")
_OTHER_MS, _OTHER_NEXT_MS = NIGHT + HOUR_MS, NEXT_NIGHT + HOUR_MS
"""The first two times of the schedule in Berlin by other zone rules than those of the audit."""
Part = Callable[[Cases, int], None]


def _id(offset: int) -> str:
    return f"s{offset}-"


def _ask(cases: Cases, o: int, *, times: Sequence[tuple[str, bytes]] = (EVERY,)) -> None:
    """Adds a schedule whose `stored` is lost."""
    cases.ask(o, TO_ORDERS, *times, ("postdate-id", _id(o).encode()))


def _cancel(cases: Cases, o: int, *before: list[Any], first_ms: int = due(1), at_ms: int = due(3)) -> None:
    """Adds the end of a schedule, in one record with the fates `before` it."""
    cases.cancel(o + 2, _id(o).encode())
    version = 3 if before else 1
    cases.commit(*before, [o, first_ms, "cancelled"], [o + 2, 0, "applied"], at_ms=at_ms, v=version)


def _pause(cases: Cases, o: int) -> None:
    """Adds the first occurrence; a pause, which writes `stored` again; and the end."""
    commit(cases, occurred(o, 1))
    deliver(cases, o, _id(o), 1)
    at_ms = due(1) + 50
    cases.ask(o + 1, ("postdate-action", b"pause"), ("postdate-id", _id(o).encode()), at_ms=at_ms)
    fates = [[o, due(1), "stored"], [o, due(1), "paused", at_ms, o + 1], [o + 1, 0, "applied"]]
    cases.commit(*fates, at_ms=at_ms + 10, v=3)
    _cancel(cases, o)


def _die(cases: Cases, o: int, *, buried_ms: Sequence[int] = (_OTHER_MS,)) -> None:
    """Adds a first occurrence that became a dead letter, at a nominal time that only the lost `stored` has named."""
    for due_ms in buried_ms:
        cases.bury(o, TO_ORDERS, ("postdate-at", b"%d" % due_ms))
    dead = [o, _OTHER_MS, "skipped", 1, 1, "dead", _OTHER_NEXT_MS]
    _cancel(cases, o, dead, first_ms=_OTHER_MS, at_ms=_OTHER_MS + 5)


def _cancel_by_rules_of_the_audit(cases: Cases, o: int) -> None:
    """Adds the end, by another owner than the one that wrote the first nominal time."""
    cases.commit(kind="owner", tz=tz_version())
    _cancel(cases, o, first_ms=_OTHER_MS)


def lost_start_cases() -> list[tuple[str, str, Part, Part]]:
    nightly, late = partial(_ask, times=_BERLIN), (_OTHER_MS, _OTHER_MS + 1)
    return [
        ("cancelled behind a lost beginning", "cancelled", _ask, _cancel),
        ("cancelled, first due at another time", "mismatch", _ask, partial(_cancel, first_ms=due(1) + 1)),
        ("cancelled behind a beginning by other rules", "unsettled", nightly, partial(_cancel, first_ms=_OTHER_MS)),
        ("paused behind a lost beginning", "cancelled", _ask, _pause),
        ("dead at a time by other rules", "unsettled", nightly, _die),
        (
            "dead at a time by other rules, two letters",
            "unsettled contradiction",
            nightly,
            partial(_die, buried_ms=late),
        ),
        ("cancelled by other rules than those of its beginning", "unsettled", nightly, _cancel_by_rules_of_the_audit),
    ]
