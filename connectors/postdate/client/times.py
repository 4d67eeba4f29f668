"""Headers with times: `datetime` and `timedelta` become whole milliseconds, without floats, and round *up*.

A naive datetime is refused: it means a different instant on every machine.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from postdate.client.arguments import whole_number
from postdate.client.errors import RequestInvalid
from postdate.wire.headers import AT, DELAY, EVERY, GRACE, LATEST, LEVEL, WINDOW
from postdate.wire.reasons import Reason

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def time_header(at: datetime | None, delay: timedelta | None, level: int | None) -> tuple[str, bytes]:
    """Returns the header with the time. Raises RequestInvalid if none or several are given, or the time is invalid."""
    names = [name for name, value in (("at", at), ("delay", delay), ("level", level)) if value is not None]
    if not names:
        raise RequestInvalid(Reason.MISSING_TIME, "give one of at, delay and level")
    if len(names) > 1:
        raise RequestInvalid(Reason.CONFLICTING_TIME, f"give only one of {' and '.join(names)}")
    if at is not None:
        return AT, b"%d" % epoch_ms(at)
    if delay is not None:
        return DELAY, b"%d" % length_ms("delay", delay)
    assert level is not None
    return LEVEL, b"%d" % whole_number("level", level)


def grace_header(grace: timedelta) -> tuple[str, bytes]:
    """Returns the header `postdate-grace`. Raises RequestInvalid if `grace` is negative."""
    return GRACE, b"%d" % length_ms("grace", grace)


def window_header(window: timedelta) -> tuple[str, bytes]:
    """Returns the header `postdate-window`. Raises RequestInvalid if `window` is negative."""
    return WINDOW, b"%d" % length_ms("window", window)


def latest_header(latest: timedelta) -> tuple[str, bytes]:
    """Returns the header `postdate-latest`. Raises RequestInvalid if `latest` is negative."""
    return LATEST, b"%d" % length_ms("latest", latest)


def interval_header(every: timedelta, phase: timedelta | None) -> tuple[str, bytes]:
    """Returns the header of an interval and its phase. Raises RequestInvalid if one of them is negative."""
    shift = b"" if phase is None else b"/%d" % length_ms("phase", phase)
    return EVERY, b"%d%b" % (length_ms("every", every), shift)


def epoch_ms(at: datetime) -> int:
    """Returns the first whole epoch millisecond at or after `at`. Raises RequestInvalid if `at` is naive or before
    1970."""
    if not isinstance(at, datetime):
        raise TypeError(f"at must be a datetime, not {type(at).__name__}")
    if at.tzinfo is None or at.utcoffset() is None:
        raise RequestInvalid(
            Reason.BAD_TIME,
            f"{at.isoformat()} is naive: it means another time on every machine; give it a time zone, as in "
            "datetime.now(timezone.utc)",
        )
    if at < _EPOCH:
        raise RequestInvalid(Reason.BAD_TIME, f"{at.isoformat()} lies before 1970")
    return _ceil_ms(at - _EPOCH)


def length_ms(name: str, length: timedelta) -> int:
    """Returns `length` in whole milliseconds, rounded up. Raises RequestInvalid if it is negative."""
    if not isinstance(length, timedelta):
        raise TypeError(f"{name} must be a timedelta, not {type(length).__name__}")
    if length < timedelta():
        raise RequestInvalid(Reason.BAD_TIME, f"{name} {length} is negative")
    return _ceil_ms(length)


def _ceil_ms(length: timedelta) -> int:
    return -(-length // _MILLISECOND)
