"""Spark jobs over Postdate's topics: the only package that imports pyspark.

An audit shares names, limits and formats with the sidecar (`postdate.wire`) and, on topics with dialects, the request
parser (`records/dialects`). It shares no code that decides about a message: its result is evidence about the sidecar
only because the audit derives it independently. The packages in import order:

columns    column expressions: digests, hashes, times
output     pages, charts, tables, lateness and load as text
session    Spark's session, files, cached and small tables
records    records of Kafka as rows, one module for each kind of topic
job        shared by all jobs: options, offsets, reading, writing, start and end
bulk       a table becomes requests
report     upcoming load, past lateness
rules      the rules of the verdicts, as column expressions
judging    the rules applied to whole topics, at the least cost
state      the Delta tables of an audit that continues an earlier one
audit      full, incremental and continuous audits
repair     sends the requests again that an audit reports as missing

This package also has the modules `errors` and `limits`, which all its packages share, and the programs for
`spark-submit`: one `…_main.py` for each job, and `submitted`, which these programs share. Users call the commands,
these programs, `audit.run` and `bulk.schedule`.

The constants `SPARK_…` in tests/support/tidiness/code_rules.py list the permitted imports; `errors` and `limits` import
none of the packages. A process runs one job at a time, in its main thread. Importing this package does not load
pyspark.
"""
