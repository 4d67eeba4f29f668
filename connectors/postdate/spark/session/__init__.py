"""Spark itself: the session and its signals, file systems, cached rows, small tables of the driver.

Imports the flat modules `errors` and `limits` of `postdate.spark`, and the packages `columns`, `output`.
Thread rule: the main thread, since signals and the standard error of the process belong to it.
"""
