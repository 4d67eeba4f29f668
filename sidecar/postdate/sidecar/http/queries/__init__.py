"""Queries for pending messages and histories: of the shards of this process, and of all processes.

Imports what `http` may import, and the flat modules and `access` of `http`.
Thread rule: any thread but a shard's; queries a shard through its `IndexQueries`.
"""
