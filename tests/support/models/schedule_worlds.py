"""The states of the model of recurring schedules: request topic, index, dispatch log, STORE and members."""

from __future__ import annotations

from typing import NamedTuple

INFINITE = 99
NONE = -1

SCHEDULE, CANCEL, PAUSE, RESUME, EXTRA = "schedule", "cancel", "pause", "resume", "extra"
STORE, DELIVER, CANCELLED = "store", "deliver", "cancelled"

#: A pause or a resume: the control's offset, its timestamp, and whether it pauses.
Switch = tuple[int, int, bool]

#: An extra delivery: the control's offset, the number and nominal time of the next delivery, and the last possible
#: time.
Extra = tuple[int, int, int, int]


class ModelRequest(NamedTuple):
    """One record of the request topic, appended at `at`. An extra without `times` is a trigger. With `times` it is a
    backfill of all nominal times between these two, both included."""

    at: int
    action: str
    times: tuple[int, int] | None = None


class ModelState(NamedTuple):
    """The progress of a schedule: the number and nominal time of its next occurrence (NONE after the last one), its
    pauses and resumes, and its extra deliveries."""

    number: int
    due: int
    switches: tuple[Switch, ...] = ()
    extras: tuple[Extra, ...] = ()


class ModelEntry(NamedTuple):
    """The entry of the schedule."""

    kind: str
    state: ModelState
    stored: bool = False


class ModelMark(NamedTuple):
    """The fates that were read before the request of their schedule."""

    final: bool = False
    state: ModelState | None = None
    switches: tuple[Switch, ...] = ()
    extras: tuple[Extra, ...] = ()


class ModelFate(NamedTuple):
    """One fate. `number`: the number of the occurrence, or the first number of a range that ends at `last`, or the
    control's offset. `last`: for an extra delivery its number, and for the fate `extended` the last possible time."""

    name: str
    number: int = NONE
    last: int = NONE
    due: int = NONE
    next_due: int = NONE
    reason: str = ""


class Memory(NamedTuple):
    """The timer index: R (`next_request`), D (`next_dispatch`), the schedule, the pending controls (offset, and True if
    the control acts), and the marks."""

    next_request: int = 0
    next_dispatch: int = 0
    entry: ModelEntry | None = None
    controls: tuple[tuple[int, bool], ...] = ()
    mark: ModelMark | None = None
    ended: frozenset[int] = frozenset()


class ModelLog(NamedTuple):
    """One record of the dispatch log. `readable`: the number of requests when it was written."""

    readable: int
    fates: tuple[ModelFate, ...]


class Instance(NamedTuple):
    """A member: `memory` is None while it is down; `gate`: the number of requests at its takeover."""

    memory: Memory | None = None
    disk: Memory | None = None
    owns: bool = False
    gate: int = 0


class ScheduleWorld(NamedTuple):
    """One state of the whole model."""

    now: int
    log: tuple[ModelLog, ...]
    store: ModelState | None
    low_water: int
    members: tuple[Instance, Instance]
    crashes: int
