"""The progress of a shard and the counters of its timer log: one row that changes in the same write as the entries.

Thread rule: immutable.
"""

from __future__ import annotations

from typing import Final

import msgspec

from postdate.wheel.errors import Corrupt
from postdate.wheel.write_delta import Totals

CHECKPOINT_NAME: Final = b"position"


class Checkpoint(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """R and D (None before the first write that sets them), seq, takeover, and the counters.

    `zones`: the version of the time zone rules of the last owner; "": unknown. `schedules`: the number of entries that
    are schedules; None: unknown, since an earlier version of Postdate has written to this timer log.
    """

    next_request: int | None = None
    next_dispatch: int | None = None
    seq: int = 0
    takeover: int = 0
    totals: Totals = Totals()
    zones: str = ""
    schedules: int | None = None


_checkpoints = msgspec.msgpack.Decoder(Checkpoint)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Returns the bytes of a checkpoint."""
    return msgspec.msgpack.encode(checkpoint)


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Returns the checkpoint in bytes from `encode_checkpoint`; raises Corrupt for other bytes."""
    try:
        return _checkpoints.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"the checkpoint of the timer log does not decode: {error}") from error
