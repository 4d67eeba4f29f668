"""The worlds of the model of recurring schedules: the request topic, the index, the log, STORE and the members."""

from __future__ import annotations

from typing import NamedTuple

INFINITE = 99
NONE = -1

SCHEDULE, CANCEL, PAUSE, RESUME, EXTRA = "schedule", "cancel", "pause", "resume", "extra"
STORE, DELIVER, CANCELLED = "store", "deliver", "cancelled"

#: The control's offset, its timestamp, and whether it pauses.
Switch = tuple[int, int, bool]

#: The control's offset, and the number and the nominal time of its next extra delivery, and its last possible time.
Extra = tuple[int, int, int, int]


class ModelRequest(NamedTuple):
    """One record of the request topic, and when it was appended. An extra without `times` is a trigger; with them it is
    a backfill of the nominal times between the two, both included."""

    at: int
    action: str
    times: tuple[int, int] | None = None


class ModelState(NamedTuple):
    """Where a schedule is: the number and the nominal time of its next occurrence, NONE behind the last one; what has
    paused it; and its extra deliveries."""

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
    """Fates of the schedule that were read before its request."""

    final: bool = False
    state: ModelState | None = None
    switches: tuple[Switch, ...] = ()
    extras: tuple[Extra, ...] = ()


class ModelFate(NamedTuple):
    """One fate. `number`: of the occurrence, or the first of a range that ends at `last`, or the control's offset;
    `last`: of an extra delivery its number, and of the fate `extended` the last possible time."""

    name: str
    number: int = NONE
    last: int = NONE
    due: int = NONE
    next_due: int = NONE
    reason: str = ""


class Memory(NamedTuple):
    """The timer index: R, D, the schedule, the pending controls (offset, whether it acts), and the marks."""

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
    """A member: memory is None while it is down; `gate`: the requests that were there when it took over."""

    memory: Memory | None = None
    disk: Memory | None = None
    owns: bool = False
    gate: int = 0


class ScheduleWorld(NamedTuple):
    """Everything that there is."""

    now: int
    log: tuple[ModelLog, ...]
    store: ModelState | None
    low_water: int
    members: tuple[Instance, Instance]
    crashes: int
