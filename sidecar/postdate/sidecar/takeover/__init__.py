"""The steps before a process may act for a shard: open, check, fence, bound, recover, own.

May import the flat modules of `postdate.sidecar`, and the packages `config`, `index`, `context`, `operation`,
`transaction`, `ingest`.
Thread rule: the shard's thread.
"""
