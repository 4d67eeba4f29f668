"""Kafka's murmur2 of a record key as a column expression: the partition that a Java producer chooses.

Spark's own `hash` is murmur3 with another seed. The algorithm is that of Kafka's
`org.apache.kafka.common.utils.Utils.murmur2`. If Spark has Kafka's library, which it needs to read Kafka, compiled code
calls this function. Otherwise column expressions, which Spark interprets, compute the hash with 32-bit arithmetic in
bigint and a mask. All products stay below 2**63, since the multiplier is below 2**31. Cost: O(length of the key).
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as F

from postdate.spark.columns.expressions import let

_OWNER = "org.apache.kafka.common.utils.Utils"
_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def positive_murmur2(key: Column) -> Column:
    """Returns `toPositive(murmur2(key))` as bigint, null for a null key. Modulo the partition count, it is the
    partition that the Java partitioner chooses."""
    of_kafka = kafkas_murmur2(key)
    return spelled_murmur2(key) if of_kafka is None else of_kafka


def kafkas_murmur2(key: Column) -> Column | None:
    """Returns `positive_murmur2(key)`, computed by Kafka's function; None if Spark has no Kafka library, or cannot call
    the function."""
    jvm: Any = getattr(SparkContext._active_spark_context, "_jvm", None)
    try:
        from pyspark.sql.classic.column import Column as JvmColumn

        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        owner = jvm.java.lang.Class.forName(_OWNER, True, loader)
        bridge, spark = jvm.org.apache.spark.sql.classic.ExpressionUtils, jvm.org.apache.spark.sql
        number, nothing = spark.types.DataTypes.IntegerType, jvm.PythonUtils.toSeq([])
        arguments = jvm.PythonUtils.toSeq([bridge.expression(key._jc)])
        call = spark.catalyst.expressions.objects.StaticInvoke(
            *(owner, number, "murmur2", arguments, nothing), True, True, True, jvm.scala.Option.empty()
        )
        hashed: Column = JvmColumn(bridge.column(call))
    except (Py4JError, Py4JJavaError, AttributeError, TypeError):
        return None
    return hashed.bitwiseAND(F.lit(0x7FFFFFFF)).cast("bigint")


def spelled_murmur2(key: Column) -> Column:
    """Returns `positive_murmur2(key)`, computed by column expressions."""
    return F.when(key.isNotNull(), let(F.struct(F.hex(key).alias("digits"), F.length(key).alias("length")), _hashed))


def _hashed(parts: Column) -> Column:
    digits, length = parts.digits, parts.length
    words = F.transform(F.regexp_extract_all(digits, F.lit("[0-9A-F]{8}"), F.lit(0)), _number)
    scrambled = F.transform(words, lambda word: _times_m(_turned(word)))
    start = F.lit(_SEED).cast("bigint").bitwiseXOR(length.cast("bigint"))
    mixed = F.aggregate(scrambled, start, lambda h, k: _times_m(h).bitwiseXOR(_times_m(_xor_shifted(k, 24))))
    tail = _tail(F.substring(digits, -2 * (length % 4), 2 * (length % 4)), length % 4)
    with_tail = F.when(length % 4 > 0, _times_m(mixed.bitwiseXOR(tail))).otherwise(mixed)
    folded = let(with_tail, lambda h: _times_m(_xor_shifted(h, 13)))
    return let(folded, lambda h: _xor_shifted(h, 15)).bitwiseAND(F.lit(0x7FFFFFFF))


def _number(digits: Column) -> Column:
    return F.conv(digits, 16, 10).cast("bigint")


def _turned(word: Column) -> Column:
    """Returns a four-byte number with its bytes reversed: little-endian to big-endian."""
    low, high = F.shiftleft(word.bitwiseAND(F.lit(0xFF)), 24), F.shiftright(word, 24)
    inner = F.shiftleft(word.bitwiseAND(F.lit(0xFF00)), 8).bitwiseOR(F.shiftright(word, 8).bitwiseAND(F.lit(0xFF00)))
    return low.bitwiseOR(inner).bitwiseOR(high)


def _tail(digits: Column, count: Column) -> Column:
    """Returns the number in the `count` bytes after the last word, up to three, little-endian; 0 if there are none."""
    padded = F.rpad(F.when(count > 0, digits).otherwise(F.lit("")), 8, "0")
    return let(_number(padded), _turned)


def _times_m(number: Column) -> Column:
    return (number * F.lit(_M).cast("bigint")).bitwiseAND(F.lit(_MASK))


def _xor_shifted(number: Column, bits: int) -> Column:
    return number.bitwiseXOR(F.shiftright(number, bits))
