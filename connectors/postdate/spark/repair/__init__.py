"""Repair: sends requests again that an audit reports as missing, if nothing can deliver them any more.

Imports the flat modules `errors` and `limits` of `postdate.spark`, and the packages `columns`, `output`, `session`,
`records`, `job`, `bulk`, `rules`, `state`.
Thread rule: one thread; one job at a time in a process, and one repair at a time.
"""
