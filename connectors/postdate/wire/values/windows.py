"""The chosen time of a request with `postdate-window`: a time in [due, due + window] that follows from an origin.

    draw = ((window_ms + 1) * (crc32(origin) >> 8)) >> 24        0 <= draw <= window_ms

crc32 spreads the origins of consecutive requests more evenly than chance does, because they differ in only a few
digits, and every language has it. All integers stay below 2**63, so SQL computes the same.

Pure functions.
"""

from __future__ import annotations

from zlib import crc32

_UNUSED_BITS = 8
_DRAW_BITS = 24


def draw_ms(origin: bytes, window_ms: int) -> int:
    """Returns how long after its due time a message leaves, 0 to `window_ms`.

    `origin`: of the request, or of the reschedule that gave the due time. Requires 0 <= `window_ms` <= WINDOW_MS_MAX.
    """
    return ((window_ms + 1) * (crc32(origin) >> _UNUSED_BITS)) >> _DRAW_BITS


def not_before(chosen_ms: int, left_ms: int, last_ms: int) -> int:
    """Returns a chosen time after `left_ms`, before which other messages of its key may have left, or the end of its
    window, `last_ms`, if that is earlier. Requires `chosen_ms` <= `last_ms`."""
    return max(chosen_ms, min(left_ms + 1, last_ms))
