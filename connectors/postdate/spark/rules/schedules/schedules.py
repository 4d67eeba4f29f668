"""Judges the occurrences of one recurring schedule: fates and records against the nominal times of its request.

The judge processes the events of a schedule in the order of their numbers and keeps only the position that it has
reached, so its memory does not grow with the number of occurrences.

    missing          a nominal time without a fate, a delivery without its record, or a dead occurrence without its dead
                     letter
    extra            an occurrence that the schedule does not have (beyond its count or end, at no nominal time by its
                     zone, gap and fold), or a record without a fate
    early            a delivery that was committed before the nominal time, or before the chosen time of a window
    duplicate        a number that was decided again, or has two records
    wrong-skip       a skip whose reason does not apply
    out-of-policy    an occurrence that was delivered, although a pause, `postdate-gap`, `postdate-missed`,
                     `postdate-catch-up` or `postdate-grace` skips it
    mismatch         a record that differs from the request, or from its fate
    contradiction    a final fate that does not fit the occurrences, a fate out of order, or a dead letter of no skip

This module judges the whole schedule and its end. Other modules judge its parts: `numbered_deliveries` the occurrences,
`extra_deliveries` the deliveries of triggers and backfills, `schedule_holes` numbers without a fate, and
`schedule_dead_letters` dead letters.

Pure functions, without Spark and without code of the sidecar.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge
from itertools import groupby

from postdate.spark.rules.schedules.extra_deliveries import ExtraDeliveries
from postdate.spark.rules.schedules.numbered_deliveries import Audited, DeliveryKind, NumberedDeliveries
from postdate.spark.rules.schedules.pauses import certain_pauses, possible_pauses
from postdate.spark.rules.schedules.schedule_dead_letters import DeadOccurrences
from postdate.spark.rules.schedules.schedule_events import (
    Bounds,
    End,
    Event,
    Figures,
    Judgement,
    Position,
    RowFacts,
    ScheduleRequest,
    ZoneVersions,
)
from postdate.spark.rules.schedules.schedule_findings import Findings
from postdate.spark.rules.schedules.schedule_holes import Holes


def judge_schedule(
    request: ScheduleRequest,
    known: Position,
    events: Iterable[Event],
    facts: RowFacts,
    versions: ZoneVersions,
    bounds: Bounds,
) -> Judgement:
    """Judges the `events` of a schedule from a `known` position on, in the order of their numbers.

    Judges the occurrences first, then the extra deliveries of each control. Raises ValueError if the times of `request`
    cannot be read. Cost: O(events), 20 us each.
    """
    findings, holes = Findings(known.problems, known.reasons), Holes(request, bounds)
    audited = Audited(versions, bounds, holes, DeadOccurrences(facts, bounds, holes), frozenset(known.waiting_fates))
    switches = facts.switches, facts.lost_switches
    kind = DeliveryKind(certain_pauses(*switches), possible_pauses(*switches) if facts.lost_switches else None)
    occurrences = NumberedDeliveries(request, known, kind, audited, findings)
    extras = ExtraDeliveries(request, known, facts, audited, findings)
    occurrences.begin(facts.stored, is_by_control=facts.is_stored_by_control)
    kept: list[Event] = [*known.waiting_fates, *known.waiting_records]
    triggers = {trigger.control: trigger for trigger in sorted(facts.triggers, reverse=True)}
    for control, some in groupby(merge(sorted(kept, key=_order), events, key=_order), key=_control):
        if control < 0:
            occurrences.judge_all(some)
        else:
            extras.judge(control, triggers.pop(control, None), some)
    for control, trigger in triggers.items():
        extras.judge(control, trigger, ())
    for control in facts.lost_controls:
        if control not in extras.positions:
            extras.judge(control, None, ())
    return _finished(known, occurrences, extras, audited, facts.end)


def _order(event: Event) -> tuple[int, int]:
    return event.control, event.number


def _control(event: Event) -> int:
    return event.control


def _finished(
    known: Position, occurrences: NumberedDeliveries, extras: ExtraDeliveries, audited: Audited, end: End | None
) -> Judgement:
    """Judges the remaining dead letters and the end of the schedule, and returns the judgement."""
    findings, position = occurrences.findings, occurrences.position
    occurrences.leave_unexplained()
    if end is None:
        occurrences.expect_dead_letters()
    audited.dead_letters.settle(findings)
    extras.finish()
    lost_from_ms = 0 if "unsettled" in dict(known.reasons) else occurrences.lost_from_ms()
    dead_letters = audited.dead_letters.judge_rest(findings, lost_from_ms)
    _judge_end(known, occurrences, extras, end, audited)
    if end is not None and occurrences.is_end_in_doubt(end):
        _leave_once(findings, known)
    added = Figures(**findings.counts)
    position = position._replace(
        first_ms=occurrences.first_ms(end),
        figures=known.figures.plus(added),
        problems=tuple(findings.problems),
        reasons=tuple(sorted(findings.reasons.items())),
        waiting_fates=(*occurrences.waiting_fates, *extras.waiting_fates),
        waiting_records=(*occurrences.waiting_records, *extras.waiting_records),
        extras=tuple(sorted(extras.positions.values())),
    )
    overdue = occurrences.overdue() + extras.overdue if end is None else 0
    return Judgement(position, added, findings.lateness_ms, overdue, dead_letters)


def _judge_end(
    known: Position, occurrences: NumberedDeliveries, extras: ExtraDeliveries, end: End | None, audited: Audited
) -> None:
    """Compares the end of the schedule with its occurrences and its extra deliveries."""
    findings, position = occurrences.findings, occurrences.position
    has_begun, has_ended = position.number > 1, not (position.next_ms or extras.are_pending())
    is_before = end is not None and (position.log_offset, position.place) > (end.log_offset, end.place)
    is_completed = end is not None and end.name == "completed"
    if has_begun and has_ended and extras.may_be_pending() and not (is_completed or is_before):
        _leave_once(findings, known)
    elif end is None:
        if has_begun and has_ended and not audited.bounds.log_capped:
            findings.find(None, "contradiction", "its last occurrence was decided, and no fate completes it")
    elif end.name == "completed":
        # The fate that completes a schedule is in the record of `completed`, and so not lost.
        if position.next_ms and occurrences.may_have_lost_next() and end.log_offset == extras.last_ended_at():
            _leave_once(findings, known)
        elif position.next_ms:
            findings.find(
                "missing", "missing", f"completed, though occurrence {position.number} is due {position.next_ms}"
            )
        elif end.log_offset != max(position.log_offset, extras.last_ended_at()):
            findings.find(None, "contradiction", "completed in another record than its last occurrence")
    elif has_begun and (has_ended or (end.is_refusal and position.log_offset >= end.log_offset)):
        findings.find(None, "contradiction", f"{end.name}, though occurrence {position.number - 1} was decided")
    elif is_before and has_begun:
        findings.find(None, "contradiction", f"{end.name} before occurrence {position.number - 1} was decided")


def _leave_once(findings: Findings, known: Position) -> None:
    """Counts the end of the schedule as `unsettled`, unless an earlier run has counted anything as `unsettled`.

    Each run judges an open schedule again.
    """
    if "unsettled" not in dict(known.reasons):
        findings.leave("unsettled", 1)
