"""Keys of the timer log. Their numbers are big-endian with a fixed width, so byte order is the order of dispatch.

| key | bytes |
| --- | --- |
| entry | due_ms u64, request offset u64 |
| parked entry | target in UTF-8, one 0 byte, due_ms u64, request offset u64 |

Entries of other kinds than DELIVER have due time 0 in their keys (`ENDING_DUE`), so they come first. A topic name is
never empty, so every parked key is longer than an entry key: the length distinguishes them. A topic name contains no 0
byte, so the first 0 byte ends it.
"""

from __future__ import annotations

import struct
from typing import Final

ENDING_DUE: Final = 0
ENTRY_KEY_SIZE_BYTES: Final = 16
FIRST_KEY: Final = bytes(16)
LAST_KEY: Final = b"\xff" * 16
DUE_MS_MAX: Final = 2**64 - 1

_ENTRY_KEY = struct.Struct(">QQ")
_NUMBER = struct.Struct(">Q")


def entry_key(due_ms: int, offset: int) -> bytes:
    """Returns the 16-byte key of an entry. Raises `struct.error` if a number does not fit into u64."""
    return _ENTRY_KEY.pack(due_ms, offset)


def split_key(key: bytes) -> tuple[int, int]:
    """Returns (due_ms, request offset) of an entry key or of a parked key."""
    due_ms, offset = _ENTRY_KEY.unpack_from(key, len(key) - ENTRY_KEY_SIZE_BYTES)
    return due_ms, offset


def parked_key(target: str, due_ms: int, offset: int) -> bytes:
    """Returns the key of a parked entry. Entries of one target are adjacent, in order of due time."""
    assert target, "an entry without a target is never parked"
    return target.encode() + b"\0" + _ENTRY_KEY.pack(due_ms, offset)


def split_parked_key(key: bytes) -> tuple[str, int, int]:
    """Returns (target, due_ms, request offset) of a parked key."""
    due_ms, offset = split_key(key)
    return key[: -ENTRY_KEY_SIZE_BYTES - 1].decode(), due_ms, offset


def parked_prefix(target: str) -> bytes:
    """Returns the common prefix of all parked keys of a target."""
    return target.encode() + b"\0"


def number_key(number: int) -> bytes:
    """Returns an offset or the number of a range as an 8-byte key."""
    return _NUMBER.pack(number)


def key_number(key: bytes) -> int:
    """Returns the number in a key from `number_key`."""
    number: int = _NUMBER.unpack(key)[0]
    return number
