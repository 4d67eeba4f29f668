"""The targets of a shard: metadata, faults and isolation, rate limits.

Imports what `dispatch` may import, and the bounds of `dispatch`.
Thread rule: the shard's thread.
"""
