"""Bounds of the Spark jobs, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# A request counts as missing only this long after its due time: more than a takeover takes, less than a person waits.
SLACK_MS_DEFAULT: Final = 60_000

# A sidecar that keeps up delivers a message within this time, so the check of a chunk expects it by then. If a chunk
# has a later message, its origins are compared one by one, with the slack above. If most chunks have a later message,
# the audit expects only overdue messages, and reads the records once more.
EXPECTED_AFTER_MS: Final = 2_000

# How long an audit waits for open transactions before they cap an end: the sidecar's transactions end within
# transaction.timeout.ms (10 s), and the broker looks for expired ones every 10 s.
SETTLE_MS_DEFAULT: Final = 25_000

# The clocks of brokers may differ, and so may the sidecar's clock, which counts if a target keeps CreateTime. So an
# audit of a window also reads this much before the window.
CLOCK_MARGIN_MS: Final = 3_600_000

# A broker deletes expired records every five minutes, also during an audit. So an audit skips records that expire
# within this time, but never more than one part in RETENTION_MARGIN_SHARE of a short retention.
RETENTION_MARGIN_MS: Final = 3_600_000
RETENTION_MARGIN_SHARE: Final = 8

# An audit first searches this many records at the start of each partition of a target for a record with the broker's
# time. Each audit reads them twice. If only Postdate writes to the target, the first record has the broker's time.
FRONT_RECORDS_MAX: Final = 1_000

# The longest default duration of a sidecar's transaction: a sidecar checks a message's grace, and may commit this much
# later.
COMMIT_MS_MAX: Final = 10_000

# A sidecar checks the broker's clock before it writes a dead letter. The clock of a new leader may lag by up to this.
BURIED_EARLY_MS_MAX: Final = 60_000

# A message that left later than this may have been parked because its target failed, and order is not promised for
# parked messages. A sidecar tries a failing target again after this time at the earliest.
ORDER_LATE_MS_MAX: Final = 500

# The number of preceding messages of the same key with which an audit compares a possibly disordered message.
ORDER_LOOKED_BACK_MAX: Final = 64

# Up to this number of target records, each audit checks their order, which requires sorting all of them. A strict audit
# always checks it.
ORDER_RECORDS_MAX: Final = 200_000

# An audit with a state compares the order of new records with at least this many earlier records of the same partition:
# more than a partition gets within ORDER_LATE_MS_MAX.
ORDER_AGAIN_MIN: Final = 1_000

# Without `--any-share`, a repair sends at most REPAIRED_SURELY_MAX requests, or REPAIRED_SHARE_MAX of the audited
# requests if that is more.
REPAIRED_SURELY_MAX: Final = 10
REPAIRED_SHARE_MAX: Final = 0.01

# Consumer properties of a job. After each poll, Spark requests the start and end offsets of the log. The broker answers
# this request only after the consumer's prefetch, which waits for `fetch.max.wait.ms` at the end of a log (default
# 500). So this wait is short, and a poll returns up to 4,000 records instead of 500, from fetches of up to 4 MiB per
# partition.
FETCHING: Final = {"fetch.max.wait.ms": "20", "max.poll.records": "4000", "max.partition.fetch.bytes": "4194304"}

# Replaces the last two properties in a job that needs only the first records of each partition: Spark's defaults.
FETCHING_FEW: Final = {"max.poll.records": "500", "max.partition.fetch.bytes": "1048576"}

# The time for which Spark keeps an idle consumer, and the records of a task's last poll that the task did not use. No
# later task of these jobs can use these records. Spark's default is five minutes, and Spark does not limit the number
# of these records.
FETCHED_KEPT: Final = "10s"

# A task reads at most an even share of all records, at TASKS_PER_CORE tasks per core, so several tasks read a large
# partition. The share is at least TASK_RECORDS_MIN, since a task has a fixed cost of some ten milliseconds.
TASKS_PER_CORE: Final = 2
TASK_RECORDS_MIN: Final = 100_000

# Origins shown for each kind of violation.
SAMPLES_DEFAULT: Final = 10

# The maximum number of samples. Nobody reads more, and the driver keeps all of them in memory.
SAMPLES_MAX: Final = 10_000

# Distinct targets found in requests: an audit queries the partitions of each. A larger number suggests that target
# names are generated from data.
TARGETS_MAX: Final = 10_000

# The time-out of one metadata or offset request; the default of the Kafka client is twice as long.
ADMIN_TIMEOUT_MS: Final = 30_000

# The longest text of a time that the wire format admits. Longer texts are refused without being parsed.
TIME_TEXT_LENGTH_MAX: Final = 64

# The longest backoff of a policy: the longest horizon that a request topic can have. Products with it fit a bigint.
BACKOFF_MS_MAX: Final = 3_660 * 86_400_000

# Rows of named policies that an audit keeps: each change of a policy adds a row for each partition. The rows are part
# of the plans.
POLICIES_MAX: Final = 10_000

# Digits of a fraction that are multiplied exactly: 25 digits times the 9 of a week in milliseconds fit a decimal(38).
FRACTION_DIGITS_MAX: Final = 25

# The number of requests in a chunk, as a power of two. A day of ten million requests makes ten thousand chunks, and one
# request that is not plain makes the audit compare the thousand others of its chunk one by one.
CHUNK_BITS: Final = 10

# If more than this share of the requests is in inconsistent chunks or exceptional, verifying the other chunks saves
# nothing.
LEFT_SHARE_MAX: Final = 0.75

# Partitions of a shuffle in local mode; with the default of 200, starting the tasks costs more than their work.
LOCAL_SHUFFLE_PARTITIONS: Final = 8

# Driver memory in local mode, where the driver does all the work; cached rows beyond it go to disk.
LOCAL_MEMORY: Final = "2g"

# The largest method that the JVM compiles, in bytes: its HugeMethodLimit. Spark's default is eight times that.
COMPILED_METHOD_BYTES_MAX: Final = 8_000

# The number of compiled classes that Spark caches. A step of a continuous audit has more than Spark's default of 100.
# With that default, each step compiled all classes again (measured: a quarter of its time).
COMPILED_CLASSES_KEPT: Final = 2_000

# Lines of Spark's own output that are kept to explain a failed start.
START_LINES_KEPT: Final = 40

# Targets that the report of a bulk schedule lists; the rest are summed up.
TARGETS_SHOWN: Final = 20

# The rows of one throttled second are one Spark job: more jobs than this would take longer to plan than to run.
SLICES_MAX: Final = 3_600

# The shortest slice of a throttled schedule: a Spark job has a fixed cost of some tenths of a second.
SLICE_MS_MIN: Final = 1_000

# The most steps of added load in a report: two weeks of minutes. A longer period is reported by hour or by day.
LOAD_STEPS_MAX: Final = 20_160

# One run in this many merges the small files of a state and removes old ones.
RUNS_BETWEEN_TIDYING: Final = 50

# An audit verifies chunks from this number of requests on. For fewer, that takes longer than judging each request.
# Topics with fewer records are read once and cached.
CHUNKS_ROWS_MIN: Final = 50_000

# An audit keeps up to this many rows, of some kilobytes each, in its plans. It expects so few rows if it reads at most
# this many new records.
LOCAL_ROWS_MAX: Final = 5_000

# A closed row stays in a state for this many days after its due time.
KEEP_DAYS_DEFAULT: Final = 90

# Days in the table of lateness by day, and their maximum: a person reads the table line by line.
TREND_DAYS_DEFAULT: Final = 30
TREND_DAYS_MAX: Final = 366

# The time between two steps of a continuous audit, and the number of steps that may fail in a row while a broker
# restarts.
STEP_MS_DEFAULT: Final = 10_000
STEPS_FAILED_MAX: Final = 30

# The number of latest messages that a report lists, and its maximum: all of them are in the driver's memory.
LATE_DEFAULT: Final = 20
LATE_MAX: Final = 10_000

# Groups (hours, targets, partitions) that a report brings to the driver: ten thousand hours are more than a year.
GROUPS_MAX: Final = 30_000

# Lines of each table of a report on a terminal.
ROWS_SHOWN: Final = 48

# Points of a line over time on a page: more cannot be distinguished on a screen.
PICTURE_STEPS: Final = 160

# Bars of a picture of load on a terminal.
BARS_MAX: Final = 40

# Up to this many repeated ids of an input are broadcast to every executor; more are joined with a shuffle.
REPEATED_IDS_BROADCAST_MAX: Final = 100_000

# The most characters of an input text that a detail quotes.
QUOTED_CHARACTERS_MAX: Final = 80

# Exceptional origins, and the keys of related origins, are sent to every executor. If they do not fit, delivered
# messages that are not expected yet are left out. If the rest does not fit either, all origins are judged one by one.
# Requests that have an id or name another request are read again if they do not fit. Each origin counts as
# SEPARATE_ROW_BYTES of the smallest heap: each of several joins takes some 200 bytes. It counts as GATHERED_ROW_BYTES
# of the result size that Spark permits the driver: it takes some 50 bytes.
SEPARATE_ROW_BYTES: Final = 2_048
GATHERED_ROW_BYTES: Final = 128

# An audit searches causes in all rows if there are at most this many. For more, it looks up related rows first, which
# takes as long as searching this many.
AROUND_ROWS_MAX: Final = 100_000

# Wall-clock times of a schedule that are looked up in one step: 4 MB for each of about eight arrays.
WALL_TIMES_MAX: Final = 500_000

# The longest cron expression that the sidecar accepts.
CRON_LENGTH_MAX: Final = 512

# The end of the year 9997: no nominal time is later, since the calendar ends with 9999.
NOMINAL_MS_MAX: Final = 253_339_228_800_000 - 1

# The longest search for the next nominal time: 50 years. The fifth Monday of a February comes after at most 40.
NOMINAL_SEARCH_MS_MAX: Final = 50 * 366 * 86_400_000

# Nominal times after one fate that are computed one by one. A transaction decides at most 1,000, but after days without
# a sidecar more of them are overdue.
OCCURRENCES_STEPPED_MAX: Final = 100_000

# Problems of one schedule that are described; further problems are only counted.
SCHEDULE_PROBLEMS_MAX: Final = 20

# Due times that lost reschedules may have given to one message. Each bulk reschedule by a duration may double their
# number, so twenty could make a million.
LOST_DUE_TIMES_MAX: Final = 1_000
