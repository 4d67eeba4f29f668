"""Repair: sends the requests again that an audit reports as missing, if nothing can deliver their messages any more.

May import the modules `errors` and `limits` of `postdate.spark`, and the packages `columns`, `output`, `session`,
`records`, `job`, `bulk`, `rules`, `state`. Thread rule: one thread; one job at a time in a process. Only one repair of
a request topic may run at a time.
"""
