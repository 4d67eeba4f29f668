"""A schedule that fires every minute, for tests of the audit's judge: its request, fates and records as literals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from postdate.spark.rules.schedules.schedule_events import (
    Bounds,
    DeadOccurrence,
    DeliveredOccurrence,
    End,
    Event,
    Fate,
    Judgement,
    Position,
    RowFacts,
    ScheduleRequest,
    Switch,
    Trigger,
    ZoneVersions,
)
from postdate.spark.rules.schedules.schedules import judge_schedule
from postdate.spark.rules.times.nominal_times import CronTimes, IntervalTimes

MINUTE = 60_000
T = 1_795_258_260_000  # 2026-11-21T10:51:00Z, a nominal time
NEVER_MS = 2**62
DIGESTS = (b"k", b"v", b"h")
OWN = "postdate-origin,postdate-due,postdate-id,postdate-occurrence"
ORIGIN = "postdate.requests/0/7"
BERLIN = CronTimes("30 2 * * *", "Europe/Berlin")
# 2026-10-24T02:30+02:00, the next day at 02:30+02:00 (the clocks are set back at 03:00), and at 02:30+01:00.
NIGHT, FOLD, SECOND = 1_792_801_800_000, 1_792_888_200_000, 1_792_891_800_000
# 2026-03-28T02:30+01:00, 2026-03-29T03:00+02:00 (the clocks are set forward at 02:00), 2026-03-30T02:30+02:00.
MARCH, GAP, AFTER_GAP = 1_774_661_400_000, 1_774_746_000_000, 1_774_830_600_000

REQUEST = ScheduleRequest(
    *(ORIGIN, T, IntervalTimes(MINUTE), None, None, None, None, None, None),
    *("all", "orders", b"id", DIGESTS, None, 3),
)
BOUNDS = Bounds(
    *(T + 3 * MINUTE + 30_000, False, -1, -1, NEVER_MS, True, 4, False),
    *((-1,) * 4, (NEVER_MS,) * 4, (0,) * 4, -1, -1),
)
INSTALLED, NOTHING = ZoneVersions("2026f", (0,), ("2026f",)), Position()


@dataclass(frozen=True)
class Case:
    """A schedule with the fates and records of its occurrences."""

    fates: Sequence[Fate] = ()
    records: Sequence[DeliveredOccurrence] = ()
    dead_letters: Sequence[DeadOccurrence] = ()
    switches: Sequence[Switch] = ()
    triggers: Sequence[Trigger] = ()
    lost_controls: Sequence[int] = ()
    lost_switches: Sequence[Switch] = ()
    stored: tuple[int, int] | None = (T + MINUTE, 1)
    end: End | None = None
    request: dict[str, Any] = field(default_factory=dict)
    bounds: dict[str, Any] = field(default_factory=dict)
    zones: ZoneVersions = INSTALLED
    known: Position = NOTHING

    def judged(self) -> Judgement:
        unsorted: list[Event] = [*self.fates, *self.records]
        events = sorted(
            unsorted, key=lambda event: (event.control, event.number, isinstance(event, DeliveredOccurrence))
        )
        request, bounds = REQUEST._replace(**self.request), BOUNDS._replace(**self.bounds)
        lost = self.lost_controls, self.lost_switches
        facts = RowFacts(self.dead_letters, self.stored, self.end, self.switches, self.triggers, *lost)
        return judge_schedule(request, self.known, events, facts, self.zones, bounds)


def occurred(number: int, nominal_ms: int, next_ms: int, **changes: Any) -> Fate:
    """Returns the fate of a delivery 5 ms after its nominal time, in a separate record of the log."""
    fate = Fate(number, number, None, nominal_ms, next_ms, 1 + number, 0, nominal_ms + 5, False)
    return fate._replace(**changes)


def skipped(number: int, last: int, reason: str, next_ms: int, at_ms: int, **changes: Any) -> Fate:
    return Fate(number, last, reason, 0, next_ms, 1 + number, 0, at_ms, False)._replace(**changes)


def record(fate: Fate, **changes: Any) -> DeliveredOccurrence:
    """Returns the record of a delivery."""
    own = f"{OWN},postdate-next" if fate.next_ms else OWN
    delivered = DeliveredOccurrence(
        fate.number, "orders", 3, fate.number, fate.nominal_ms, fate.next_ms or None, b"id", own, DIGESTS
    )
    return delivered._replace(**changes)


def at(number: int) -> int:
    return T + number * MINUTE


def sound(count: int = 3, **changes: Any) -> Case:
    fates = [occurred(number, at(number), at(number + 1)) for number in range(1, count + 1)]
    return Case(fates, [record(fate) for fate in fates], **changes)


def with_fate(changed: int, **changes: Any) -> Case:
    """Returns the sound case with a changed fate, and its record unchanged."""
    case = sound()
    return replace(case, fates=[fate._replace(**changes) if fate.number == changed else fate for fate in case.fates])


def only(fate: Fate, *records: DeliveredOccurrence, **changes: Any) -> Case:
    return Case([fate], records, **changes)


def nightly(times: CronTimes, first_ms: int, *days: tuple[int, int], **changes: Any) -> Case:
    """Returns a schedule in Berlin with deliveries at `days`, which are pairs of a nominal time and the next one."""
    fates = [occurred(number, *day) for number, day in enumerate(days, 1)]
    given = {"bounds": {"overdue_before_ms": 0}, **changes}
    request = {"times": times, "request_ms": first_ms - 1, **given.pop("request", {})}
    return Case(fates, [record(fate) for fate in fates], stored=(first_ms, 1), request=request, **given)
