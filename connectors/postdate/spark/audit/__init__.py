"""Audits: full, incremental from a state, and continuous; their options and their results.

Notebooks call `run`. The modules in import order: `options`, `ranges`, `chart_data`, `output`, `page`, `metrics`,
`steps`, `reading`, `incremental_judging`, `incremental`, `job`, `continuous`. `acknowledging` imports none of them.

May import the modules `errors` and `limits` of `postdate.spark`, and the packages `columns`, `output`, `session`,
`records`, `job`, `rules`, `judging`, `state`. Thread rule: one thread; a process runs one audit at a time.
"""

from postdate.spark.audit.job import AuditResult, run
from postdate.spark.audit.options import AuditOptions

__all__ = ["AuditOptions", "AuditResult", "run"]
