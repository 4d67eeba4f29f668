"""Turns due entries into transactions: `due` selects entries; `targets` isolates bad targets and limits rates.

Imports the flat modules of `postdate.sidecar`, and the packages `config`, `index`, `context`, `operation`,
`transaction`, `ingest`, `takeover`. `targets` may also import `limits` of this package, and `due` both. The
other modules here may import all of these.
Thread rule: the shard's thread.
"""
