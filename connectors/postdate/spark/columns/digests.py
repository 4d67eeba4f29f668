"""Digests of keys, values and headers. The audit compares digests, not bytes, so that bodies are never shuffled.

Spark interprets higher-order functions (`filter`, `transform`) row by row, and compiles all other functions. So headers
are looked up by the position of their name, and few records are processed header by header.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from postdate.wire import headers as names

# Compiled code converts up to this many headers of a record to text. Records with more headers are rare, and
# interpreted code converts their headers.
_COMPILED_HEADERS = 4

# The number of Postdate's headers in a request or a delivery is nearly always one of these.
_OWN_COUNTS = (2, 3, 4)
_LAST_OWN = 3
_PREFIX = names.PREFIX

EMPTY_HEADERS = "array<struct<key:string,value:binary>>"
NO_DIGEST = b"\x00"
"""The digest of null, which no other digest equals."""


def digest(data: Column) -> Column:
    """Returns the SHA-256 of `data`, 32 bytes; NO_DIGEST for null."""
    return F.coalesce(F.unhex(F.sha2(data, 256)), F.lit(NO_DIGEST))


def headers_digest(headers: Column) -> Column:
    """Returns the SHA-256 of names and values in their order. Null values, empty values and repeats give different
    digests."""
    count = F.size(headers)
    few = F.concat_ws(
        ";", *(F.when(count > place, _header_text(F.get(headers, place))) for place in range(_COMPILED_HEADERS))
    )
    spelled = F.when(count <= _COMPILED_HEADERS, few).otherwise(F.array_join(F.transform(headers, _header_text), ";"))
    return F.unhex(F.sha2(spelled.cast("binary"), 256))


def headers_or_empty(headers: Column) -> Column:
    """Returns the headers; an empty array if Spark returns null for no headers."""
    return F.coalesce(headers, F.array().cast(EMPTY_HEADERS))


def message_headers(headers: Column) -> Column:
    """Returns the headers that are not Postdate's own, in their order.

    In nearly every record, Postdate's headers come first or last. A slice, which Spark compiles, then suffices.
    """
    data = F.filter(headers, lambda header: ~is_postdate_header(header))
    for count in reversed(_OWN_COUNTS):
        rest = F.greatest(F.size(headers) - count, F.lit(0))
        for first, first_own in ((count + 1, F.lit(0)), (1, rest)):
            owns = (F.startswith(F.get(_names(headers), first_own + place), F.lit(_PREFIX)) for place in range(count))
            others = F.array_join(F.slice(_names(headers), first, rest), "\n")
            is_cut = reduce(Column.__and__, owns) & ~F.contains(F.lower(others), F.lit(_PREFIX))
            data = F.when(F.coalesce(is_cut, F.lit(False)), F.slice(headers, first, rest)).otherwise(data)
    return data


def is_postdate_header(header: Column) -> Column:
    """True if a header has Postdate's prefix, in upper or lower case."""
    return F.lower(F.substring(header.key, 1, len(_PREFIX))) == _PREFIX


def first_value(headers: Column, name: str) -> Column:
    """Returns the value of the first header with this name; null if there is none, or if its value is null."""
    return F.get(headers.getField("value"), F.array_position(_names(headers), name).cast("int") - 1)


def last_value(headers: Column, name: str) -> Column:
    """Returns the value of the last header with this name, which is the valid one in a record that Postdate wrote; null
    if there is none, or if its value is null.

    Postdate appends few headers to a record, so the search starts at the end.
    """
    place = F.array_position(F.reverse(_names(headers)), name).cast("int")
    value = F.get(headers.getField("value"), F.when(place > 0, F.size(headers) - place))
    value = F.when(has(headers, name), value)
    for back in reversed(range(1, _LAST_OWN + 1)):
        header = F.get(headers, F.size(headers) - back)
        value = F.when(header.key == name, header.value).otherwise(value)
    return value


def has(headers: Column, name: str) -> Column:
    """True if there is a header with this name."""
    return F.array_contains(_names(headers), name)


def joined_names(headers: Column) -> Column:
    """Returns the names of the headers, with commas between them."""
    return F.array_join(_names(headers), ",")


def count_of(headers: Column, names: Sequence[str]) -> Column:
    """Returns the number of headers with one of these names."""
    others = _names(headers)
    for name in names:
        others = F.array_remove(others, name)
    return F.size(headers) - F.size(others)


def _names(headers: Column) -> Column:
    return headers.getField("key")


def _header_text(header: Column) -> Column:
    """Returns a text that is unique to the header's name and value."""
    return F.concat(F.hex(F.encode(header.key, "UTF-8")), F.lit("="), F.coalesce(F.hex(header.value), F.lit("null")))
