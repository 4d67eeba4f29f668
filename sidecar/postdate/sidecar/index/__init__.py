"""Changes of a shard's timer index: drafts of new entries, and how fates are applied.

Imports the flat modules of `postdate.sidecar`, and `config`.
Thread rule: the shard's thread.
"""
