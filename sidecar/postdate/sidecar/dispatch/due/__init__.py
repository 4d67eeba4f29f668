"""Selects the due entries of the next transaction: the scan, the second cursor of a backlog, sweeps, size limits.

Imports what `dispatch` may import, the bounds of `dispatch`, and its package `targets`.
Thread rule: the shard's thread.
"""
