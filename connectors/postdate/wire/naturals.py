"""Decimal numbers as producers write them: ASCII digits only, and bounded before they are converted.

Python's `int()` also takes signs, spaces, underscores and the digits of other scripts, and its cost grows with the
square of the length, so it is not used on the text of a producer.
"""

from __future__ import annotations

from postdate.wire.limits import INTEGER_DIGITS_MAX, INTEGER_END


def parse_natural(text: str | bytes, end: int = INTEGER_END) -> int:
    """Return the non-negative number that `text` is in ASCII decimal digits; leading zeros are allowed.

    Raises ValueError if it is anything else, has more than 19 digits or is not below `end`.
    """
    if not (text.isdigit() and text.isascii()):
        raise ValueError("is not a number in ASCII digits")
    if len(text) > INTEGER_DIGITS_MAX:
        raise ValueError("has too many digits")
    number = int(text)
    if number >= end:
        raise ValueError(f"is not below {end}")
    return number
