"""Parses the columns of any table as request parameters with fixed types: DataFrame to DataFrame. It does not check the
rules. The result has these columns:

row                  the whole input row, for the reject table
target spread        text
key value id         bytes; texts become UTF-8
headers              pairs of name and bytes, in the order of the input; null if they cannot be read
at_ms delay_ms grace_ms window_ms partition   bigint; null if they are absent or cannot be read
has_headers has_at …                whether the value is present, to distinguish a mistake from an absent value
at_text delay_text …                the value as text, truncated, for messages
due_ms               the due time of a request that is sent at `now_ms`; null if it cannot be computed

A time is a `timestamp` (an instant), a whole number of milliseconds or a text as in the header `postdate-at`. A delay,
grace or window is a whole number of milliseconds or a text as in `postdate-delay`. A `timestamp_ntz` or a date is a
different instant in each time zone, and is refused like every other type that is ambiguous.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from postdate.spark.columns.digests import EMPTY_HEADERS
from postdate.spark.columns.expressions import natural
from postdate.spark.columns.times import duration_ms, instant_ms
from postdate.spark.errors import JobUsageError
from postdate.spark.limits import QUOTED_CHARACTERS_MAX

_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_TIMES = ("at", "delay", "grace", "window", "partition")
_JSON_HEADERS = "map<string,string>"


def parsed_rows(rows: DataFrame, columns: Mapping[str, str], target: str | None, now_ms: int) -> DataFrame:
    """Returns one row for each of `rows`, with the columns above.

    `columns` gives the column of each field, as `field_columns` returns it; `target`, if not None, applies to all rows.
    Raises JobUsageError if a column has an ambiguous type.
    """
    given = {name: (_named(column), rows.schema[column].dataType) for name, column in columns.items()}

    def bytes_of(name: str) -> Column:
        return _as_bytes(name, *given[name]) if name in given else F.lit(None).cast("binary")

    def number_of(name: str) -> Column:
        return _as_number(name, *given[name]) if name in given else F.lit(None).cast("bigint")

    def is_present(name: str) -> Column:
        return given[name][0].isNotNull() if name in given else F.lit(False)

    target_column = F.lit(target) if target is not None else _as_text("target", *given["target"])
    headers = _as_headers(*given["headers"]) if "headers" in given else F.array().cast(EMPTY_HEADERS)
    spread = _as_text("spread", *given["spread"]) if "spread" in given else F.lit(None).cast("string")
    parsed = rows.select(
        F.struct(*(_named(name) for name in rows.columns)).alias("row"),
        target_column.alias("target"),
        spread.alias("spread"),
        *(bytes_of(name).alias(name) for name in ("key", "value", "id")),
        headers.alias("headers"),
        is_present("headers").alias("has_headers"),
        *(number_of(name).alias(name if name == "partition" else f"{name}_ms") for name in _TIMES),
        *(is_present(name).alias(f"has_{name}") for name in _TIMES),
        *(_quoted(name, given).alias(f"{name}_text") for name in _TIMES),
    )
    return parsed.withColumn("due_ms", F.coalesce("at_ms", F.col("delay_ms") + F.lit(now_ms).cast("bigint")))


def field_columns(rows: DataFrame, columns: Mapping[str, str], fields: tuple[str, ...]) -> dict[str, str]:
    """Returns the column of each field: the one that `columns` names, otherwise the one with the field's name.

    Raises JobUsageError if `columns` names a column that does not exist, or if two columns have the same name.
    """
    names = rows.columns
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise JobUsageError(f"The input has two columns {', '.join(twice)}.")
    for field, column in columns.items():
        if column not in names:
            near = get_close_matches(column, names, 1)
            meant = f" Is {near[0]} meant?" if near else ""
            raise JobUsageError(f"The input has no column {column} for {field}; it has {', '.join(names)}.{meant}")
    return {field: columns.get(field, field) for field in fields if columns.get(field, field) in names}


def _named(column: str) -> Column:
    """Returns a column by its name, which may contain dots and quotes."""
    return F.col("`" + column.replace("`", "``") + "`")


def _quoted(name: str, given: Mapping[str, tuple[Column, DataType]]) -> Column:
    if name not in given:
        return F.lit(None).cast("string")
    return F.substring(given[name][0].cast("string"), 1, QUOTED_CHARACTERS_MAX)


def _as_text(name: str, column: Column, kind: DataType) -> Column:
    if not isinstance(kind, StringType):
        raise _unclear(name, kind, "a text")
    return column


def _as_bytes(name: str, column: Column, kind: DataType) -> Column:
    if isinstance(kind, BinaryType):
        return column
    if isinstance(kind, StringType):
        return F.encode(column, "UTF-8")
    raise _unclear(name, kind, "a text or bytes (to_json makes a text of a struct)")


def _as_number(name: str, column: Column, kind: DataType) -> Column:
    """Returns milliseconds, or the number of a partition; null if the value is invalid or negative."""
    if isinstance(kind, _WHOLE):
        return F.when(column >= 0, column.cast("bigint"))
    if isinstance(kind, StringType):
        if name == "partition":
            return natural(column)
        return instant_ms(column) if name == "at" else duration_ms(column)
    if name == "at" and isinstance(kind, TimestampType):
        micros = F.unix_micros(column)
        rest = F.when(micros % 1_000 > 0, F.lit(1)).otherwise(F.lit(0))
        return F.when(micros >= 0, F.unix_millis(column) + rest)
    if name == "at":
        raise _unclear(name, kind, "a timestamp with its time zone applied, epoch milliseconds or a text")
    raise _unclear(name, kind, "a whole number or a text")


def _as_headers(column: Column, kind: DataType) -> Column:
    """Returns an array of names and bytes: empty if the column is null, null if its text cannot be read."""
    none = F.array().cast(EMPTY_HEADERS)
    if isinstance(kind, StringType):
        read = F.from_json(column, _JSON_HEADERS)
        headers = F.when(read.isNotNull(), _of_map(read, StringType()))
        return F.when(column.isNull() | (F.trim(column) == ""), none).otherwise(headers)
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return F.when(column.isNull(), none).otherwise(_of_map(column, kind.valueType))
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType) and len(kind.elementType) == 2:
        name, value = kind.elementType
        if isinstance(name.dataType, StringType):
            pairs = F.transform(
                column, lambda pair: _pair(pair[name.name], _as_bytes("headers", pair[value.name], value.dataType))
            )
            return F.when(column.isNull(), none).otherwise(pairs)
    raise _unclear("headers", kind, "an array of (name, value), a map, or a text with a JSON object")


def _of_map(column: Column, kind: DataType) -> Column:
    return F.transform(
        F.map_entries(column), lambda pair: _pair(pair.key, _as_bytes("headers", pair["value"], kind))
    ).cast(EMPTY_HEADERS)


def _pair(name: Column, value: Column) -> Column:
    return F.struct(name.alias("key"), value.alias("value"))


def _unclear(name: str, kind: DataType, wanted: str) -> JobUsageError:
    return JobUsageError(f"The column for {name} is {kind.simpleString()}; it must be {wanted}.")
