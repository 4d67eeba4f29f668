"""The steps before a process may act for a shard: fence, bound, recover, catch up.

May import the flat modules of `postdate.sidecar`, and the packages `config`, `index`, `context`, `operation`,
`transaction`, `ingest`.
Thread rule: the shard's thread.
"""
