"""The chosen time of a request with `postdate-window`: a time in [due, due + window] that follows from an origin.

    draw = ((window_ms + 1) * (crc32(origin) >> 8)) >> 24        0 <= draw <= window_ms

Every language has crc32. It spreads the origins of consecutive requests more evenly than chance does, because these
origins differ in only a few digits. All integers stay below 2**63, so SQL computes the same result.

Pure functions.
"""

from __future__ import annotations

from zlib import crc32

_UNUSED_BITS = 8
_DRAW_BITS = 24


def draw_ms(origin: bytes, window_ms: int) -> int:
    """Returns the time in ms between the due time of a message and its chosen time, 0 to `window_ms`.

    `origin`: the origin of the request, or of the reschedule that set the due time. Requires 0 <= `window_ms` <=
    WINDOW_MS_MAX.
    """
    return ((window_ms + 1) * (crc32(origin) >> _UNUSED_BITS)) >> _DRAW_BITS


def not_before(chosen_ms: int, left_ms: int, last_ms: int) -> int:
    """Returns the chosen time, or if it is not after `left_ms`, the first time after `left_ms`, but at most `last_ms`,
    the end of the window. Other messages with the same key may have left up to `left_ms`. Requires `chosen_ms` <=
    `last_ms`."""
    return max(chosen_ms, min(left_ms + 1, last_ms))
