"""Applies the rules to whole topics at the least cost: first to chunks of requests, then to single origins.

May import the modules `errors` and `limits` of `postdate.spark`, and the packages `columns`, `output`, `session`,
`records`, `job`, `rules`. Thread rule: one thread; cached rows are released at the end of the job (`session.caching`).
"""
