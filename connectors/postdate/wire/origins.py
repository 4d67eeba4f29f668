"""The origin of a request: `<request topic>/<partition>/<offset>`, its permanent identity.

A topic name has no slash, so the text is unambiguous. Numbers have no leading zeros, so each request has exactly one
origin, and origins may be compared as bytes.
"""

from __future__ import annotations

import re
from typing import Final

from postdate.wire.limits import INTEGER_END, ORIGIN_BYTES_MAX, PARTITION_END
from postdate.wire.topics import is_topic_name

_ORIGIN: Final = re.compile(rb"([^/]+)/(0|[1-9][0-9]{0,9})/(0|[1-9][0-9]{0,18})")

# Origins that need no further check: the topic does not begin with a dot, and the numbers are below every limit.
_USUAL: Final = re.compile(rb"[A-Za-z0-9_-][A-Za-z0-9._-]{0,248}/(?:0|[1-9][0-9]{0,8})/(?:0|[1-9][0-9]{0,17})")


def format_origin(topic: str, partition: int, offset: int) -> bytes:
    """Returns the origin of the request at `offset` of `partition`, as in headers and verdicts."""
    return b"%b/%d/%d" % (topic.encode(), partition, offset)


def parse_origin(origin: bytes) -> tuple[str, int, int]:
    """Returns topic, partition and offset of an origin: the inverse of `format_origin`.

    Raises ValueError if `origin` is not an origin.
    """
    match = _ORIGIN.fullmatch(origin) if len(origin) <= ORIGIN_BYTES_MAX else None
    if match is None:
        raise ValueError("is not an origin: <request topic>/<partition>/<offset>")
    topic = match[1].decode("ascii", "replace")
    partition, offset = int(match[2]), int(match[3])
    if not is_topic_name(topic) or partition >= PARTITION_END or offset >= INTEGER_END:
        raise ValueError("is not an origin: its topic, partition or offset cannot exist")
    return topic, partition, offset


def check_origin(origin: bytes) -> None:
    """Raises ValueError if `origin` is not an origin, as `parse_origin` does, but in half the time."""
    if _USUAL.fullmatch(origin) is None:
        parse_origin(origin)
