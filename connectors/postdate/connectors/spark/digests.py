"""Digests of keys, values and headers: what is compared instead of the bytes, so that bodies are never shuffled.

Functions with a body for each element (`filter`, `transform`) are interpreted by Spark, row by row; everything else is
compiled. So headers are looked up by the position of their name, and few of them are spelled one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from postdate.connectors.wire import headers as names

# So many headers are spelled by compiled code; a record with more is rare, and interpreted.
_COMPILED_HEADERS = 4

EMPTY_HEADERS = "array<struct<key:string,value:binary>>"


def digest(data: Column) -> Column:
    """SHA-256 of `data`, 32 bytes; one zero byte for null, which no digest equals."""
    return F.coalesce(F.unhex(F.sha2(data, 256)), F.unhex(F.lit("00")))


def headers_digest(headers: Column) -> Column:
    """SHA-256 over names and values in their order; null values, empty values and repeats all count."""
    count = F.size(headers)
    few = F.concat_ws(
        ";", *(F.when(count > place, _spelled(F.get(headers, place))) for place in range(_COMPILED_HEADERS))
    )
    spelled = F.when(count <= _COMPILED_HEADERS, few).otherwise(F.array_join(F.transform(headers, _spelled), ";"))
    return F.unhex(F.sha2(spelled.cast("binary"), 256))


def present(headers: Column) -> Column:
    """The headers, or none where Spark gives null for none."""
    return F.coalesce(headers, F.array().cast(EMPTY_HEADERS))


def is_ours(header: Column) -> Column:
    """Whether a header is Postdate's own: by its prefix, whatever the case of the letters."""
    return F.lower(F.substring(header.key, 1, len(names.PREFIX))) == names.PREFIX


def first_value(headers: Column, name: str) -> Column:
    """The value of the first header of this name; null where there is none, or its value is null."""
    return F.get(headers.getField("value"), F.array_position(_names(headers), name).cast("int") - 1)


def last_value(headers: Column, name: str) -> Column:
    """The value of the last header of this name, which is the one that counts in a record that Postdate has written."""
    place = F.array_position(F.reverse(_names(headers)), name).cast("int")
    return F.get(headers.getField("value"), F.when(place > 0, F.size(headers) - place))


def has(headers: Column, name: str) -> Column:
    """Whether there is a header of this name."""
    return F.array_contains(_names(headers), name)


def joined_names(headers: Column) -> Column:
    """The names of the headers, with commas between them."""
    return F.array_join(_names(headers), ",")


def count_of(headers: Column, names: Sequence[str]) -> Column:
    """How many headers have one of these names."""
    others = _names(headers)
    for name in names:
        others = F.array_remove(others, name)
    return F.size(headers) - F.size(others)


def _names(headers: Column) -> Column:
    return headers.getField("key")


def _spelled(header: Column) -> Column:
    """A header as a text that no other header has."""
    return F.concat(F.hex(F.encode(header.key, "UTF-8")), F.lit("="), F.coalesce(F.hex(header.value), F.lit("null")))
