"""Bulk schedule: every row of a table becomes a request, or none does.

Other Spark programs call `schedule`. Imports the flat modules `errors` and `limits` of `postdate.spark`, and the
packages `columns`, `output`, `session`, `records`, `job`.
Thread rule: one thread; one job at a time in a process.
"""

from postdate.spark.bulk.job import schedule
from postdate.spark.bulk.options import BulkOptions

__all__ = ["BulkOptions", "schedule"]
