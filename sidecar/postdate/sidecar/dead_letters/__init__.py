"""Reads the dead letters of a request topic, and requeues them as new requests.

May import the flat modules of `postdate.sidecar`, and the packages `config`, `index`, `context`, `operation`,
`transaction`, `ingest`, `takeover`, `dispatch`, `shard`, `group`, `cluster`. Thread rule: functions over their
arguments, callable from any thread.
"""
