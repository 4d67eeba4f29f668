"""Spark jobs over Postdate's topics: the only package that imports pyspark.

The jobs share with the sidecar the header names, the formats of dispatch log and verdicts, and, on topics with
dialects, the request parser (`records/dialects`). They share nothing else of the dispatch path: a result is evidence
about the sidecar only because the job derives it independently. The packages in import order:

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
repair     sends requests again that an audit reports as missing

The modules of this package itself are `errors` and `limits`, which all packages share, and the programs for
`spark-submit`: one `…_main.py` for each job, and `submitted`, which they share. Users call the commands, these
programs, `audit.run` and `bulk.schedule`.

Imports point one way (`SPARK_SHARED` in tests/support/tidiness/code_rules.py); `errors` and `limits` import none
of the packages. One job at a time in a process, in the main thread. Importing this package does not load pyspark.
"""
