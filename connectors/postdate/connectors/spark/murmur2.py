"""Kafka's murmur2 of a record key as a column expression: the partition that a Java producer chooses.

Spark's own `hash` is murmur3 with another seed and of no use here. The algorithm is that of Kafka's
`org.apache.kafka.common.utils.Utils.murmur2`: 32-bit arithmetic, here in bigint with a mask, whose products stay below
2**63 since the multiplier is below 2**31. Cost: O(length of the key), interpreted, not generated code.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from postdate.connectors.spark.expressions import let

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def positive_murmur2(key: Column) -> Column:
    """`toPositive(murmur2(key))` as bigint, null for a null key; modulo the partitions it is the Java partitioner's."""
    return F.when(key.isNotNull(), let(F.struct(F.hex(key).alias("digits"), F.length(key).alias("length")), _hashed))


def _hashed(parts: Column) -> Column:
    digits, length = parts.digits, parts.length
    blocks = (length / F.lit(4)).cast("int")
    indices = F.when(blocks > 0, F.sequence(F.lit(0), blocks - 1)).otherwise(F.array().cast("array<int>"))
    words = F.transform(indices, lambda index: _word(digits, index))
    scrambled = F.transform(F.transform(words, _times_m), lambda k: _times_m(_xor_shifted(k, 24)))
    start = F.lit(_SEED).cast("bigint").bitwiseXOR(length.cast("bigint"))
    mixed = F.aggregate(scrambled, start, lambda h, k: _times_m(h).bitwiseXOR(k))
    tail = _tail(digits, blocks, length)
    with_tail = F.when(length % 4 > 0, _times_m(mixed.bitwiseXOR(tail))).otherwise(mixed)
    folded = let(with_tail, lambda h: _times_m(_xor_shifted(h, 13)))
    return let(folded, lambda h: _xor_shifted(h, 15)).bitwiseAND(F.lit(0x7FFFFFFF))


def _word(digits: Column, index: Column) -> Column:
    """The four bytes at `4 * index` as a little-endian number."""
    first = index * 8 + 1
    reversed_digits = F.concat(*(F.substr(digits, first + skip, F.lit(2)) for skip in (6, 4, 2, 0)))
    return F.conv(reversed_digits, 16, 10).cast("bigint")


def _tail(digits: Column, blocks: Column, length: Column) -> Column:
    """The up to three bytes behind the last word, little-endian; 0 where there are none."""
    first = blocks * 8 + 1
    reversed_digits = F.concat(
        *(
            F.when(length % 4 > byte, F.substr(digits, first + 2 * byte, F.lit(2))).otherwise(F.lit(""))
            for byte in (2, 1, 0)
        )
    )
    return F.coalesce(F.conv(F.concat(F.lit("0"), reversed_digits), 16, 10).cast("bigint"), F.lit(0))


def _times_m(number: Column) -> Column:
    return (number * F.lit(_M).cast("bigint")).bitwiseAND(F.lit(_MASK))


def _xor_shifted(number: Column, bits: int) -> Column:
    return number.bitwiseXOR(F.shiftright(number, bits))
