"""A running process: its start, its threads and children, and its end.

May import the flat modules of `postdate.sidecar`, and the packages `config`, `index`, `context`, `operation`,
`transaction`, `ingest`, `takeover`, `dispatch`, `shard`, `group`, `cluster`, `dead_letters`, `http`.
Thread rule: the main thread, unless a module states otherwise.
"""
