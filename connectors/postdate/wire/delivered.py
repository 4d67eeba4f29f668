"""Delivered records and dead letters: their headers and sizes."""

from __future__ import annotations

from typing import Final

from postdate.wire.headers import (
    DEAD_DETAIL,
    DEAD_REASON,
    DUE,
    EXTRA,
    ID,
    NEXT,
    OCCURRENCE,
    ORIGIN,
    REDELIVERED,
    Headers,
    split_redelivery,
)
from postdate.wire.limits import DETAIL_BYTES_MAX

# Part of the detail of a dead letter without the value of its message. `requeue` then reads the value from the request.
VALUE_LEFT_OUT: Final = "the value is too large for the dead letters"

# Kafka's record batch of version 2: the batch header, and for each record its length, attributes, time and offset
# deltas, and the lengths of key, value and header list, with each varint at its longest.
_BATCH_BYTES = 61
_RECORD_BYTES = 5 + 1 + 10 + 5 + 5 + 5 + 5
_HEADER_BYTES = 5 + 5


def delivered_headers(headers: Headers, origin: bytes, due_ms: int, id: bytes) -> Headers:
    """Returns the headers of the delivered record: the message's headers in their order, then Postdate's.

    `due_ms` is the present due time, `id` is b"" if the request has no id. The headers of a redelivery come last. Cost:
    O(headers). Hot path.
    """
    if headers and headers[-1][0] in REDELIVERED:
        untouched, redelivery = split_redelivery(headers)
        return [*untouched, (ORIGIN, origin), (DUE, b"%d" % due_ms), *redelivery]
    if id:
        return [*headers, (ORIGIN, origin), (DUE, b"%d" % due_ms), (ID, id)]
    return [*headers, (ORIGIN, origin), (DUE, b"%d" % due_ms)]


def occurrence_headers(headers: Headers, origin: bytes, id: bytes, number: int, times_ms: tuple[int, int]) -> Headers:
    """Returns the headers of a delivered occurrence. `times_ms`: its nominal time, and the next nominal time, or 0 if
    there is none. Cost: O(headers)."""
    nominal_ms, next_ms = times_ms
    added = [(OCCURRENCE, b"%d" % number), *([(NEXT, b"%d" % next_ms)] if next_ms else [])]
    return [*headers, (ORIGIN, origin), (DUE, b"%d" % nominal_ms), (ID, id), *added]


def extra_headers(headers: Headers, origin: bytes, id: bytes, extra: bytes, nominal_ms: int) -> Headers:
    """Returns the headers of an extra delivery of a schedule. `extra`: the origin of the control that requested it, and
    its number among the deliveries of that control. Cost: O(headers)."""
    return [*headers, (ORIGIN, origin), (DUE, b"%d" % nominal_ms), (ID, id), (EXTRA, extra)]


def dead_letter_headers(original: Headers, reason: str, detail: str, origin: bytes) -> Headers:
    """Returns the headers of a dead letter: all headers of the request as sent, then reason, detail and origin.

    Readers use the last header of each name, so headers of the request with the same names do not hide the added ones.
    A detail is cut after 1,024 bytes. Cost: O(headers).
    """
    sentence = detail.encode("utf-8", "replace")[:DETAIL_BYTES_MAX].decode("utf-8", "ignore").encode()
    return [*original, (DEAD_REASON, reason.encode()), (DEAD_DETAIL, sentence), (ORIGIN, origin)]


def record_size_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Returns an upper bound of the size of an uncompressed batch that contains only this record. Callers compare it
    with a topic's `max.message.bytes`. The bound exceeds the exact size by at most 29 bytes plus 8 bytes for each
    header. Cost: O(headers)."""
    size_bytes = _BATCH_BYTES + _RECORD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
    for name, content in headers:
        name_bytes = len(name) if name.isascii() else len(name.encode("utf-8", "surrogatepass"))
        size_bytes += _HEADER_BYTES + name_bytes + (len(content) if content else 0)
    return size_bytes
