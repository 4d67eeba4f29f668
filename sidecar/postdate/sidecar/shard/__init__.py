"""One request partition: its thread, its states, its housekeeping.

May import the flat modules of `postdate.sidecar`, and the packages `config`, `index`, `context`, `operation`,
`transaction`, `ingest`, `takeover`, `dispatch`. Thread rule: a shard belongs to its thread; each class states what
other threads may use.
"""
