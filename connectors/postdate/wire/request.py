"""One request, as parsing returns it. Immutable."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from postdate.wire.headers import Control, Headers
from postdate.wire.retry_policies import RetryPolicy
from postdate.wire.schedules.schedule import Schedule
from postdate.wire.selection import Selection


class Return(msgspec.Struct, frozen=True, gc=False):
    """What a return says of its retry. Absent: None, and -1 for numbers."""

    policy: RetryPolicy | str
    """The policy, or the name of one."""
    attempt: int
    """The number of this attempt, from 1."""
    root: bytes | None
    """The origin of the first request; None: the return itself is the first."""
    first_due_ms: int
    error: tuple[str, bytes | None] | None
    """The header by which the consumer says why."""


class Action(IntEnum):
    """What a request asks for."""

    SCHEDULE = 0
    CANCEL = 1
    RESCHEDULE = 2
    PAUSE = 3
    RESUME = 4
    TRIGGER = 5


SWITCHES: Final = frozenset({Action.PAUSE, Action.RESUME})
"""The controls that pause a schedule and let it go on."""

OF_SCHEDULES: Final = SWITCHES | {Action.TRIGGER}
"""The controls that only a schedule takes."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """One well-formed request. Absent: -1 for numbers, b"" for the id."""

    action: int
    target: str
    """The target topic; "" unless the action is to schedule."""
    due_ms: int
    """Epoch milliseconds, 1 to 2**63 - 1; -1 for a control without a time."""
    key: bytes | None
    """The target key: `postdate-key` where given, else the record's own key."""
    partition: int
    """The target partition asked for; -1: as a Java producer would choose by the key."""
    id: bytes
    """1 to 256 bytes of UTF-8; b"" none."""
    acts_on: int
    """A control by origin: the offset of the request meant, in this same partition; -1: by id."""
    grace_ms: int
    """How late a delivery may be before the message is dead-lettered as expired; -1: without end."""
    headers: Headers
    """The untouched headers in their order: what will be delivered."""
    control: Control
    """The headers of Postdate that were taken out, with their places in the record."""
    retry: Return | None = None
    """Of a return alone, whose `due_ms` is -1 until `schedule_return` knows its offset."""
    window_ms: int = 0
    """The message may leave so long after its due time; 0: it has no window."""
    keeps: bool = False
    """If its id is pending already, that message stays and this request ends."""
    drops: bool = False
    """If a message of its id was delivered within the remembered window, this request ends."""
    latest_ms: int = 0
    """It is due at most so long after the first request of its series; 0: no limit."""
    selection: Selection | None = None
    """Of a bulk control alone: the messages on which it acts."""
    is_even: bool = False
    """The time within the window is chosen by the load, not drawn."""
    by_ms: int = 0
    """A bulk reschedule moves each message by this time, if its `due_ms` is -1; it may be negative."""
    schedule: Schedule | None = None
    """Of a schedule alone: `due_ms` is its first nominal time, and `window_ms` and `grace_ms` are absent."""
