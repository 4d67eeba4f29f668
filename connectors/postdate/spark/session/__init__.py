"""Spark itself: the session and its signals, file systems, cached rows, small tables of the driver.

May import the modules `errors` and `limits` of `postdate.spark`, and the packages `columns`, `output`. Thread rule: the
main thread, since only it can handle signals. The start of a session redirects the standard error of the process.
"""
