"""Judges numbered deliveries of a recurring schedule: its occurrences, or the extra deliveries of one control.

Each fate is compared with the nominal times of the request, and each record with its fate. Fates and records are
processed in the order of their numbers, and only the position that was reached is kept. `schedules` lists the verdicts.

A sidecar decides up to COMMIT_MS_MAX before it commits. So the reason of a skip must apply at the time of the commit,
and a delivery breaks a policy only if the policy already applied COMMIT_MS_MAX before the commit.

Each nominal time follows from the one before it, by the zone rules of the owner that published it. The audit verifies
it only if it has the same version of the rules (`zone-version`), and continues from the published time.

Pure Python, without Spark and without code of the sidecar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Literal
from zlib import crc32

from postdate.spark.limits import COMMIT_MS_MAX, OCCURRENCES_STEPPED_MAX
from postdate.spark.rules.schedules.pauses import LoggedPause, pauses_at
from postdate.spark.rules.schedules.schedule_dead_letters import DeadOccurrences
from postdate.spark.rules.schedules.schedule_events import (
    Bounds,
    DeliveredOccurrence,
    End,
    Event,
    Fate,
    Position,
    ScheduleRequest,
    ZoneVersions,
    in_log,
    of_places,
)
from postdate.spark.rules.schedules.schedule_findings import Findings
from postdate.spark.rules.schedules.schedule_holes import Holes
from postdate.spark.rules.times.nominal_search import NominalSearch
from postdate.spark.rules.times.nominal_times import CronTimes, IntervalTimes
from postdate.wire import headers as names

ZONE_VERSION: Final = "zone-version"
"""The reason for an occurrence that could not be verified, since the zone rules of its owner are not installed."""

# If `postdate-missed` is `none`, occurrences that are later than this are missed.
_NONE_LATE_MS: Final = 60_000
_OWN_HEADERS: Final = ",".join((names.ORIGIN, names.DUE, names.ID, names.OCCURRENCE))
_OWN_HEADERS_OF_EXTRA: Final = ",".join((names.ORIGIN, names.DUE, names.ID, names.EXTRA))
_CONTENT: Final = ("key", "value", "headers")
_NEVER_MS: Final = 2**63 - 1
_UNUSED_BITS: Final = 8
_DRAW_BITS: Final = 24


@dataclass(frozen=True)
class Audited:
    """The inputs that the judges of all series of a schedule share.

    `waiting` are the fates that have waited for a record or a dead letter since an earlier run.
    """

    versions: ZoneVersions
    bounds: Bounds
    holes: Holes
    dead_letters: DeadOccurrences
    waiting: frozenset[Fate]


@dataclass(frozen=True)
class DeliveryKind:
    """The kind of numbered deliveries: the occurrences of a schedule, or its extra deliveries (`is_extra`).

    No extra delivery may leave before `from_ms`, the timestamp of its control. `pauses` are those of the schedule. If
    fates of pauses or resumes may be lost, `pauses` are the certain pauses and `possible_pauses` all possible ones.

    `cause` describes the fate that causes extra deliveries. `known`: the log has the fate. `lost`: the fate may have
    left the log, so the times are unknown. `none`: there was no such fate.
    """

    pauses: Sequence[LoggedPause] = ()
    possible_pauses: Sequence[LoggedPause] | None = None
    is_extra: bool = False
    from_ms: int = 0
    cause: Literal["known", "lost", "none"] = "known"

    @property
    def histories(self) -> tuple[Sequence[LoggedPause], ...]:
        """The shortest and the longest possible pauses. A result is certain if it follows from both."""
        return (self.pauses,) if self.possible_pauses is None else (self.pauses, self.possible_pauses)

    @property
    def own_headers(self) -> str:
        return _OWN_HEADERS_OF_EXTRA if self.is_extra else _OWN_HEADERS


class NumberedDeliveries:
    """The judge of one series of numbers.

    `position` is the position that was reached. `waiting_fates` are fates whose records may still arrive,
    `waiting_records` records whose fates may still arrive.
    """

    def __init__(
        self, request: ScheduleRequest, known: Position, kind: DeliveryKind, audited: Audited, findings: Findings
    ) -> None:
        self._request, self._known, self._kind, self.findings = request, known, kind, findings
        self._versions, self._bounds = audited.versions, audited.bounds
        self._holes, self._dead_letters, self._waiting = audited.holes, audited.dead_letters, audited.waiting
        self.position = known
        self.waiting_fates: list[Fate] = []
        self.waiting_records: list[DeliveredOccurrence] = []
        self._unexplained = 0  # records behind the position whose fates may be lost
        self._search = NominalSearch(request.times, request.end_ms, has_gaps=not kind.is_extra)
        self._has_zone = isinstance(request.times, CronTimes) and request.times.zone != "UTC"

    def begin(self, stored: tuple[int, int] | None, *, is_by_control: bool) -> None:
        """Compares the first nominal time with the published one, unless a fate was judged before.

        `is_by_control` is True if a control of the schedule caused `stored`. An earlier `stored` may then be lost. If
        so, the owner that published the first time is unknown.
        """
        if self.position.log_offset >= 0:
            return
        first_ms = self._first_ms()
        published_ms, log_offset = stored or (first_ms, -1)
        log_offset = -1 if is_by_control and self._may_be_lost() else log_offset
        if published_ms != first_ms and self._can_decide(log_offset):
            due = first_ms or "never"
            text = f"occurrence 1 is published as due {published_ms}, and by the request {due}"
            self.findings.find("extra", "extra", text)
        self.position = self.position._replace(
            first_ms=published_ms if stored else 0, next_ms=published_ms, log_offset=log_offset
        )

    def first_ms(self, end: End | None) -> int:
        """Returns the first nominal time: the published one, otherwise the computed one, or 0 if neither is known."""
        is_by_owner = end is not None and not self._may_be_lost() and self._can_decide(end.log_offset)
        return self.position.first_ms or (self._first_ms() if is_by_owner or not self._has_zone else 0)

    def is_end_in_doubt(self, end: End) -> bool:
        """True if a schedule ended before its first occurrence, and a lost fate may have published its first time.

        The first time in its end then differs from the computed first time.
        """
        if self.position.number > 1 or self.position.first_ms or not (self._has_zone and self._may_be_lost()):
            return False
        return end.first_due_ms not in (0, self._first_ms())

    def judge_all(self, events: Iterable[Event]) -> None:
        """Judges all `events`, those with one number together. Requires that they are sorted by number."""
        for number, some in groupby(events, key=_number):
            self.decide(number, [*some])

    def leave_unexplained(self) -> None:
        """Counts as `unsettled` the records behind the last fate whose own fates may be lost."""
        if self._unexplained:
            self.findings.leave("unsettled", self._unexplained)

    def decide(self, number: int, events: Sequence[Event]) -> None:
        """Judges all events with one number."""
        for event in events:
            if isinstance(event, Fate) and event.late and event.reason == "dead" and event.nominal_ms:
                self._dead_letters.expect(event.nominal_ms, event.nominal_ms)
        fates = [event for event in events if isinstance(event, Fate) and not event.late]
        records = [
            event for event in events if isinstance(event, DeliveredOccurrence) and event.target == self._request.target
        ]
        if fates and number < self._known.number and fates[0] in self._waiting:
            self._match(fates[0], records)
        elif fates and number >= self.position.number:
            self._match(self._decided(fates[0]), records)
        elif fates:
            fates.insert(0, fates[0])
        elif records:
            self._match_nothing(number, records, any(isinstance(event, Fate) for event in events))
        for fate in fates[1:]:
            text = f"occurrence {number} is decided again {in_log(fate)}"
            self.findings.find("repeated", "duplicate", text, fate.size)

    # ---- a fate and its nominal time ----

    def _decided(self, fate: Fate) -> Fate:
        """Judges a fate, moves the position past it, and returns the fate with the results."""
        self.findings.is_sound = True
        position, computed_ms = self.position, self._computed_ms(fate)
        is_unknown = computed_ms is None or self._may_have_other_time(fate, computed_ms)
        due_ms = (fate.nominal_ms if is_unknown else computed_ms) or 0
        first_ms = self._earliest_ms() + (fate.number > position.number)
        self._judge_place(fate, due_ms, is_unknown)
        has_rules = self._can_decide(position.log_offset) and self._can_decide(fate.log_offset)
        can_decide = has_rules and not is_unknown
        judge = self._judge_delivery if fate.reason is None else self._judge_skip
        nominal_ms = judge(fate, due_ms, can_decide) if due_ms or not is_unknown else 0
        self._judge_next(fate, nominal_ms)
        self.findings.count(fate.reason or "occurred", fate.size)
        self.position = position._replace(
            number=fate.last + 1, next_ms=fate.next_ms, log_offset=fate.log_offset, place=fate.place
        )
        if is_unknown and fate.reason == "dead" and not nominal_ms:
            fate = fate._replace(first_ms=first_ms)
            nominal_ms = computed_ms if computed_ms and has_rules else 0
        if fate.first_ms and nominal_ms:
            pass  # `_judge_time` compares it with the dead letter
        elif self._kind.cause == "lost" or (is_unknown and (self._may_be_lost() or has_rules)):
            self.findings.leave("unsettled", fate.size)
        elif not can_decide:
            self.findings.leave(ZONE_VERSION, fate.size)
        return fate._replace(nominal_ms=nominal_ms, is_sound=self.findings.is_sound)

    def _judge_place(self, fate: Fate, due_ms: int, is_unknown: bool) -> None:
        """Judges the number of a fate, and its place in the log. `due_ms` is its time, or 0 if it has no known time."""
        position, count_max = self.position, self._request.count_max
        if fate.number > position.number:
            times_ms = self._earliest_ms(), due_ms or (fate.last_ms + 1 if is_unknown else 0)
            self._holes.judge(fate, position, times_ms, self.findings, may_be_lost=self._may_be_lost())
            self._unexplained = 0  # their numbers are counted with the hole
            while self._may_be_lost() and self.waiting_records and self.waiting_records[-1].number >= position.number:
                self.waiting_records.pop()
        if (count_max is not None and fate.last > count_max) or not (due_ms or is_unknown):
            self.findings.find("extra", "extra", f"occurrence {fate.last} comes behind the last one {in_log(fate)}")
        if (fate.log_offset, fate.place) <= (position.log_offset, position.place):
            text = f"occurrence {fate.number} is decided before others {in_log(fate)}"
            self.findings.find(None, "contradiction", text)

    def _judge_time(self, fate: Fate, nominal_ms: int) -> None:
        """Judges an untimed fate by `nominal_ms`, the time that its dead letter names.

        `nominal_ms` is 0 if no dead letter names the time for certain. A fate without a computed time already counts
        as unverified.
        """
        if 0 < nominal_ms == fate.nominal_ms:
            self._judge_skip(fate, nominal_ms, can_decide=True)
            self._judge_next(fate, nominal_ms)
        elif fate.nominal_ms:
            self.findings.leave("unsettled", fate.size)

    def expect_dead_letters(self) -> None:
        """Makes the dead letters of later occurrences wait for their fates."""
        first_ms = self._earliest_ms()
        if self._bounds.log_capped:  # the hidden fates may be those of any backfill
            self._dead_letters.expect(0, _NEVER_MS)
        elif first_ms:
            self._dead_letters.expect_later(first_ms, lambda ms: self._has_zone or self._is_nominal(ms))

    def lost_from_ms(self) -> int:
        """Returns the first possible time of a fate behind the position that may be lost: 0 if any time is possible,
        _NEVER_MS if no such fate is lost."""
        if self._unexplained:
            return 0
        return self._earliest_ms() if self.may_have_lost_next() else _NEVER_MS

    def may_have_lost_next(self) -> bool:
        """True if the fate of the next number may be lost. If this run has read a fate of the series, no later one is
        lost."""
        first_ms = self._earliest_ms()
        is_before = max(first_ms, self._kind.from_ms) < self._holes.lost_before_ms
        return self.position.number == self._known.number and first_ms > 0 and is_before

    def _earliest_ms(self) -> int:
        """Returns the first possible time at the position; 0 if there is none, or if it is unknown."""
        request, position = self._request, self.position
        if self._kind.is_extra or self._is_published() or not self._has_zone:
            return position.next_ms
        return request.request_ms + 1 if request.start_ms is None else max(request.start_ms, 1)

    def _is_published(self) -> bool:
        """True if the log names the time at the position."""
        return self.position.log_offset >= 0 or self.position.first_ms > 0

    def _computed_ms(self, fate: Fate) -> int | None:
        """Returns the nominal time of the first number of a fate; 0 if it has none, None if it cannot be computed."""
        position = self.position
        if self._kind.cause == "lost" and position.log_offset < 0:
            return fate.nominal_ms
        size, nominal_ms = fate.number - position.number, position.next_ms
        if size > OCCURRENCES_STEPPED_MAX or (size and not self._can_decide(position.log_offset)):
            return None
        for number in range(position.number, fate.number):
            following = self._next(number, nominal_ms) if nominal_ms else None
            nominal_ms = 0 if following is None else following[0]
        return nominal_ms

    def _may_have_other_time(self, fate: Fate, computed_ms: int) -> bool:
        """True if the time of a fate behind lost fates may differ from the computed time.

        The owner that published the time in a lost fate may have had other zone rules.
        """
        is_behind_loss = self._may_be_lost() and (fate.number > self.position.number or not self._is_published())
        return is_behind_loss and self._has_zone and not 0 < computed_ms == fate.nominal_ms

    def _judge_delivery(self, fate: Fate, published_ms: int, can_decide: bool) -> int:
        nominal_ms = fate.nominal_ms
        if published_ms not in (0, nominal_ms):
            text = f"occurrence {fate.number} was that of {nominal_ms} {in_log(fate)}, published was {published_ms}"
            self.findings.find("extra", "extra", text)
        chosen_ms = self._chosen_ms(fate) if can_decide else nominal_ms
        if fate.at_ms < max(chosen_ms, nominal_ms, self._kind.from_ms):
            due_ms = max(chosen_ms, self._kind.from_ms)
            text = f"occurrence {fate.number} was committed at {fate.at_ms}, due {due_ms}"
            self.findings.find("early", "early", text)
        broken, *others = {self._broken_policy(fate, pauses) for pauses in self._histories_at(fate)}
        if others:
            self.findings.leave("unsettled", 1)
        elif broken:
            due_ms = self._chosen_ms(fate)
            text = f"occurrence {fate.number}, due {due_ms}, was delivered at {fate.at_ms}, and {broken} skips it"
            self.findings.find("out_of_policy", "out-of-policy", text)
        return nominal_ms

    def _broken_policy(self, fate: Fate, pauses: Sequence[LoggedPause]) -> str | None:
        """Returns the header by which a delivered occurrence had to be skipped, or words for a pause; None if there is
        neither.

        The lateness counts from the chosen time. Under any zone rules of the owner, this time follows from the next
        time in the fate.
        """
        request, by_ms, can_decide = self._request, fate.at_ms - COMMIT_MS_MAX, self._can_decide(fate.log_offset)
        late_ms = by_ms - self._chosen_ms(fate)
        if any(pause.holds(fate.nominal_ms) for pause in pauses):
            return "a pause"
        if can_decide and self._is_in_gap(fate.nominal_ms):
            return names.GAP
        if request.catch_up_ms is not None and late_ms > request.catch_up_ms:
            return names.CATCH_UP
        is_missed = {
            "last": lambda: can_decide and self._is_newer_due(fate.last, fate.nominal_ms, by_ms, pauses),
            "none": lambda: late_ms > _NONE_LATE_MS,
        }
        if request.missed in is_missed and is_missed[request.missed]():
            return names.MISSED
        return names.GRACE if request.grace_ms is not None and late_ms > request.grace_ms else None

    def _judge_skip(self, fate: Fate, nominal_ms: int, can_decide: bool) -> int:
        """Judges a skip whose first occurrence is due at `nominal_ms`.

        Returns the time of the last occurrence, or 0 if this time is unknown.
        """
        request = self._request
        if fate.size > OCCURRENCES_STEPPED_MAX or not nominal_ms:
            text = f"occurrences {fate.number} to {fate.last} are skipped at once {in_log(fate)}"
            self.findings.find("wrongly_skipped", "wrong-skip", text, fate.size)
            return 0
        gaps, times = int(self._is_in_gap(nominal_ms)), [nominal_ms]
        for number in range(fate.number, fate.last):
            following = self._search.after(nominal_ms)  # `_judge_place` compares the count
            if following is None:
                if self._can_decide(fate.log_offset):
                    text = f"occurrence {number + 1} is skipped {in_log(fate)}, and {number} is the last"
                    self.findings.find("extra", "extra", text)
                break
            nominal_ms, is_in_gap = following
            gaps += is_in_gap
            times.append(nominal_ms)
        if not can_decide:
            return nominal_ms
        late_ms = fate.at_ms - self._chosen_ms(fate._replace(nominal_ms=nominal_ms))
        applies: dict[str | None, Callable[[Sequence[LoggedPause]], bool]] = {
            "gap": lambda _: gaps == fate.size and late_ms >= 0,
            "missed": lambda pauses: not gaps and self._is_missed(fate, nominal_ms, late_ms, pauses),
            "grace": lambda _: not gaps and request.grace_ms is not None and late_ms > request.grace_ms,
            "dead": lambda _: late_ms >= 0,
        }

        def does_apply_in(pauses: Sequence[LoggedPause]) -> bool:
            """True if the reason applies. In a pause, only `paused` applies, and only after the resume."""
            if fate.reason == "paused":
                return self._were_paused(fate, times, pauses)
            return not any(pause.holds(ms) for pause in pauses for ms in times) and applies[fate.reason](pauses)

        does_apply = {does_apply_in(pauses) for pauses in self._histories_at(fate)}
        if len(does_apply) > 1:
            self.findings.leave("unsettled", fate.size)
        elif does_apply == {False}:
            last = f" to {fate.last}" if fate.last > fate.number else ""
            text = f"occurrence {fate.number}{last}, due {nominal_ms}, was skipped as {fate.reason} at {fate.at_ms}"
            self.findings.find("wrongly_skipped", "wrong-skip", text, fate.size)
        return nominal_ms

    def _is_missed(self, fate: Fate, nominal_ms: int, late_ms: int, pauses: Sequence[LoggedPause]) -> bool:
        """True if `postdate-catch-up` or `postdate-missed` skips an occurrence that is `late_ms` late."""
        request = self._request
        if request.catch_up_ms is not None and late_ms > request.catch_up_ms:
            return True
        if request.missed == "last":
            return self._is_newer_due(fate.last, nominal_ms, fate.at_ms, pauses)
        return request.missed == "none" and late_ms > _NONE_LATE_MS

    def _judge_next(self, fate: Fate, nominal_ms: int) -> None:
        """Compares the next nominal time in a fate with the one that the schedule has after `nominal_ms`, the nominal
        time of the fate.

        If `nominal_ms` is 0, that time is unknown or does not exist, and any nominal time may follow.
        """
        has_end = nominal_ms > 0 and self._kind.cause != "lost"
        if not self._can_decide(fate.log_offset) or not (fate.next_ms or has_end):
            return
        number, next_ms = fate.last + 1, fate.next_ms
        following = self._next(fate.last, nominal_ms or next_ms - 1)
        due_ms = following[0] if following is not None else 0
        if next_ms == due_ms:
            return
        if due_ms and (not next_ms or (next_ms > due_ms and self._is_nominal(next_ms))):
            text = f"occurrence {number}, due {due_ms}, is passed over {in_log(fate)}, next is {next_ms or 'none'}"
            self.findings.find("missing", "missing", text)
        else:
            due = "does not exist" if not due_ms else f"is due {due_ms}" if nominal_ms else "has another time"
            text = f"occurrence {number} {due}, and is published as due {next_ms} {in_log(fate)}"
            self.findings.find("extra", "extra", text)

    # ---- records ----

    def _match(self, fate: Fate, records: Sequence[DeliveredOccurrence]) -> None:
        """Compares a judged fate with the records of its number."""
        self.findings.is_sound = fate.is_sound
        if fate.reason is not None:
            if records:
                text = f"occurrence {fate.number} was skipped as {fate.reason}, and has the record {records[0].place}"
                self.findings.find("extra", "extra", text, len(records))
            if fate.reason == "dead" and (fate.nominal_ms or fate.first_ms):
                fate = fate._replace(is_sound=self.findings.is_sound)
                judge_time = self._judge_time if fate.first_ms else None
                self._dead_letters.claim(fate, self.findings, self.waiting_fates, judge_time)
                return
        elif not records:
            if not self._judge_absence(fate):
                return
        else:
            for record in records[1:]:
                text = f"occurrence {fate.number} has {len(records)} records: {records[0].place}, {record.place}"
                self.findings.find("repeated", "duplicate", text)
            for record in records:
                self._judge_record(fate, record)
        if self.findings.is_sound:
            self.findings.count("verified", fate.size)
            if fate.reason is None:
                self.findings.lateness_ms.append(fate.at_ms - max(self._chosen_ms(fate), self._kind.from_ms))

    def _match_nothing(self, number: int, records: Sequence[DeliveredOccurrence], has_late: bool) -> None:
        """Judges the records of a number for which there is no fate, or only a late one (`has_late`)."""
        place = records[0].place
        if has_late or (number >= self.position.number and self._bounds.log_capped):
            self.waiting_records += records
        elif number < self._known.number:
            text = f"occurrence {number} has another record: {place}"
            self.findings.find("repeated", "duplicate", text, len(records))
        elif number < self.position.number or not self._may_be_lost():
            text = f"occurrence {number} has the record {place}, and no fate"
            self.findings.find("extra", "extra", text, len(records))
        else:
            self._unexplained += 1

    def _may_be_lost(self) -> bool:
        """True if fates behind the position may have left the log."""
        return self._kind.cause == "lost" or (self._kind.cause == "known" and self._holes.lost_before_ms > 0)

    def _judge_absence(self, fate: Fate) -> bool:
        """Judges a delivery without a record. Returns False if an open transaction may hide the record."""
        bounds, at_ms = self._bounds, fate.at_ms
        places = self._places(at_ms)
        lost_ms = of_places(bounds.target_lost_before_ms, places, max)
        reason = (
            "not-selected"
            if not bounds.is_target_read
            else "target-expired"
            if bounds.target_compacted or at_ms - COMMIT_MS_MAX <= lost_ms
            else "target-recreated"
            if at_ms < bounds.target_recreated_ms
            else "target-younger"
            if at_ms < bounds.target_began_ms
            else None
        )
        if reason is not None:
            self.findings.leave(reason, 1)
        elif at_ms >= of_places(bounds.target_capped_from_ms, places, min):
            self.waiting_fates.append(fate)
            return False
        else:
            text = f"occurrence {fate.number} was delivered {in_log(fate)}, and has no record on {self._request.target}"
            self.findings.find("missing", "missing", text)
        return True

    def _judge_record(self, fate: Fate, record: DeliveredOccurrence) -> None:
        request, places = self._request, self._places(fate.at_ms)
        has_next = fate.next_ms > 0 and fate.control < 0
        own_headers = f"{self._kind.own_headers},{names.NEXT}" if has_next else self._kind.own_headers
        same = {
            **{what: one == other for what, one, other in zip(_CONTENT, record.digests, request.digests, strict=True)},
            names.DUE: record.due_ms == fate.nominal_ms,
            names.NEXT: (record.next_ms or 0) == (fate.next_ms if has_next else 0),
            names.ID: record.id == request.id,
            "Postdate's own headers": record.own_headers == own_headers,
            "partition": places is None or record.partition in places,
        }
        wrong = [what for what, is_same in same.items() if not is_same]
        if wrong:
            text = f"occurrence {fate.number} differs in {', '.join(wrong)}: {record.place}"
            self.findings.find("mismatched", "mismatch", text)

    # ---- nominal times ----

    def _first_ms(self) -> int:
        """Returns the first nominal time by the zone rules of the audit; 0 if there is none."""
        request = self._request
        first = self._search.after(request.request_ms if request.start_ms is None else max(request.start_ms - 1, 0))
        return first[0] if first is not None else 0

    def overdue(self) -> int:
        """Returns the number of overdue occurrences behind the position, up to OCCURRENCES_STEPPED_MAX. Counting
        stops at the first occurrence in a pause that has not ended."""
        number, nominal_ms, count = self.position.number, self.position.next_ms, 0
        before_ms = self._bounds.overdue_before_ms - (self._request.window_ms or 0)
        if self._kind.from_ms >= before_ms:
            return 0
        while 0 < nominal_ms < before_ms and count < OCCURRENCES_STEPPED_MAX:
            if any(pause.until_ms is None for pause in self._kind.pauses if pause.holds(nominal_ms)):
                break
            following = self._next(number, nominal_ms)
            number, nominal_ms, count = number + 1, following[0] if following is not None else 0, count + 1
        return count

    def _histories_at(self, fate: Fate) -> list[list[LoggedPause]]:
        """Returns the possible histories of pauses at the time when the sidecar decided a fate."""
        return [pauses_at((fate.log_offset, fate.place), pauses) for pauses in self._kind.histories]

    def _can_decide(self, log_offset: int) -> bool:
        """True if the audit has the zone rules of the owner that wrote a record."""
        return not self._has_zone or self._versions.are_installed_at(log_offset)

    def _next(self, number: int, nominal_ms: int) -> tuple[int, bool] | None:
        """Returns the nominal time after `nominal_ms`, that of occurrence `number`, and whether a gap skips it; None if
        there is none."""
        if self._request.count_max is not None and number >= self._request.count_max:
            return None
        return self._search.after(nominal_ms)

    def _is_nominal(self, ms: int) -> bool:
        nearest = self._search.after(ms - 1)
        return nearest is not None and nearest[0] == ms

    def _is_in_gap(self, nominal_ms: int) -> bool:
        times = self._request.times
        if isinstance(times, IntervalTimes) or times.gap != "skip":
            return False
        return self._search.after(nominal_ms - 1) == (nominal_ms, True)

    def _were_paused(self, fate: Fate, times: Sequence[int], pauses: Sequence[LoggedPause]) -> bool:
        """True if the nominal `times` of a fate lie in `pauses` that had ended when the fate was written."""
        place = fate.log_offset, fate.place
        ended = [pause for pause in pauses if pause.ended_at is not None and pause.ended_at < place]
        return len(times) == fate.size and all(any(pause.holds(ms) for pause in ended) for ms in times)

    def _is_newer_due(self, number: int, nominal_ms: int, by_ms: int, pauses: Sequence[LoggedPause]) -> bool:
        """True if an occurrence after `number` that neither a gap nor a pause skips was due by `by_ms`."""
        following = self._next(number, nominal_ms)
        while following is not None and following[0] <= by_ms:
            number, (newer_ms, is_in_gap) = number + 1, following
            following = self._next(number, newer_ms)
            may_leave = not (is_in_gap or any(pause.holds(newer_ms) for pause in pauses))
            if may_leave and self._draw(number, newer_ms, following[0] if following is not None else 0) <= by_ms:
                return True
        return False

    def _chosen_ms(self, fate: Fate) -> int:
        """Returns the time from which the last occurrence of a fate is due."""
        return self._draw(fate.last, fate.nominal_ms, fate.next_ms)

    def _draw(self, number: int, nominal_ms: int, next_ms: int) -> int:
        """Returns the chosen time of an occurrence, by the formula of docs/protocol.md."""
        window_ms = self._request.window_ms or 0
        if next_ms:
            window_ms = min(window_ms, max(next_ms - nominal_ms - 1, 0))
        drawn = crc32(f"{self._request.origin}/{number}".encode()) >> _UNUSED_BITS
        return nominal_ms + (((window_ms + 1) * drawn) >> _DRAW_BITS)

    def _places(self, at_ms: int) -> set[int] | None:
        """Returns the possible partitions of a record in its target, like `mismatches.expected_partitions`; None if any
        partition is possible."""
        request, bounds = self._request, self._bounds
        if request.requested_partition is not None:
            return {request.requested_partition}
        if request.key_hash is None or bounds.target_partitions is None:
            return None
        known = sum(known_ms <= at_ms for known_ms in bounds.target_known_ms)
        return {request.key_hash % count for count in range(max(known, 1), bounds.target_partitions + 1)}


def _number(event: Event) -> int:
    return event.number
