"""The bytes of a wheel file.

| offset | bytes | content |
| --- | --- | --- |
| 0 | 128 | fixed part: magic `PDWHEEL1`, format u32, tick_ms u32, fine slots u32, hour slots u32, hour_ms u32, spare u32, digest of the timer log 32 B, crc32 of these u32 |
| 128 | 64 | copy A of {generation u64, RocksDB sequence u64, next request u64, boot id 16 B, clean u32, crc32 of counters and rings u32, crc32 of these u32} |
| 192 | 64 | copy B of the same |
| 256 | 144 | counters: update sequence u64, window tick u64, load cursor (due u64, offset u64), limit hour u64, building u64, built up to (due u64, offset u64), then count and bytes, i64 each, of: overdue, ending, parked, beyond, total |
| 4096 | 32 a slot | fine ring, then hour ring: {tick u64, count u32, state u32, bytes u64, min_due u64} |

All numbers are little-endian. Of the copies with a right crc, the one with the larger generation is valid; a writer
always overwrites the other one. The update sequence is odd during an update. A next request of 2**64 - 1 means None.

Thread rule: stateless functions over buffers.
"""  # noqa: E501 - a table row is one line

from __future__ import annotations

import struct
import zlib
from typing import Final, NamedTuple

import numpy as np

from postdate.wheel.options import IndexOptions

MAGIC: Final = b"PDWHEEL1"
WHEEL_FORMAT: Final = 1
HEADER_SIZE_BYTES: Final = 4096
SLOT: Final = np.dtype(
    [("tick", "<u8"), ("count", "<u4"), ("state", "<u4"), ("bytes", "<u8"), ("min_due", "<u8")], align=False
)
STATE_FREE: Final = 0
STATE_HELD: Final = 1
NO_DUE: Final = 2**64 - 1

STAMP_OFFSETS: Final = (128, 192)
COUNTERS_OFFSET: Final = 256
COUNTERS: Final = struct.Struct("<8Q10q")
SEQUENCE: Final = struct.Struct("<Q")

_FIXED = struct.Struct("<8s6I32s")
_STAMP = struct.Struct("<QQQ16sII")
_CRC = struct.Struct("<I")


class Geometry(NamedTuple):
    """The sizes of the two rings; a file with another geometry is replaced."""

    tick_ms: int
    fine_slots: int
    hour_slots: int
    hour_ms: int

    @staticmethod
    def of(options: IndexOptions) -> Geometry:
        """Returns the geometry of the options."""
        return Geometry(options.tick_ms, options.fine_slots, options.hour_slots, options.hour_ms)

    @property
    def file_size_bytes(self) -> int:
        """The size of the whole file."""
        return HEADER_SIZE_BYTES + SLOT.itemsize * (self.fine_slots + self.hour_slots)

    @property
    def hour_offset(self) -> int:
        """The position in the file at which the hour ring begins."""
        return HEADER_SIZE_BYTES + SLOT.itemsize * self.fine_slots


class Stamp(NamedTuple):
    """The state of the timer log that the rings match, the boot in which the stamp was written, and whether the file
    was closed cleanly."""

    generation: int
    log_sequence: int
    next_request: int
    boot_id: bytes
    clean: bool
    rings_crc: int


def write_fixed(buffer: bytearray | memoryview, geometry: Geometry, digest: bytes) -> None:
    """Writes the fixed part."""
    fixed = _FIXED.pack(MAGIC, WHEEL_FORMAT, *geometry, 0, digest)
    buffer[: len(fixed) + _CRC.size] = fixed + _CRC.pack(zlib.crc32(fixed))


def read_fixed(buffer: bytes | memoryview) -> tuple[Geometry, bytes] | None:
    """Returns the geometry and the digest of a wheel file, or None if the fixed part does not have this format."""
    if len(buffer) < HEADER_SIZE_BYTES:
        return None
    fixed = bytes(buffer[: _FIXED.size])
    magic, version, tick_ms, fine_slots, hour_slots, hour_ms, _, digest = _FIXED.unpack(fixed)
    (crc,) = _CRC.unpack_from(buffer, _FIXED.size)
    if magic != MAGIC or version != WHEEL_FORMAT or crc != zlib.crc32(fixed):
        return None
    return Geometry(tick_ms, fine_slots, hour_slots, hour_ms), digest


def write_stamp(buffer: bytearray | memoryview, stamp: Stamp) -> None:
    """Writes a stamp over the older of the two copies."""
    data = _STAMP.pack(*stamp)
    offset = STAMP_OFFSETS[stamp.generation % 2]
    buffer[offset : offset + _STAMP.size + _CRC.size] = data + _CRC.pack(zlib.crc32(data))


def read_stamp(buffer: bytes | memoryview) -> Stamp | None:
    """Returns the valid copy of the stamp with the larger generation, or None. A copy is valid if its crc is right and
    its generation is not 0."""
    best: Stamp | None = None
    for offset in STAMP_OFFSETS:
        data = bytes(buffer[offset : offset + _STAMP.size])
        (crc,) = _CRC.unpack_from(buffer, offset + _STAMP.size)
        if crc != zlib.crc32(data):
            continue
        generation, log_sequence, next_request, boot_id, clean, rings_crc = _STAMP.unpack(data)
        stamp = Stamp(generation, log_sequence, next_request, boot_id, bool(clean), rings_crc)
        if generation and (best is None or generation > best.generation):
            best = stamp
    return best


def rings_crc(buffer: memoryview) -> int:
    """Returns the crc32 of the counters and the rings. Takes 1 ms for the default sizes."""
    end = COUNTERS_OFFSET + COUNTERS.size
    return zlib.crc32(buffer[HEADER_SIZE_BYTES:], zlib.crc32(buffer[COUNTERS_OFFSET:end]))
