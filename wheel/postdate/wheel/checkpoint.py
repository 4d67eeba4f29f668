"""Where a shard stands, and how much its timer log holds: one row that changes in the same write as the entries.

Thread rule: immutable.
"""

from __future__ import annotations

from typing import Final

import msgspec

from postdate.wheel.errors import Corrupt
from postdate.wheel.write_delta import Totals

CHECKPOINT_NAME: Final = b"position"


class Checkpoint(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where the shard stands: R and D (None before the first write that sets them), seq, takeover; and the counters."""

    next_request: int | None = None
    next_dispatch: int | None = None
    seq: int = 0
    takeover: int = 0
    totals: Totals = Totals()


_checkpoints = msgspec.msgpack.Decoder(Checkpoint)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The bytes of a checkpoint."""
    return msgspec.msgpack.encode(checkpoint)


def decode_checkpoint(data: bytes) -> Checkpoint:
    """The checkpoint of bytes that `encode_checkpoint` made; raises Corrupt for any others."""
    try:
        return _checkpoints.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"the position of the timer log does not decode: {error}") from error
