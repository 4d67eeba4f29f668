"""Checks arguments: text, whole numbers and headers of a message. Nothing is converted, except str to UTF-8.

Python converts more than a caller intends: `%d` cuts 1.5 to 1, True is an int, and a str of two letters unpacks like a
pair. Each check therefore names the types that it accepts and raises TypeError for all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from postdate.client.errors import RequestInvalid
from postdate.wire import headers as names
from postdate.wire.headers import Headers, is_dropped, is_postdate_header
from postdate.wire.reasons import Reason

HeaderValue: TypeAlias = bytes | str | None
MessageHeaders: TypeAlias = Mapping[str, HeaderValue] | Iterable[tuple[str, HeaderValue]]
"""Headers of a message, as Kafka clients accept them: a mapping of names, or pairs if a name occurs twice."""

_COUNTED: Final = frozenset({names.ORIGIN, names.DUE, names.ID, names.ATTEMPT, names.FIRST_ORIGIN, names.FIRST_DUE})
_LEFT: Final = names.DROPPED_2 | names.DROPPED_3
_HEADERS_REMEDY: Final = 'must be a mapping {"name": b"value"} or pairs [("name", b"value")]'


def utf8(name: str, value: bytes | str) -> bytes:
    """Returns bytes unchanged, and a str as UTF-8. Raises TypeError, UnicodeEncodeError (a lone surrogate)."""
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes):
        raise TypeError(f"{name} must be bytes or str, not {type(value).__name__}")
    return value


def whole_number(name: str, value: int) -> int:
    """Returns `value`. Raises TypeError if it is not an int, or is a bool."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    return value


def message_headers(headers: MessageHeaders | None) -> Headers:
    """Returns the headers of the message in their order, without those that Postdate adds to a delivered record.

    Raises TypeError if `headers` is neither a mapping nor pairs, or if a name or value has a wrong type. Raises
    RequestInvalid if Postdate reserves a name, or if Kafka clients cannot transport a name; UnicodeEncodeError for a
    lone surrogate. Cost: O(headers).
    """
    pairs = list(_pairs(headers))
    is_delivered = any(name == names.ORIGIN for name, _ in pairs)
    kept: Headers = []
    for name, value in pairs:
        if is_postdate_header(name):
            # Every delivered record has an origin. Without an origin, the caller has set this id, and dropping the
            # header would lose the id.
            if not is_dropped(name) and name not in _LEFT and not (name == names.ID and is_delivered):
                raise RequestInvalid(
                    Reason.UNKNOWN_HEADER, f"header {name[:80]!a} is Postdate's: set it with an argument"
                )
            continue
        if b"\0" in utf8("header name", name):
            raise RequestInvalid(
                Reason.BAD_HEADERS, f"the header name {name[:80]!a} contains a NUL, at which clients truncate it"
            )
        kept.append((name, value))
    return kept


def returned_headers(headers: MessageHeaders | None) -> Headers:
    """Returns the headers of a consumed message for its return: the message's own headers, and those by which Postdate
    counts its attempts.

    Leaves out all other headers that Postdate added. Raises as `message_headers`.
    """
    kept: Headers = []
    for name, value in _pairs(headers):
        if name in _COUNTED:
            kept.append((name, value))
        else:
            kept += message_headers([(name, value)])
    return kept


def _pairs(headers: MessageHeaders | None) -> Iterator[tuple[str, bytes | None]]:
    if headers is None:
        return
    if isinstance(headers, str | bytes) or not isinstance(headers, Iterable):
        raise TypeError(f"headers {_HEADERS_REMEDY}, not {type(headers).__name__}")
    for header in headers.items() if isinstance(headers, Mapping) else headers:
        # A str or a set of two members also unpacks into two values, but not into a name and its value.
        if not isinstance(header, tuple | list) or len(header) != 2:
            raise TypeError(f"headers {_HEADERS_REMEDY}; {header!r:.80} is not a pair of name and value")
        name, value = header
        if not isinstance(name, str):
            raise TypeError(f"a header name must be str, not {type(name).__name__}; headers {_HEADERS_REMEDY}")
        if value is not None and not isinstance(value, bytes | str):
            raise TypeError(f"header {name[:80]!a} must be bytes, str or None, not {type(value).__name__}")
        yield name, None if value is None else utf8(f"header {name}", value)
