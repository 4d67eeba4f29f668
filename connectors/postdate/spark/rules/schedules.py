"""Judges the occurrences of one recurring schedule: fates and records against the nominal times of its request.

The judge takes the events of a schedule in the order of their numbers and keeps only the position that it has reached,
so its memory does not grow with the number of occurrences.

    missing          a nominal time without a fate, or a delivery without its record
    extra            an occurrence that the schedule does not have (beyond its count or end, at no nominal time by its
                     zone, gap and fold), or a record without a fate
    early            committed before the nominal time, or before the chosen time of a window
    duplicate        a number that was decided again, or has two records
    wrong-skip       a skip whose reason does not apply
    out-of-policy    delivered, although a pause, the gap, `postdate-missed`, `postdate-catch-up` or `postdate-grace`
                     skips it
    mismatch         a record that differs from the request, or from its fate
    contradiction    the final fate does not fit the occurrences, or a dead letter fits no skip

The extra deliveries of one control are judged in the same way, as a separate schedule: that of a trigger has one time,
its timestamp, and that of a backfill the nominal times in the range of its fate, which `backfills` compares with the
request. They and the occurrences are numbered independently.

A sidecar decides up to COMMIT_MS_MAX before the commit. So the reason of a skip must apply at the commit, and a policy
is broken only if it applied COMMIT_MS_MAX before.

Each nominal time follows from the one before it, by the zone rules of the owner that published it. The audit verifies
it only if it has the same version of the rules (`zone-version`), and continues from the published time.

Pure functions. They import nothing of Spark, and nothing of the sidecar's implementation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import merge
from itertools import groupby
from typing import Final
from zlib import crc32

from postdate.spark.limits import COMMIT_MS_MAX, OCCURRENCES_STEPPED_MAX, SCHEDULE_PROBLEMS_MAX
from postdate.spark.rules.nominal_search import NominalSearch
from postdate.spark.rules.nominal_times import CronTimes, IntervalTimes
from postdate.spark.rules.pauses import Pause, pauses_of
from postdate.spark.rules.schedule_events import (
    Asked,
    Bounds,
    Delivered,
    End,
    Event,
    ExtraPosition,
    Fate,
    Figures,
    Judgement,
    Letter,
    Position,
    RowFacts,
    Trigger,
    ZoneVersions,
    of_places,
)
from postdate.wire import headers as names

ZONE_VERSION: Final = "zone-version"
"""Why an occurrence could not be verified: the zone rules that decided are not installed."""

# Occurrences are missed if they are later than this and `postdate-missed` is `none`.
_NONE_LATE_MS: Final = 60_000
_OWN_HEADERS: Final = ",".join((names.ORIGIN, names.DUE, names.ID, names.OCCURRENCE))
_OWN_HEADERS_OF_EXTRA: Final = ",".join((names.ORIGIN, names.DUE, names.ID, names.EXTRA))
_UNUSED_BITS: Final = 8
_DRAW_BITS: Final = 24


def judge_schedule(
    asked: Asked,
    known: Position,
    events: Iterable[Event],
    facts: RowFacts,
    versions: ZoneVersions,
    bounds: Bounds,
) -> Judgement:
    """Judge the `events` of a schedule from a `known` position on: first its occurrences, then the extra deliveries of
    each control, all in the order of their numbers.

    Raises ValueError if the times of `asked` cannot be read. Cost: O(events), 20 us each.
    """
    judge = _Judge(asked, known, versions, bounds, facts)
    judge.begin(facts.stored)
    kept: list[Event] = [*known.waiting_fates, *known.waiting_records]
    waiting = sorted(kept, key=_order)
    triggers = {trigger.control: trigger for trigger in sorted(facts.triggers, reverse=True)}
    for control, some in groupby(merge(waiting, events, key=_order), key=_control):
        if control < 0:
            judge.decide_all(some)
        else:
            judge.judge_extras(control, triggers.pop(control, None), some, facts.end)
    for control, trigger in triggers.items():
        judge.judge_extras(control, trigger, (), facts.end)
    return judge.finish(facts.end)


def _order(event: Event) -> tuple[int, int]:
    return event.control, event.number


def _control(event: Event) -> int:
    return event.control


def _number(event: Event) -> int:
    return event.number


class _Judge:
    def __init__(self, asked: Asked, known: Position, versions: ZoneVersions, bounds: Bounds, facts: RowFacts) -> None:
        self._asked, self._known, self._versions, self._bounds = asked, known, versions, bounds
        self._at = known
        self._search = NominalSearch(asked.times, asked.end_ms)
        self._has_zone = isinstance(asked.times, CronTimes) and asked.times.zone != "UTC"
        self._counts = dict.fromkeys(Figures._fields, 0)
        self._problems = [*known.problems]
        self._reasons = dict(known.reasons)
        self._fates: list[Fate] = []
        self._records: list[Delivered] = []
        self._lateness_ms: list[int] = []
        self._letters: dict[int, list[Letter]] = {}
        for letter in facts.letters:
            self._letters.setdefault(letter.due_ms, []).append(letter)
        self._lost_ms: list[tuple[int, int]] = []  # the first time without a fate in the log, and the next with one
        self._pauses, self._facts = pauses_of(facts.switches), facts
        self._own_headers = _OWN_HEADERS
        self._from_ms = 0  # of extra deliveries: the timestamp of their control, before which none may leave
        self._extras = {extra.control: extra for extra in known.extras}
        self._pending_ms: list[tuple[int, int]] = []  # the first and the last time of pending extra deliveries
        self._overdue_extras = 0
        self._is_sound = True
        lost_ms = bounds.fates_lost_before_ms
        self._lost_before_ms = lost_ms if asked.request_ms < lost_ms else 0  # fates before it may be lost; 0: none

    def begin(self, stored: tuple[int, int] | None) -> None:
        """Compare the first nominal time with the published one, unless a fate was judged before."""
        if self._at.log_offset >= 0:
            return
        asked = self._asked
        found = self._search.after(asked.request_ms if asked.start_ms is None else max(asked.start_ms - 1, 0))
        first_ms = found[0] if found is not None else 0
        published_ms, log_offset = stored or (first_ms, -1)
        if published_ms != first_ms and self._can_decide(log_offset):
            due = first_ms or "never"
            self._find("extra", "extra", f"occurrence 1 is published as due {published_ms}, and by the request {due}")
        self._at = self._at._replace(first_ms=published_ms, next_ms=published_ms, log_offset=log_offset)

    def judge_extras(self, control: int, trigger: Trigger | None, events: Iterable[Event], end: End | None) -> None:
        """Judge the extra deliveries of one control. `trigger`: None if no fate asks for them."""
        known = self._extras.get(control)
        if known is None and trigger is not None:
            known = ExtraPosition(control, 1, trigger.first_ms, trigger.log_offset, trigger.place)
        begun = known or ExtraPosition(control, 1, 0, -1, -1)
        trigger = trigger or Trigger(control, 0, -1, -1)
        asked = trigger.asked(self._asked)
        position = self._known._replace(
            problems=(), reasons=(), extras=(), **{name: getattr(begun, name) for name in _PLACE}
        )
        judge = _Judge(asked, position, self._versions, self._bounds, RowFacts())
        judge._search = NominalSearch(asked.times, asked.end_ms, has_gaps=False)
        judge._letters, judge._lost_ms = self._letters, self._lost_ms
        judge._own_headers, judge._from_ms = _OWN_HEADERS_OF_EXTRA, trigger.at_ms
        judge.decide_all(events)
        judge._judge_end_of_extras(end)
        for said in judge._problems:
            self._find(None, said[0], f"extra deliveries by offset {control}: {said[1]}")
        for figure, count in judge._counts.items():
            self._count(figure, count)
        for reason, count in judge._reasons.items():
            self._reasons[reason] = self._reasons.get(reason, 0) + count
        self._fates += judge._fates
        self._records += judge._records
        self._lateness_ms += judge._lateness_ms
        self._overdue_extras += judge._overdue() if end is None else 0
        if known is not None:
            if judge._at.next_ms:
                self._pending_ms.append((judge._at.next_ms, trigger.until_ms or judge._at.next_ms))
            self._extras[control] = ExtraPosition(control, *(getattr(judge._at, name) for name in _PLACE))

    def decide_all(self, events: Iterable[Event]) -> None:
        """Judge events in the order of their numbers."""
        for number, some in groupby(events, key=_number):
            self.decide(number, [*some])

    def decide(self, number: int, events: Sequence[Event]) -> None:
        """Judge all events with one number."""
        fates = [event for event in events if isinstance(event, Fate) and not event.late]
        records = [event for event in events if isinstance(event, Delivered) and event.target == self._asked.target]
        if fates and number < self._known.number and fates[0] in self._known.waiting_fates:
            self._match(fates[0], records)
        elif fates and number >= self._at.number:
            self._match(self._decided(fates[0]), records)
        elif fates:
            fates.insert(0, fates[0])
        elif records:
            self._match_nothing(number, records, any(isinstance(event, Fate) for event in events))
        for fate in fates[1:]:
            self._find("repeated", "duplicate", f"occurrence {number} is decided again {_in_log(fate)}", _size(fate))

    def finish(self, end: End | None) -> Judgement:
        """Judge the end of the schedule, and return what was found."""
        letters = self._judge_letters(has_ended=end is not None)
        self._judge_end(end)
        added = Figures(**self._counts)
        position = self._at._replace(
            figures=self._known.figures.plus(added),
            problems=tuple(self._problems),
            reasons=tuple(sorted(self._reasons.items())),
            waiting_fates=tuple(self._fates),
            waiting_records=tuple(self._records),
            extras=tuple(sorted(self._extras.values())),
        )
        overdue = self._overdue() + self._overdue_extras if end is None else 0
        return Judgement(position, added, self._lateness_ms, overdue, letters)

    # ---- a fate and its nominal time ----

    def _decided(self, fate: Fate) -> Fate:
        """Judge a fate, and move the position behind it."""
        self._is_sound = True
        if fate.number > self._at.number:
            self._judge_hole(fate)
        at = self._at
        if not at.next_ms:
            self._find("extra", "extra", f"occurrence {fate.number} comes behind the last one {_in_log(fate)}")
        if (fate.log_offset, fate.place) <= (at.log_offset, at.place):
            self._find(None, "contradiction", f"occurrence {fate.number} is decided before others {_in_log(fate)}")
        can_decide = self._can_decide(at.log_offset) and self._can_decide(fate.log_offset)
        judge = self._judge_delivery if fate.reason is None else self._judge_skip
        nominal_ms = judge(fate, can_decide)
        self._count(fate.reason or "occurred", _size(fate))
        self._judge_next(fate, nominal_ms)
        if not can_decide:
            self._leave(ZONE_VERSION, _size(fate))
        self._at = at._replace(number=fate.last + 1, next_ms=fate.next_ms, log_offset=fate.log_offset, place=fate.place)
        return fate._replace(nominal_ms=nominal_ms, is_sound=self._is_sound)

    def _judge_hole(self, fate: Fate) -> None:
        """Numbers without a fate lie before this one."""
        at, size = self._at, fate.number - self._at.number
        if self._lost_before_ms:
            self._leave("unsettled", size)
        else:
            last = f" to {fate.number - 1}" if size > 1 else ""
            self._find("missing", "missing", f"occurrence {at.number}{last} has no fate, due from {at.next_ms}", size)
        nominal_ms = 0
        if size <= OCCURRENCES_STEPPED_MAX and self._can_decide(at.log_offset):
            nominal_ms = at.next_ms
            for number in range(at.number, fate.number):
                found = self._next(number, nominal_ms) if nominal_ms else None
                nominal_ms = found[0] if found is not None else 0
        self._at = at._replace(number=fate.number, next_ms=nominal_ms or fate.nominal_ms or at.next_ms)
        if at.next_ms and self._lost_before_ms:
            self._lost_ms.append((at.next_ms, self._at.next_ms))
        self._is_sound = True

    def _judge_delivery(self, fate: Fate, can_decide: bool) -> int:
        nominal_ms, published_ms = fate.nominal_ms, self._at.next_ms
        if published_ms not in (0, nominal_ms):
            said = f"occurrence {fate.number} was that of {nominal_ms} {_in_log(fate)}, published was {published_ms}"
            self._find("extra", "extra", said)
        chosen_ms = self._chosen_ms(fate) if can_decide else nominal_ms
        if fate.at_ms < max(chosen_ms, nominal_ms, self._from_ms):
            due_ms = max(chosen_ms, self._from_ms)
            self._find("early", "early", f"occurrence {fate.number} was committed at {fate.at_ms}, due {due_ms}")
        broken = self._broken_policy(fate, chosen_ms)
        if broken and (broken != names.GAP or self._can_decide(fate.log_offset)):
            said = f"occurrence {fate.number}, due {chosen_ms}, was delivered at {fate.at_ms}, and {broken} skips it"
            self._find("out_of_policy", "out-of-policy", said)
        return nominal_ms

    def _broken_policy(self, fate: Fate, chosen_ms: int) -> str | None:
        """The header by which a delivered occurrence had to be skipped; None: there is none."""
        asked, late_ms = self._asked, fate.at_ms - COMMIT_MS_MAX - chosen_ms
        pause = self._pause_at(fate.nominal_ms)
        if pause is not None and pause.began_at < (fate.log_offset, fate.place):
            return "a pause"
        if self._is_in_gap(fate.nominal_ms):
            return names.GAP
        if asked.catch_up_ms is not None and late_ms > asked.catch_up_ms:
            return names.CATCH_UP
        is_missed = {
            "last": lambda: self._is_newer_due(fate.last, fate.nominal_ms, fate.at_ms - COMMIT_MS_MAX),
            "none": lambda: late_ms > _NONE_LATE_MS,
        }
        if asked.missed in is_missed and is_missed[asked.missed]():
            return names.MISSED
        return names.GRACE if asked.grace_ms is not None and late_ms > asked.grace_ms else None

    def _judge_skip(self, fate: Fate, can_decide: bool) -> int:
        """Judge a skip; return the nominal time of its last occurrence, 0: unknown."""
        nominal_ms, asked = self._at.next_ms, self._asked
        if _size(fate) > OCCURRENCES_STEPPED_MAX or not nominal_ms:
            said = f"occurrences {fate.number} to {fate.last} are skipped at once {_in_log(fate)}"
            self._find("wrongly_skipped", "wrong-skip", said, _size(fate))
            return 0
        gaps, paused = int(self._is_in_gap(nominal_ms)), int(self._was_paused(fate, nominal_ms))
        for number in range(fate.number, fate.last):
            found = self._next(number, nominal_ms)
            if found is None:
                said = f"occurrence {number + 1} is skipped {_in_log(fate)}, and {number} is the last"
                self._find("extra", "extra", said)
                break
            nominal_ms, is_in_gap = found
            gaps, paused = gaps + is_in_gap, paused + self._was_paused(fate, nominal_ms)
        if not can_decide:
            return nominal_ms
        late_ms = fate.at_ms - self._chosen_ms(fate._replace(nominal_ms=nominal_ms))
        applies = {
            "gap": lambda: gaps == _size(fate) and late_ms >= 0,
            "missed": lambda: not gaps and self._is_missed(fate, nominal_ms, late_ms),
            "grace": lambda: not gaps and asked.grace_ms is not None and late_ms > asked.grace_ms,
            "dead": lambda: late_ms >= 0,
            "paused": lambda: paused == _size(fate),
        }
        if fate.reason not in applies or not applies[fate.reason]():
            last = f" to {fate.last}" if fate.last > fate.number else ""
            said = f"occurrence {fate.number}{last}, due {nominal_ms}, was skipped as {fate.reason} at {fate.at_ms}"
            self._find("wrongly_skipped", "wrong-skip", said, _size(fate))
        return nominal_ms

    def _is_missed(self, fate: Fate, nominal_ms: int, late_ms: int) -> bool:
        """Return True if `postdate-catch-up` or `postdate-missed` skips an occurrence; it is `late_ms` late."""
        asked = self._asked
        if asked.catch_up_ms is not None and late_ms > asked.catch_up_ms:
            return True
        if asked.missed == "last":
            return self._is_newer_due(fate.last, nominal_ms, fate.at_ms)
        return asked.missed == "none" and late_ms > _NONE_LATE_MS

    def _judge_next(self, fate: Fate, nominal_ms: int) -> None:
        """Compare the next nominal time that a fate publishes with the one that follows from its own."""
        if not self._can_decide(fate.log_offset) or not nominal_ms:
            return
        found, number, next_ms = self._next(fate.last, nominal_ms), fate.last + 1, fate.next_ms
        due_ms = found[0] if found is not None else 0
        if next_ms == due_ms:
            return
        if due_ms and (not next_ms or (next_ms > due_ms and self._is_nominal(next_ms))):
            said = f"occurrence {number}, due {due_ms}, is passed over {_in_log(fate)}, next is {next_ms or 'none'}"
            self._find("missing", "missing", said)
        else:
            due = f"is due {due_ms}" if due_ms else "does not exist"
            said = f"occurrence {number} {due}, and is published as due {next_ms} {_in_log(fate)}"
            self._find("extra", "extra", said)

    # ---- records and dead letters ----

    def _match(self, fate: Fate, records: Sequence[Delivered]) -> None:
        """Compare a judged fate with the records of its number."""
        self._is_sound = fate.is_sound
        if fate.reason is not None:
            if records:
                said = f"occurrence {fate.number} was skipped as {fate.reason}, and has the record {records[0].place}"
                self._find("extra", "extra", said, len(records))
            if fate.reason == "dead" and not self._has_letter(fate):
                return
        elif not records:
            if not self._judge_absence(fate):
                return
        else:
            for record in records[1:]:
                said = f"occurrence {fate.number} has {len(records)} records: {records[0].place}, {record.place}"
                self._find("repeated", "duplicate", said)
            for record in records:
                self._judge_record(fate, record)
        if self._is_sound:
            self._count("verified", _size(fate))
            if fate.reason is None:
                self._lateness_ms.append(fate.at_ms - max(self._chosen_ms(fate), self._from_ms))

    def _match_nothing(self, number: int, records: Sequence[Delivered], has_late: bool) -> None:
        """Judge the records of an occurrence that has no fate."""
        place = records[0].place
        if has_late or (number >= self._at.number and self._bounds.log_capped):
            self._records += records
        elif number < self._known.number:
            self._find("repeated", "duplicate", f"occurrence {number} has another record: {place}", len(records))
        elif number < self._at.number or not self._lost_before_ms:
            self._find("extra", "extra", f"occurrence {number} has the record {place}, and no fate", len(records))

    def _judge_absence(self, fate: Fate) -> bool:
        """Judge a delivery without a record. False: the record may still come."""
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
            self._leave(reason, 1)
        elif at_ms >= of_places(bounds.target_capped_from_ms, places, min):
            self._fates.append(fate)
            return False
        else:
            said = f"occurrence {fate.number} was delivered {_in_log(fate)}, and has no record on {self._asked.target}"
            self._find("missing", "missing", said)
        return True

    def _judge_record(self, fate: Fate, record: Delivered) -> None:
        asked, places = self._asked, self._places(fate.at_ms)
        has_next = fate.next_ms > 0 and fate.control < 0
        own_headers = f"{self._own_headers},{names.NEXT}" if has_next else self._own_headers
        same = {
            **{what: one == other for what, one, other in zip(_CONTENT, record.digests, asked.digests, strict=True)},
            names.DUE: record.due_ms == fate.nominal_ms,
            names.NEXT: (record.next_ms or 0) == (fate.next_ms if has_next else 0),
            names.ID: record.id == asked.id,
            "Postdate's own headers": record.own_headers == own_headers,
            "partition": places is None or record.partition in places,
        }
        wrong = [what for what, is_same in same.items() if not is_same]
        if wrong:
            said = f"occurrence {fate.number} differs in {', '.join(wrong)}: {record.place}"
            self._find("mismatched", "mismatch", said)

    def _has_letter(self, fate: Fate) -> bool:
        """Judge the dead letters of an occurrence that was skipped as dead. False: the letter may still come."""
        bounds, at_ms = self._bounds, fate.at_ms
        found = self._letters.get(fate.nominal_ms, [])[:1]
        self._letters[fate.nominal_ms] = self._letters.get(fate.nominal_ms, [])[1:]
        if any(not letter.is_same for letter in found):
            said = f"the dead letter of occurrence {fate.number} differs from the request"
            self._find("mismatched", "mismatch", said)
        elif not found and at_ms - COMMIT_MS_MAX <= bounds.letters_lost_before_ms:
            self._leave("target-expired", 1)
        elif not found and at_ms >= bounds.letters_capped_from_ms:
            self._fates.append(fate)
            return False
        elif not found:
            self._find("missing", "missing", f"occurrence {fate.number} is dead {_in_log(fate)}, without a dead letter")
        return True

    def _judge_letters(self, has_ended: bool) -> list[Letter]:
        """Judge the dead letters of decided occurrences, except one of each that was skipped as dead. Return others:
        letters are read further than the log, so until the schedule `has_ended`, their fates may still come. That of a
        surplus letter may be lost, unless known backfills of its time came behind the losses, and no fate is lost."""
        waiting: list[Letter] = []
        lost_ms, has_lost = self._lost_before_ms, "unsettled" in self._reasons
        for due_ms, left in sorted(self._letters.items()):
            is_pending = any(first <= due_ms <= last for first, last in self._pending_ms)
            if (is_pending or 0 < self._at.next_ms <= due_ms) and not has_ended:
                waiting += left
            elif left and due_ms < lost_ms and (has_lost or self._facts.backfilled_ms(due_ms) < lost_ms):
                counted = sum(first <= due_ms < behind for first, behind in self._lost_ms)
                self._leave("unsettled", max(len(left) - counted, 0))
            elif left:
                self._find(None, "contradiction", f"a dead letter of the occurrence due {due_ms} belongs to no skip")
        return waiting

    # ---- the end ----

    def _judge_end(self, end: End | None) -> None:
        at, bounds = self._at, self._bounds
        has_begun, has_extras = at.number > 1, any(extra.next_ms for extra in self._extras.values())
        ended = [extra.log_offset for extra in self._extras.values() if not extra.next_ms]
        if end is None:
            if has_begun and not at.next_ms and not has_extras and not bounds.log_capped:
                self._find(None, "contradiction", "its last occurrence was decided, and no fate completes it")
        elif end.name == "completed":
            if at.next_ms:
                said = f"completed, though occurrence {at.number} is due {at.next_ms}"
                self._find("missing", "missing", said)
            elif end.log_offset != max(at.log_offset, *ended, -1):
                self._find(None, "contradiction", "completed in another record than its last occurrence")
        elif has_begun and (not (at.next_ms or has_extras) or (end.name == "dead" and not end.first_due_ms)):
            self._find(None, "contradiction", f"{end.name}, though occurrence {at.number - 1} was decided")
        elif (at.log_offset, at.place) > (end.log_offset, end.place) and has_begun:
            self._find(None, "contradiction", f"{end.name} before occurrence {at.number - 1} was decided")

    def _judge_end_of_extras(self, end: End | None) -> None:
        at = self._at
        if end is not None and end.name == "completed" and at.next_ms:
            self._find("missing", "missing", f"completed, though occurrence {at.number} is due {at.next_ms}")
        elif end is not None and at.number > 1 and (at.log_offset, at.place) > (end.log_offset, end.place):
            self._find(None, "contradiction", f"{end.name} before occurrence {at.number - 1} was decided")

    def _overdue(self) -> int:
        """Return how many occurrences behind the position are overdue."""
        number, nominal_ms, count = self._at.number, self._at.next_ms, 0
        before_ms = self._bounds.overdue_before_ms - (self._asked.window_ms or 0)
        if self._from_ms >= before_ms:
            return 0
        while 0 < nominal_ms < before_ms and count < OCCURRENCES_STEPPED_MAX:
            pause = self._pause_at(nominal_ms)
            if pause is not None and pause.ended_at is None:
                break
            found = self._next(number, nominal_ms)
            number, nominal_ms, count = number + 1, found[0] if found is not None else 0, count + 1
        return count

    # ---- nominal times ----

    def _can_decide(self, log_offset: int) -> bool:
        """Return True if the audit has the zone rules of the owner that wrote a record."""
        return not self._has_zone or self._versions.are_installed_at(log_offset)

    def _next(self, number: int, nominal_ms: int) -> tuple[int, bool] | None:
        """Return the nominal time behind that of occurrence `number`, and whether a gap skips it."""
        if self._asked.count_max is not None and number >= self._asked.count_max:
            return None
        return self._search.after(nominal_ms)

    def _is_nominal(self, ms: int) -> bool:
        found = self._search.after(ms - 1)
        return found is not None and found[0] == ms

    def _is_in_gap(self, nominal_ms: int) -> bool:
        times = self._asked.times
        if isinstance(times, IntervalTimes) or times.gap != "skip":
            return False
        return self._search.after(nominal_ms - 1) == (nominal_ms, True)

    def _pause_at(self, nominal_ms: int) -> Pause | None:
        """Return the pause in which a nominal time lies; None: there is none."""
        return next((pause for pause in self._pauses if pause.holds(nominal_ms)), None)

    def _was_paused(self, fate: Fate, nominal_ms: int) -> bool:
        """Return True if a nominal time lies in a pause that had ended when a fate was written."""
        pause = self._pause_at(nominal_ms)
        return pause is not None and pause.ended_at is not None and pause.ended_at < (fate.log_offset, fate.place)

    def _is_newer_due(self, number: int, nominal_ms: int, by_ms: int) -> bool:
        """Return True if an occurrence behind `number` that neither a gap nor a pause skips was due by then."""
        found = self._next(number, nominal_ms)
        while found is not None and found[0] <= by_ms:
            number, (newer_ms, is_in_gap) = number + 1, found
            found = self._next(number, newer_ms)
            may_leave = not is_in_gap and self._pause_at(newer_ms) is None
            if may_leave and self._draw(number, newer_ms, found[0] if found is not None else 0) <= by_ms:
                return True
        return False

    def _chosen_ms(self, fate: Fate) -> int:
        """Return the time from which the last occurrence of a fate is due."""
        return self._draw(fate.last, fate.nominal_ms, fate.next_ms)

    def _draw(self, number: int, nominal_ms: int, next_ms: int) -> int:
        """Return the chosen time of an occurrence, by the formula of docs/protocol.md."""
        window_ms = self._asked.window_ms or 0
        if next_ms:
            window_ms = min(window_ms, max(next_ms - nominal_ms - 1, 0))
        drawn = crc32(f"{self._asked.origin}/{number}".encode()) >> _UNUSED_BITS
        return nominal_ms + (((window_ms + 1) * drawn) >> _DRAW_BITS)

    def _places(self, at_ms: int) -> set[int] | None:
        """Return the possible partitions of a record in its target; None: any. As `mismatches.expected_partitions`."""
        asked, bounds = self._asked, self._bounds
        if asked.partition_asked is not None:
            return {asked.partition_asked}
        if asked.key_hash is None or bounds.target_partitions is None:
            return None
        known = sum(known_ms <= at_ms for known_ms in bounds.target_known_ms)
        return {asked.key_hash % count for count in range(max(known, 1), bounds.target_partitions + 1)}

    # ---- findings ----

    def _count(self, figure: str, size: int = 1) -> None:
        self._counts[figure] += size

    def _find(self, figure: str | None, verdict: str, said: str, size: int = 1) -> None:
        """Note a problem. `figure`: the one that counts it."""
        self._is_sound = False
        problem = verdict, said
        if problem in self._problems:
            return
        if figure is not None:
            self._count(figure, size)
        if len(self._problems) < SCHEDULE_PROBLEMS_MAX:
            self._problems.append(problem)

    def _leave(self, reason: str, size: int) -> None:
        """Note occurrences that cannot be verified."""
        self._is_sound = False
        self._count("unverifiable", size)
        self._reasons[reason] = self._reasons.get(reason, 0) + size


_CONTENT: Final = ("key", "value", "headers")
#: The positions of a schedule, and of the extra deliveries of a control.
_PLACE: Final = ("number", "next_ms", "log_offset", "place")


def _size(fate: Fate) -> int:
    return fate.last + 1 - fate.number


def _in_log(fate: Fate) -> str:
    return f"at offset {fate.log_offset} of the log"
