"""Selects the due entries of the next transaction: the scan, the second cursor of a backlog, sweeps, size limits.

May import what `dispatch` may import, and of `dispatch` the module `limits` and the package `targets`. Thread rule: the
shard's thread.
"""
