"""Requests of other schedulers: a request topic with a dialect accepts them unchanged.

    conversions    converts header values of other schedulers into those of Postdate
    table          the meaning and unit of each header of each dialect
    translation    translates the headers of a record into headers of Postdate

Imports `values` and the flat modules of `wire` before it. Pure functions. Thread rule: everything may be called from
any thread.
"""
