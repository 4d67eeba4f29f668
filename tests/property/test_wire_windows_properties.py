"""Goal: the draw of a window never leaves the window, depends only on the origin, and spreads consecutive requests
evenly.

Method: arbitrary origins and windows for the bounds. For evenness, the draws for the origins of consecutive requests
are counted in equal parts of the window. Chance alone gives a chi-squared of about 1 for each part; crc32 must not
exceed 1.6.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postdate.wire.limits import INTEGER_END, WINDOW_MS_MAX
from postdate.wire.origins import format_origin
from postdate.wire.values.windows import draw_ms

ORIGINS = st.builds(
    format_origin, st.from_regex(r"\A[a-zA-Z0-9._-]{1,20}\Z"), st.integers(0, 500), st.integers(0, INTEGER_END - 1)
)
WINDOWS_MS = st.integers(0, WINDOW_MS_MAX) | st.integers(0, 100)


@given(ORIGINS, WINDOWS_MS)
def test_the_draw_lies_within_the_window(origin: bytes, window_ms: int) -> None:
    assert 0 <= draw_ms(origin, window_ms) <= window_ms
    assert draw_ms(origin, 0) == 0


@given(ORIGINS, st.integers(0, WINDOW_MS_MAX - 1))
def test_a_longer_window_never_draws_an_earlier_moment(origin: bytes, window_ms: int) -> None:
    assert draw_ms(origin, window_ms) <= draw_ms(origin, window_ms + 1)


def test_both_ends_of_a_window_are_drawn() -> None:
    drawn = {draw_ms(b"R/0/%d" % offset, 9) for offset in range(1_000)}
    assert drawn == set(range(10))


def test_sql_can_compute_the_largest_draw() -> None:
    assert (WINDOW_MS_MAX + 1) * (2**24 - 1) < INTEGER_END


@pytest.mark.parametrize(
    ("topic", "partitions", "first", "count", "window_ms", "parts"),
    [
        ("postdate.requests", 4, 0, 500_000, 60_000, 600),
        ("postdate.requests", 1, 123_456, 5_000, 60_000, 60),
        ("postdate.requests", 12, 70_000, 60_000, 900_000, 900),
        ("R", 1, 1_000_000, 500_000, 60_000, 600),
        ("r", 1, 10**15, 20_000, 3_600_000, 360),
    ],
)
def test_consecutive_requests_are_spread_evenly(
    topic: str, partitions: int, first: int, count: int, window_ms: int, parts: int
) -> None:
    counts = Counter(
        draw_ms(format_origin(topic, partition, offset), window_ms) * parts // (window_ms + 1)
        for partition in range(partitions)
        for offset in range(first, first + count // partitions)
    )
    mean = counts.total() / parts
    chi_squared = sum((counts[part] - mean) ** 2 for part in range(parts)) / mean / (parts - 1)
    assert chi_squared < 1.6
    assert max(counts.values()) < mean + 5 * mean**0.5
