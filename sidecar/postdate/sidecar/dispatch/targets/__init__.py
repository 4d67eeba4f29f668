"""The targets of a shard: metadata, faults and isolation, rate limits.

May import what `dispatch` may import, and of `dispatch` the module `limits`. Thread rule: the shard's thread.
"""
