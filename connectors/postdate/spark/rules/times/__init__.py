"""Nominal times of schedules as the audit computes them, without code of the sidecar.

    cron_fields       cron expressions: the days and times of day that match
    zone_files        time zones, decoded from the files of `tzdata`
    nominal_times     the nominal times of a schedule in a range
    nominal_search    finds the next nominal time, and computes a range of times at once for this

Imports only `limits` of `postdate.spark`, and no pyspark.
Thread rule: none; pure functions, and objects that belong to their caller. They run in Spark's Python workers.
"""
