"""Bounds of dispatch, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# The most partitions of targets in one transaction. Each partition must be added to the transaction before a write;
# with more of them, the coordinator responds slowly.
TARGET_PARTITIONS_PER_TRANSACTION_MAX: Final = 1_000

# The most targets that a shard remembers: a few hundred bytes each. If a request topic has more active targets, its
# shards look up some of them again and again.
TARGETS_KNOWN_MAX: Final = 10_000

# The metadata of a usable target is refreshed at this age, to detect a deleted topic or a new size limit.
TARGET_LOOKUP_AGE_MS_MAX: Final = 30_000

# The longest time for which a shard waits for the look-up of a target, which usually takes some milliseconds. Then
# messages for the target are parked, and the shard continues with other messages.
TARGET_LOOKUP_WAIT_MS: Final = 100.0

# An entry becomes a dead letter because of an unusable target only if the metadata is at most this old (two intervals
# of `maintain`), or was requested after the end of the entry's retry budget.
TARGET_FRESH_MS_MAX: Final = 1_000

# A failing target is looked up again after this time, which doubles up to the maximum. The first look-ups follow
# quickly, since the topic may just have been created. If another message for the target becomes due, the target is
# looked up as soon as its metadata is older than TARGET_FRESH_MS_MAX.
TARGET_PROBE_MS_MIN: Final = 500
TARGET_PROBE_MS_MAX: Final = 10_000

# A full transaction that took longer than HELD_BACK_MS_MAX makes the next ones smaller, so that they take about
# HELD_BACK_AIM_MS: all `read_committed` readers wait for an open transaction.
HELD_BACK_MS_MAX: Final = 100.0
HELD_BACK_AIM_MS: Final = 40.0

# The smallest share of the configured size to which slow transactions, and aborted transactions, shrink the next ones.
# A transaction of fewer than 1,000 messages is hardly faster than one of 1,000, and takes no slot
# (LARGE_TRANSACTION_FATES).
SLOW_BATCH_SHARE_MIN: Final = 0.1
BATCH_SHARE_MIN: Final = 1 / 65_536

# A backlog of more full transactions than this gets a second cursor. The other limits are the most entries and bytes
# that this cursor visits in one step, which takes about 100 ms, and the most waiting targets whose names it remembers.
BACKLOG_TRANSACTIONS: Final = 2
BYPASS_ENTRIES_MAX: Final = 150_000
BYPASS_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
BYPASS_TARGETS_MAX: Final = 10_000

# A target with at least this share of a full transaction counts as part of the backlog, and the second cursor skips it.
HEAVY_SHARE: Final = 1 / 8

# If the second cursor took fewer messages than this, the share of a target in them is not significant.
HEAVY_TAKEN_MIN: Final = 20

# The most refused entries of a target that are retried alone. Each retry costs a transaction, and all other trials of
# the target skip the entry.
REFUSED_MAX: Final = 1_000

# The most entries of a transaction after an abort without a known cause. Each of its messages has a delivery report,
# which shows the refused one.
REPORTED_ENTRIES_MAX: Final = 1_000

# A topic is slow if at least SLOW_TRANSACTIONS transactions in a row waited longest for it, and SLOW_IN_A_ROW of its
# records in them were slow. The number of records does not matter if their times add up to SLOW_WAIT_MS: while a
# transaction waits, more entries become due, and each transaction takes about twice as long as the previous one. A
# single transaction may have been delayed by a stall of the machine. These numbers hold while at most SLOW_SHARE_MIN of
# the records of other topics are slow. On a busy machine every topic is slow at times, so more slow records in a row
# are needed to keep a coincidence as unlikely. SLOW_SHARE_MAX bounds that number: 24 records at most. All numbers hold
# for transactions of weight 1: in a transaction with a smaller weight, a record counts as that fraction of a record.
SLOW_TRANSACTIONS: Final = 2
SLOW_IN_A_ROW: Final = 4
SLOW_SHARE_MIN: Final = 0.05
SLOW_SHARE_MAX: Final = 0.6
SLOW_WAIT_MS: Final = 300.0

# The smallest weight of a slow transaction that has messages for other targets. Without it, isolating a target that
# gets almost all messages would take hundreds of slow records. If only the next transaction has messages for other
# targets, the slow transaction does not count below this weight.
SLOW_WEIGHT_MIN: Final = 1 / 8

# After a fault of any target, transactions stay small while a topic is suspected with at least this weight. Below it,
# most entries are for the suspected target, and small transactions would fall behind.
SLOW_WEIGHT_SMALLER: Final = 1 / 2

# The most entries of the next transaction after a target's fault has aborted one, or after transactions in a row have
# waited for a topic for SLOW_WAIT_MS. Other targets may be slow as well, and a small transaction waits for fewer of
# their messages.
AFTER_FAULT_ENTRIES_MAX: Final = 20

# The most targets that are isolated at the same time: each has a state of some hundred bytes, and takes its turn in the
# trials.
ISOLATED_MAX: Final = 1_000

# The lowest aim for the duration of a trial. A trial that takes longer than TRIAL_MS_MAX / TRIAL_AIM_MS times the aim
# makes the next ones smaller. All other targets of the shard wait during a trial.
TRIAL_AIM_MS: Final = 20.0
TRIAL_MS_MAX: Final = 50.0

# A fast trial enlarges the next one up to this size, regardless of its duration: a trial of one message takes as long
# as any other transaction, so its duration does not show how long a larger trial takes.
SMALL_TRIAL_MESSAGES: Final = 16

# The pause after a trial as a multiple of its duration: other transactions get three quarters of the time.
TRIAL_REST: Final = 3.0

# A target earns 1 ms of credit in this many ms. Trials that delay messages for other targets by more than the aim, and
# by more than common transactions do, use it up. So less than a hundredth of these messages wait longer, and the p99 of
# their lateness hardly changes.
LATE_TRIAL_REST: Final = 150.0

# The maximum credit, as a multiple of the aim.
LATE_CREDIT: Final = 5

# The longest pause of a target whose credit is used up, or that refuses every message: as long as for a target that
# acknowledges nothing.
LATE_TRIAL_REST_MS_MAX: Final = TARGET_PROBE_MS_MAX

# The limit of the first long pause. Each long pause doubles the limit; PROBATION_MS after the last long pause it is
# back at this value.
FIRST_PAUSE_MS_MAX: Final = 1_000.0

# The pause of a target after a refused trial, as a multiple of the longest time that a message for another target
# waited for the trial. Such a trial delivers no message, and a target that refuses all messages needs a trial for each.
# With TRIAL_REST alone, these trials took 22 % of a shard's time.
REFUSED_TRIAL_REST: Final = 30.0

# REFUSED_TRIAL_REST applies only to a target that has accepted nothing for this long. If one in ten messages is
# refused, each of them costs two refused trials, and with longer pauses the other messages would become later and
# later.
REFUSING_MS: Final = 2_000.0

# The shortest pause after a trial: the broker is still writing the trial's markers, and the next transaction would wait
# for them.
TRIAL_REST_MS_MIN: Final = 20.0

# The most due messages that are searched before a trial for an unparked message of its target, to keep the order; all
# entries under key 0 are searched as well.
TRIAL_LOOKED_AHEAD_MAX: Final = 100

# The pause between two retries of a refused entry, which doubles up to the maximum, until the retry budget is used up.
REFUSED_RETRY_MS_MIN: Final = 1_000.0
REFUSED_RETRY_MS_MAX: Final = 15_000.0

# The longest probation: the time without a fault after which a target is no longer isolated. Without it, a target that
# refuses one record in a hundred, or is slow from time to time, would abort or delay the transactions of all other
# targets again and again. The first probation of a target is shorter, since a network outage or a busy machine also
# isolates healthy targets. Each further isolation doubles it. PROBATION_FORGOTTEN_MS after the last probation, it is
# short again.
PROBATION_MS: Final = 30_000.0
FIRST_PROBATION_MS: Final = 1_000.0

# A probation that is shorter than PROBATION_MS needs this many acknowledged trials: a single trial may be fast by
# chance.
GOOD_TRIALS: Final = 8

# The time after the end of its probation at which an isolation is forgotten.
PROBATION_FORGOTTEN_MS: Final = 10 * PROBATION_MS

# How soon entries under key 0 are retried while they wait for Postdate's own topics to recover.
OWN_RETRY_MS: Final = 10.0

# The most parked entries of a target that are moved back in one local write, and the time until the next write. The
# writes take 25 ms of every 100 ms. This limits a target that has recovered to 50,000 messages per second, since new
# messages wait behind the parked ones.
UNPARK_ENTRIES_MAX: Final = 5_000
UNPARK_INTERVAL_MS: Final = 100

# Messages of a target at its rate limit are sent in slices of this length, in at most 20 transactions per second. The
# bucket holds tokens for two slices, so that a shard that is a little late does not fall behind the rate.
RATE_SLICE_S: Final = 0.05
RATE_SAVED_S: Final = 0.1

# The time until a target is checked again if its messages may not leave for a reason other than its rate.
RATE_RETRY_MS: Final = 50.0

# The client library packs records of one partition into batches of up to this size, and a topic limits the size of
# batches.
CLIENT_BATCH_BYTES: Final = 1_000_000

# The headers that Postdate adds to a delivered record: names, an origin with the longest topic name, a due time, an id.
DELIVERED_HEADERS_SIZE_BYTES_MAX: Final = 1_024

# Missed occurrences of schedules that leave with one transaction, in addition to the first of each schedule: as many as
# a large transaction has messages, and a fraction of the bytes that a transaction may have.
SURPLUS_FATES_MAX: Final = 1_000
SURPLUS_BYTES_MAX: Final = 4 * 1024 * 1024

# The interval at which parked entries and their targets are checked; each check is a few point reads.
MAINTENANCE_INTERVAL_MS: Final = 500

# The most entries on which a bulk control acts in one transaction, and the most entries that it visits to find them.
# Other messages wait for such a transaction for 5 to 10 ms. Each visit costs 1 to 3 us. Measured with four shards and a
# million entries: with 2,000 entries, a sweep handled 72,000 entries per second, and the p99 lateness of other messages
# was 5.1 times that of an undisturbed shard; with 700, 58,000 and 2.1 times; with 500, 46,000 and 1.3 times. From
# LARGE_TRANSACTION_FATES on, shards also wait for one another.
SWEPT_ENTRIES_MAX: Final = 700
SWEPT_VISITED_MAX: Final = 5_000
# The bytes of these entries after which the transaction ends: moved entries may be written to STORE.
SWEPT_SIZE_BYTES_MAX: Final = 4 * 1024 * 1024

# The most requests that one step of the sweep of long delays checks, with a few point reads each. This takes about 20
# ms twice a second, and only while old requests are pending and not stored.
SWEEP_OFFSETS_MAX: Final = 2_000
