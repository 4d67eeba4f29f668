"""Changes of a shard's timer index: the effect of requests and of fates.

May import the flat modules of `postdate.sidecar`, and `config`.
Thread rule: the shard's thread.
"""
