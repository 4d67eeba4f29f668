"""Converts header values of other schedulers to those of Postdate.

Each function takes the value of a header. `is_at` and `is_interval` determine the kind of a schedule. The others return
the value of Postdate's header: times in epoch milliseconds, delays in milliseconds, actions by name. They raise
ValueError, with the reason, for values that the other system would refuse, and for features that Postdate does not
have. A time in the past is always legal, and means immediately.
"""

from __future__ import annotations

import re
from typing import Final

from postdate.wire.limits import INTEGER_END
from postdate.wire.values.instants import parse_instant_ms
from postdate.wire.values.texts import parse_natural, time_text

_SECOND_MS: Final = 1_000
_BINARY_BYTES_MAX: Final = 8
_SECONDS_END: Final = INTEGER_END // _SECOND_MS
_OFFSET: Final = re.compile(r"(?:[Zz]|[+-][0-9]{2}:[0-9]{2})\Z")
_AT: Final = "@at "
_EVERY: Final = b"@every "
_NATS_FIELDS: Final = 6
_KARAFKA_SCHEMA: Final = re.compile(rb"1\.[0-9]+\.[0-9]+")


def as_given(value: bytes | None) -> bytes | None:
    """Returns the value unchanged, such as a name, a key, a partition or an id: Postdate's rules check it later."""
    return value


def epoch_s(value: bytes | None) -> bytes:
    """Converts whole seconds since 1970."""
    return b"%d" % (parse_natural(time_text(value), _SECONDS_END) * _SECOND_MS)


def whole_ms(value: bytes | None) -> bytes:
    """Converts whole milliseconds: a delay, or a time since 1970. A negative number becomes 0."""
    return b"%d" % max(_whole(value, INTEGER_END), 0)


def binary_ms(value: bytes | None) -> bytes:
    """Converts milliseconds since 1970 as Java's BigInteger writes them: big-endian, two's complement. A negative
    number becomes 0."""
    if not value or len(value) > _BINARY_BYTES_MAX:
        raise ValueError(f"is not a binary number of 1 to {_BINARY_BYTES_MAX} bytes")
    return b"%d" % max(int.from_bytes(value, "big", signed=True), 0)


def delay_s(value: bytes | None) -> bytes:
    """Converts a delay in whole seconds. A negative delay becomes 0."""
    return b"%d" % max(_whole(value, _SECONDS_END) * _SECOND_MS, 0)


def rfc3339(value: bytes | None) -> bytes:
    """Converts a time in RFC 3339 with an offset or `Z`. Refuses a plain number, since its unit is unknown."""
    return _instant(time_text(value))


def iso_utc(value: bytes | None) -> bytes:
    """Converts a time in RFC 3339. A time without an offset is UTC. Refuses a plain number, since its unit is
    unknown."""
    text = time_text(value)
    return _instant(text if text.isdigit() or _OFFSET.search(text) else f"{text}Z")


def at_rfc3339(value: bytes | None) -> bytes:
    """Converts `@at ` with a time in RFC 3339, the only form of a NATS schedule that fires once."""
    return _instant(time_text(value)[len(_AT) :].strip())


def is_at(value: bytes | None) -> bool:
    """Returns True for a schedule of NATS that fires once, and for a null value."""
    return value is None or value.startswith(_AT.encode())


def is_interval(value: bytes | None) -> bool:
    """Returns True for a schedule of NATS that fires at an interval."""
    return value is not None and value.startswith(_EVERY)


def go_interval(value: bytes | None) -> bytes:
    """Converts `@every ` with a duration as in Go, such as 1h30m. Postdate's rules check the units later."""
    text = time_text(value)[len(_EVERY) :].strip()
    if text.isdigit() or "/" in text:
        raise ValueError("is not a duration with a unit after '@every '")
    return text.encode()


def nats_cron(value: bytes | None) -> bytes:
    """Converts a cron expression with seconds first, or a name such as `@hourly`."""
    fields = (value or b"").split()
    if len(fields) != _NATS_FIELDS and not (len(fields) == 1 and fields[0].startswith(b"@")):
        raise ValueError(f"is not @at, @every, a name such as @hourly, or an expression of {_NATS_FIELDS} fields")
    return b" ".join(fields)


def kaspr_cron(value: bytes | None) -> bytes:
    """Converts a cron expression. If it has six fields, the last one is seconds, and is moved to the front."""
    fields = (value or b"").split()
    return b" ".join([*fields[5:], *fields[:5]] if len(fields) == 6 else fields)


def kaspr_missed(value: bytes | None) -> bytes:
    """Converts `skip` to `none`, and every other value to `all`, since Kaspr's default is `replay`."""
    return b"none" if value == b"skip" else b"all"


def kaspr_action(value: bytes | None) -> bytes:
    """Converts `ADD`, `REPLACE` and `CRON_ADD` to `schedule`: with the id of a pending message, each of them replaces
    that message."""
    if value in (b"ADD", b"REPLACE", b"CRON_ADD"):
        return b"schedule"
    raise ValueError("is not ADD, REPLACE, CANCEL, CRON_ADD, CRON_PAUSE, CRON_RESUME or CRON_CANCEL")


def karafka_type(value: bytes | None) -> bytes:
    """Returns `schedule`, and refuses every other value."""
    if value == b"schedule":
        return value
    raise ValueError("is not schedule, cancel or tombstone")


def karafka_schema(value: bytes | None) -> bytes | None:
    """Returns the version of the envelope, and refuses every version except 1.x.y."""
    if value is not None and _KARAFKA_SCHEMA.fullmatch(value):
        return value
    raise ValueError("is not a version 1 of the envelope")


def strip_plus_prefix(value: bytes | None) -> bytes | None:
    """Returns the unique key in `<topic>+<unique key>`, or the value if it is a unique key alone. A topic name of
    RocketMQ has no `+`."""
    return value if value is None else value.partition(b"+")[2] or value


def _whole(value: bytes | None, end: int) -> int:
    text = time_text(value)
    digits = text[1:] if text[:1] in ("-", "+") else text
    number = parse_natural(digits, end)
    return -number if text.startswith("-") else number


def _instant(text: str) -> bytes:
    if text.isdigit():
        raise ValueError("is not a date and time of RFC 3339")
    return b"%d" % parse_instant_ms(text)
