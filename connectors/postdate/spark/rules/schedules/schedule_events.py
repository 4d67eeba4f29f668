"""The inputs and outputs of the judge of a recurring schedule: request, events, position, and the ranges that were
read.

The position suffices to judge later events: the next number and its nominal time, fates that wait for a hidden record,
and records that wait for a hidden fate. A state keeps it.

Nothing of Spark is imported.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from postdate.spark.rules.times.nominal_times import CronTimes, IntervalTimes


class ScheduleRequest(NamedTuple):
    """The request of a schedule; None: absent. `digests` are those of key, value and headers."""

    origin: str
    request_ms: int
    times: CronTimes | IntervalTimes
    start_ms: int | None
    end_ms: int | None
    count_max: int | None
    window_ms: int | None
    grace_ms: int | None
    catch_up_ms: int | None
    missed: str
    target: str | None
    id: bytes | None
    digests: tuple[bytes | None, ...]
    requested_partition: int | None
    key_hash: int | None


class Fate(NamedTuple):
    """A fate `occurred`, or `skipped` for a `reason`: of the numbers from `number` to `last`."""

    number: int
    last: int
    reason: str | None
    nominal_ms: int
    """Of `last`. The log does not name it for a skip; then it is 0 until the fate was judged."""
    next_ms: int
    log_offset: int
    place: int
    at_ms: int
    late: bool
    control: int = -1
    """Of an extra delivery: the offset of its control."""
    is_sound: bool = True
    """False: something is wrong with it, or could not be verified."""
    first_ms: int = 0
    """Of a dead occurrence whose time only its dead letter names: the first possible time; 0: its time is known.
    `nominal_ms` is then the time that the audit computes, 0 if it computes none."""

    @property
    def size(self) -> int:
        return self.last + 1 - self.number

    @property
    def last_ms(self) -> int:
        """The last possible time of a skip: it is decided when it is due, and lies before the next time."""
        return min(self.next_ms - 1, self.at_ms) if self.next_ms else self.at_ms


class DeliveredOccurrence(NamedTuple):
    """A record that names an occurrence of the schedule."""

    number: int
    target: str
    partition: int
    offset: int
    due_ms: int | None
    next_ms: int | None
    id: bytes | None
    own_headers: str
    digests: tuple[bytes | None, ...]
    control: int = -1
    """Of an extra delivery: the offset of its control."""

    @property
    def place(self) -> str:
        return f"{self.target}/{self.partition}/{self.offset}"


Event: TypeAlias = Fate | DeliveredOccurrence


def in_log(fate: Fate) -> str:
    """Returns the place of a fate in the log, for sentences."""
    return f"at offset {fate.log_offset} of the log"


class DeadOccurrence(NamedTuple):
    """A dead letter of the occurrence due at `due_ms`; `is_same`: it has the key and the value of the request."""

    due_ms: int
    is_same: bool
    partition: int = 0
    """Of the dead-letter topic; with `offset`, the place of the letter."""
    offset: int = -1


class Switch(NamedTuple):
    """A fate `paused` or `resumed` of a schedule, by the control at the offset `control` with the timestamp `at_ms`."""

    control: int
    at_ms: int
    is_pause: bool
    log_offset: int
    place: int


class Trigger(NamedTuple):
    """A fate `triggered` or `backfilled` of a schedule, by the control at the offset `control` with the timestamp
    `at_ms`: that of a backfill names the first nominal time `from_ms`, and `until_ms`, behind which none lies."""

    control: int
    at_ms: int
    log_offset: int
    place: int
    from_ms: int | None = None
    until_ms: int | None = None

    @property
    def first_ms(self) -> int:
        """The nominal time of its first delivery."""
        return self.at_ms if self.from_ms is None else self.from_ms

    def as_request(self, schedule: ScheduleRequest) -> ScheduleRequest:
        """Its extra deliveries as a schedule of their own: once at any time, or each time of the backfill."""
        alike = schedule._replace(start_ms=None, window_ms=None, grace_ms=None, catch_up_ms=None, missed="all")
        if self.until_ms is None:
            return alike._replace(times=IntervalTimes(1, 0), end_ms=None, count_max=1)
        end_ms = self.until_ms if schedule.end_ms is None else min(self.until_ms, schedule.end_ms)
        return alike._replace(end_ms=end_ms, count_max=None)


class End(NamedTuple):
    """The final fate of a schedule."""

    name: str
    first_due_ms: int
    log_offset: int
    place: int

    @property
    def is_refusal(self) -> bool:
        """True if an owner has refused the schedule. Another owner may have accepted it before."""
        return self.name == "dead" and not self.first_due_ms


class RowFacts(NamedTuple):
    """The facts in the row of a schedule besides its occurrences."""

    dead_letters: Sequence[DeadOccurrence] = ()
    stored: tuple[int, int] | None = None
    """The first due time in its first fate `stored`, and the offset of that record of the log."""
    end: End | None = None
    switches: Sequence[Switch] = ()
    triggers: Sequence[Trigger] = ()
    lost_controls: Sequence[int] = ()
    """The offsets of its triggers and backfills that may have lost their fate: it may have left the dispatch log."""
    lost_switches: Sequence[Switch] = ()
    """Its pauses and resumes that may have lost their fate, without a place in the log."""

    @property
    def is_stored_by_control(self) -> bool:
        """True if the record of `stored` also contains the effect of a control, since a control writes `stored`."""
        effects: tuple[Switch | Trigger, ...] = (*self.switches, *self.triggers)
        return self.stored is not None and any(effect.log_offset == self.stored[1] for effect in effects)

    def extended_ms(self, due_ms: int) -> int:
        """Returns when a known trigger or backfill of a time was requested first; 0: there is none."""
        found = [some.at_ms for some in self.triggers if some.first_ms <= due_ms <= (some.until_ms or some.first_ms)]
        return min(found, default=0)


class Bounds(NamedTuple):
    """The ranges that were read: columns of `audit.ranges`, for the partition and the target of the schedule."""

    overdue_before_ms: int
    log_capped: bool
    fates_lost_before_ms: int
    letters_lost_before_ms: int
    letters_capped_from_ms: int
    is_target_read: bool
    target_partitions: int | None
    target_compacted: bool
    target_lost_before_ms: Sequence[int]
    target_capped_from_ms: Sequence[int]
    target_known_ms: Sequence[int]
    target_began_ms: int
    target_recreated_ms: int


class Figures(NamedTuple):
    """Numbers of occurrences. A `verified` one was delivered or skipped as it had to be."""

    occurred: int = 0
    verified: int = 0
    missing: int = 0
    extra: int = 0
    early: int = 0
    repeated: int = 0
    wrongly_skipped: int = 0
    out_of_policy: int = 0
    mismatched: int = 0
    unverifiable: int = 0
    missed: int = 0
    paused: int = 0
    gap: int = 0
    grace: int = 0
    dead: int = 0

    def plus(self, other: Figures) -> Figures:
        return Figures(*(one + more for one, more in zip(self, other, strict=True)))


class ExtraPosition(NamedTuple):
    """How far the extra deliveries of one control were judged: as the fields of `Position`."""

    control: int
    number: int
    next_ms: int
    log_offset: int
    place: int


class Position(NamedTuple):
    """How far a schedule was judged, and the findings until then."""

    first_ms: int = 0
    """The first nominal time: the published one, or else the computed one; 0: nothing was judged yet, or the audit
    cannot compute it."""
    number: int = 1
    """Of the next occurrence."""
    next_ms: int = 0
    """The nominal time of the next occurrence, as published; 0: there is none."""
    log_offset: int = -1
    """Of the dispatch-log record that has published it, and `place` of the fate in it."""
    place: int = -1
    figures: Figures = Figures()
    problems: tuple[tuple[str, str], ...] = ()
    """Verdict and sentence; at most SCHEDULE_PROBLEMS_MAX."""
    reasons: tuple[tuple[str, int], ...] = ()
    """Why occurrences could not be verified, and how many."""
    waiting_fates: tuple[Fate, ...] = ()
    """Below `number`: they wait for a record, letter or other fate. From `number`: their request was not read yet."""
    waiting_records: tuple[DeliveredOccurrence, ...] = ()
    extras: tuple[ExtraPosition, ...] = ()
    """Of each control with extra deliveries that was judged, by rising offset."""


class Judgement(NamedTuple):
    """The new position, and what these events have added to its figures. `overdue`: the number of occurrences behind
    the position that should have been decided. `letters`: the dead letters for which a later run may read a fate; None:
    all of them, because none was judged."""

    position: Position
    added: Figures
    lateness_ms: list[int]
    overdue: int
    dead_letters: Sequence[DeadOccurrence] | None = None


class ZoneVersions(NamedTuple):
    """The versions of the zone rules of a partition's owners: from each of `log_offsets`, ascending, the version at the
    same place. `installed`: the version of the audit."""

    installed: str
    log_offsets: tuple[int, ...] = ()
    versions: tuple[str, ...] = ()

    def are_installed_at(self, log_offset: int) -> bool:
        """Returns True if the owner that wrote a record had the version of the audit."""
        index = bisect_right(self.log_offsets, log_offset) - 1
        return index >= 0 and self.versions[index] == self.installed


def of_places(values: Sequence[int], places: Iterable[int] | None, loosest: Callable[[Iterable[int]], int]) -> int:
    """Returns the loosest of the values for these partitions, or of all. As `endings.of_places`."""
    found = [values[place] for place in places or () if place < len(values)]
    return loosest(found or values or [-1])
