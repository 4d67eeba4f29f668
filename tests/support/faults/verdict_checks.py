"""Checks the verdicts: each control and each replacement has one, and no record in Kafka contradicts it.

A process that took over a shard without its disk does not know which messages ended earlier. So `not-found` states only
that no message with the id was pending: it ended before the control, or at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator

from support.faults.request_ledger import FATES, IdChange, RequestLedger

_APPLIED, _DELIVERED, _DEAD = FATES.index("applied"), FATES.index("delivered"), FATES.index("dead")
_CANCELLED, _REPLACED = FATES.index("cancelled"), FATES.index("replaced")


def untrue_answers(ledger: RequestLedger) -> Iterator[str]:
    """Yields one line for each control that does not have exactly one verdict, and for each verdict that a record
    contradicts."""
    known: set[tuple[int, int]] = set()
    for (part, id_), changes in ledger.by_id.items():
        ends = ledger.parts[part].of["ended_in"]
        schedules: list[int] = []
        for change in sorted(changes, key=lambda each: each.offset):
            place = (part, change.offset)
            known.add(place)
            answers = ledger.verdicts.get(place, [])
            if change.action and len(answers) != 1:
                yield f"{id_!r} {place}: {len(answers)} answers to {change.action}: {answers}"
            for verdict, of in answers:
                complaint = _refuted(ledger, part, change, verdict, of)
                if verdict == "not-found" and schedules and ends[schedules[-1]] > ends[change.offset]:
                    complaint = f"but {schedules[-1]} was pending"
                if complaint:
                    yield f"{id_!r} {place} {change.action or 'schedule'}: {verdict} of {of}, {complaint}"
            if not change.action:
                schedules.append(change.offset)
    for place in ledger.verdicts.keys() - known:
        if any(verdict not in ("rejected", "delivered", "dead") for verdict, _ in ledger.verdicts[place]):
            yield f"{place} was answered {ledger.verdicts[place]} and asked nothing"


def _refuted(ledger: RequestLedger, part: int, change: IdChange, verdict: str, of: int) -> str:
    """Returns the reason for which a verdict is untrue; empty if no record contradicts it."""
    columns = ledger.parts[part].of
    if of >= 0 and of > change.offset and verdict != "replaced":
        return "which came later"
    fate = columns["fate"][of] if of >= 0 else -1
    wanted = {"cancelled": (_CANCELLED,), "replaced": (_REPLACED,), "too-late": (_DELIVERED, _DEAD)}
    if verdict in wanted and of >= 0 and fate not in wanted[verdict]:
        return f"which was {FATES[fate]}"
    if verdict in ("cancelled", "replaced", "rescheduled") and of < 0:
        return "which names nothing"
    if verdict == "rescheduled" and (part, of, change.offset) not in ledger.moves:
        return "which it never moved"
    return ""
