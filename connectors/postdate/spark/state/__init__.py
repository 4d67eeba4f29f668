"""The state of an incremental audit: Delta tables, the forms of their rows, and queries of them.

Imports the flat modules `errors` and `limits` of `postdate.spark`, and the packages `columns`, `output`, `session`,
`records`, `job`, `rules`, `judging`.
Thread rule: one thread; of two processes that write the same state, Delta lets one commit.
"""
