"""The bulk controls of a shard that have not ended: one row of the timer log, which changes in the same write as R.

A row without `asked` is that of a control which the dispatch log shows as begun, and whose request is not ingested yet.

Thread rule: immutable.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from postdate.wheel.errors import Corrupt


class BulkRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One bulk control: the offset of its request, its encoded selection and action, and the number of entries on which
    it has acted; -1 if it has not begun."""

    offset: int
    asked: bytes = b""
    count: int = -1


BulkRows: TypeAlias = tuple[BulkRow, ...]
"""Ascending by offset."""

BULKS_NAME: Final = b"bulks"

_rows = msgspec.msgpack.Decoder(BulkRows)


def encode_bulks(rows: BulkRows) -> bytes:
    """Returns the bytes of the rows."""
    return msgspec.msgpack.encode(rows)


def decode_bulks(data: bytes) -> BulkRows:
    """Returns the rows in bytes from `encode_bulks`; raises Corrupt for other bytes."""
    try:
        return _rows.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Corrupt(f"the bulk controls of the timer log do not decode: {error}") from error
