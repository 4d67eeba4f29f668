"""Turns due entries into transactions. `due` selects the entries; `targets` isolates failing and slow targets, and
limits rates.

May import the flat modules of `postdate.sidecar`, and the packages `config`, `index`, `context`, `operation`,
`transaction`, `ingest`, `takeover`. `targets` may also import `limits` of this package; `due` may import `limits` and
`targets`. The other modules of this package may import all of these. Thread rule: the shard's thread.
"""
