"""Digests of keys, values and headers: what is compared instead of the bytes, so that bodies are never shuffled."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from postdate.connectors.wire import headers as names

EMPTY_HEADERS = "array<struct<key:string,value:binary>>"


def digest(data: Column) -> Column:
    """SHA-256 of `data`, 32 bytes; one zero byte for null, which no digest equals."""
    return F.coalesce(F.unhex(F.sha2(data, 256)), F.unhex(F.lit("00")))


def headers_digest(headers: Column) -> Column:
    """SHA-256 over names and values in their order; null values, empty values and repeats all count."""
    spelled = F.transform(
        headers,
        lambda header: F.concat(
            F.hex(F.encode(header.key, "UTF-8")), F.lit("="), F.coalesce(F.hex(header.value), F.lit("null"))
        ),
    )
    return F.unhex(F.sha2(F.array_join(spelled, ";").cast("binary"), 256))


def present(headers: Column) -> Column:
    """The headers, or none where Spark gives null for none."""
    return F.coalesce(headers, F.array().cast(EMPTY_HEADERS))


def is_ours(header: Column) -> Column:
    """Whether a header is Postdate's own: by its prefix, whatever the case of the letters."""
    return F.lower(F.substring(header.key, 1, len(names.PREFIX))) == names.PREFIX


def first_of(headers: Column, name: str) -> Column:
    """The first header of this name, as a struct of key and value; null where there is none."""
    return F.get(F.filter(headers, lambda header: header.key == name), 0)


def last_of(headers: Column, name: str) -> Column:
    """The last header of this name, which is the one that counts in a record that Postdate has written."""
    return F.try_element_at(F.filter(headers, lambda header: header.key == name), F.lit(-1))
