"""The values of the timer log: entries, and marks, which are the fates of requests that are not ingested yet.

msgspec encodes them as msgpack arrays. So bodies stay raw bytes, and decoding a tampered file never executes code. New
fields go to the end and have a default, so older values still decode.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeAlias

import msgspec

from postdate.wheel.errors import Corrupt


class Kind(IntEnum):
    """The action of an entry's transaction. The key of an entry has due time 0 for every kind except DELIVER."""

    DELIVER = 0
    DEAD = 1
    CANCELLED = 2
    REPLACED = 3
    APPLIED = 4
    STORE = 5
    KEPT = 6
    DROPPED = 7


PENDING: Final = frozenset({Kind.DELIVER, Kind.STORE})
"""The kinds of messages that are not delivered yet: a control may act on them."""

ENDED_BY_EARLIER: Final = frozenset({Kind.KEPT, Kind.DROPPED})
"""The kinds of requests that end because of an earlier request with the same id. Such a request never holds the id."""


StrippedHeaders: TypeAlias = list[tuple[int, str, bytes | None]]
"""Headers removed from a request: index in the record, name and value, ascending by index."""

NO_STRIPPED: Final = msgspec.Raw(b"\x90")
"""No removed header."""


class Spread(IntEnum):
    """How the time within a window is chosen."""

    DRAWN = 0
    """The origin determines the time."""
    DEFERRED = 1
    """The time will be chosen evenly once the fine ring knows the load around it (`EntryChanges.deferred`). Until then,
    the origin determines the time."""
    CHOSEN = 2
    """`EvenSpread` has chosen the time by the load."""


class Window(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The window of a message, which leaves within [`due`, `due` + `length_ms`].

    `due` is the present due time as requested. The field `due` of the entry is the time chosen within the window.
    `first` is the time that was chosen first: an entry whose key has this due time needs no row in `places`. `spread`
    is a Spread.
    """

    due: int
    length_ms: int
    first: int
    spread: int = 0


class Next(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The next occurrence of a schedule, and the state that later occurrences depend on.

    `number` counts from 1. `nominal_ms` is 0 if no occurrence is left. `switches` has a tuple for each control that
    paused or resumed the schedule: its offset, its timestamp, and True if it pauses. `extras` has a tuple for each
    control with pending extra deliveries: its offset, the number of its next delivery, the nominal time of that
    delivery, the last possible nominal time, and the timestamp of the control. Both ascend by offset.
    """

    number: int
    nominal_ms: int
    switches: tuple[tuple[int, int, bool], ...] = ()
    extras: tuple[tuple[int, int, int, int, int], ...] = ()

    @property
    def requested_due(self) -> int:
        """The nominal time of the next occurrence. After the last occurrence, it is the timestamp of the first control
        with pending extra deliveries, which no later control changes. It is 0 if nothing is left."""
        if self.nominal_ms or not self.extras:
            return self.nominal_ms
        *_, timestamp_ms = self.extras[0]
        return timestamp_ms


class Entry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A pending request with all the data of its records, so that dispatch does not read the request topic. For a
    control, dispatch also reads the entry on which the control acts.

    `due` is the time at which the message leaves, even if the due time of its key is 0: the present due time, or the
    time chosen within `window`. An absent number is -1, an absent id b"". `own_key` is a 1-tuple with the request's own
    key if this differs from the target key. `stripped` has the removed `postdate-` headers with their positions
    (`pack_stripped`, `stripped_of`). They stay encoded, since a delivery does not need them. `reason` and `detail`
    describe a dead letter. The `reason` of a control is the name of its action.

    Controls and requests are named by their offsets. `acts_on` is the request on which a control acts. For a cancelled
    request, it is the control; for a replaced request, the request that replaces it; for a kept or dropped request, the
    earlier request with the same id. `new_due` is the new time
    that a control sets; for a control of a schedule, it is the time that the fate of the control contains. `moved_by`
    is the last control that moved the request. `series_ms` is the start of the series of a debounced message; a
    replaced message has it only if its survivor continues the series. `next` is set only for a schedule; then `due` is
    the time at which the next delivery leaves. `drops` is True if the request has `postdate-if-ended`.
    """

    kind: int
    stored: bool
    first_due: int
    due: int
    target: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int = -1
    id: bytes = b""
    grace_ms: int = -1
    own_key: tuple[bytes | None, ...] = ()
    stripped: msgspec.Raw = NO_STRIPPED
    reason: str = ""
    detail: str = ""
    acts_on: int = -1
    new_due: int = -1
    accepted_ms: int = -1
    window: Window | None = None
    moved_by: int = -1
    series_ms: int = -1
    next: Next | None = None
    drops: bool = False

    @property
    def first_key_due(self) -> int:
        """The due time in the key under which the entry was first put. While the entry has this key, it needs no row in
        the column family `places`."""
        return self.first_due if self.window is None else self.window.first

    @property
    def requested_due(self) -> int:
        """The present due time as requested."""
        if self.next is not None:
            return self.next.requested_due
        return self.due if self.window is None else self.window.due


class Head(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The first fields of an entry. Decoding them costs a third of decoding the entry."""

    kind: int
    stored: bool
    first_due: int
    due: int
    target: str


class Mark(msgspec.Struct, array_like=True):
    """The fates read so far of a request that is not ingested yet. They accumulate, and a final fate is never replaced.

    `due` is the new due time from a fate `moved`, or -1. `control` is the offset of the control that moved the request,
    and `in_bulk` is True if this is a bulk control. `sent` is True if the message was sent, so a control comes too
    late. `kept` is True after the fate `kept` or `dropped`, which does not change the owner of the id. `series_ms` is
    the start of the series that the request continues, or -1 if no fate contains it. `next` is the next occurrence of a
    schedule after the fates read so far; it has no meaning for other requests. `refused` is True if the request became
    a dead letter without effect. `drawn_by` is used if `in_bulk` is True: it is the last other control that moved the
    request, or -1, and the time within a window is drawn from the origin of this control.
    """

    final: bool
    stored: bool
    due: int
    sent: bool = False
    control: int = -1
    series_ms: int = -1
    kept: bool = False
    next: Next | None = None
    in_bulk: bool = False
    refused: bool = False
    drawn_by: int = -1


#: The largest size of an array header, which contains the number of fields.
_ARRAY_HEAD_SIZE_BYTES_MAX: Final = 5

_DELIVER: Final = int(Kind.DELIVER)
_NONE: Final = -1
_encoder = msgspec.msgpack.Encoder()
_encode: Final = _encoder.encode
_entries = msgspec.msgpack.Decoder(Entry)
_heads = msgspec.msgpack.Decoder(Head)
_stripped = msgspec.msgpack.Decoder(StrippedHeaders)
_marks = msgspec.msgpack.Decoder(Mark)


def encode_entry(entry: Entry) -> bytes:
    """Returns the bytes of an entry; O(size)."""
    return _encode(entry)


def encode_accepted(
    due_ms: int,
    target: str,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    partition: int,
    grace_ms: int,
    own_key: tuple[bytes | None, ...],
    stripped: StrippedHeaders,
    accepted_ms: int,
    window: Window | None = None,
) -> bytes:
    """Returns the bytes of the entry of a newly accepted message without an id, the most frequent kind of entry.

    `due_ms` is the time at which the message leaves. The result equals that of `encode_entry` for an Entry with these
    fields, but no Entry is created, which saves two thirds of the cost.
    """
    return _encode(
        (
            _DELIVER,
            False,
            due_ms if window is None else window.due,
            due_ms,
            target,
            key,
            value,
            headers,
            partition,
            b"",
            grace_ms,
            own_key,
            stripped,
            "",
            "",
            -1,
            -1,
            accepted_ms,
            window,
            _NONE,
            _NONE,
            None,
            False,
        )
    )


def pack_stripped(stripped: StrippedHeaders) -> msgspec.Raw:
    """Returns the field `stripped` of an entry."""
    return msgspec.Raw(_encode(stripped))


def stripped_of(entry: Entry) -> StrippedHeaders:
    """Returns the headers removed from the request of an entry; raises Corrupt if they do not decode."""
    return unpack_stripped(entry.stripped)


def unpack_stripped(stripped: msgspec.Raw) -> StrippedHeaders:
    """Returns the headers that `pack_stripped` has packed; raises Corrupt if they do not decode."""
    try:
        return _stripped.decode(stripped)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"the stripped headers of an entry do not decode: {error}") from error


def decode_entry(data: bytes) -> Entry:
    """Returns the entry in bytes from `encode_entry`; raises Corrupt for other bytes (move the directory aside)."""
    try:
        return _entries.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"an entry of {len(data)} bytes does not decode: {error}") from error


def decode_head(data: bytes) -> Head:
    """Returns the first fields of an entry. Raises Corrupt if they do not decode. Does not check the other
    fields."""
    try:
        return _heads.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"the head of an entry of {len(data)} bytes does not decode: {error}") from error


def head_bytes(data: bytes, head: Head) -> bytes:
    """Returns the bytes of an entry up to the end of its head: any bytes with this prefix have the same head.

    `head` is the result of `decode_head`. Returns all of `data` if another encoder wrote these fields in another form.
    """
    fields = _encode(head)[1:]  # without the array header: an entry has more fields
    start = data.find(fields, 1, len(fields) + _ARRAY_HEAD_SIZE_BYTES_MAX)
    return data[: start + len(fields)] if start > 0 else data


def encode_mark(mark: Mark) -> bytes:
    """Returns the bytes of a mark."""
    return _encode(mark)


def decode_mark(data: bytes) -> Mark:
    """Returns the mark in bytes from `encode_mark`; raises Corrupt for other bytes."""
    try:
        return _marks.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"a mark of {len(data)} bytes does not decode: {error}") from error
