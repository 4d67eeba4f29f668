"""Time zones: the offset of a zone from UTC at any instant, and its clock changes.

The data is that of the `tzdata` package, never that of the operating system, because two machines must agree. zoneinfo
reads the data, but does not list clock changes. So a zone compares its offsets at intervals of one day and finds the
second of each change by bisection. It remembers the changes of the blocks of 2**25 s (388 days) that were needed.

    Europe/Berlin, 2026-03-29  ClockChange(at_s=1774746000, before_s=3600, after_s=7200)  the hour from 02:00 is a gap
    Europe/Berlin, 2026-10-25  ClockChange(at_s=1792890000, before_s=7200, after_s=3600)  the hour from 02:00 is a fold

Requires that no zone changes its clocks twice within a day, which a test checks for all zones. Zones are immutable,
except that they remember changes with atomic operations, so any thread may use them.
"""

from __future__ import annotations

from datetime import datetime
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from tzdata import IANA_VERSION

from postdate.wire.limits import ZONE_BLOCKS_MAX, ZONES_REMEMBERED_MAX

TZ_VERSION: Final = IANA_VERSION
"""The version of the time zone database, such as 2026f."""

UTC: Final = "UTC"

_BLOCK_BITS: Final = 25
_PROBE_S: Final = 86_400


class ClockChange(NamedTuple):
    """A clock change: from `at_s` (epoch seconds) on, the offset is `after_s` seconds east of UTC, not `before_s`."""

    at_s: int
    before_s: int
    after_s: int


class Span(NamedTuple):
    """A period without a clock change: the offset at each instant in [`start_s`, `end_s`). The clocks may stay
    unchanged for longer."""

    start_s: int
    end_s: int
    offset_s: int


class Zone:
    """One time zone. Requires epoch seconds from 1969 to the year 9997."""

    def __init__(self, info: ZoneInfo) -> None:
        self._info = info
        self._blocks: dict[int, tuple[int, tuple[ClockChange, ...]]] = {}
        self._last_span = Span(0, 0, 0)

    def span(self, utc_s: int) -> Span:
        """Returns a period without a clock change around an instant. Cost: O(1), or 0.3 ms for the first instant of a
        block."""
        span = self._last_span
        if span.start_s <= utc_s < span.end_s:
            return span
        number = utc_s >> _BLOCK_BITS
        start_s, end_s = number << _BLOCK_BITS, (number + 1) << _BLOCK_BITS
        offset_s, changes = self._block(number)
        for change in changes:
            if utc_s < change.at_s:
                end_s = change.at_s
                break
            start_s, offset_s = change.at_s, change.after_s
        self._last_span = span = Span(start_s, end_s, offset_s)
        return span

    def offset_s(self, utc_s: int) -> int:
        """Returns the seconds by which local time is ahead of UTC at an instant."""
        return self.span(utc_s).offset_s

    def next_change(self, after_s: int, until_s: int) -> ClockChange | None:
        """Returns the first clock change with `after_s` < `at_s` <= `until_s`, or None. Cost: O(years between)."""
        for number in range(after_s >> _BLOCK_BITS, (until_s >> _BLOCK_BITS) + 1):
            for change in self._block(number)[1]:
                if after_s < change.at_s <= until_s:
                    return change
        return None

    def _block(self, number: int) -> tuple[int, tuple[ClockChange, ...]]:
        """Returns the offset before a block, and the changes in the block."""
        block = self._blocks.get(number)
        if block is None:
            if len(self._blocks) >= ZONE_BLOCKS_MAX:
                self._blocks.clear()
            block = self._blocks[number] = self._probe(number << _BLOCK_BITS, (number + 1) << _BLOCK_BITS)
        return block

    def _probe(self, start_s: int, end_s: int) -> tuple[int, tuple[ClockChange, ...]]:
        low_s = start_s - 1
        first_s = before_s = self._look_up(low_s)
        changes = []
        while low_s < end_s - 1:
            high_s = min(low_s + _PROBE_S, end_s - 1)
            after_s = self._look_up(high_s)
            if after_s != before_s:
                changes.append(ClockChange(self._bisect(low_s, high_s, before_s), before_s, after_s))
            low_s, before_s = high_s, after_s
        return first_s, tuple(changes)

    def _bisect(self, low_s: int, high_s: int, before_s: int) -> int:
        """Returns the first second whose offset is not `before_s`, in (`low_s`, `high_s`]."""
        while high_s - low_s > 1:
            middle_s = (low_s + high_s) // 2
            if self._look_up(middle_s) == before_s:
                low_s = middle_s
            else:
                high_s = middle_s
        return high_s

    def _look_up(self, utc_s: int) -> int:
        offset = datetime.fromtimestamp(utc_s, self._info).utcoffset()
        assert offset is not None, "ZoneInfo has an offset at every instant"
        return offset.days * 86_400 + offset.seconds


@lru_cache(maxsize=ZONES_REMEMBERED_MAX)
def load_zone(name: str) -> Zone:
    """Returns the zone with an IANA name. Raises ValueError with a hint if `tzdata` has no such zone."""
    names = zone_names()
    if name not in names:
        # For an abbreviation, the nearest name would mislead: for CEST it is EST.
        nearest = get_close_matches(name, names, n=1, cutoff=0.8) if "/" in name else []
        hint = f"; the nearest name is {nearest[0]}" if nearest else ", such as Europe/Berlin"
        raise ValueError(f"is not the name of a zone in tzdata {TZ_VERSION}{hint}")
    with files("tzdata.zoneinfo").joinpath(*name.split("/")).open("rb") as data:
        return Zone(ZoneInfo.from_file(data, key=name))


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Returns the IANA names of all zones."""
    return frozenset(files("tzdata").joinpath("zones").read_text(encoding="ascii").split())
