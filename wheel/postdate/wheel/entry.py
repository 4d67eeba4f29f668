"""The value of an entry in the timer log, and the mark of a fate that was read before its request.

Encoded as a msgpack array by msgspec, so bodies stay raw bytes and a tampered file can only fail to decode, never run.
New fields go to the end with a default: an older value then still decodes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeAlias

import msgspec

from postdate.wheel.errors import Corrupt


class Kind(IntEnum):
    """What the transaction of an entry does; every kind but DELIVER lies under key due 0."""

    DELIVER = 0
    DEAD = 1
    CANCELLED = 2
    REPLACED = 3
    APPLIED = 4
    STORE = 5


PENDING: Final = frozenset({Kind.DELIVER, Kind.STORE})
"""The kinds of a message that is still to be delivered, so that a control may act on it."""


Control: TypeAlias = list[tuple[int, str, bytes | None]]
"""Headers that were taken out of a request: index in the record, name, value; by rising index."""

NO_CONTROL: Final = msgspec.Raw(b"\x90")
"""None of them."""


class Entry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A request that is held: everything its transaction will need, so that dispatch reads nothing but this.

    `due` is the true present due time, also where the key's is 0; -1 stands for "none" in the numbers, b"" for no id.
    `own_key` holds the request's own key in a 1-tuple where it differs from the target key; `control` the removed
    `postdate-` headers with their positions, encoded, since a delivery does without them (`pack_control`,
    `control_of`). `acts_on`, `new_due`: the request a control acts on, and its new time.
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
    control: msgspec.Raw = NO_CONTROL
    reason: str = ""
    detail: str = ""
    acts_on: int = -1
    new_due: int = -1
    accepted_ms: int = -1


class Head(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The first fields of an entry: enough to know whose it is, at a third of the cost of the whole."""

    kind: int
    stored: bool
    first_due: int
    due: int
    target: str


class Mark(msgspec.Struct, array_like=True):
    """The fates seen so far of a request that is not ingested yet; they add up, and final wins for ever.

    `due` is the new due time of a `moved`, -1 where it has not moved. `sent`: the final fate was a delivery or a dead
    letter.
    """

    final: bool
    stored: bool
    due: int
    sent: bool = False


#: How many bytes say how many fields follow.
_ARRAY_HEAD_SIZE_BYTES_MAX: Final = 5

_DELIVER: Final = int(Kind.DELIVER)
_encoder = msgspec.msgpack.Encoder()
_encode: Final = _encoder.encode
_entries = msgspec.msgpack.Decoder(Entry)
_heads = msgspec.msgpack.Decoder(Head)
_controls = msgspec.msgpack.Decoder(Control)
_marks = msgspec.msgpack.Decoder(Mark)


def encode_entry(entry: Entry) -> bytes:
    """The bytes of an entry; O(size)."""
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
    control: Control,
    accepted_ms: int,
) -> bytes:
    """The bytes of the entry of a message as it was accepted, without an id: what most entries are for all their life.

    The same as `encode_entry` of the Entry with these fields, which is never made: a third of the cost.
    """
    return _encode(
        (
            _DELIVER,
            False,
            due_ms,
            due_ms,
            target,
            key,
            value,
            headers,
            partition,
            b"",
            grace_ms,
            own_key,
            control,
            "",
            "",
            -1,
            -1,
            accepted_ms,
        )
    )


def pack_control(control: Control) -> msgspec.Raw:
    """The field `control` of an entry."""
    return msgspec.Raw(_encode(control))


def control_of(entry: Entry) -> Control:
    """The headers that were taken out of the request of an entry; raises Corrupt where they do not decode."""
    try:
        return _controls.decode(entry.control)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"the control headers of an entry do not decode: {error}") from error


def decode_entry(data: bytes) -> Entry:
    """The entry of bytes that `encode_entry` made; raises Corrupt for any others (move the directory aside)."""
    try:
        return _entries.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"an entry of {len(data)} bytes does not decode: {error}") from error


def decode_head(data: bytes) -> Head:
    """The first fields of an entry; raises Corrupt as `decode_entry` does, but does not look at what follows them."""
    try:
        return _heads.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"the head of an entry of {len(data)} bytes does not decode: {error}") from error


def head_bytes(data: bytes, head: Head) -> bytes:
    """The bytes of an entry up to the end of its head: whatever begins with them has the same head.

    `head`: what `decode_head` says of it. Where these fields were written in another way than here, all of `data`.
    """
    fields = _encode(head)[1:]  # without the number of fields, of which an entry has more
    at = data.find(fields, 1, len(fields) + _ARRAY_HEAD_SIZE_BYTES_MAX)
    return data[: at + len(fields)] if at > 0 else data


def encode_mark(mark: Mark) -> bytes:
    """The bytes of a mark."""
    return _encode(mark)


def decode_mark(data: bytes) -> Mark:
    """The mark of bytes that `encode_mark` made; raises Corrupt for any others."""
    try:
        return _marks.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"a mark of {len(data)} bytes does not decode: {error}") from error
