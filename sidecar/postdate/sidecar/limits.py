"""Bounds of the sidecar, each with its unit in its name and the reason for its value; `postdate config show` has them.

A bound is not an option: changing one changes what was measured or promised. Options are in `config`.
"""

from __future__ import annotations

from typing import Final

# Measured: 20,000 fates are 780 KB, and a broker's usual limit is 1 MB a record; half leaves room for long offsets.
FATES_PER_TRANSACTION_MAX: Final = 10_000

# Ingest stops at either of these, since entries under key 0 must all fit one transaction with what they act on. Each
# takes at most two fates, and one more request may add three: 10,000 fates fit one dispatch-log record.
CONTROL_ENTRIES_MAX: Final = 4_999
CONTROL_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024

# Thresholds of the garbage collector, by generation. Measured: at Python's default of 700 it takes a fifth to a third
# of the time of ingest, scanning waiting records without finding anything to free.
GC_THRESHOLDS: Final = (50_000, 20, 50)

# A shard's inbox: several polled batches, so that ingest never waits for the poll thread and memory stays bounded.
INBOX_RECORDS_MAX: Final = 20_000
INBOX_SIZE_BYTES_MAX: Final = 32 * 1024 * 1024

# A transaction must add each of its partitions before it writes to it; with more, the coordinator responds slowly.
TARGET_PARTITIONS_PER_TRANSACTION_MAX: Final = 1_000

# Each takeover reads the dispatch log and may rebuild an index; more at once only compete for the same disk and core.
TAKEOVERS_AT_ONCE_MAX: Final = 8

# A takeover without progress for this long gives its slot to a waiting one: longer than a busy machine needs to
# connect, so that takeovers do not keep taking slots from each other, and shorter than the absence of a broker.
TAKEOVER_IDLE_S: Final = 10.0

# A takeover that reads nothing new for this long is retried after a pause. Its cause, a missing leader or a foreign
# open transaction (the broker allows 15 min, clients use 1 min), may last much longer.
RECOVERY_STALL_MS_MAX: Final = 20_000

# Records of one read of a log; its bytes are bounded by the client's prefetch queue.
READ_RECORDS_MAX: Final = 1_000

# Timeout of one such read; doubles without progress. A client returns no event when it passes only markers, so a single
# long timeout would be used up at the end of every log.
LOG_READ_S_MIN: Final = 0.01
LOG_READ_S_MAX: Final = 0.2

# All running commits together, when partitions are revoked: well inside the session time-out of 15 s.
REVOKE_WAIT_MS_MAX: Final = 5_000

# A data directory that another process holds for longer belongs to it: a fresh one is taken beside it.
LOCK_WAIT_MS_MAX: Final = 30_000
LOCK_POLL_MS: Final = 100

# Samples kept: only those that could still become the largest, usually a few; the bound is for unusual cases.
CLOCK_SAMPLES_MAX: Final = 4_096

# The estimate of the broker's clock drifts with the local oscillator, a few ppm: some milliseconds in an hour.
CLOCK_SAMPLE_AGE_MS_MAX: Final = 3_600_000

# If a broker stamps a request this far ahead of its estimated time, its clock was set forward. Brokers of one cluster
# differ by less; if they differ by more, an unnecessary record is written at most every CLOCK_DOUBT_MS.
CLOCK_AHEAD_MS_MAX: Final = 500
CLOCK_DOUBT_MS: Final = 10_000

# An idle shard writes at least this often, so that the dispatch log never runs empty by retention.
BEAT_INTERVAL_MS_MAX: Final = 21_600_000

# Live topic settings can be changed by anybody at any time; ten minutes is short against any sane retention.
TOPIC_CHECK_INTERVAL_MS: Final = 600_000

# A request must never outlive its fate: the dispatch log keeps this much longer than a request's segment may live.
DISPATCH_LOG_RETENTION_MARGIN_MS: Final = 3_600_000

# Ten years: beyond it the hour ring of the wheel would exceed 3 MiB per shard, and a longer horizon is a typing error.
HORIZON_MS_MAX: Final = 3_660 * 86_400_000

# RocketMQ has 18 levels; a table longer than this is a mistake in the file.
LEVELS_MAX: Final = 64

# Each worker is a process of some 100 MB with connections of its own.
WORKERS_MAX: Final = 64

# More partitions than the brokers of a cluster should hold; a larger number is a typing error.
PARTITIONS_MAX: Final = 10_000

# Every request topic of a process is in every rebalance and in every metadata request.
REQUEST_TOPICS_MAX: Final = 256

# A dead letter is larger than its request: reason, detail and origin fit 64 KiB with the longest names Kafka allows.
OWN_TOPIC_MESSAGE_MARGIN_BYTES: Final = 64 * 1024

# A configuration or properties file beyond this is some other file.
CONFIG_FILE_SIZE_BYTES_MAX: Final = 1024 * 1024

# How long a command waits for a broker before it reports that the broker is unreachable.
COMMAND_TIMEOUT_S: Final = 15.0

# A control is carried out as soon as it is ingested: without a verdict after this time, no sidecar is running.
VERDICT_TIMEOUT_MS: Final = 30_000

# Dead letters that one command shows or puts back: more than a person looks through, and their summaries fit memory.
LETTERS_MAX_DEFAULT: Final = 1_000
LETTERS_MAX: Final = 100_000

# Dead letters that are put back between two waits for the broker.
REQUEUED_AT_ONCE_MAX: Final = 100
REQUEUED_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024

# The assumed maximum difference of the brokers' clocks when timestamps of two topics are compared.
CLOCKS_APART_MS_MAX: Final = 3_600_000

# Targets a shard remembers: a few hundred bytes each; a request topic with more live targets looks some up again.
TARGETS_KNOWN_MAX: Final = 10_000

# The metadata of a working target is refreshed this often, to detect a deleted topic or a new size limit.
TARGET_LOOK_AGE_MS_MAX: Final = 30_000

# A message waits this long for the first look-up of its target, which takes some milliseconds. After that it is parked,
# and the shard continues with other messages.
TARGET_LOOK_WAIT_MS: Final = 100.0

# An entry becomes a dead letter for a missing target only if the metadata is at most this old: two intervals of `tend`.
TARGET_FRESH_MS_MAX: Final = 1_000

# A failing target is looked at again after this, doubling up to the maximum: quick for a topic that was just created.
TARGET_PROBE_MS_MIN: Final = 500
TARGET_PROBE_MS_MAX: Final = 10_000

# A full transaction that took longer makes the next ones smaller, since all `read_committed` readers wait for it.
HELD_BACK_MS_MAX: Final = 100.0
HELD_BACK_AIM_MS: Final = 40.0

# The least share of the configured size to which a transaction shrinks: because it was slow, and because it could not
# be committed at all. Below 1,000 messages it is hardly faster, and takes no turns (LARGE_TRANSACTION_FATES).
SLOW_BATCH_SHARE_MIN: Final = 0.1
BATCH_SHARE_MIN: Final = 1 / 65_536

# A backlog of more full transactions than this gets a second cursor. The entries and bytes that it visits in one step,
# some 100 ms, and the number of waiting targets that it remembers, a set of names.
BACKLOG_TRANSACTIONS: Final = 2
LOOK_AHEAD_ENTRIES_MAX: Final = 150_000
LOOK_AHEAD_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
LOOK_AHEAD_TARGETS_MAX: Final = 10_000

# A target with this share of a full transaction counts as part of the backlog, and the second cursor skips it.
HEAVY_SHARE: Final = 1 / 8

# If the second cursor took fewer messages than this, the share of a target in them is not significant.
HEAVY_TAKEN_MIN: Final = 20

# Refused entries of a target that are retried alone: each costs a transaction, and is skipped in every trial.
REFUSED_MAX: Final = 1_000

# Entries of a transaction in which every message has its own delivery report, to find the refused one.
REPORTED_ENTRIES_MAX: Final = 1_000

# Entries of the transaction after one that a target's fault aborted, or that waited for a topic for SLOW_WAIT_MS. Other
# targets may be slow as well, and a small transaction waits for fewer of their messages.
AFTER_FAULT_ENTRIES_MAX: Final = 20

# A connection has at most five requests of an idempotent producer in flight. What a transaction to so many topics sends
# may wait behind them, and if the transaction fails, it is given up without a correction of the sequence numbers.
GAP_TOPICS_MIN: Final = 5

# Targets that are isolated at a time: a state of some hundred bytes, and a place in the round of trials.
ISOLATED_MAX: Final = 1_000

# The pause after a trial as a multiple of its duration: other transactions get three quarters of the time.
TRIAL_REST: Final = 3.0

# ... and at least this: the broker still writes the markers of the trial, and the next transaction would wait for them.
TRIAL_REST_MS_MIN: Final = 20.0

# Due entries that a trial looks through for one of its target that is not parked yet, to keep the order.
TRIAL_LOOKED_AHEAD_MAX: Final = 100

# A refused entry is tried again alone after this, doubling up to the maximum, until its retry budget is used up.
REFUSED_RETRY_MS_MIN: Final = 1_000.0
REFUSED_RETRY_MS_MAX: Final = 15_000.0

# A target stays isolated for this long after its last fault. Otherwise one that refuses a record in a hundred, or is
# slow from time to time, would abort or delay the transactions of all others again and again.
PROBATION_MS: Final = 30_000.0

# A topic is slow if transactions in a row waited longest for it, and this many of its records took SLOW_RECORD_MS or
# longer. Two are enough if their times add up to SLOW_WAIT_MS: while they wait, more falls due, and each transaction
# takes about twice as long as the one before.
SLOW_IN_A_ROW: Final = 4
SLOW_RECORD_MS: Final = 20.0
SLOW_WAIT_MS: Final = 300.0

# How soon entries under key 0 are retried while they wait for Postdate's own topics to recover.
OWN_RETRY_MS: Final = 10.0

# Parked entries moved back in one local write: some milliseconds, so that dispatch is never held up.
UNPARK_ENTRIES_MAX: Final = 5_000

# Rates of targets, in messages per second of one shard. The least is one message in a quarter of an hour; no shard
# comes near the largest. Each rule is matched against each new target.
RATE_MIN: Final = 0.001
RATE_MAX: Final = 1_000_000
RATE_RULES_MAX: Final = 1_000

# Messages of a target at its rate limit are sent in slices of this length, in at most 20 transactions per second. The
# bucket holds twice that, so that a shard that is a little late does not fall behind the rate.
RATE_SLICE_S: Final = 0.05
RATE_SAVED_S: Final = 0.1

# How soon a target is checked again if its messages may not leave for another reason.
RATE_RETRY_MS: Final = 50.0

# Pauses between attempts while Kafka does not answer: short enough to recover soon, long enough not to overload it.
BACKOFF_MS_MIN: Final = 100
BACKOFF_MS_MAX: Final = 5_000

# After an unexpected exception a shard starts again, at most this many consecutive times, some four minutes in total.
# An hour without a failure resets the count.
INTERNAL_ATTEMPTS_MAX: Final = 8
INTERNAL_BACKOFF_MS_MIN: Final = 1_000
INTERNAL_BACKOFF_MS_MAX: Final = 60_000
INTERNAL_CALM_MS: Final = 3_600_000

# A call of init_transactions; the broker's answer waits for the end of the older transaction, 10 s at most.
FENCE_TIMEOUT_S: Final = 15.0

# The time to read the gap between D and the first record of an ownership. Together with the flush before it, it is well
# inside the transaction time-out of 10 s. The gap is a few offsets; only a foreign open transaction or a missing leader
# takes longer.
BOUND_CHECK_MS_MAX: Final = 4_000

# A halt that depends on a broker's answer is confirmed for longer than a deposed broker takes to learn of its successor
# (its session time-out, 9 s by default, plus a margin), and by more than two findings, since the machine may have been
# suspended between two of them.
HALT_CONFIRM_MS: Final = 20_000
HALT_FINDINGS_MIN: Final = 3

# Records and fates applied from the dispatch log in one local write. Measured: a fate takes some 350 bytes while it is
# applied, so a piece stays below 4 MiB, and eight takeovers at once below 32. One record may hold as many fates.
RECOVERY_RECORDS_MAX: Final = 200
RECOVERY_FATES_MAX: Final = 10_000

# Bytes of the dispatch log after whose application the timer log writes its memtables out. A mark takes twice what its
# fate does; without this, eight takeovers at once fill eight times two memtables of 16 MiB.
RECOVERY_MEMTABLES_BYTES_MAX: Final = 4 * 1024 * 1024

# The last committed dispatch-log record is looked for backwards in steps that double from this many offsets.
TAIL_OFFSETS: Final = 64

# An idle shard looks whether the wheel is right this often (one bounded seek).
CONFIRM_INTERVAL_MS: Final = 1_000

# After this many checks without a change a shard rests, and checks only this often, since its figures, its status and
# its wheel would stay the same. Measured: 64 shards that check every second take 4 % of a core.
REST_LOOKS: Final = 3
REST_INTERVAL_MS: Final = 10_000

# Directories that were moved aside are kept for the operator; the oldest beyond this number per shard are removed.
ASIDE_DIRECTORIES_MAX: Final = 3

# Directories used beside one that another process held: the newest may save a rebuild, older states are of no use.
BESIDE_DIRECTORIES_MAX: Final = 1

# Disk space of ended entries is given back when nothing is due for a while: measured, 1 s for 660 MB.
RECLAIM_INTERVAL_MS: Final = 10_000
RECLAIM_QUIET_MS: Final = 5_000

# The interval of status files: short enough to watch a shard, long enough to cost nothing.
STATUS_INTERVAL_MS: Final = 2_000
STATUS_AGE_MS_MAX: Final = 10_000

# A resting shard without a lag queries it this often; a new request ends its rest anyway.
LAG_AGE_MS_MAX: Final = 30_000

# The pause after an unanswered query of the lag, which blocked the shard for the time of an admin request.
LAG_PAUSE_MS: Final = 600_000

# The shard's thread waits for the answer, and nothing is delivered meanwhile: a hung leader must not cost more.
LAG_PATIENCE_S: Final = 0.5

# A shard without a new status for this long counts as not served: three times the longest interval of a live shard.
STATUS_SILENT_MS_MAX: Final = 30_000

# A disk with less free space counts as full: a timer log allocates more at a time, and a status may not fit any more.
DISK_FULL_SIZE_BYTES: Final = 1 << 20

# How long a command waits until a shard takes its instruction; a shard in a takeover takes it later.
PICK_UP_S_MAX: Final = 5.0

# A shard checks this often for an instruction: one system call.
INSTRUCTION_INTERVAL_MS: Final = 1_000

# The status and the instruction of a shard are some hundred bytes; what is larger is some other file.
SHARD_FILE_SIZE_BYTES_MAX: Final = 64 * 1024

# Every delivery report arrives within message.timeout.ms (2 s); a report missing after this time will never arrive.
FLUSH_TIMEOUT_S: Final = 8.0

# Records of a healthy transaction are acknowledged within some 10 ms. After the first time the targets of the
# transaction are looked up, since a deleted one would delay the others until message.timeout.ms; the answer is polled
# this often.
FLUSH_LOOK_S: Final = 0.1
FLUSH_SLICE_S: Final = 0.02

# The client's message size limit: above any topic's limit, so that the topic decides. The client's default of 1 MB is
# below the limit of the dead letters, and a record that the client refuses could not be written at all.
PRODUCER_MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024

# The client library packs records of one partition into batches of up to this size, and a topic's limit is on batches.
CLIENT_BATCH_BYTES: Final = 1_000_000

# The headers that Postdate adds to a delivered record: names, an origin with the longest topic name, a due time, an id.
DELIVERED_HEADERS_SIZE_BYTES_MAX: Final = 1_024

# From this many fates on, a transaction is dominated by its messages, and a pause behind it only costs throughput.
LARGE_TRANSACTION_FATES: Final = 1_000

# Large transactions of a process that are open at once; they share one core. Measured with four shards: the same
# throughput as without the limit, and transactions that are open for half as long. A transaction that takes longer than
# the time-out waits for brokers rather than for the core, so the others proceed without a turn.
LARGE_TRANSACTIONS_AT_ONCE: Final = 1
TURN_TIMEOUT_S: Final = 0.05

# If the records of a transaction are acknowledged later than this, it had to wait for the markers of the one before:
# the client library then waits a fixed 20 ms, in addition to the 3 to 6 ms of a fast transaction.
MADE_TO_WAIT_MS: Final = 24.0

# The pause between small transactions: one that had to wait increases it a lot, each other one decreases it a little,
# which keeps about one in a hundred waiting. The minimum is what the broker needs at best. The maximum is a quarter of
# the client's fixed wait: on a busy machine transactions are slow for other reasons, and a longer pause does not help.
PACE_UP_MS: Final = 1.0
PACE_DOWN_MS: Final = 0.01
PACE_MS_MIN: Final = 1.0
PACE_MS_MAX: Final = 5.0

# Small transactions of one process in progress, on average. The minimum does not limit a process with a few shards; at
# the maximum, with some ms each, the budget of transactions per second is the limit. WINDOW_PROBE_MS is how often the
# duration of the fastest transaction is measured again, with the minimum window.
WINDOW_MIN: Final = 8.0
WINDOW_MAX: Final = 64.0
WINDOW_PROBE_MS: Final = 60_000.0

# A transaction that took longer waited for an unavailable broker, not for other transactions, and must not slow down
# the next ones. So the minimum window lets 80 begin in a second.
WINDOW_TOOK_MS_MAX: Final = 100.0

# The interval at which a shard without messages publishes a new low-water mark, and passes markers at its read
# position.
SETTLE_MS: Final = 60_000
MARKERS_READ_S: Final = 0.2

# The markers are passed only if nothing is due for this long, so that no message waits for it.
MARKERS_QUIET_MS: Final = 1_000

# With the gate "always" and nothing new to read: how often to query whether the end of the topic was reached.
GATE_LOOK_INTERVAL_MS: Final = 100

# The holds of a shard are in the metadata of a group offset, for which brokers allow 4,096 bytes by default.
HOLD_NOTE_CHARS_MAX: Final = 4_000

# Changes of holds that wait for the poll thread: operators make them, and the loop runs ten times a second.
HOLD_REQUESTS_MAX: Final = 64

# A fenced shard checks this often which process has taken over.
FENCED_RECHECK_MS: Final = 1_000

# A process that fenced a shard writes its owner record within this time, if it has the shard's disk. After that the
# fence is attributed to a foreign client, and the shard takes its transactional id back.
FENCED_PATIENCE_MS: Final = 10_000

# Failing targets and parked entries are checked this often; each check is a few point reads.
TEND_INTERVAL_MS: Final = 500

# A duty that Kafka does not answer is tried again after a delay that doubles up to this: each try may take 15 s.
DUTY_DELAY_MS_MAX: Final = 60_000

# Requests whose age is checked in one sweep, by some point reads each: some 20 ms twice a second, and only while old
# requests are pending and not stored.
SWEEP_OFFSETS_MAX: Final = 2_000

# Records of the store topic applied in one local write: some megabytes.
STORE_RECORDS_MAX: Final = 1_000

# Records of one poll: large enough to make the cost of the call negligible, small enough that four polls fit an inbox.
POLL_RECORDS_MAX: Final = 5_000
POLL_TIMEOUT_S: Final = 0.1

# The interval of commits of the group's offsets, which only lag tools use.
GROUP_COMMIT_INTERVAL_S: Final = 5.0

# Measured: 64 shards with a producer each use 518 file descriptors, plus some tens of open files of RocksDB.
OPEN_FILES_PER_SHARD: Final = 16

# One request to the coordinator for all fenced shards, beside the poll thread: a busy machine opens a connection within
# this time, and a shard that is not confirmed asks again.
CONFIRM_TIMEOUT_S: Final = 10.0

# The pause between two attempts of a process that starts while brokers are unavailable; an attempt takes 15 s at most.
# The pause doubles up to the maximum, which adds to lateness once the brokers are back.
START_PAUSE_S_MIN: Final = 1.0
START_PAUSE_S_MAX: Final = 10.0

# A failed client of the group is replaced after this pause, which doubles with each consecutive failure. The maximum is
# less than CLIENT_STABLE_S: if two processes fence each other, neither mistakes the pause of the other for success.
CLIENT_PAUSE_S_MIN: Final = 1.0
CLIENT_PAUSE_S_MAX: Final = 16.0

# After a client has served for this long, its next failure counts as the first again. The consecutive failures that end
# the process include half a minute of pauses, more than the move of a coordinator takes.
CLIENT_STABLE_S: Final = 60.0
CLIENT_FAILURES_MAX: Final = 6

# The interval at which a repeated warning or error is logged, and the number of different texts that are remembered.
LOG_REPEAT_S: Final = 10.0
LOG_TEXTS_MAX: Final = 1_000

# A crashed worker is restarted after the minimum at first, and later each time if it crashes soon after its start.
WORKER_RESTART_S_MIN: Final = 0.5
WORKER_RESTART_S_MAX: Final = 30.0
WORKER_STABLE_S: Final = 60.0

# How often the parent looks at its workers, and how long they may take to end before they are killed.
WORKER_POLL_S: Final = 0.1
WORKER_STOP_S: Final = 25.0

# How often a shard publishes figures about its index: scrapes of metrics are less frequent.
FIGURES_INTERVAL_MS: Final = 1_000
