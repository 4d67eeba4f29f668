"""The hash and the partitioner of Kafka's Java client, so that a message goes to the partition that a Java producer
would choose.

Source: `Utils.murmur2`, `Utils.toPositive` and `BuiltInPartitioner.partitionForKey` of apache/kafka. As in Java, an
empty key determines a partition, and a null key does not.
"""

from __future__ import annotations

from struct import unpack_from
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Returns the 32-bit murmur2 of `key` as Java does: signed, -2**31 to 2**31 - 1. Cost: O(length)."""
    length = len(key)
    h = _SEED ^ (length & _MASK)
    words = length // 4
    for k in unpack_from(f"<{words}I", key):
        k = k * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if length % 4:
        h = (h ^ int.from_bytes(key[words * 4 :], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - 2**32 if h >= 2**31 else h


def partition_for(key: bytes, partitions: int) -> int:
    """Returns the partition, 0 to `partitions` - 1, that Java's default partitioner chooses for `key`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
