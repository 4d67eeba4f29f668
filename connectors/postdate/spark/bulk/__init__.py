"""Bulk schedule: turns the rows of a table into requests. By default, one refused row stops the job before it sends
any request.

Other Spark programs call `schedule`. May import the modules `errors` and `limits` of `postdate.spark`, and the packages
`columns`, `output`, `session`, `records`, `job`. Thread rule: one thread; one job at a time in a process.
"""

from postdate.spark.bulk.job import schedule
from postdate.spark.bulk.options import BulkOptions

__all__ = ["BulkOptions", "schedule"]
