"""Durations as texts.

    milliseconds      1500
    short             1500ms  90s  5m  2h30m  1d12h  1.5s          units d h m s ms, each once, largest first
    ISO-8601          PT5M  PT0.5S  P1DT12H  P2W                   days, hours, minutes, seconds; weeks alone

Only the last component may have a fraction, and a fraction of a millisecond rounds *up*, so no delay is too short.
Signs and spaces are not allowed, nor are months and years, which have no fixed length. Letters must have the case
shown. The arithmetic is exact and uses no floats.
"""

from __future__ import annotations

import re
from typing import Final

from postdate.wire.limits import INTEGER_END, TIME_TEXT_BYTES_MAX
from postdate.wire.values.texts import parse_natural

_UNIT_MS: Final = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}

# The lookaheads require at least one component, and at least one after a T. Groups are named by unit.
_SHORT: Final = re.compile(
    r"(?=[0-9])(?:(?P<d>[0-9.]+)d)?(?:(?P<h>[0-9.]+)h)?(?:(?P<m>[0-9.]+)m)?(?:(?P<s>[0-9.]+)s)?(?:(?P<ms>[0-9.]+)ms)?"
)
_ISO: Final = re.compile(
    r"P(?=[0-9T])(?:(?P<d>[0-9.]+)D)?(?:T(?=[0-9])(?:(?P<h>[0-9.]+)H)?(?:(?P<m>[0-9.]+)M)?(?:(?P<s>[0-9.]+)S)?)?"
)
_ISO_WEEKS: Final = re.compile(r"P(?P<w>[0-9.]+)W")
_NUMBER: Final = re.compile(r"([0-9]+)(?:\.([0-9]+))?")


def parse_duration_ms(text: str) -> int:
    """Returns the length of the duration `text` in milliseconds, rounded up; non-negative and below 2**63.

    Raises ValueError for any text that is not a duration of the forms above. Cost: O(length), at most 64 characters.
    """
    if len(text) > TIME_TEXT_BYTES_MAX:
        raise ValueError("is too long to be a duration")
    if text.isdigit():
        return parse_natural(text)
    match = _SHORT.fullmatch(text) or _ISO.fullmatch(text) or _ISO_WEEKS.fullmatch(text)
    if match is None:
        raise ValueError("is not a duration such as 90s, 2h30m or PT5M")
    components = [(number, _UNIT_MS[unit]) for unit, number in match.groupdict().items() if number is not None]
    last = len(components) - 1
    duration_ms = 0
    for index, (number, unit_ms) in enumerate(components):
        digits = _NUMBER.fullmatch(number)
        if digits is None:
            raise ValueError("has a number with more than one point, or a point without digits")
        duration_ms += int(digits[1]) * unit_ms
        if digits[2] is not None:
            if index != last:
                raise ValueError("has a fraction before its last unit")
            duration_ms += ceil_fraction(digits[2], unit_ms)
    if duration_ms >= INTEGER_END:
        raise ValueError("is not below 2**63 milliseconds")
    return duration_ms


def require_unit(text: str) -> str:
    """Returns the text of a duration that a person typed, unchanged. Raises ValueError for a number without a unit,
    except 0: in a header such a number means milliseconds, but a person may mean seconds."""
    number = text.lstrip("-")
    if number.strip("0").isdigit():
        raise ValueError(f"has no unit: write {number}ms, {number}s or {number}m")
    return text


def format_duration(duration_ms: int) -> str:
    """Returns a duration as text for people: 400d, 1d12h, 1m30s, 1.5s, 250ms, 0s. The text is exact, and
    `parse_duration_ms` can parse it.

    Requires a duration that is not negative.
    """
    if 0 < duration_ms < _UNIT_MS["s"]:
        return f"{duration_ms}ms"
    text, rest_ms = "", duration_ms
    for unit in ("d", "h", "m"):
        count, rest_ms = divmod(rest_ms, _UNIT_MS[unit])
        text += f"{count}{unit}" if count else ""
    seconds, rest_ms = divmod(rest_ms, _UNIT_MS["s"])
    fraction = f".{rest_ms:03}".rstrip("0") if rest_ms else ""
    return text + (f"{seconds}{fraction}s" if seconds or fraction or not text else "")


def ceil_fraction(digits: str, unit_ms: int) -> int:
    """Returns `0.<digits>` units of `unit_ms` in milliseconds, rounded up."""
    scale: int = 10 ** len(digits)
    return -(-int(digits) * unit_ms // scale)
