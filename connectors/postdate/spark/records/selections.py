"""The selectors of bulk controls as column expressions: the messages that a control with selector headers selects.

The expressions follow the format's description and share nothing with the sidecar's parser.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from postdate.spark.columns.digests import digest, first_value, has
from postdate.spark.columns.times import duration_ms, instant_ms
from postdate.wire import headers as names

SELECTED = (
    "struct<target:string,id_prefix:binary,has_key:boolean,key_digest:binary,"
    "from_ms:bigint,until_ms:bigint,by_ms:bigint>"
)
"""The selectors of a bulk control. A null field does not restrict the selection, and `key_digest` restricts it only if
`has_key` is true. `by_ms` is the duration by which a bulk reschedule moves each message; it restricts nothing."""


def read_selection(headers: Column) -> Column:
    """Returns the selection in the headers of a request; null if it has no selector."""
    key = first_value(headers, names.SELECT_KEY)
    texts = (first_value(headers, name).cast("string") for name in (names.SELECT_FROM, names.SELECT_UNTIL))
    times = F.transform(F.array(*texts), instant_ms)
    selected = F.struct(
        first_value(headers, names.SELECT_TOPIC).cast("string").alias("target"),
        first_value(headers, names.SELECT_ID).alias("id_prefix"),
        has(headers, names.SELECT_KEY).alias("has_key"),
        digest(key).cast("binary").alias("key_digest"),
        F.get(times, 0).alias("from_ms"),
        F.get(times, 1).alias("until_ms"),
        _by_ms(first_value(headers, names.BY).cast("string")).alias("by_ms"),
    )
    return F.when(has_selector(headers), selected.cast(SELECTED))


def _by_ms(text: Column) -> Column:
    """Returns a duration in milliseconds, negative after a minus sign; null if the text is not a duration."""
    is_earlier = F.startswith(text, F.lit("-"))
    sign = F.when(~is_earlier, F.lit(1)).when(~F.startswith(text, F.lit("--")), F.lit(-1))
    return sign * duration_ms(F.ltrim(text, F.lit("-")))


def has_selector(headers: Column) -> Column:
    """True if a request has a selector."""
    return F.arrays_overlap(headers.getField("key"), F.array(*map(F.lit, sorted(names.SELECTORS))))


def selects(selected: Column, target: Column, id_: Column, key_digest: Column, due_ms: Column) -> Column:
    """True if a selection selects a message with these properties; false if a property that it restricts is null."""
    parts = (
        selected.target.isNull() | (target == selected.target),
        selected.id_prefix.isNull() | F.startswith(id_, selected.id_prefix),
        ~selected.has_key | (key_digest.cast("binary") == selected.key_digest),
        selected.from_ms.isNull() | (due_ms >= selected.from_ms),
        selected.until_ms.isNull() | (due_ms < selected.until_ms),
    )
    found = F.lit(True)
    for part in parts:
        found = found & F.coalesce(part, F.lit(False))
    return found
