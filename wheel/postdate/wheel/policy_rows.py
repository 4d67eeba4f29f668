"""The named retry policies of a shard: one row of the timer log, which changes in the same write as R.

Thread rule: immutable.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from postdate.wheel.errors import Corrupt

PolicyRows: TypeAlias = tuple[tuple[int, str, str], ...]
"""First request offset, name and text of each policy; the text is empty if the name was removed."""

POLICIES_NAME: Final = b"policies"

_rows = msgspec.msgpack.Decoder(PolicyRows)


def encode_policies(rows: PolicyRows) -> bytes:
    """Returns the bytes of the rows."""
    return msgspec.msgpack.encode(rows)


def decode_policies(data: bytes) -> PolicyRows:
    """Returns the rows in bytes from `encode_policies`; raises Corrupt for other bytes."""
    try:
        return _rows.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"the retry policies of the timer log do not decode: {error}") from error
