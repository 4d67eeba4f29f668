"""Digests of keys, values and headers. The audit compares digests, not bytes, so that bodies are never shuffled.

Spark interprets higher-order functions (`filter`, `transform`) row by row, and compiles all other functions. So headers
are looked up by the position of their name, and only a few headers are processed one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from postdate.wire import headers as names

# Compiled code converts up to this many headers to text. Records with more are rare; their headers are interpreted.
_COMPILED_HEADERS = 4

# Nearly every request and delivery has one of these numbers of Postdate's headers.
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
    """Returns the SHA-256 of names and values in their order; null values, empty values and repeats all change it."""
    count = F.size(headers)
    few = F.concat_ws(
        ";", *(F.when(count > place, _header_text(F.get(headers, place))) for place in range(_COMPILED_HEADERS))
    )
    spelled = F.when(count <= _COMPILED_HEADERS, few).otherwise(F.array_join(F.transform(headers, _header_text), ";"))
    return F.unhex(F.sha2(spelled.cast("binary"), 256))


def present(headers: Column) -> Column:
    """Returns the headers; an empty array if Spark returns null for no headers."""
    return F.coalesce(headers, F.array().cast(EMPTY_HEADERS))


def message_headers(headers: Column) -> Column:
    """Returns the headers that are not Postdate's own, in their order.

    Nearly every record has Postdate's headers first or last. Then a slice suffices, which Spark compiles.
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
    """Returns the value of the last header with this name: the valid one in a record that Postdate wrote.

    Postdate writes few headers, at the end, so the search starts there.
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
