"""Where a shard stands, and how much its timer log holds: one row that changes in the same write as the entries.

Thread rule: immutable.
"""

from __future__ import annotations

from typing import Final

import msgspec

from postdate.wheel.errors import Corrupt
from postdate.wheel.tally import Totals

POSITION_NAME: Final = b"position"


class Position(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where the shard stands: R and D (None before the first write that sets them), seq, takeover; and the counters."""

    next_request: int | None = None
    next_dispatch: int | None = None
    seq: int = 0
    takeover: int = 0
    totals: Totals = Totals()


_positions = msgspec.msgpack.Decoder(Position)


def encode_position(position: Position) -> bytes:
    """The bytes of a position."""
    return msgspec.msgpack.encode(position)


def decode_position(data: bytes) -> Position:
    """The position of bytes that `encode_position` made; raises Corrupt for any others."""
    try:
        return _positions.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"the position of the timer log does not decode: {error}") from error
