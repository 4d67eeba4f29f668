"""One parsed request. Immutable."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from postdate.wire.headers import Headers, StrippedHeaders
from postdate.wire.requests.retry_policies import RetryPolicy
from postdate.wire.requests.selection import Selection
from postdate.wire.schedules.schedule import Schedule


class Return(msgspec.Struct, frozen=True, gc=False):
    """The retry that a return requests. An absent number is -1, any other absent value None."""

    policy: RetryPolicy | str
    """The policy, or the name of a policy."""
    attempt: int
    """The number of this attempt, from 1."""
    root: bytes | None
    """The origin of the first request of the message; None if the return is the first request."""
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
"""The controls that request extra deliveries of a schedule."""

OF_SCHEDULES: Final = SWITCHES | EXTENDS
"""The controls that act only on a schedule."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """One well-formed request. An absent number is -1, an absent id b""."""

    action: int
    target: str
    """The target topic; "" unless the action is to schedule."""
    due_ms: int
    """Epoch milliseconds, 1 to 2**63 - 1; -1 for a control without a time, and for a return that is not scheduled."""
    key: bytes | None
    """The target key: `postdate-key` if given, otherwise the record's key."""
    partition: int
    """The requested target partition; -1 for the partition that a Java producer would choose by the key."""
    id: bytes
    """1 to 256 bytes of UTF-8; b"" if there is none."""
    acts_on: int
    """For a control by origin, the offset in this partition of the request on which it acts; otherwise -1."""
    grace_ms: int
    """A message that is late by more than this becomes a dead letter with the reason `expired`; -1 without a limit."""
    headers: Headers
    """The headers of the message in their order, which will be delivered."""
    stripped: StrippedHeaders
    """The removed headers of Postdate or of a dialect, with their positions in the record."""
    retry: Return | None = None
    """Only for a return. Its `due_ms` is -1 until `schedule_return` computes the due time."""
    window_ms: int = 0
    """The length of the window: the message leaves at most this long after its due time; 0 without a window."""
    keeps: bool = False
    """The effect if a message with this id is already pending: True keeps that message and ends this request, False
    replaces the message."""
    drops: bool = False
    """The effect if a message with this id was delivered within the remembered window: True ends this request without a
    delivery."""
    latest_ms: int = 0
    """The message is due at most this long after the first request of its series; 0 without a limit."""
    selection: Selection | None = None
    """Only for a bulk control: the messages on which it acts."""
    is_even: bool = False
    """True if the load, not a draw, determines the time within the window."""
    by_ms: int = 0
    """If `due_ms` is -1, a bulk reschedule moves each message by this duration, which may be negative."""
    schedule: Schedule | None = None
    """Only for a schedule: `due_ms` is its first nominal time, and `window_ms` and `grace_ms` are absent."""
    times_ms: tuple[int, int] = (-1, -1)
    """Only for a backfill: the first and the last nominal time that it requests."""
