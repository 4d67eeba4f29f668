"""Bounds of the Spark jobs, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# The default slack: a request counts as missing only if it is overdue by more than this. A takeover is shorter, and
# nobody waits longer for a result.
SLACK_MS_DEFAULT: Final = 60_000

# A sidecar that keeps up delivers a message within this time after it is due, so the check of a chunk expects it by
# then. If a message of a chunk is later, the origins of the chunk are compared one by one, with the slack above. If too
# many chunks contain later messages, the audit reads the records once more, and expects only overdue messages.
EXPECTED_AFTER_MS: Final = 2_000

# How long a job waits for open transactions before it accepts an end that they cap. The sidecar's transactions end
# within transaction.timeout.ms (10 s), and the broker looks for expired transactions every 10 s.
SETTLE_MS_DEFAULT: Final = 25_000

# The clocks of brokers may differ, and so may the sidecar's clock, which stamps the records of a target with
# CreateTime. So an audit of a window also reads the effects from this long before the window.
CLOCK_MARGIN_MS: Final = 3_600_000

# A broker deletes expired records every five minutes, even during an audit. So an audit skips records that expire
# within this time. If the retention is short, the audit skips only records that expire within one
# RETENTION_MARGIN_SHARE-th of it.
RETENTION_MARGIN_MS: Final = 3_600_000
RETENTION_MARGIN_SHARE: Final = 8

# A job first searches this many offsets at the start of each partition of a target for a record with the broker's
# time. It reads them in addition to its range. If only Postdate writes to the target, the first record has the
# broker's time.
FRONT_RECORDS_MAX: Final = 1_000

# The default limit of a sidecar's transaction. A sidecar checks the grace of a message, and may commit the message this
# much later.
COMMIT_MS_MAX: Final = 10_000

# A sidecar checks the broker's clock before it writes a dead letter, but the clock of a new leader may lag by up to
# this. So a dead letter may be early by this much.
BURIED_EARLY_MS_MAX: Final = 60_000

# A message that left more than this after its due time may have been parked because its target failed, and order is not
# promised for parked messages. A sidecar tries a failing target again after this time at the earliest.
ORDER_LATE_MS_MAX: Final = 500

# An audit compares a message that may be out of order with this many preceding messages of its key.
ORDER_LOOKED_BACK_MAX: Final = 64

# Up to this number of target records, each audit checks their order, which requires sorting all of them. A strict audit
# always checks it.
ORDER_RECORDS_MAX: Final = 200_000

# To check the order of new records, an audit with a state also reads at least this many earlier offsets of the same
# partition: more than a partition gets within ORDER_LATE_MS_MAX.
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

# The default number of samples: of each kind of violation in an audit, and of refused rows or requests in other jobs.
SAMPLES_DEFAULT: Final = 10

# The maximum number of samples. Nobody reads more, and the driver keeps all of them in memory.
SAMPLES_MAX: Final = 10_000

# The maximum number of distinct targets in requests or rows: a job queries the partitions of each. A larger number
# suggests that target names are generated from data.
TARGETS_MAX: Final = 10_000

# The time-out of one metadata or offset query; the default of the Kafka client is twice as long.
ADMIN_TIMEOUT_MS: Final = 30_000

# The longest text of a time that the wire format admits. Longer texts are refused without being parsed.
TIME_TEXT_LENGTH_MAX: Final = 64

# The longest backoff of a policy: the longest horizon that a request topic can have. The products that are computed
# with it fit a bigint.
BACKOFF_MS_MAX: Final = 3_660 * 86_400_000

# Rows of named policies that an audit keeps: each change of a policy adds a row for each partition. The rows are part
# of the plans.
POLICIES_MAX: Final = 10_000

# Digits of a fraction that are multiplied exactly: 25 digits times the 9 of a week in milliseconds fit a decimal(38).
FRACTION_DIGITS_MAX: Final = 25

# A chunk has 2 to the power of this number of requests. A day of ten million requests has ten thousand chunks. If one
# request makes its chunk inconsistent, the audit compares all thousand origins of the chunk one by one.
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

# The number of compiled classes that Spark caches. A step of a continuous audit uses more than 100, which is Spark's
# default. With the default, each step would compile all its classes again (measured: a quarter of its time).
COMPILED_CLASSES_KEPT: Final = 2_000

# Lines of Spark's own output that are kept to explain a failed start.
START_LINES_KEPT: Final = 40

# Targets that the report of a bulk schedule lists; the rest are summed up.
TARGETS_SHOWN: Final = 20

# The maximum number of slices of a throttled schedule. Each slice is one Spark job, and more of them would take longer
# to plan than to run.
SLICES_MAX: Final = 3_600

# The shortest slice of a throttled schedule: a Spark job has a fixed cost of some tenths of a second.
SLICE_MS_MIN: Final = 1_000

# The maximum number of steps of a load: two weeks of minutes. A longer period is reported by hour or by day.
LOAD_STEPS_MAX: Final = 20_160

# If the number of a run is a multiple of this, the run merges the small files of the state, and removes old files.
RUNS_BETWEEN_TIDYING: Final = 50

# An audit verifies chunks if it reads at least this many requests. For fewer requests, verifying chunks takes longer
# than judging each request. Topics with fewer records are read once and cached.
CHUNKS_ROWS_MIN: Final = 50_000

# An audit keeps up to this many rows, of some kilobytes each, in its plans. It expects so few rows if it reads at most
# this many new records.
LOCAL_ROWS_MAX: Final = 5_000

# A closed row stays in a state for at least this many days after its due time.
KEEP_DAYS_DEFAULT: Final = 90

# Days in the table of lateness by day, and their maximum: a person reads the table line by line.
TREND_DAYS_DEFAULT: Final = 30
TREND_DAYS_MAX: Final = 366

# The time between the starts of two steps of a continuous audit, and the number of steps that may fail in a row while a
# broker restarts.
STEP_MS_DEFAULT: Final = 10_000
STEPS_FAILED_MAX: Final = 30

# A report lists this many of the messages with the highest lateness. The maximum exists because the driver keeps all of
# them in memory.
LATE_DEFAULT: Final = 20
LATE_MAX: Final = 10_000

# Groups (hours, targets, partitions) that a report brings to the driver: ten thousand hours are more than a year.
GROUPS_MAX: Final = 30_000

# Lines of each table of a report on a terminal.
ROWS_SHOWN: Final = 48

# Points of a line over time on a page: more cannot be distinguished on a screen.
PICTURE_STEPS: Final = 160

# The maximum number of bars in the chart of a load on a terminal.
BARS_MAX: Final = 40

# If an input has at most this many repeated ids, they are broadcast to every executor; otherwise they are joined with a
# shuffle.
REPEATED_IDS_BROADCAST_MAX: Final = 100_000

# The maximum number of characters of an input text that a detail quotes.
QUOTED_CHARACTERS_MAX: Final = 80

# Exceptional origins, and the keys of related origins, are sent to every executor. If the exceptional origins do not
# fit, those of delivered messages that are not expected yet are left out. If the rest does not fit either, all origins
# are judged one by one. Requests that have an id or name another request are read again if they do not fit. Each origin
# counts as SEPARATE_ROW_BYTES of the smallest heap, since it takes some 200 bytes in each of several joins. It counts
# as GATHERED_ROW_BYTES of the result size that Spark permits the driver, and takes some 50 bytes of it.
SEPARATE_ROW_BYTES: Final = 2_048
GATHERED_ROW_BYTES: Final = 128

# If there are at most this many rows, an audit searches all of them for causes. If there are more, it first selects the
# related rows, which takes as long as searching this many.
AROUND_ROWS_MAX: Final = 100_000

# The maximum number of wall-clock times of a schedule that are converted in one step: 4 MB for each of about eight
# arrays.
WALL_TIMES_MAX: Final = 500_000

# The longest cron expression that the sidecar accepts.
CRON_LENGTH_MAX: Final = 512

# The last millisecond of the year 9997: no nominal time is later, since the calendar ends with the year 9999.
NOMINAL_MS_MAX: Final = 253_339_228_800_000 - 1

# The longest search for the next nominal time: 50 years. The fifth Monday of a February recurs within 40 years.
NOMINAL_SEARCH_MS_MAX: Final = 50 * 366 * 86_400_000

# The maximum number of nominal times after one fate that are computed one by one. A transaction decides at most 1,000
# occurrences, but more may be overdue after days without a sidecar.
OCCURRENCES_STEPPED_MAX: Final = 100_000

# The maximum number of problems of one schedule that are described; further problems are only counted.
SCHEDULE_PROBLEMS_MAX: Final = 20

# The maximum number of due times that lost reschedules may have given to one message. Each bulk reschedule by a
# duration may double the number, so twenty of them could make a million.
LOST_DUE_TIMES_MAX: Final = 1_000
