"""A running process: how it starts, the threads and children it has, how it ends.

Imports the flat modules of `postdate.sidecar`, and the packages `config`, `index`, `context`, `operation`,
`transaction`, `ingest`, `takeover`, `dispatch`, `shard`, `group`, `cluster`, `http`.
Thread rule: the main thread.
"""
