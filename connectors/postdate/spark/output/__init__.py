"""The parts of reports: HTML pages, charts, aligned tables, figures of lateness, load over time, and JSON or text.

May import the flat modules `errors` and `limits` of `postdate.spark`, and `columns`.
Thread rule: none; only `load` reads DataFrames.
"""
