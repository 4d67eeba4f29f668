"""Which due entries leave, in which transactions: `due` selects them, `targets` isolates bad targets and limits rates.

Imports the flat modules of `postdate.sidecar`, and the packages `config`, `index`, `context`, `operation`,
`transaction`, `ingest`, `takeover`. Of its own packages, lowest first (`targets`, `due`), each may import those before
it and `limits`, and the modules here import all.
Thread rule: the shard's thread.
"""
