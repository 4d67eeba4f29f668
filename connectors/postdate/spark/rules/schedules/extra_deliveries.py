"""Judges the extra deliveries of a schedule, those of each trigger and each backfill like a separate schedule.

A trigger has one nominal time, its timestamp. A backfill has the nominal times in the range of its fate, which
`backfills` compares with the request. Extra deliveries are numbered independently of the occurrences.

If the fate of a control may have left the dispatch log (`RowFacts.lost_controls`), its extra deliveries are
`unsettled`: only their records, their dead letters and the order of their times can be judged. The extra deliveries of
any other control without a fate are `extra`.

Pure Python without Spark.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from postdate.spark.rules.schedules.numbered_deliveries import Audited, DeliveryKind, NumberedDeliveries
from postdate.spark.rules.schedules.schedule_events import (
    DeliveredOccurrence,
    End,
    Event,
    ExtraPosition,
    Fate,
    Position,
    RowFacts,
    ScheduleRequest,
    Trigger,
)
from postdate.spark.rules.schedules.schedule_findings import Findings

# The end of a backfill whose range is unknown.
_NEVER_MS: Final = 2**63 - 1
#: The fields that Position and ExtraPosition share.
_PLACE: Final = ("number", "next_ms", "log_offset", "place")


class ExtraDeliveries:
    """The judge of extra deliveries. `positions` maps each control with a known or lost fate to its position. The
    findings are complete after `finish`."""

    def __init__(
        self, request: ScheduleRequest, known: Position, facts: RowFacts, audited: Audited, findings: Findings
    ) -> None:
        self._request, self._known, self._audited, self._findings = request, known, audited, findings
        self._lost, self._end = frozenset(facts.lost_controls), facts.end
        # An earlier run may have kept controls without fates as lost. Drop those of which this run has read the end.
        is_kept = {extra.control: extra.log_offset >= 0 or extra.control in self._lost for extra in known.extras}
        self.positions = {extra.control: extra for extra in known.extras if is_kept[extra.control]}
        self._found: list[tuple[int, Findings, list[Fate]]] = []
        self.overdue = 0
        self.waiting_fates: list[Fate] = []
        self.waiting_records: list[DeliveredOccurrence] = []

    def judge(self, control: int, trigger: Trigger | None, events: Iterable[Event]) -> None:
        """Judges the extra deliveries of one control. `trigger` is None if the log has no fate that causes them."""
        known, end = self.positions.get(control), self._end
        was_known = known is not None  # if not, `trigger` is in the log, and so are all later fates
        is_lost = trigger is None and (known is not None or control in self._lost)
        cause: Literal["known", "lost", "none"] = "lost" if is_lost else "none" if trigger is None else "known"
        if known is None and trigger is not None:
            known = ExtraPosition(control, 1, trigger.first_ms, trigger.log_offset, trigger.place)
        begun = known or ExtraPosition(control, 1, 0, -1, -1)
        trigger = trigger or Trigger(control, 0, -1, -1, *((0, _NEVER_MS) if is_lost else ()))
        position = self._known._replace(
            first_ms=0, problems=(), reasons=(), extras=(), **{name: getattr(begun, name) for name in _PLACE}
        )
        kind = DeliveryKind(is_extra=True, from_ms=trigger.at_ms, cause=cause)
        judge = NumberedDeliveries(
            trigger.as_request(self._request), position, kind, self._audited, self._known_of(control)
        )
        judge.judge_all(events)
        judge.leave_unexplained()
        if end is not None and end.name == "completed" and was_known and judge.may_have_lost_next():
            if "unsettled" not in dict(self._known.reasons):  # otherwise an earlier run has counted it
                judge.findings.leave("unsettled", 1)
        else:
            _judge_end(judge.position, end, judge.findings)
        self._found.append((control, judge.findings, judge.waiting_fates))
        self.waiting_records += judge.waiting_records
        self.overdue += judge.overdue() if end is None else 0
        if known is not None or is_lost:
            if judge.position.next_ms and end is None:
                self._audited.dead_letters.expect(judge.position.next_ms, trigger.until_ms or judge.position.next_ms)
            self.positions[control] = ExtraPosition(control, *(getattr(judge.position, name) for name in _PLACE))

    def finish(self) -> None:
        """Adds the findings about all controls to those of the schedule. Requires that the dead letters are settled."""
        for control, findings, waiting_fates in self._found:
            self._findings.include(findings, _whose(control))
            self.waiting_fates += waiting_fates

    def _known_of(self, control: int) -> Findings:
        """Returns findings with the problems that earlier runs have found for this control, so that they are not
        counted again."""
        prefix = f"{_whose(control)}: "
        known = ((verdict, text) for verdict, text in self._known.problems if text.startswith(prefix))
        return Findings(tuple((verdict, text.removeprefix(prefix)) for verdict, text in known))

    def may_be_pending(self) -> bool:
        """True if a control may have lost its fate, and none of its extra deliveries has a fate."""
        return any(extra.log_offset < 0 for extra in self.positions.values())

    def are_pending(self) -> bool:
        return any(extra.next_ms for extra in self.positions.values())

    def last_ended_at(self) -> int:
        """Returns the offset of the log record with the last delivery of the ended controls; -1 if there is none."""
        ended = (extra.log_offset for extra in self.positions.values() if not extra.next_ms)
        return max(ended, default=-1)


def _whose(control: int) -> str:
    return f"extra deliveries by offset {control}"


def _judge_end(position: Position, end: End | None, findings: Findings) -> None:
    """Compares the end of the schedule with the `position` of a control."""
    if end is not None and end.name == "completed" and position.next_ms:
        findings.find("missing", "missing", f"completed, though occurrence {position.number} is due {position.next_ms}")
    elif (
        end is not None and position.number > 1 and (position.log_offset, position.place) > (end.log_offset, end.place)
    ):
        findings.find(None, "contradiction", f"{end.name} before occurrence {position.number - 1} was decided")
