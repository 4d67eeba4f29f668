"""Membership in the consumer group: assignments, revocations, and writing holds beside the group's offsets.

May import the flat modules of `postdate.sidecar`, and the packages `config`, `index`, `context`, `operation`,
`transaction`, `ingest`, `takeover`, `dispatch`, `shard`.
Thread rule: the poll thread, unless a module states otherwise.
"""
