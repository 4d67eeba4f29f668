"""Recurring schedules in the traffic, and their judge.

Every schedule fires at a fixed interval, so that its nominal times follow by arithmetic. They are requested, cancelled,
replaced and rescheduled by ids that no other traffic has. The judge reads the dispatch log, the targets, the dead
letters and STORE, and shares no code with the product.
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
    from support.simulation.judge import Outcome
    from support.simulation.readings import Readings
    from support.simulation.traffic import Asked, Traffic
    from support.simulation.world import World

_REQUESTS = "requests"
#: ms. The intervals: occurrences that come one by one, and such that hundreds are missed in an outage.
_EVERY_MS = (1_000, 1_000, 2_000, 5_000)
#: ms. Only occurrences that are later than this are skipped if `postdate-missed` is none.
_NONE_LATE_MS = 60_000
#: What a process may refuse a schedule for, by its settings.
_REFUSALS = frozenset({"bad-schedule", "forbidden-target", "limit-exceeded"})


@dataclass
class Recurring:
    """One request about a schedule: `action` is schedule, single, cancel or reschedule."""

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

    def nominal_ms(self, number: int) -> int:
        """The nominal time of an occurrence: a multiple of the interval, and its phase, behind the timestamp."""
        behind_ms = (self.appended_ms - self.phase_ms) % self.every_ms
        return self.appended_ms - behind_ms + number * self.every_ms


@dataclass
class Occurrences:
    """What the dispatch log and the targets hold of one schedule."""

    fates: list[tuple[list[Any], int, int]] = field(default_factory=list)
    """Each as JSON, with the time of its record, and the next request that its writer would read."""
    records: list[tuple[str, Record]] = field(default_factory=list)


class Recurrences:
    """Sends requests about schedules, and remembers them by partition and offset."""

    def __init__(self, broker: SimBroker, random: Random, partitions: int) -> None:
        self.asked: dict[tuple[int, int], Recurring] = {}
        self.target = "orders"
        self._broker = broker
        self._random = random
        self._partitions = partitions

    def plan(self, world: World, duration_ms: float, requests: int) -> None:
        """Add the events that send `requests` requests within the duration."""
        for _ in range(requests):
            world.time.at(world.time.now_ms + self._random.uniform(0.0, duration_ms), self._send)

    def last_due_ms(self) -> int:
        """The latest nominal time."""
        schedules = [each for each in self.asked.values() if each.action == "schedule"]
        return max((each.nominal_ms(each.count) for each in schedules), default=0)

    def followers(self, asked: Recurring) -> list[Recurring]:
        """The later requests with the same id."""
        return [each for at, each in sorted(self.asked.items()) if each.id == asked.id and at[1] > asked.offset]

    def _send(self) -> None:
        choose = self._random
        part = Partition(_REQUESTS, choose.randrange(self._partitions))
        if not self._broker.serves(self._broker.topics[_REQUESTS].logs[part.index]):
            return
        caller_id = b"calendar-%d-%d" % (part.index, choose.randrange(2))
        action = choose.choices(["schedule", "single", "cancel", "reschedule"], [8, 1, 2, 1])[0]
        asked = Recurring(part, action, caller_id, [("postdate-id", caller_id)], target=self.target)
        if action == "schedule":
            self._schedule(asked)
        elif action == "single":
            asked.headers += [("postdate-topic", self.target.encode()), ("postdate-delay", b"3s")]
        else:
            asked.headers.append(("postdate-action", action.encode()))
            asked.headers += [("postdate-delay", b"1s")] if action == "reschedule" else []
        asked.offset, asked.appended_ms = self._broker.append(part, b"k", asked.value, asked.headers, 0)
        self.asked[part.index, asked.offset] = asked

    def _schedule(self, asked: Recurring) -> None:
        choose = self._random
        asked.every_ms = choose.choice(_EVERY_MS)
        asked.phase_ms = choose.choice([0, 0, 137, 999])
        asked.count = choose.choice([1, 2, 4, 8, 15])
        asked.missed = choose.choice(["all", "all", "last", "none"])
        asked.value = choose.choice([None, b"", b"again"])
        every = b"%dms" % asked.every_ms + (b"/%dms" % asked.phase_ms if asked.phase_ms else b"")
        asked.headers += [
            ("traceparent", b"00-1"),
            ("postdate-topic", self.target.encode()),
            ("postdate-every", every),
            ("postdate-count", b"%d" % asked.count),
        ]
        if asked.missed != "all":
            asked.headers.append(("postdate-missed", asked.missed.encode()))
        if choose.random() < 0.2:
            asked.catch_up_ms = choose.choice([0, 500, 4_000])
            asked.headers.append(("postdate-catch-up", b"%dms" % asked.catch_up_ms))


# ---- the judge -----------------------------------------------------------------------------------------------------


def judge_recurrences(outcome: Outcome, traffic: Traffic, readings: Readings, world: World, halted: Set[int]) -> None:
    """What is wrong with the schedules is added to `outcome.wrong`. `halted`: the partitions whose requests need not
    have ended."""
    recurrences = traffic.recurrences
    for origin, asked in recurrences.asked.items():
        final = outcome.final(origin)
        outcome.reached[f"{asked.action} of a calendar {final}"] += 1
        if origin[0] in halted and not final:
            continue
        if len(outcome.fates.get(origin, [])) != 1:
            outcome.wrong.append(f"O9: {len(outcome.fates.get(origin, []))} final fates ({origin}, {asked.action})")
            continue
        found = outcome.occurrences[origin]
        wrong = _ending(outcome, traffic, asked, final)
        if asked.action == "schedule":
            wrong += _chain(asked, found, outcome.reached, final)
            wrong += _records(asked, found, outcome, world)
            if not (world.reached["broker's clock stepped"] or world.reached["broker's clock stepped far"]):
                wrong += _in_time(recurrences, asked, found, readings)
        outcome.wrong += [f"{each} ({origin}, every {asked.every_ms}, {asked.missed})" for each in wrong]


def _ending(outcome: Outcome, traffic: Traffic, asked: Recurring, final: str) -> list[str]:
    """O2: how a request may end, given those that follow."""
    followers = {each.action for each in traffic.recurrences.followers(asked)}
    followers |= {
        each.action for each in traffic.asked.values() if each.part == asked.part and each.names == asked.offset
    }
    origin = (asked.part.index, asked.offset)
    letters = [_header(letter, "postdate-dead-reason").decode() for letter in outcome.dead.get(origin, [])]
    if asked.action in ("cancel", "reschedule"):
        return [] if final in ("applied", "dead") else [f"O2: it ended as {final}"]
    allowed = {"dead", "completed" if asked.action == "schedule" else "delivered"}
    allowed |= {"cancelled"} if "cancel" in followers else set()
    allowed |= {"replaced"} if followers & {"schedule", "single"} else set()
    allowed |= {"cancelled"} if any(_bulk_may_end(asked, each) for each in traffic.asked.values()) else set()
    wrong = [] if final in allowed else [f"O2: it ended as {final}"]
    if final == "dead" and asked.action == "schedule" and not set(letters) & _REFUSALS:
        wrong.append(f"O2: it ended as dead for {letters}")
    return wrong


def _bulk_may_end(asked: Recurring, other: Asked) -> bool:
    is_later = other.part == asked.part and other.offset > asked.offset
    return is_later and other.selected is not None and other.selected.may_select(asked)


def _chain(asked: Recurring, found: Occurrences, reached: Counter[str] | dict[str, int], final: str) -> list[str]:
    """Every number is decided once, in order, at its nominal time, and by its policy."""
    wrong: list[str] = []
    decided = 0
    for fate, at_ms, _ in found.fates:
        name, first = fate[2], fate[3]
        last, next_ms = (first, fate[5]) if name == "occurred" else (fate[4], fate[6])
        if first != decided + 1 or last < first:
            wrong.append(f"O1: numbers {first} to {last} are {name} behind {decided}")
        decided = last
        expected_ms = asked.nominal_ms(last + 1) if last < asked.count else 0
        if next_ms != expected_ms or last > asked.count:
            wrong.append(f"O4: behind {last} of {asked.count} the next is due at {next_ms}, expected {expected_ms}")
        if name == "occurred":
            reached["occurred"] += 1
            if fate[4] != asked.nominal_ms(first) or at_ms < fate[4]:
                wrong.append(f"O5: {first} at {at_ms}, nominal {fate[4]}, expected {asked.nominal_ms(first)}")
        else:
            reached[f"skipped: {fate[5]}"] += 1
            wrong += _skip(asked, fate, at_ms)
    if (final == "completed") != (decided == asked.count):
        wrong.append(f"O9: it ended as {final} behind {decided} of {asked.count} occurrences")
    return wrong


def _skip(asked: Recurring, fate: list[Any], at_ms: int) -> list[str]:
    """A skip has a reason that the request allows."""
    _, _, _, first, last, reason, next_ms = fate
    late_ms = at_ms - asked.nominal_ms(last)
    may_miss = (
        (0 <= asked.catch_up_ms < late_ms)
        or (asked.missed == "last" and 0 < next_ms <= at_ms)
        or (asked.missed == "none" and late_ms > _NONE_LATE_MS)
    )
    if reason == "dead" or (reason == "missed" and may_miss):
        return []
    return [f"O2: {first} to {last} are skipped as {reason}, {late_ms} ms late"]


def _records(asked: Recurring, found: Occurrences, outcome: Outcome, world: World) -> list[str]:
    """O1, O3, O4: one record for each occurrence with its headers, and one dead letter for each that failed."""
    wrong: list[str] = []
    origin = b"%s/%d/%d" % (_REQUESTS.encode(), asked.part.index, asked.offset)
    delivered = Counter(int(_header(record, "postdate-occurrence")) for _, record in found.records)
    named = Counter(fate[3] for fate, _, _ in found.fates if fate[2] == "occurred")
    if delivered != named:
        wrong.append(f"O1: delivered {sorted(delivered.items())}, by the log {sorted(named.items())}")
    for target, record in found.records:
        number = int(_header(record, "postdate-occurrence"))
        next_header = [("postdate-next", b"%d" % asked.nominal_ms(number + 1))] if number < asked.count else []
        expected = [
            ("traceparent", b"00-1"),
            ("postdate-origin", origin),
            ("postdate-due", b"%d" % asked.nominal_ms(number)),
            ("postdate-id", asked.id),
            ("postdate-occurrence", b"%d" % number),
            *next_header,
        ]
        if (target, record.key, record.value, record.headers) != (asked.target, b"k", asked.value, expected):
            wrong.append(
                f"O4: expected {expected}, delivered {target} {record.key!r} {record.value!r} {record.headers}"
            )
    failed = [fate[3] for fate, _, _ in found.fates if fate[2] == "skipped" and fate[5] == "dead"]
    letters = outcome.dead.get((asked.part.index, asked.offset), [])
    ended_dead = outcome.final((asked.part.index, asked.offset)) == "dead"
    if len(letters) != len(failed) + ended_dead:
        wrong.append(f"O3: {len(letters)} dead letters, {failed} have failed")
    for letter in letters[: len(failed)]:
        reason = _header(letter, "postdate-dead-reason").decode()
        excused = world.troubles.explain(reason, asked.target, asked.part.index, letter.offset)
        if not excused and reason not in _REFUSALS:
            wrong.append(f"O2: an occurrence is a dead letter for {reason}")
    return wrong


def _in_time(recurrences: Recurrences, asked: Recurring, found: Occurrences, readings: Readings) -> list[str]:
    """No occurrence leaves though its writer had read a cancel that was written before it was due."""
    if len(readings.settings) > 1:
        return []
    cancels = [each for each in recurrences.followers(asked) if each.action == "cancel"]
    return [
        f"O2: {fate[3]}, due {fate[4]}, is delivered although cancel {cancel.offset} came at {cancel.appended_ms}"
        for fate, _, known in found.fates
        for cancel in cancels
        if fate[2] == "occurred" and cancel.offset < known and cancel.appended_ms < fate[4]
    ]


def recurring_differences(asked: Recurring, number: int, record: Record) -> list[str]:
    """What a record of STORE has wrong that keeps a schedule behind occurrence `number`."""
    headers = dict(record.headers or [])
    meaning = json.loads(headers["postdate-stored"] or b"")
    due_ms = int(headers.get("postdate-moved") or headers["postdate-due"] or b"")
    kept = (meaning["v"], meaning["occurrence"][0], meaning["occurrence"][1], due_ms, meaning["target"], meaning["id"])
    next_ms = asked.nominal_ms(number + 1)
    expected = (3, number + 1, next_ms, next_ms, asked.target, asked.id.decode())
    return [] if kept == expected else [f"STORE: {asked.offset} is kept as {kept}, expected {expected}"]


def _header(record: Record, name: str) -> bytes:
    return next(value or b"" for header, value in reversed(record.headers or []) if header == name)
