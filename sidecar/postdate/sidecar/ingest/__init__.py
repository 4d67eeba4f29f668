"""Reads requests into the timer index: rules, quotas, refusals.

May import the flat modules of `postdate.sidecar`, and the packages `config`, `index`, `context`, `operation`,
`transaction`. Thread rule: the shard's thread.
"""
