"""Which due entries leave, in which transactions: scan, batches, isolation of bad targets, rates.

Imports the flat modules of `postdate.sidecar`, and the packages `config`, `index`, `context`, `operation`,
`transaction`, `ingest`, `takeover`.
Thread rule: the shard's thread.
"""
