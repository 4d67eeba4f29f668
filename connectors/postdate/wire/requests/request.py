"""One request, as parsing returns it. Immutable."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from postdate.wire.headers import Headers, StrippedHeaders
from postdate.wire.requests.retry_policies import RetryPolicy
from postdate.wire.requests.selection import Selection
from postdate.wire.schedules.schedule import Schedule


class Return(msgspec.Struct, frozen=True, gc=False):
    """The retry that a return requests. Absent: None, and -1 for numbers."""

    policy: RetryPolicy | str
    """The policy, or the name of one."""
    attempt: int
    """The number of this attempt, from 1."""
    root: bytes | None
    """The origin of the first request; None: the return itself is the first."""
    first_due_ms: int
    error: tuple[str, bytes | None] | None
    """The header with the consumer's reason."""


class Action(IntEnum):
    """The action of a request."""

    SCHEDULE = 0
    CANCEL = 1
    RESCHEDULE = 2
    PAUSE = 3
    RESUME = 4
    TRIGGER = 5
    BACKFILL = 6


SWITCHES: Final = frozenset({Action.PAUSE, Action.RESUME})
"""The controls that pause and resume a schedule."""

EXTENDS: Final = frozenset({Action.TRIGGER, Action.BACKFILL})
"""The controls that ask for extra deliveries of a schedule."""

OF_SCHEDULES: Final = SWITCHES | EXTENDS
"""The controls that act only on a schedule."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """One well-formed request. Absent: -1 for numbers, b"" for the id."""

    action: int
    target: str
    """The target topic; "" unless the action is to schedule."""
    due_ms: int
    """Epoch milliseconds, 1 to 2**63 - 1; -1 for a control without a time."""
    key: bytes | None
    """The target key: `postdate-key` if given, otherwise the record's key."""
    partition: int
    """The requested target partition; -1: as a Java producer would choose by the key."""
    id: bytes
    """1 to 256 bytes of UTF-8; b"" none."""
    acts_on: int
    """Of a control by origin: the offset of the request on which it acts, in this partition; -1: by id."""
    grace_ms: int
    """How late a delivery may be before the message becomes the dead letter `expired`; -1: no limit."""
    headers: Headers
    """The untouched headers in their order: what will be delivered."""
    stripped: StrippedHeaders
    """The removed headers of Postdate, with their places in the record."""
    retry: Return | None = None
    """Of a return alone, whose `due_ms` is -1 until `schedule_return` knows its offset."""
    window_ms: int = 0
    """The longest time after its due time at which the message may leave; 0: it has no window."""
    keeps: bool = False
    """If its id is pending already, that message stays and this request ends."""
    drops: bool = False
    """If a message of its id was delivered within the remembered window, this request ends."""
    latest_ms: int = 0
    """It is due at most this long after the first request of its series; 0: no limit."""
    selection: Selection | None = None
    """Of a bulk control alone: the messages on which it acts."""
    is_even: bool = False
    """The time within the window is chosen by the load, not drawn."""
    by_ms: int = 0
    """A bulk reschedule moves each message by this time, if its `due_ms` is -1; it may be negative."""
    schedule: Schedule | None = None
    """Of a schedule alone: `due_ms` is its first nominal time, and `window_ms` and `grace_ms` are absent."""
    times_ms: tuple[int, int] = (-1, -1)
    """Of a backfill alone: the first and the last nominal time for which it asks."""
