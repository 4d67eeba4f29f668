"""The rules applied to whole topics at the least cost: first to long stretches of requests, then to single origins.

Imports the flat modules `errors` and `limits` of `postdate.spark`, and the packages `columns`, `output`, `session`,
`records`, `job`, `rules`.
Thread rule: one thread; what is cached is released at the end of the job (`session.caching`).
"""
