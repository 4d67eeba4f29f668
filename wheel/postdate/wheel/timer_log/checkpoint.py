"""Single rows of the timer log that change in the same write as the entries: the progress and the counters, the bulk
controls that have not ended, and the named retry policies.

A BulkRow without an encoded request belongs to a bulk control whose fates were read before its request.

Thread rule: immutable.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from postdate.wheel.errors import Corrupt

CHECKPOINT_NAME: Final = b"position"


class Totals(msgspec.Struct, frozen=True):
    """Exact counters of a timer log, written together with the entries that they count. `entries` includes the entries
    whose keys have due time 0 (`ending`), but not parked entries."""

    entries: int = 0
    entries_bytes: int = 0
    ending: int = msgspec.field(default=0, name="controls")
    ending_bytes: int = msgspec.field(default=0, name="control_bytes")
    parked: int = 0
    parked_bytes: int = 0


class Checkpoint(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The progress of the shard and its counters.

    `next_request` is the next request offset to ingest, `next_dispatch` the next dispatch-log offset to apply; both are
    None before the first write that sets them. `seq` is the number of the last dispatch-log record, `takeover` the
    number of the last takeover.

    `zones` is the version of the time zone rules of the last owner, "" if unknown. `schedules` is the number of entries
    that are schedules. It is None, which means unknown, if an earlier version of Postdate has written to this timer
    log.
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


class BulkRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One bulk control: the offset of its request, its encoded selection and action, and the number of entries on which
    it has acted, or -1 before its first transaction."""

    offset: int
    encoded_request: bytes = b""
    count: int = -1


BulkRows: TypeAlias = tuple[BulkRow, ...]
"""Ascending by offset."""

BULKS_NAME: Final = b"bulks"

_bulks = msgspec.msgpack.Decoder(BulkRows)


def encode_bulks(rows: BulkRows) -> bytes:
    """Returns the bytes of the rows."""
    return msgspec.msgpack.encode(rows)


def decode_bulks(data: bytes) -> BulkRows:
    """Returns the rows in bytes from `encode_bulks`; raises Corrupt for other bytes."""
    try:
        return _bulks.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Corrupt(f"the bulk controls of the timer log do not decode: {error}") from error


PolicyRows: TypeAlias = tuple[tuple[int, str, str], ...]
"""A row has the first request offset to which a policy applies, its name and its text. The text is empty if the name
was removed."""

POLICIES_NAME: Final = b"policies"

_policies = msgspec.msgpack.Decoder(PolicyRows)


def encode_policies(rows: PolicyRows) -> bytes:
    """Returns the bytes of the rows."""
    return msgspec.msgpack.encode(rows)


def decode_policies(data: bytes) -> PolicyRows:
    """Returns the rows in bytes from `encode_policies`; raises Corrupt for other bytes."""
    try:
        return _policies.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"the retry policies of the timer log do not decode: {error}") from error
