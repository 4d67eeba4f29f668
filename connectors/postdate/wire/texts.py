"""Values of headers as text: bounded before they are parsed, and escaped before they are quoted in a message."""

from __future__ import annotations

from postdate.wire.limits import INTEGER_DIGITS_MAX, QUOTED_BYTES_MAX, TIME_TEXT_BYTES_MAX


def plain_ms(value: bytes | None) -> int:
    """Return the milliseconds that a header's value is in plain digits, the common form; -1 if it may be another."""
    return int(value) if value is not None and value.isdigit() and len(value) < INTEGER_DIGITS_MAX else -1


def time_text(value: bytes | None) -> str:
    """Return a header's value as text. Raises ValueError if it is too long or not ASCII, and so cannot be a time."""
    if value is None:
        raise ValueError("has no value")
    if len(value) > TIME_TEXT_BYTES_MAX or not value.isascii():
        raise ValueError("is too long or not ASCII")
    return value.decode("ascii")


def quote(value: bytes | str | None) -> str:
    """Return a value from a producer, cut and escaped, for use in a message."""
    if value is None:
        return "null"
    cut = value[:QUOTED_BYTES_MAX]
    return ascii(cut.decode("utf-8", "replace") if isinstance(cut, bytes) else cut) + ("..." if cut != value else "")


def counted(count: int, noun: str) -> str:
    """Return a number and its noun for a person: 1 shard, 2,000 shards. The plural is the noun with an s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
