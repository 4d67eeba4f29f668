"""The partition of a key, computed as in the Java client: murmur2, and the first partition for a null key.

A real client chooses any partition for a null key; the first one keeps a simulation reproducible.
"""

from __future__ import annotations

_SEED, _MULTIPLIER, _MASK = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF


def partition_for(key: bytes | None, partitions: int) -> int:
    """Returns the partition of a key in a topic with `partitions` partitions. O(length of the key)."""
    if key is None:
        return 0
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    h = _SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        k = (k ^ k >> 24) * _MULTIPLIER & _MASK
        h = h * _MULTIPLIER & _MASK ^ k
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    h = (h ^ h >> 13) * _MULTIPLIER & _MASK
    return h ^ h >> 15
