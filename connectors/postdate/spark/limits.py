"""Bounds of the Spark jobs, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# A request counts as missing only this long after its due time: more than a takeover takes, less than a person waits.
SLACK_MS_DEFAULT: Final = 60_000

# How long open transactions are waited for before an end is capped by them: the sidecar's transactions end within
# transaction.timeout.ms (10 s), and the broker looks for expired ones every 10 s.
SETTLE_MS_DEFAULT: Final = 25_000

# Brokers' clocks, and the sidecar's where a target keeps CreateTime, may differ; a window reads this much before it.
CLOCK_MARGIN_MS: Final = 3_600_000

# A broker looks for expired records every five minutes and deletes them meanwhile: an audit begins so much behind what
# is about to expire, but never leaves out more than this share of what a short retention keeps.
RETENTION_MARGIN_MS: Final = 3_600_000
RETENTION_MARGIN_SHARE: Final = 8

# Records at the start of each partition of a target among which one with the broker's time is searched for first: each
# audit reads them once more. Where nobody but Postdate writes, the first one has it.
FRONT_RECORDS_MAX: Final = 1_000

# A sidecar looks at a message's grace, then commits: the time that one of its transactions takes at most by default.
COMMIT_MS_MAX: Final = 10_000

# A sidecar knows the broker's clock, and looks at it before it buries a message; a new leader's clock may be behind.
BURIED_EARLY_MS_MAX: Final = 60_000

# A message that left later than this may have been parked because its target failed, and order is not promised then: a
# target that fails is looked at again after that time at the earliest.
ORDER_LATE_MS_MAX: Final = 500

# Messages of the same key before it with which one is compared that may be out of order.
ORDER_LOOKED_BACK_MAX: Final = 64

# Records of targets up to which each audit checks their order, which takes a sort of all of them; a strict audit does
# whatever their number.
ORDER_RECORDS_MAX: Final = 200_000

# Records before the new ones of a partition with which an audit with a state compares their order, if no more are new:
# more than a partition gets while a message may be late without having been parked.
ORDER_AGAIN_MIN: Final = 1_000

# A repair sends so many requests without a question; more only if they are no larger share of the audited ones.
REPAIRED_SURELY_MAX: Final = 10
REPAIRED_SHARE_MAX: Final = 0.01

# A partition of more records than an even share of so many tasks a core has is read by several tasks, but none of fewer
# records than this: a task takes some ten milliseconds by itself.
TASKS_PER_CORE: Final = 2
TASK_RECORDS_MIN: Final = 100_000

# Origins shown for each kind of violation.
SAMPLES_DEFAULT: Final = 10

# More would not be read by a person, and every one is held in the driver's memory.
SAMPLES_MAX: Final = 10_000

# Distinct targets found in requests: each has its partitions described. More is a sign of names made of data.
TARGETS_MAX: Final = 10_000

# One metadata or offset question to the cluster; the Kafka client's own default is twice as long.
ADMIN_TIMEOUT_MS: Final = 30_000

# The longest text of a time that the wire format admits; a longer one is refused unread.
TIME_TEXT_LENGTH_MAX: Final = 64

# The longest backoff of a policy: the longest horizon that a request topic can have. Products of it fit a bigint.
BACKOFF_MS_MAX: Final = 3_660 * 86_400_000

# Rows of named policies that an audit keeps: each change of a policy adds one to each partition. They are part of the
# plans.
POLICIES_MAX: Final = 10_000

# Digits of a fraction that are multiplied exactly: 25 digits times the 9 of a week in milliseconds fit a decimal(38).
FRACTION_DIGITS_MAX: Final = 25

# Requests of a partition that are found plain or not as a whole, as a power of two: a day of ten million leaves ten
# thousand rows of sums, and a request that is not plain has a thousand others looked at more closely.
CHUNK_BITS: Final = 10

# From when a request counts as overdue, so long it may be delivered or not while an audit reads: its chunk is looked at
# one by one.
UNDECIDED_MS: Final = 600_000

# Where more of the requests than this are in inconsistent chunks, looking for the others saves nothing.
LEFT_SHARE_MAX: Final = 0.75

# Partitions of a shuffle in local mode; the default of 200 costs more in tasks than in work.
LOCAL_SHUFFLE_PARTITIONS: Final = 8

# Driver memory in local mode, where the driver does all the work; cached rows beyond it go to disk.
LOCAL_MEMORY: Final = "2g"

# Bytes of a method that the JVM still compiles: its own HugeMethodLimit. Spark's default is eight times that.
COMPILED_METHOD_BYTES_MAX: Final = 8_000

# Classes compiled for plans that Spark keeps. A step of an audit that follows has more than Spark keeps by itself, 100:
# then it compiles them all anew each time (measured: a quarter of its time).
COMPILED_CLASSES_KEPT: Final = 2_000

# Lines of Spark's own output that are kept to explain a start that failed.
START_LINES_KEPT: Final = 40

# Targets of a bulk schedule that a person reads in a report; the rest are summed up.
TARGETS_SHOWN: Final = 20

# Rows of one throttled second are one Spark job each: more jobs than this would take longer to plan than to run.
SLICES_MAX: Final = 3_600

# The shortest stretch of time into which a throttle cuts: a Spark job takes some tenths of a second by itself.
SLICE_MS_MIN: Final = 1_000

# Minutes of added load that are told one by one: two weeks. Beyond it hours are told.
LOAD_STEPS_MAX: Final = 20_160

# Runs of a state between two that merge small files and remove old ones.
RUNS_BETWEEN_TIDYING: Final = 50

# Requests from which on an audit looks at chunks: below, looking takes longer than judging each. Topics of fewer
# records are read once and cached.
CHUNKS_ROWS_MIN: Final = 50_000

# Days after its due time for which a closed row stays in a state.
KEEP_DAYS_DEFAULT: Final = 90

# Days of the lateness by day, and the most that are shown: each is a line of a table that a person reads.
TREND_DAYS_DEFAULT: Final = 30
TREND_DAYS_MAX: Final = 366

# Time between two steps of an audit that follows, and how many may fail in a row: a broker restarts meanwhile.
STEP_MS_DEFAULT: Final = 10_000
STEPS_FAILED_MAX: Final = 30

# Messages that a report names as the latest, and the most that it is asked for: each is held in the driver's memory.
LATE_DEFAULT: Final = 20
LATE_MAX: Final = 10_000

# Groups (hours, targets, partitions) that a report brings to the driver: ten thousand hours are more than a year.
GROUPS_MAX: Final = 30_000

# Lines of each of a report's tables on a terminal.
ROWS_SHOWN: Final = 48

# Points of a line over time on a page: more are not told apart on a screen.
PICTURE_STEPS: Final = 160

# Bars of a picture of load on a terminal.
BARS_MAX: Final = 40

# Ids given twice in one input: up to here they are sent to every executor, beyond it rows are shuffled to them.
REPEATED_IDS_BROADCAST_MAX: Final = 100_000

# A text of the input's that is quoted in a detail is cut here.
QUOTED_CHARACTERS_MAX: Final = 80

# Exceptional origins, and keys of related ones, that are sent to every executor, some 100 bytes each. If more are
# exceptional, all origins are judged one by one.
SEPARATE_ROWS_MAX: Final = 1_000_000

# Rows up to which causes are looked for among all of them; beyond, related ones are first looked up, which takes as
# long as going through so many.
AROUND_ROWS_MAX: Final = 100_000

# Wall-clock times of a schedule that are looked up in one step: 4 MB for each of about eight arrays.
WALL_TIMES_MAX: Final = 500_000

# The longest cron expression that the sidecar accepts.
CRON_LENGTH_MAX: Final = 512

# The end of the year 9997: no nominal time is later, since the calendar ends with 9999.
NOMINAL_MS_MAX: Final = 253_339_228_800_000 - 1

# No nominal time is searched for further ahead, 50 years: the fifth Monday of a February comes after at most 40.
NOMINAL_SEARCH_MS_MAX: Final = 50 * 366 * 86_400_000

# Nominal times behind one fate that are computed one by one: a transaction decides at most 1,000, and days without a
# sidecar leave more of them overdue.
OCCURRENCES_STEPPED_MAX: Final = 100_000

# Problems of one schedule that are described; further ones are only counted.
SCHEDULE_PROBLEMS_MAX: Final = 20
