"""Bulk controls: the messages that they select, and the outcome that docs/protocol.md requires.

The judge follows the dispatch logs record by record. If a fate names a bulk control, the control must select the
message of the fate. The count of the control must equal the number of such fates. From the first record of the control
on, no selected message is delivered, nor moved by a later control. The judge computes the selection from the headers of
the requests and the due times in the log.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from postdate.kafka.interface import Headers, Partition, Record
from postdate.wire.dispatch_log import (
    Backfilled,
    BulkCancelled,
    BulkProgress,
    ExtraFate,
    Fate,
    Moved,
    Occurred,
    Skipped,
    Triggered,
    decode_record,
)
from postdate.wire.errors import FormatError
from postdate.wire.verdicts import Verdict, decode_verdict
from support.simulation.requests.recurring import FATES_OF_SCHEDULES

if TYPE_CHECKING:
    from support.kafka_simulator import SimBroker
    from support.simulation.oracles.interpretations import Readings
    from support.simulation.oracles.outcomes import JudgedOutcome
    from support.simulation.requests.recurring import Recurring
    from support.simulation.requests.traffic import SimulatedRequest, SimulatedTraffic

BULK = "bulk"
"""The action of a bulk control in the traffic, and the theme with many bulk controls."""
_END_MS = 2**62


@dataclass(frozen=True)
class Selected:
    """The selectors of a request, in the intended meaning."""

    target: str = ""
    prefix: bytes = b""
    key: bytes | None = None
    from_ms: int = 0
    until_ms: int = _END_MS
    by_ms: int = 0
    is_delivery: bool = False

    @property
    def moves(self) -> bool:
        """True if the messages move, by `by_ms` or to the time of the request; otherwise they are cancelled."""
        return self.is_delivery or self.by_ms != 0

    def headers(self) -> Headers:
        """Returns the headers of these selectors."""
        found: Headers = [("postdate-action", b"reschedule" if self.moves else b"cancel")]
        if self.is_delivery:
            found.append(("postdate-delay", b"0s"))
        elif self.moves:
            found.append(("postdate-by", str(self.by_ms).encode()))
        if self.target:
            found.append(("postdate-select-topic", self.target.encode()))
        if self.prefix:
            found.append(("postdate-select-id", self.prefix))
        if self.key is not None:
            found.append(("postdate-select-key", self.key))
        if self.until_ms < _END_MS:
            found.append(("postdate-select-from", str(self.from_ms).encode()))
            found.append(("postdate-select-until", str(self.until_ms).encode()))
        return found

    def selects(self, request: SimulatedRequest, target: str, due_ms: int) -> bool:
        """True if a message for this target with this due time is selected."""
        return (
            (not self.target or target == self.target)
            and (request.id if request.returned is None else request.returned.id).startswith(self.prefix)
            and (self.key is None or request.target_key == self.key)
            and self.from_ms <= due_ms < self.until_ms
        )

    def may_select(self, recurring: Recurring) -> bool:
        """True if a recurring request is selected at some due time."""
        return self.selects_next(recurring, self.from_ms)

    def selects_next(self, recurring: Recurring, due_ms: int) -> bool:
        """True if a recurring request is selected whose next occurrence has this due time."""
        return (
            self.target in ("", recurring.target)
            and recurring.id.startswith(self.prefix)
            and self.key in (None, b"k")
            and self.from_ms <= due_ms < self.until_ms
        )


def make_bulk(request: SimulatedRequest, choose: Random, now_ms: int, moving: float) -> None:
    """Turns a request into a bulk control, which moves messages with the probability `moving`, and otherwise cancels
    them."""
    fields: dict[str, object] = {}
    while not fields:
        if choose.random() < 0.5:
            fields["target"] = choose.choice(["orders", "mails"])
        if choose.random() < 0.25:
            fields["prefix"] = choose.choice([b"id-", b"id-1", b"id-2"])
        if choose.random() < 0.15:
            fields["key"] = choose.choice([b"k1", b"k2", b"other key"])
        if choose.random() < 0.4:
            fields["from_ms"] = first = now_ms + choose.randrange(-3_000, 4_000)
            fields["until_ms"] = first + choose.randrange(1, 12_000)
    kind = choose.random()
    if kind < 0.12:
        fields["is_delivery"] = True
    elif kind < moving:
        fields["by_ms"] = choose.choice([-3_000, -200, 500, 4_000, 9_000])
    request.selected = Selected(**fields)  # type: ignore[arg-type]
    request.headers = [pair for pair in request.headers or [] if not pair[0].startswith("postdate-")]
    request.headers += request.selected.headers()
    request.action, request.id, request.names, request.delay_ms, request.level = BULK, b"", -1, 0, 0


@dataclass
class _Course:
    """The state of one partition after the records of the log that were read so far."""

    begun: dict[int, int] = field(default_factory=dict)  # control -> the number of the record with its first fate
    counts: Counter[int] = field(default_factory=Counter)
    applied: dict[int, int] = field(default_factory=dict)
    moves: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # request -> (control, due time)
    recurring: dict[int, int] = field(default_factory=dict)  # pending schedule -> its next nominal time
    extras: dict[int, dict[int, int]] = field(default_factory=dict)  # schedule -> (control -> its timestamp)

    def due_ms(self, schedule: int) -> int:
        """Returns the due time of a schedule, which the range of a bulk control must contain; 0 if the schedule is not
        pending."""
        extras = self.extras.get(schedule)
        return self.recurring.get(schedule, 0) or (extras[min(extras)] if extras else 0)

    def present_ms(self, request: SimulatedRequest, first_ms: int) -> int:
        """Returns the present due time of a request; `first_ms`: its first due time."""
        return max(self.moves.get(request.offset, []), default=(-1, first_ms))[1]


def judge_bulks(
    outcome: JudgedOutcome,
    traffic: SimulatedTraffic,
    readings: Readings,
    broker: SimBroker,
    partitions: int,
    archive: dict[Partition, list[Record]],
) -> None:
    """Compares the fates of bulk controls, and of the messages that they select, with the requests."""
    for index in range(partitions):
        topic = "requests.dispatch-log"
        course = _Course()
        records = [*archive.get(Partition(topic, index), []), *broker.topics[topic].logs[index].committed()]
        for number, record in enumerate(records):
            try:
                fates = decode_record(record.value).fates
            except FormatError:
                continue
            for complaint in _follow(course, index, number, fates, traffic, readings):
                outcome.wrong.append(f"bulk: partition {index}, record {record.offset}: {complaint}")
        outcome.reached["bulk cancel ended"] += len(course.applied)
        movers = {offset for offset in course.applied if _is_move(traffic.requests[index, offset])}
        outcome.reached["bulk control moved a message"] += any(course.applied[offset] for offset in movers)
        outcome.reached["bulk cancel ended several messages"] += sum(count > 1 for count in course.applied.values())
        _judge_answers(outcome, broker, traffic, index, course)


def _follow(
    course: _Course, index: int, number: int, fates: list[Fate], traffic: SimulatedTraffic, readings: Readings
) -> list[str]:
    """Applies one record; returns its violations."""
    wrong: list[str] = []
    named = {fate.control for fate in fates if isinstance(fate, BulkCancelled)}
    progressed = {fate.offset for fate in fates if isinstance(fate, BulkProgress)}
    if named - progressed:
        wrong.append(f"cancelled by {sorted(named)} without a count")
    for fate in fates:
        request = traffic.requests.get((index, fate.offset))
        due_ms = course.due_ms(fate.offset)
        wrong += _recurs(course, index, fate, traffic)
        if isinstance(fate, BulkCancelled):
            course.counts[fate.control] += 1
            control = traffic.requests.get((index, fate.control))
            recurring = traffic.recurrences.requests.get((index, fate.offset))
            if (
                control is None
                or _is_move(control)
                or not (
                    (request is not None and _may_select(control, request, course, readings))
                    or (recurring is not None and _may_select_recurring(control, recurring, course, due_ms))
                )
            ):
                wrong.append(f"{fate.offset} is cancelled by {fate.control}, which does not select it")
            if fate.control not in course.begun:
                wrong.append(f"{fate.offset} is cancelled by {fate.control}, which has not begun")
        elif isinstance(fate, BulkProgress):
            course.begun.setdefault(fate.offset, number)
            if fate.count != course.counts[fate.offset]:
                wrong.append(f"{fate.offset} counts {fate.count}, and {course.counts[fate.offset]} fates name it")
            if fate.name == "applied":
                course.applied[fate.offset] = fate.count
        elif isinstance(fate, Moved) and _is_bulk(traffic.requests.get((index, fate.control))):
            course.counts[fate.control] += 1
            control, single = (
                traffic.requests[index, fate.control],
                traffic.recurrences.requests.get((index, fate.offset)),
            )
            if not (
                (request is not None and _moves(control, request, fate.due_ms, course, readings))
                or (
                    single is not None
                    and single.action == "single"
                    and _is_move(control)
                    and single.offset < control.offset
                )
            ):
                wrong.append(f"{fate.offset} is moved to {fate.due_ms} by {fate.control}, which does not ask for it")
            if fate.control not in course.begun or fate.control not in progressed:
                wrong.append(f"{fate.offset} is moved by {fate.control}, which has not begun, or does not count")
        elif request is not None:
            applied = {each.offset for each in fates if each.name == "applied"}
            wrong += _left(course, index, number, fate, request, traffic, readings, applied)
        if isinstance(fate, Moved):
            course.moves.setdefault(fate.offset, []).append((fate.control, fate.due_ms))
    decided = [fate.offset for fate in fates if isinstance(fate, Occurred | Skipped | ExtraFate)]
    return wrong + _selected(course, index, decided, traffic)


def _recurs(course: _Course, index: int, fate: Fate, traffic: SimulatedTraffic) -> list[str]:
    """Follows the schedules. Returns violations: a schedule delivers although a bulk cancel selects it, or survives
    that cancel."""
    wrong: list[str] = []
    if isinstance(fate, Occurred | ExtraFate):
        wrong = _selected(course, index, [fate.offset], traffic)
    elif isinstance(fate, BulkProgress) and fate.name == "applied":
        wrong = _selected(course, index, [*course.recurring], traffic)
    recurring = traffic.recurrences.requests.get((index, fate.offset))
    if recurring is not None and recurring.action == "schedule":
        if isinstance(fate, Occurred | Skipped):
            course.recurring[fate.offset] = fate.next_ms
        elif fate.name == "stored":
            course.recurring.setdefault(fate.offset, fate.first_due_ms)
        elif isinstance(fate, Triggered | Backfilled):
            course.extras.setdefault(fate.offset, {})[fate.control] = fate.at_ms
        elif isinstance(fate, ExtraFate) and not fate.next_ms:
            course.extras.get(fate.offset, {}).pop(fate.control, None)
        elif fate.name not in FATES_OF_SCHEDULES:
            course.recurring.pop(fate.offset, None)
            course.extras.pop(fate.offset, None)
    return wrong


def _selected(course: _Course, index: int, schedules: list[int], traffic: SimulatedTraffic) -> list[str]:
    """Returns violations: schedules that are pending although an applied bulk cancel selects them."""
    wrong: list[str] = []
    for control in course.begun.keys() - course.applied.keys():
        selected = traffic.requests[index, control].selected
        if selected is None or selected.moves:
            continue
        for offset in schedules:
            due_ms = course.due_ms(offset)
            if (
                due_ms
                and offset < control
                and selected.selects_next(traffic.recurrences.requests[index, offset], due_ms)
            ):
                wrong.append(f"schedule {offset}, due at {due_ms}, goes on, though {control} selects it")
    return wrong


def _is_move(control: SimulatedRequest) -> bool:
    return control.selected is not None and control.selected.moves


def _is_bulk(request: SimulatedRequest | None) -> bool:
    return request is not None and request.selected is not None


def _moves(
    control: SimulatedRequest, request: SimulatedRequest, due_ms: int, course: _Course, readings: Readings
) -> bool:
    """True if, for the settings of some process, a bulk control moves a message to this due time."""
    selected = control.selected
    assert selected is not None
    firsts_ms = {each.due_ms for each in readings.of(request) if each.accepts}
    if not selected.moves or not _may_select(control, request, course, readings):
        return False
    if selected.is_delivery:
        return due_ms == control.appended_ms
    return any(due_ms == max(course.present_ms(request, first_ms) + selected.by_ms, 1) for first_ms in firsts_ms)


def _left(
    course: _Course,
    index: int,
    number: int,
    fate: Fate,
    request: SimulatedRequest,
    traffic: SimulatedTraffic,
    readings: Readings,
    applied: set[int],
) -> list[str]:
    """Returns a violation if a message is delivered, or is ended or moved by a later control, although a bulk control
    selects it. `applied`: the controls that the same record applies."""
    if not course.begun or fate.name not in ("delivered", "moved", "replaced", "cancelled"):
        return []
    if not readings.is_certain(request):
        return []
    followers = traffic.followers(request)
    wrong = []
    for offset, since in course.begun.items():
        control = traffic.requests[index, offset]
        if since >= number or not _may_select(control, request, course, readings):
            continue
        if control.selected is not None and control.selected.moves and fate.name != "delivered":
            continue  # a later control may end or move messages that wait to be moved
        applied_too = [each for each in followers if each.offset in applied]
        if fate.name != "delivered" and _was_moved_away(control, request, applied_too, readings):
            continue
        ender = {"replaced": "schedule", "cancelled": "cancel"}.get(fate.name)
        is_late = ender is not None and not any(each.action == ender and each.offset < offset for each in followers)
        if fate.name == "delivered" or (is_late and offset == min(course.begun)):
            wrong.append(f"{fate.offset} is {fate.name}, though {offset} selects it")
        elif isinstance(fate, Moved) and fate.control > offset == min(course.begun):  # other messages may have waited
            wrong.append(f"{fate.offset} is moved by {fate.control}, though {offset} selects it")
    return wrong


def _may_select(control: SimulatedRequest, request: SimulatedRequest, course: _Course, readings: Readings) -> bool:
    """True if, for the settings of some process, a bulk control selects a message at its present due time."""
    selected = control.selected
    if selected is None or request.action != "schedule" or request.offset >= control.offset:
        return False
    by, due_ms = max(course.moves.get(request.offset, []), default=(-1, -1))
    if by >= control.offset:
        return False
    return any(
        each.accepts and selected.selects(request, each.target, due_ms if by >= 0 else each.due_ms)
        for each in readings.of(request)
    )


def _was_moved_away(
    control: SimulatedRequest, request: SimulatedRequest, applied: list[SimulatedRequest], readings: Readings
) -> bool:
    """True if the last reschedule before a bulk control moves a message to a due time at which the control does not
    select it. If one transaction applies the reschedule and ends the message, the log has no fate of the move."""
    before = [each for each in applied if each.action == "reschedule" and each.offset < control.offset]
    if not before or control.selected is None:
        return False
    due_ms = {each.due_ms for each in readings.of(before[-1])}
    return not any(
        control.selected.selects(request, each.target, at_ms) for each in readings.of(request) for at_ms in due_ms
    )


def _may_select_recurring(control: SimulatedRequest, recurring: Recurring, course: _Course, due_ms: int) -> bool:
    """True if a bulk control selects a schedule with this due time. `due_ms` 0: a single message of a schedule's id, at
    its present due time."""
    selected = control.selected
    if selected is None or recurring.offset >= control.offset:
        return False
    moves = course.moves.get(recurring.offset)
    return selected.selects_next(recurring, max(moves)[1] if moves else due_ms or recurring.appended_ms + 3_000)


def _judge_answers(
    outcome: JudgedOutcome, broker: SimBroker, traffic: SimulatedTraffic, index: int, course: _Course
) -> None:
    """Checks that each applied bulk control has one verdict with the right count."""
    answered: dict[int, list[int | None]] = {}
    for record in broker.topics["requests.verdicts"].logs[index].committed():
        answer = decode_verdict(record.value)
        if answer.verdict is Verdict.APPLIED:
            answered.setdefault(int(answer.origin.rpartition("/")[2]), []).append(answer.count)
    for offset, count in course.applied.items():
        if answered.pop(offset, []) != [count]:
            outcome.wrong.append(f"bulk: {index}/{offset} has acted on {count}, and was not answered so, once")
    if answered:
        outcome.wrong.append(f"bulk: partition {index} answers {answered}, which have not ended")
