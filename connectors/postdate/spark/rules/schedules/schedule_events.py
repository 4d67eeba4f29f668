"""The inputs and outputs of the judge of a recurring schedule: request, events, position, and the ranges that were
read.

The position suffices to judge later events: it has the next number and its nominal time, fates that wait for a hidden
record, and records that wait for a hidden fate. A state keeps the position.

Pure Python without Spark.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from postdate.spark.rules.times.nominal_times import CronTimes, IntervalTimes


class ScheduleRequest(NamedTuple):
    """The request of a schedule. A field is None if its header is absent. `digests` are those of key, value and
    headers."""

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
    """A fate `occurred`, or `skipped` for a `reason`, of the numbers from `number` to `last`; or the fate of an extra
    delivery, whose `reason` is `dead` if it became a dead letter."""

    number: int
    last: int
    reason: str | None
    nominal_ms: int
    """The nominal time of `last`. For a skip it is 0 until the fate is judged, since the log does not name the time."""
    next_ms: int
    log_offset: int
    place: int
    at_ms: int
    late: bool
    control: int = -1
    """The offset of the control of an extra delivery."""
    is_sound: bool = True
    """False if the fate has a problem, or could not be verified."""
    first_ms: int = 0
    """The first possible time of a dead occurrence whose time only its dead letter names; 0 for any other fate.

    For such an occurrence, `nominal_ms` is the time that the audit computes, or 0 if it computes none.
    """

    @property
    def size(self) -> int:
        return self.last + 1 - self.number

    @property
    def last_ms(self) -> int:
        """The last possible nominal time of a skip: it is neither after the commit nor after the next nominal time."""
        return min(self.next_ms - 1, self.at_ms) if self.next_ms else self.at_ms


class DeliveredOccurrence(NamedTuple):
    """A record that names an occurrence or an extra delivery of the schedule."""

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
    """The offset of the control of an extra delivery."""

    @property
    def place(self) -> str:
        return f"{self.target}/{self.partition}/{self.offset}"


Event: TypeAlias = Fate | DeliveredOccurrence


def in_log(fate: Fate) -> str:
    """Returns words for the offset of a fate in the log, as a part of a sentence."""
    return f"at offset {fate.log_offset} of the log"


class DeadOccurrence(NamedTuple):
    """A dead letter of the occurrence due at `due_ms`. `is_same` is True if the key and the value, if it has one, are
    those of the request."""

    due_ms: int
    is_same: bool
    partition: int = 0
    """The partition of the dead-letter topic in which the dead letter is, at `offset`."""
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
    `at_ms`.

    A fate `backfilled` names the first nominal time `from_ms`, and the end `until_ms` of the range.
    """

    control: int
    at_ms: int
    log_offset: int
    place: int
    from_ms: int | None = None
    until_ms: int | None = None

    @property
    def first_ms(self) -> int:
        """The nominal time of the first extra delivery."""
        return self.at_ms if self.from_ms is None else self.from_ms

    def as_request(self, schedule: ScheduleRequest) -> ScheduleRequest:
        """Returns a request for a separate schedule whose occurrences are the extra deliveries.

        For a trigger, it has one occurrence, at any time. For a backfill, it has one occurrence at each nominal time.
        """
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
        """True if an owner has refused the schedule. An earlier owner may have accepted it."""
        return self.name == "dead" and not self.first_due_ms


class RowFacts(NamedTuple):
    """The facts in the row of a schedule besides its occurrences."""

    dead_letters: Sequence[DeadOccurrence] = ()
    stored: tuple[int, int] | None = None
    """The first due time in the first fate `stored`, and the offset of the record of that fate in the log."""
    end: End | None = None
    switches: Sequence[Switch] = ()
    triggers: Sequence[Trigger] = ()
    lost_controls: Sequence[int] = ()
    """The offsets of the triggers and backfills whose fate may have left the dispatch log."""
    lost_switches: Sequence[Switch] = ()
    """The pauses and resumes whose fate may be lost. `log_offset` and `place` of each are -1."""

    @property
    def is_stored_by_control(self) -> bool:
        """True if a control caused `stored`. The record of `stored` then also contains an effect of the control."""
        effects: tuple[Switch | Trigger, ...] = (*self.switches, *self.triggers)
        return self.stored is not None and any(effect.log_offset == self.stored[1] for effect in effects)

    def extended_ms(self, due_ms: int) -> int:
        """Returns the timestamp of the first known trigger or backfill that covers `due_ms`; 0 if there is none."""
        found = [some.at_ms for some in self.triggers if some.first_ms <= due_ms <= (some.until_ms or some.first_ms)]
        return min(found, default=0)


class Bounds(NamedTuple):
    """The ranges that were read: columns of `audit.ranges` for the partition and the target of the schedule. Overdue
    occurrences are those due before `overdue_before_ms`."""

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
    """Numbers of occurrences. A `verified` occurrence was rightly delivered or skipped."""

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
    """How far the extra deliveries of one control were judged. The fields are as in Position."""

    control: int
    number: int
    next_ms: int
    log_offset: int
    place: int


class Position(NamedTuple):
    """How far a schedule was judged, and the findings so far."""

    first_ms: int = 0
    """The first nominal time: the published one, otherwise the computed one; 0 if nothing was judged yet, or if the
    audit cannot compute the time."""
    number: int = 1
    """The number of the next occurrence."""
    next_ms: int = 0
    """The nominal time of the next occurrence, as published; 0 if there is none."""
    log_offset: int = -1
    """The offset of the dispatch-log record that published `next_ms`; `place` is the place of the fate in the
    record."""
    place: int = -1
    figures: Figures = Figures()
    problems: tuple[tuple[str, str], ...] = ()
    """Pairs of verdict and sentence, at most SCHEDULE_PROBLEMS_MAX."""
    reasons: tuple[tuple[str, int], ...] = ()
    """The reasons why occurrences could not be verified, each with the number of occurrences."""
    waiting_fates: tuple[Fate, ...] = ()
    """Below `number`: fates that wait for a record, a dead letter or another fate. From `number` on: fates whose
    request was not read yet."""
    waiting_records: tuple[DeliveredOccurrence, ...] = ()
    extras: tuple[ExtraPosition, ...] = ()
    """The positions of the controls with extra deliveries that were judged, by ascending offset."""


class Judgement(NamedTuple):
    """The new position, and the figures that the judged events have added.

    `overdue` is the number of occurrences behind the position that should have been decided. `dead_letters` are those
    for which a later run may read a fate; None stands for all dead letters, if none was judged.
    """

    position: Position
    added: Figures
    lateness_ms: list[int]
    overdue: int
    dead_letters: Sequence[DeadOccurrence] | None = None


class ZoneVersions(NamedTuple):
    """The versions of the zone rules of a partition's owners.

    From each offset in `log_offsets`, which ascend, the version at the same index is in force. `installed` is the
    version of the audit.
    """

    installed: str
    log_offsets: tuple[int, ...] = ()
    versions: tuple[str, ...] = ()

    def are_installed_at(self, log_offset: int) -> bool:
        """True if the owner that wrote the record at `log_offset` had the version of the audit."""
        index = bisect_right(self.log_offsets, log_offset) - 1
        return index >= 0 and self.versions[index] == self.installed


def of_places(values: Sequence[int], places: Iterable[int] | None, loosest: Callable[[Iterable[int]], int]) -> int:
    """Returns the loosest of the values for these partitions, or of all values if there is none for them, like
    `endings.of_places`; -1 if there are no values at all."""
    found = [values[place] for place in places or () if place < len(values)]
    return loosest(found or values or [-1])
