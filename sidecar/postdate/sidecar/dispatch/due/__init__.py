"""Which due entries the next transaction takes: the scan, the second cursor of a backlog, sweeps, limits of the size.

Imports what `dispatch` may import, the bounds of `dispatch`, and its package `targets`.
Thread rule: the shard's thread.
"""
