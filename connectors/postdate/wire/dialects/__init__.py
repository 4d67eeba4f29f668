"""Requests of other schedulers: a request topic with a dialect accepts them unchanged.

    conversions    header values of other schedulers as those of Postdate
    table          the meaning and unit of each header of each dialect
    translation    the headers of a record of a dialect as headers of Postdate

Imports `values`, `schedules` and the flat modules before them. Pure functions. Thread rule: everything may be called
from any thread.
"""
