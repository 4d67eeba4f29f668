"""Turns due entries into transactions: `due` selects entries; `targets` isolates bad targets and limits rates.

Imports the flat modules of `postdate.sidecar`, and the packages `config`, `index`, `context`, `operation`,
`transaction`, `ingest`, `takeover`. `targets` may also import `limits` of this package; `due` may import `limits` and
`targets`. The other modules of this package may import all of these. Thread rule: the shard's thread.
"""
