"""Cases of recurring schedules that end while the audit reads: behind the fixed end of the dispatch log."""

from __future__ import annotations

from support.audit_cases.schedules import TWICE, ask, commit, deliver, deliver_extra, due, extra, occurred, trigger
from support.audit_cases.verdicts import DUE, Cases


def late_cases() -> tuple[Cases, int]:
    """Returns schedules with final fates after the fixed end of the log, and the log offset of the fixed end."""
    cases = Cases()
    completed = cases.case("completed behind the end of the log", "completed")
    cancelled = cases.case("cancelled behind the end of the log", "cancelled")
    triggered = cases.case("triggered and completed behind the end of the log", "completed")
    for o, id in ((completed, "l1"), (cancelled, "l2"), (triggered, "l3")):
        ask(cases, o, id, TWICE)
        commit(cases, occurred(o, 1))
        deliver(cases, o, id, 1)
    log_end = len(cases.log)
    for o, id in ((completed, "l1"), (triggered, "l3")):
        if o == triggered:
            control = trigger(cases, o, id, due(1) + 500)
            extra(cases, o, control, due(1) + 500, ends=False)
            deliver_extra(cases, o, id, control, due_ms=due(1) + 500)
        commit(cases, occurred(o, 2, 0), [o, due(1), "completed"])
        deliver(cases, o, id, 2, 0)
    cases.cancel(cancelled + 1, b"l2")
    cases.commit([cancelled, DUE, "cancelled"], [cancelled + 1, 0, "applied"], at_ms=DUE + 900)
    return cases, log_end
