"""Values of headers as text: bounded before they are parsed, and escaped before they are quoted in a message.

Numbers are decimal: ASCII digits only. Python's `int()` also accepts signs, spaces, underscores and the digits of other
scripts, and its cost grows with the square of the length. So a text from a producer is checked before `int()` reads it.
"""

from __future__ import annotations

from postdate.wire.limits import INTEGER_DIGITS_MAX, INTEGER_END, QUOTED_BYTES_MAX, TIME_TEXT_BYTES_MAX


def parse_natural(text: str | bytes, end: int = INTEGER_END) -> int:
    """Returns the non-negative number in the ASCII decimal digits of `text`. Leading zeros are allowed.

    Raises ValueError if the text is not such a number, has more than 19 digits, or is not below `end`.
    """
    if not (text.isdigit() and text.isascii()):
        raise ValueError("is not a number in ASCII digits")
    if len(text) > INTEGER_DIGITS_MAX:
        raise ValueError("has too many digits")
    number = int(text)
    if number >= end:
        raise ValueError(f"is not below {end}")
    return number


def plain_ms(value: bytes | None) -> int:
    """Returns the number in a header's value of at most 18 digits, the most frequent form, or -1 if the value has
    another form."""
    return int(value) if value is not None and value.isdigit() and len(value) < INTEGER_DIGITS_MAX else -1


def time_text(value: bytes | None) -> str:
    """Returns a header's value as text. Raises ValueError if the value cannot be a time or a number, since it is null,
    too long or not ASCII."""
    if value is None:
        raise ValueError("has no value")
    if len(value) > TIME_TEXT_BYTES_MAX or not value.isascii():
        raise ValueError("is too long or not ASCII")
    return value.decode("ascii")


def quote(value: bytes | str | None) -> str:
    """Returns a value from a producer, cut and escaped, for use in a message."""
    if value is None:
        return "null"
    cut = value[:QUOTED_BYTES_MAX]
    return ascii(cut.decode("utf-8", "replace") if isinstance(cut, bytes) else cut) + ("..." if cut != value else "")


def counted(count: int, noun: str) -> str:
    """Returns a number with its noun, for a message: 1 shard, 2,000 shards. The plural adds an s to the noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
