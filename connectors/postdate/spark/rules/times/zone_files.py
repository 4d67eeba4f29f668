"""Time zones as the audit reads them: the TZif files of the `tzdata` package, decoded here.

The sidecar reads the same files through zoneinfo; this module shares no code with it, so a defect of either causes a
difference. Neither Spark's nor the JVM's database of zones is used.

A file (RFC 8536) lists clock changes as epoch seconds and offsets, and ends with a POSIX rule for all later years, such
as `CET-1CEST,M3.5.0,M10.5.0/3`. Pure functions; a zone is immutable.
"""

from __future__ import annotations

import re
import struct
from calendar import monthrange
from datetime import date
from functools import lru_cache
from importlib.metadata import version
from importlib.resources import files
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Seconds = NDArray[np.int64]

_HEADER: Final = struct.Struct(">4s c 15x 6l")
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_DAY_S: Final = 86_400
_YEAR_S: Final = 31_556_952
_ZONES_MAX: Final = 1_024

_NAME: Final = r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]{3,}>)"
_OFFSET: Final = r"[+-]?[0-9]{1,3}(?::[0-9]{2}){0,2}"
_DAY: Final = rf"(?:M[0-9]{{1,2}}\.[1-5]\.[0-6]|J?[0-9]{{1,3}})(?:/{_OFFSET})?"
_RULE: Final = re.compile(
    rf"{_NAME}(?P<standard>{_OFFSET})(?:{_NAME}(?P<summer>{_OFFSET})?,(?P<begin>{_DAY}),(?P<end>{_DAY}))?"
)


class ClockChanges(NamedTuple):
    """The clock changes of a zone in a range. Its offset is `offsets_s[i]` until `at_s[i]`, then `offsets_s[i + 1]`."""

    at_s: Seconds
    offsets_s: Seconds


class PosixRule(NamedTuple):
    """The offsets of standard and summer time, and the days and local times at which summer time begins and ends."""

    standard_s: int
    summer_s: int
    begin: str
    end: str


class ZoneFile(NamedTuple):
    """A zone: the listed clock changes with the offset before them and after each, and the rule for all later years.
    Without a rule, the last offset remains."""

    at_s: tuple[int, ...]
    offsets_s: tuple[int, ...]
    rule: PosixRule | None

    def changes(self, from_s: int, until_s: int) -> ClockChanges:
        """Returns the changes in [`from_s`, `until_s`]."""
        at_s, offsets_s = list(self.at_s), list(self.offsets_s)
        last_s = at_s[-1] if at_s else -(2**62)
        if self.rule is not None and until_s > last_s:
            for year in range(_year(max(from_s, last_s)) - 1, _year(until_s) + 2):
                for change_s, offset_s in sorted(_of_year(self.rule, year)):
                    if change_s > last_s and offset_s != offsets_s[-1]:
                        at_s.append(change_s)
                        offsets_s.append(offset_s)
        times = np.array(at_s, dtype=np.int64)
        low, high = np.searchsorted(times, [from_s, until_s + 1])
        return ClockChanges(times[low:high], np.array(offsets_s[low : high + 1], dtype=np.int64))


def tz_version() -> str:
    """Returns the version of the installed `tzdata`, in the form of the IANA database: 2026f for 2026.6."""
    year, _, number = version("tzdata").partition(".")
    return f"{year}{chr(ord('a') + int(number) - 1)}"


@lru_cache(maxsize=_ZONES_MAX)
def read_zone(name: str) -> ZoneFile:
    """Returns the zone with an IANA name. Raises ValueError if `tzdata` has no such zone."""
    if not re.fullmatch(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*", name):
        raise ValueError(f"{name!r} is not the name of a zone")
    try:
        data = files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
    except OSError:  # no such file, a directory, a zone as a directory, or a name that is too long
        raise ValueError(f"{name!r} is not the name of a zone") from None
    return decode_zone(data)


def decode_zone(data: bytes) -> ZoneFile:
    """Returns the zone in a TZif file of version 2 or later. Raises ValueError for a file of another kind or version,
    and struct.error if the file is too short."""
    magic, edition, *counts = _HEADER.unpack_from(data)
    if magic != b"TZif" or edition < b"2":
        raise ValueError("is not a TZif file of version 2")
    # The first block has 32-bit times, for old readers.
    start = _HEADER.size + _block_size(counts, 4)
    _, _, *counts = _HEADER.unpack_from(data, start)
    start += _HEADER.size
    _, _, _, time_count, type_count, _ = counts
    at_s = struct.unpack_from(f">{time_count}q", data, start)
    kinds = struct.unpack_from(f">{time_count}B", data, start + 8 * time_count)
    types = [struct.unpack_from(">lBB", data, start + 9 * time_count + 6 * index)[0] for index in range(type_count)]
    footer = data[start + _block_size(counts, 8) :].strip(b"\n").decode("ascii")
    return ZoneFile(at_s, (types[0], *(types[kind] for kind in kinds)), parse_rule(footer))


def parse_rule(text: str) -> PosixRule | None:
    """Returns the rule of a POSIX TZ string; None if it has no summer time. Raises ValueError if `text` is not such a
    string."""
    match = _RULE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a POSIX rule of a zone")
    if match["begin"] is None:
        return None
    # POSIX counts offsets westwards.
    standard_s = -_offset(match["standard"])
    summer_s = standard_s + 3_600 if match["summer"] is None else -_offset(match["summer"])
    return PosixRule(standard_s, summer_s, match["begin"], match["end"])


def _block_size(counts: list[int], time_size: int) -> int:
    utc_count, standard_count, leap_count, time_count, type_count, char_count = counts
    return (
        time_count * (time_size + 1)
        + type_count * 6
        + char_count
        + leap_count * (time_size + 4)
        + standard_count
        + utc_count
    )


def _year(utc_s: int) -> int:
    return 1970 + utc_s // _YEAR_S


def _of_year(rule: PosixRule, year: int) -> list[tuple[int, int]]:
    """Returns the clock changes of a year, each with the offset after it."""
    if not 1 < year < 9999:
        return []
    return [
        (_local_s(rule.begin, year) - rule.standard_s, rule.summer_s),
        (_local_s(rule.end, year) - rule.summer_s, rule.standard_s),
    ]


def _local_s(text: str, year: int) -> int:
    """Returns the local time of a POSIX day such as `M3.5.0/2` in a year."""
    day, slash, time = text.partition("/")
    time_s = _offset(time) if slash else 2 * 3_600
    if day.startswith("M"):
        month, week, weekday = (int(part) for part in day[1:].split("."))
        first_weekday, length = monthrange(year, month)
        # monthrange counts weekdays from Monday, POSIX from Sunday.
        in_month = 1 + (weekday - 1 - first_weekday) % 7 + 7 * (week - 1)
        ordinal = date(year, month, in_month if in_month <= length else in_month - 7).toordinal()
    elif day.startswith("J"):
        # 29 February is never counted.
        number = int(day[1:])
        is_leap = monthrange(year, 2)[1] == 29
        ordinal = date(year, 1, 1).toordinal() + number - 1 + (is_leap and number > 59)
    else:
        ordinal = date(year, 1, 1).toordinal() + int(day)
    return (ordinal - _EPOCH_DAY) * _DAY_S + time_s


def _offset(text: str) -> int:
    parts = [int(part) for part in text.lstrip("+-").split(":")]
    seconds = sum(part * unit for part, unit in zip(parts, (3_600, 60, 1), strict=False))
    return -seconds if text.startswith("-") else seconds
