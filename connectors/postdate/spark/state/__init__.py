"""The state of an incremental audit: Delta tables, the forms of their rows, and queries of them.

May import the modules `errors` and `limits` of `postdate.spark`, and the packages `columns`, `output`, `session`,
`records`, `job`, `rules`, `judging`. Thread rule: one thread. Of two processes that write the same state at the same
time, only one commits (`store`).
"""
