"""Recurring schedules in the traffic, and their judge.

Every schedule has a fixed interval, so its nominal times follow by arithmetic. Controls cancel, replace, reschedule,
pause, resume, trigger and backfill the schedules by ids that no other traffic uses. A resume follows each pause. The
judge reads the dispatch log, the targets, the dead letters, the verdicts and STORE, and shares no code with the
product.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from postdate.kafka.interface import Headers, Partition, Record

if TYPE_CHECKING:
    from support.kafka_simulator import SimBroker
    from support.simulation.oracles.interpretations import Readings
    from support.simulation.oracles.outcomes import JudgedOutcome
    from support.simulation.requests.traffic import SimulatedRequest, SimulatedTraffic
    from support.simulation.runtime.simulated_run import SimulatedRun

_REQUESTS = "requests"
#: The longest delay of a request that is not a schedule.
_DELAY_MS = 3_000
#: Milliseconds: the intervals between nominal times. With the shortest, an outage misses hundreds of occurrences.
_EVERY_MS = (1_000, 1_000, 2_000, 5_000)
#: Milliseconds: if `postdate-missed` is `none`, only occurrences that are late by more than this are skipped.
_NONE_LATE_MS = 60_000
#: Control of a schedule -> the name of its fate.
_SWITCHES = {"pause": "paused", "resume": "resumed"}
_CHANGES = {**_SWITCHES, "trigger": "triggered", "backfill": "backfilled"}
_EXTRAS = ("extra", "extra-dead")
FATES_OF_SCHEDULES = ("occurred", "skipped", *_CHANGES.values(), *_EXTRAS)
_FOR_EVER_MS = 2**63
#: Milliseconds: the lengths of the ranges of backfills. Some ranges contain no nominal time. If no target has a rate,
#: some contain more nominal times than fit into a transaction. Some end after their request.
_FILLED_MS = (0, 900, 3_000, 3_000, 12_000, 12_000, 40_000)
_FILLED_FAR_MS = 1_300_000
_FILLED_BEFORE_MS = (-9_000, 0, 0, 1_500, 60_000)
#: The reasons for which a process may refuse a schedule, by its settings.
_REFUSALS = frozenset({"bad-schedule", "forbidden-target", "limit-exceeded"})


@dataclass
class Recurring:
    """One request about a schedule: `action` is schedule, single, cancel, reschedule, pause, resume, trigger or
    backfill."""

    part: Partition
    action: str
    id: bytes
    headers: Headers
    every_ms: int = 0
    phase_ms: int = 0
    count: int = 0
    missed: str = "all"
    catch_up_ms: int = -1
    value: bytes | None = None
    target: str = "orders"
    offset: int = -1
    appended_ms: int = -1
    times_ms: tuple[int, int] = (0, 0)
    """The first and the last nominal time of a backfill."""

    def filled_ms(self, start_ms: int, end_ms: int) -> list[int]:
        """Returns the nominal times in a range, both ends included."""
        first_ms = start_ms + (self.phase_ms - start_ms) % self.every_ms
        return [*range(first_ms, end_ms + 1, self.every_ms)]

    def nominal_ms(self, number: int) -> int:
        """Returns the nominal time of an occurrence: a multiple of the interval, plus its phase, after the
        timestamp."""
        behind_ms = (self.appended_ms - self.phase_ms) % self.every_ms
        return self.appended_ms - behind_ms + number * self.every_ms


@dataclass
class Occurrences:
    """The fates and delivered records of one schedule."""

    fates: list[tuple[list[Any], int, int]] = field(default_factory=list)
    """(the fate as JSON, the timestamp of its record, the `next_request` of its record)."""
    records: list[tuple[str, Record]] = field(default_factory=list)


class Recurrences:
    """Sends requests about schedules, and remembers them by partition and offset."""

    def __init__(self, broker: SimBroker, random: Random, partitions: int) -> None:
        self.requests: dict[tuple[int, int], Recurring] = {}
        self.target = "orders"
        self._broker = broker
        self._random = random
        self._partitions = partitions
        self._run: SimulatedRun | None = None
        self.pauses: Random | None = None  # draws pauses; None: there are none
        self.triggers: Random | None = None  # draws triggers; None: there are none
        self.backfills: Random | None = None  # draws backfills; None: there are none
        self.fills_far = True

    def plan(self, run: SimulatedRun, duration_ms: float, requests: int) -> None:
        """Plans events that send `requests` requests within the duration."""
        self._run = run
        for _ in range(requests):
            run.time.at(run.time.now_ms + self._random.uniform(0.0, duration_ms), self._send)
        for _ in range(requests if self.pauses is not None else 0):
            assert self.pauses is not None
            run.time.at(run.time.now_ms + self.pauses.uniform(0.0, duration_ms), self._pause)
        for _ in range(requests if self.triggers is not None else 0):
            assert self.triggers is not None
            run.time.at(run.time.now_ms + self.triggers.uniform(0.0, duration_ms), self._trigger)
        for _ in range(requests if self.backfills is not None else 0):
            assert self.backfills is not None
            run.time.at(run.time.now_ms + self.backfills.uniform(0.0, duration_ms), self._backfill)

    def last_due_ms(self) -> int:
        """Returns the latest nominal time or due time of any request. A delay counts from the timestamp of the request,
        and the broker's clock may have been ahead."""
        request = self.requests.values()
        nominal_ms = [each.nominal_ms(each.count) for each in request if each.action == "schedule"]
        return max([*nominal_ms, *(each.appended_ms + _DELAY_MS for each in request)], default=0)

    def followers(self, request: Recurring) -> list[Recurring]:
        """Returns the later requests with the same id."""
        return [each for at, each in sorted(self.requests.items()) if each.id == request.id and at[1] > request.offset]

    def _send(self) -> None:
        choose = self._random
        part = Partition(_REQUESTS, choose.randrange(self._partitions))
        if not self._broker.serves(self._broker.topics[_REQUESTS].logs[part.index]):
            return
        caller_id = b"calendar-%d-%d" % (part.index, choose.randrange(2))
        action = choose.choices(["schedule", "single", "cancel", "reschedule"], [8, 1, 2, 1])[0]
        request = Recurring(part, action, caller_id, [("postdate-id", caller_id)], target=self.target)
        if action == "schedule":
            self._schedule(request)
        elif action == "single":
            request.headers += [("postdate-topic", self.target.encode()), ("postdate-delay", b"%dms" % _DELAY_MS)]
        else:
            request.headers.append(("postdate-action", action.encode()))
            request.headers += [("postdate-delay", b"1s")] if action == "reschedule" else []
        self._append(request)

    def _pause(self) -> None:
        """Pauses a schedule that is likely to be pending, or resumes it."""
        assert self.pauses is not None
        latest = [each for each in self.requests.values() if each.action == "schedule"][-2:]
        chosen = self.pauses.choice(latest) if latest else None
        if chosen is None or not self._broker.serves(self._broker.topics[_REQUESTS].logs[chosen.part.index]):
            return
        if self.pauses.random() < 0.15:
            self._resume(chosen.part, chosen.id)
            return
        self._append(self._switch(chosen.part, chosen.id, "pause"))
        self._resume_later(chosen.part, chosen.id)

    def _trigger(self) -> None:
        """Triggers a schedule, which may have ended, once or several times."""
        assert self.triggers is not None
        request = [each for each in self.requests.values() if each.action in ("schedule", "single")][-3:]
        chosen = self.triggers.choice(request) if request else None
        for _ in range(self.triggers.choice([1, 1, 3])):
            if chosen is not None and self._broker.serves(self._broker.topics[_REQUESTS].logs[chosen.part.index]):
                self._append(self._switch(chosen.part, chosen.id, "trigger"))

    def _backfill(self) -> None:
        """Backfills a schedule, which may have ended, for times around its request, once or twice."""
        assert self.backfills is not None
        choose = self.backfills
        request = [each for each in self.requests.values() if each.action in ("schedule", "single")][-3:]
        chosen = choose.choice(request) if request else None
        for _ in range(choose.choice([1, 1, 2])):
            if chosen is None or not self._broker.serves(self._broker.topics[_REQUESTS].logs[chosen.part.index]):
                return
            now_ms = self._broker.now_ms(self._broker.topics[_REQUESTS].logs[chosen.part.index])
            end_ms = now_ms - choose.choice(_FILLED_BEFORE_MS)
            if chosen.every_ms and choose.random() < 0.5:  # both bounds may be nominal times
                end_ms -= (end_ms - chosen.phase_ms) % chosen.every_ms
            is_far = choose.random() < 0.1 and self.fills_far
            start_ms = end_ms - (_FILLED_FAR_MS if is_far else choose.choice(_FILLED_MS))
            made = self._switch(chosen.part, chosen.id, "backfill")
            made.headers += [("postdate-start", b"%d" % start_ms), ("postdate-end", b"%d" % end_ms)]
            made.times_ms = (start_ms, end_ms)
            self._append(made)

    def _switch(self, part: Partition, caller_id: bytes, action: str) -> Recurring:
        headers: Headers = [("postdate-id", caller_id), ("postdate-action", action.encode())]
        return Recurring(part, action, caller_id, headers, target=self.target)

    def _resume_later(self, part: Partition, caller_id: bytes) -> None:
        assert self._run is not None
        assert self.pauses is not None
        time = self._run.time
        after_ms = self.pauses.choice([0.0, 700.0, 3_000.0, 8_000.0]) + self.pauses.uniform(0.0, 500.0)
        time.at(time.now_ms + after_ms, lambda: self._resume(part, caller_id))

    def _resume(self, part: Partition, caller_id: bytes) -> None:
        if not self._broker.serves(self._broker.topics[_REQUESTS].logs[part.index]):
            self._resume_later(part, caller_id)
            return
        self._append(self._switch(part, caller_id, "resume"))

    def _append(self, request: Recurring) -> None:
        part = request.part
        request.offset, request.appended_ms = self._broker.append(part, b"k", request.value, request.headers, 0)
        self.requests[part.index, request.offset] = request

    def _schedule(self, request: Recurring) -> None:
        choose = self._random
        request.every_ms = choose.choice(_EVERY_MS)
        request.phase_ms = choose.choice([0, 0, 137, 999])
        request.count = choose.choice([1, 2, 4, 8, 15])
        request.missed = choose.choice(["all", "all", "last", "none"])
        request.value = choose.choice([None, b"", b"again"])
        every = b"%dms" % request.every_ms + (b"/%dms" % request.phase_ms if request.phase_ms else b"")
        request.headers += [
            ("traceparent", b"00-1"),
            ("postdate-topic", self.target.encode()),
            ("postdate-every", every),
            ("postdate-count", b"%d" % request.count),
        ]
        if request.missed != "all":
            request.headers.append(("postdate-missed", request.missed.encode()))
        if choose.random() < 0.2:
            request.catch_up_ms = choose.choice([0, 500, 4_000])
            request.headers.append(("postdate-catch-up", b"%dms" % request.catch_up_ms))


# ---- the judge -----------------------------------------------------------------------------------------------------


def judge_recurrences(
    outcome: JudgedOutcome, traffic: SimulatedTraffic, readings: Readings, run: SimulatedRun, halted: Set[int]
) -> None:
    """Adds violations about schedules to `outcome.wrong`. `halted`: the partitions whose requests need not have
    ended."""
    recurrences = traffic.recurrences
    answers = _answers(run)
    for origin, request in recurrences.requests.items():
        final = outcome.final(origin)
        outcome.reached[f"{request.action} of a calendar {final}"] += 1
        if not final and origin[0] in halted:
            continue
        if len(outcome.fates.get(origin, [])) != 1:
            outcome.wrong.append(f"O9: {len(outcome.fates.get(origin, []))} final fates ({origin}, {request.action})")
            continue
        found = outcome.occurrences[origin]
        wrong = _ending(outcome, traffic, request, final)
        if request.action in _CHANGES:
            wrong += _switch(recurrences, outcome, request, final, answers.get(origin, []))
        if request.action == "schedule":
            wrong += _pauses(recurrences, request, found, readings)
            wrong += _extras(recurrences, request, found, final)
            wrong += _chain(request, found, outcome.reached, final)
            wrong += _records(request, found, outcome, run)
            if not (run.reached["broker's clock stepped"] or run.reached["broker's clock stepped far"]):
                wrong += _in_time(recurrences, request, found, readings)
        outcome.wrong += [f"{each} ({origin}, every {request.every_ms}, {request.missed})" for each in wrong]


def _ending(outcome: JudgedOutcome, traffic: SimulatedTraffic, request: Recurring, final: str) -> list[str]:
    """Checks O2: a request ends in a way that the later requests with its id permit."""
    followers = {each.action for each in traffic.recurrences.followers(request)}
    followers |= {
        each.action for each in traffic.requests.values() if each.part == request.part and each.names == request.offset
    }
    origin = (request.part.index, request.offset)
    dead_letters = [
        _header(dead_letter, "postdate-dead-reason").decode() for dead_letter in outcome.dead.get(origin, [])
    ]
    if request.action in ("cancel", "reschedule", *_CHANGES):
        return [] if final in ("applied", "dead") else [f"O2: it ended as {final}"]
    allowed = {"dead", "completed" if request.action == "schedule" else "delivered"}
    allowed |= {"cancelled"} if "cancel" in followers else set()
    allowed |= {"replaced"} if followers & {"schedule", "single"} else set()
    allowed |= {"cancelled"} if any(_bulk_may_end(request, each) for each in traffic.requests.values()) else set()
    wrong = [] if final in allowed else [f"O2: it ended as {final}"]
    if final == "dead" and request.action == "schedule" and not set(dead_letters) & _REFUSALS:
        wrong.append(f"O2: it ended as dead for {dead_letters}")
    return wrong


def _bulk_may_end(request: Recurring, other: SimulatedRequest) -> bool:
    """True if a bulk control may end the request; `judge_bulks` compares the due time with the control's range."""
    is_later = other.part == request.part and other.offset > request.offset
    return is_later and other.selected is not None and other.selected.may_select(request)


def _chain(request: Recurring, found: Occurrences, reached: Counter[str] | dict[str, int], final: str) -> list[str]:
    """Checks that every occurrence has one fate, in the order of the numbers, with its nominal time, and by the policy
    for missed occurrences."""
    wrong: list[str] = []
    decided = 0
    for fate, at_ms, _ in found.fates:
        name, first = fate[2], fate[3]
        if name not in ("occurred", "skipped"):
            reached[f"{name} of a calendar"] += 1
            continue
        last, next_ms = (first, fate[5]) if name == "occurred" else (fate[4], fate[6])
        if first != decided + 1 or last < first:
            wrong.append(f"O1: numbers {first} to {last} are {name} behind {decided}")
        decided = last
        expected_ms = request.nominal_ms(last + 1) if last < request.count else 0
        if next_ms != expected_ms or last > request.count:
            wrong.append(f"O4: behind {last} of {request.count} the next is due at {next_ms}, expected {expected_ms}")
        if name == "occurred":
            reached["occurred"] += 1
            if fate[4] != request.nominal_ms(first) or at_ms < fate[4]:
                wrong.append(f"O5: {first} at {at_ms}, nominal {fate[4]}, expected {request.nominal_ms(first)}")
        else:
            reached[f"skipped: {fate[5]}"] += 1
            wrong += _skip(request, fate, at_ms)
    names = Counter(fate[2] for fate, _, _ in found.fates)
    filled = sum(len(request.filled_ms(*fate[5:7])) for fate, _, _ in found.fates if fate[2] == "backfilled")
    has_extras = names["triggered"] + filled > names["extra"] + names["extra-dead"]
    if (final == "completed") != (decided == request.count) and not (decided == request.count and has_extras):
        wrong.append(f"O9: it ended as {final} behind {decided} of {request.count} occurrences")
    return wrong


def _skip(request: Recurring, fate: list[Any], at_ms: int) -> list[str]:
    """Checks that a skip has a reason that the request permits."""
    _, _, _, first, last, reason, next_ms = fate
    late_ms = at_ms - request.nominal_ms(last)
    may_miss = (
        (0 <= request.catch_up_ms < late_ms)
        or (request.missed == "last" and 0 < next_ms <= at_ms)
        or (request.missed == "none" and late_ms > _NONE_LATE_MS)
    )
    if reason in ("dead", "paused") or (reason == "missed" and may_miss):  # `_pauses` checks these
        return []
    return [f"O2: {first} to {last} are skipped as {reason}, {late_ms} ms late"]


def _records(request: Recurring, found: Occurrences, outcome: JudgedOutcome, run: SimulatedRun) -> list[str]:
    """Checks O1, O3, O4: each delivered occurrence has one record with the right headers, and each failed occurrence
    one dead letter."""
    wrong: list[str] = []
    origin = b"%s/%d/%d" % (_REQUESTS.encode(), request.part.index, request.offset)
    part = origin.rpartition(b"/")[0]
    delivered = Counter(
        _header(record, "postdate-extra") or int(_header(record, "postdate-occurrence")) for _, record in found.records
    )
    named: Counter[bytes | int] = Counter(fate[3] for fate, _, _ in found.fates if fate[2] == "occurred")
    named.update(b"%s/%d/%d" % (part, fate[3], fate[4]) for fate, _, _ in found.fates if fate[2] == "extra")
    if delivered != named:
        wrong.append(f"O1: delivered {delivered}, by the log {named}")
    extras_ms = {b"%s/%d/%d" % (part, *fate[3:5]): fate[5] for fate, _, _ in found.fates if fate[2] == "extra"}
    for target, record in found.records:
        extra = _header(record, "postdate-extra")
        number = int(_header(record, "postdate-occurrence") or b"0")
        next_header = [("postdate-next", b"%d" % request.nominal_ms(number + 1))] if number < request.count else []
        expected = [
            ("traceparent", b"00-1"),
            ("postdate-origin", origin),
            ("postdate-due", b"%d" % (extras_ms.get(extra, 0) if extra else request.nominal_ms(number))),
            ("postdate-id", request.id),
            *([("postdate-extra", extra)] if extra else [("postdate-occurrence", b"%d" % number), *next_header]),
        ]
        if (target, record.key, record.value, record.headers) != (request.target, b"k", request.value, expected):
            wrong.append(
                f"O4: expected {expected}, delivered {target} {record.key!r} {record.value!r} {record.headers}"
            )
    failed = [fate[3] for fate, _, _ in found.fates if fate[2] == "skipped" and fate[5] == "dead"]
    failed += [fate[3] for fate, _, _ in found.fates if fate[2] == "extra-dead"]
    dead_letters = outcome.dead.get((request.part.index, request.offset), [])
    ended_dead = outcome.final((request.part.index, request.offset)) == "dead"
    if len(dead_letters) != len(failed) + ended_dead:
        wrong.append(f"O3: {len(dead_letters)} dead letters, {failed} have failed")
    for dead_letter in dead_letters[: len(failed)]:
        reason = _header(dead_letter, "postdate-dead-reason").decode()
        excused = run.troubles.explain(reason, request.target, request.part.index, dead_letter.offset)
        if not excused and reason not in _REFUSALS:
            wrong.append(f"O2: an occurrence is a dead letter for {reason}")
    return wrong


def _in_time(recurrences: Recurrences, request: Recurring, found: Occurrences, readings: Readings) -> list[str]:
    """Checks that no process delivers an occurrence although it had read a cancel that was written before the due
    time."""
    if len(readings.settings) > 1:
        return []
    cancels = [each for each in recurrences.followers(request) if each.action == "cancel"]
    return [
        f"O2: {fate[3]}, due {fate[4]}, is delivered although cancel {cancel.offset} came at {cancel.appended_ms}"
        for fate, _, known in found.fates
        for cancel in cancels
        if fate[2] == "occurred" and cancel.offset < known and cancel.appended_ms < fate[4]
    ]


def _answers(run: SimulatedRun) -> dict[tuple[int, int], list[tuple[str, str | None]]]:
    """Returns request -> its verdicts: the name, and the origin of the affected request."""
    found: dict[tuple[int, int], list[tuple[str, str | None]]] = {}
    for index, log in enumerate(run.broker.topics[f"{_REQUESTS}.verdicts"].logs):
        for record in log.committed():
            answer = json.loads(record.value or b"{}")
            offset = int(answer["origin"].rpartition("/")[2])
            found.setdefault((index, offset), []).append((answer["verdict"], answer["of"]))
    return found


def _switch(
    recurrences: Recurrences,
    outcome: JudgedOutcome,
    request: Recurring,
    final: str,
    answers: list[tuple[str, str | None]],
) -> list[str]:
    """Checks that each control of a schedule has one true verdict."""
    if len(answers) != 1:
        return [f"verdict: {len(answers)} answers to a {request.action}"]
    ((word, of),) = answers
    outcome.reached[f"{request.action} answered {word}"] += 1
    done = _CHANGES[request.action]
    acted = [
        offset
        for (index, offset), found in outcome.occurrences.items()
        if index == request.part.index
        for fate, _, _ in found.fates
        if fate[2] in _CHANGES.values() and fate[4] == request.offset
    ]
    if word == done:
        is_true = final == "applied" and acted == [int((of or "/-1").rpartition("/")[2])]
    else:
        is_true = (
            not acted and (word == "rejected") == (final == "dead") and word in ("rejected", "not-found", "too-late")
        )
    return [] if is_true else [f"verdict: {word} of {of}, though it has acted on {acted} and ended as {final}"]


def _intervals(switches: list[tuple[int, bool]]) -> list[tuple[int, int]]:
    """Returns the intervals (from, until) whose nominal times are skipped, given pauses and resumes in the order of the
    requests."""
    found: list[tuple[int, int]] = []
    since: int | None = None
    for at_ms, pauses in switches:
        if pauses and since is None:
            since = at_ms
        elif not pauses and since is not None:
            found.append((since, at_ms))
            since = None
    return [*found, (since, _FOR_EVER_MS)] if since is not None else found


def _in_any(intervals: list[tuple[int, int]], at_ms: int) -> bool:
    return any(since <= at_ms < until for since, until in intervals)


def _pauses(
    recurrences: Recurrences,
    request: Recurring,
    found: Occurrences,
    readings: Readings,
) -> list[str]:
    """Checks O2: every occurrence in a pause is skipped after the resume, and no other occurrence is skipped as
    paused."""
    wrong: list[str] = []
    followers = {each.offset: each for each in recurrences.followers(request)}
    switches: list[tuple[int, bool]] = []
    seen: set[int] = set()
    for fate, _, known in found.fates:
        name = fate[2]
        if name in _SWITCHES.values():
            control = followers.get(fate[4])
            if control is None or _SWITCHES.get(control.action) != name or fate[3] != control.appended_ms:
                wrong.append(f"O2: {name} at {fate[3]} by {fate[4]}, which does not ask for it")
            if fate[4] in seen:
                wrong.append(f"O2: {name} twice by {fate[4]}")
            seen.add(fate[4])
            switches.append((fate[3], name == "paused"))
            continue
        if name not in ("occurred", "skipped"):
            continue
        intervals = _intervals(switches)
        closed = [each for each in intervals if each[1] < _FOR_EVER_MS]
        last = fate[3] if name == "occurred" else fate[4]
        times_ms = [request.nominal_ms(number) for number in range(fate[3], last + 1)]
        if name == "skipped" and fate[5] == "paused":
            if not all(_in_any(closed, at_ms) for at_ms in times_ms):
                wrong.append(f"O2: {fate[3]} to {last} are skipped as paused, the pauses are {intervals}")
        elif any(_in_any(intervals, at_ms) for at_ms in times_ms):
            wrong.append(f"O2: {fate[3]} to {last} are {name} in a pause, the pauses are {intervals}")
        elif name == "occurred" and len(readings.settings) == 1:
            # The writer knows the requests that it has read, with or without fates in the log, and the requests with
            # fates in the log: after a takeover with an old disk, the log may contain the fate of a resume that the
            # writer has not read yet.
            read = [
                each
                for each in followers.values()
                if each.action in _SWITCHES and (each.offset < known or each.offset in seen)
            ]
            asked_for = [
                (each.appended_ms, each.action == "pause") for each in sorted(read, key=lambda each: each.offset)
            ]
            if _in_any(_intervals(asked_for), times_ms[0]):
                wrong.append(f"O2: {last} is delivered in a pause that its writer had read: {asked_for}")
    return wrong


def _extras(recurrences: Recurrences, request: Recurring, found: Occurrences, final: str) -> list[str]:
    """Checks O1, O5: each trigger and each time of a backfill in the log is delivered once, unless a control ends the
    schedule first. No delivery precedes the timestamp of the control."""
    wrong: list[str] = []
    followers = {each.offset: each for each in recurrences.followers(request)}
    pending: dict[int, list[tuple[int, int]]] = {}
    seen: set[int] = set()
    for fate, at_ms, _ in found.fates:
        if fate[2] in ("triggered", "backfilled"):
            control = followers.get(fate[4])
            expected = [] if control is None else _extra_times(request, control)
            published = (
                fate[2:5] if fate[2] == "triggered" else [*fate[2:5], *expected[:1], control and control.times_ms[1]]
            )
            named = control is not None and _CHANGES.get(control.action) == fate[2] and fate[3] == control.appended_ms
            if not named or not expected or fate[4] in seen or fate[2:7] != published:
                wrong.append(f"O2: {fate[2:]}, and {control} does not ask for it, or did before")
            seen.add(fate[4])
            pending[fate[4]] = [*enumerate(expected, 1)]
        elif fate[2] in _EXTRAS:
            number, due_ms = pending[fate[3]].pop(0) if pending.get(fate[3]) else (0, 0)
            next_ms = pending[fate[3]][0][1] if pending.get(fate[3]) else 0
            control = followers.get(fate[3])
            is_early = control is None or at_ms < control.appended_ms
            if (fate[4], fate[5], fate[6]) != (number, due_ms, next_ms) or is_early:
                wrong.append(f"O1: {fate[2:]} at {at_ms}, and {control} asks for {number} at {due_ms}")
    left = {control: times for control, times in pending.items() if times}
    if left and final in ("completed", ""):
        wrong.append(f"O9: it ended as {final!r}, and was not delivered for {left}")
    return wrong


def _extra_times(request: Recurring, control: Recurring) -> list[int]:
    """Returns the nominal times of the extra deliveries that a control requests. A backfill requests none for future
    times."""
    if control.action != "backfill":
        return [control.appended_ms]
    return request.filled_ms(*control.times_ms) if control.times_ms[1] <= control.appended_ms else []


def recurring_differences(
    request: Recurring, number: int, switches: list[tuple[int, int, bool]], extras: list[list[int]], record: Record
) -> list[str]:
    """Returns errors of the record in STORE that keeps a schedule after occurrence `number`. From the log: `switches`
    contains (offset of the control, its timestamp, True if it pauses), and `extras` the pending extra deliveries."""
    headers = dict(record.headers or [])
    meaning = json.loads(headers["postdate-stored"] or b"")
    due_ms = int(headers.get("postdate-moved") or headers["postdate-due"] or b"")
    kept = (meaning["v"], *meaning["occurrence"][:2], due_ms, meaning["target"], meaning["id"])
    next_ms = request.nominal_ms(number + 1) if number < request.count else 0
    still: list[tuple[int, int, bool]] = []
    for control, at_ms, pauses in switches if next_ms else []:
        if pauses != bool(still and still[-1][2]):
            still.append((control, at_ms, pauses))
            if not pauses and at_ms <= next_ms:  # a pause that is over is removed
                still = still[:-2]
    is_paused = any(since <= next_ms and until == _FOR_EVER_MS for since, until in _intervals([s[1:] for s in still]))
    occurs_ms = _FOR_EVER_MS - 1 if is_paused or not next_ms else next_ms
    leaves_ms = min(occurs_ms, *(extra[4] for extra in extras)) if extras else occurs_ms
    written = [list(switch) for switch in still] or None
    expected = (3, number + 1, leaves_ms, next_ms, request.target, request.id.decode())
    all_kept, all_expected = (kept, *map(meaning.get, ("switches", "extras"))), (expected, written, extras or None)
    return (
        [] if all_kept == all_expected else [f"STORE: {request.offset} is kept as {all_kept}, expected {all_expected}"]
    )


def _header(record: Record, name: str) -> bytes:
    return next((value or b"" for header, value in reversed(record.headers or []) if header == name), b"")
