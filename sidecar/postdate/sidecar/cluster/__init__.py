"""Requests to the cluster outside of transactions: connections, rights, topics and their rules, production of requests.

May import the flat modules of `postdate.sidecar`, and the packages `config`, `index`, `context`, `operation`,
`transaction`, `ingest`, `takeover`, `dispatch`, `shard`, `group`.
Thread rule: functions, for any thread; the clients passed to them keep their own thread rules.
"""
