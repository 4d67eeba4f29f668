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

# Containers made before the garbage collector looks at them, of each generation. Measured: at Python's 700 it takes a
# fifth to a third of an intake's time, looking at records that wait and at nothing that it could free.
GC_THRESHOLDS: Final = (50_000, 20, 50)

# A shard's inbox: two polled batches, so that ingest never waits for the poll thread and memory stays flat.
INBOX_RECORDS_MAX: Final = 20_000
INBOX_SIZE_BYTES_MAX: Final = 32 * 1024 * 1024

# One commit adds its partitions to the transaction first; more than this in one makes the coordinator's answer slow.
TARGET_PARTITIONS_PER_TRANSACTION_MAX: Final = 1_000

# Each takeover reads the dispatch log and may rebuild an index; more at once only compete for the same disk and core.
TAKEOVERS_AT_ONCE_MAX: Final = 8

# A takeover without progress for this long gives its slot to one that waits: more than a busy machine needs to connect,
# so that takeovers do not keep taking slots from each other, and less than a broker that is away.
TAKEOVER_IDLE_S: Final = 10.0

# A takeover that reads nothing new for so long tries again after a pause: a leader that is away and a foreign open
# transaction (the broker allows 15 min, clients use 1 min) take as long as they take.
RECOVERY_STALL_MS_MAX: Final = 20_000

# Records of one read of a log; what the client has fetched ahead bounds it in bytes.
READ_RECORDS_MAX: Final = 1_000

# Wait of one such read; doubles while nothing moves. A client returns no event when it passes markers alone, so a
# single long wait would be spent in full at the end of every log.
LOG_READ_S_MIN: Final = 0.01
LOG_READ_S_MAX: Final = 0.2

# All running commits together, when partitions are revoked: well inside the session time-out of 15 s.
REVOKE_WAIT_MS_MAX: Final = 5_000

# A data directory that another process holds for longer belongs to it: a fresh one is taken beside it.
LOCK_WAIT_MS_MAX: Final = 30_000
LOCK_POLL_MS: Final = 100

# Samples kept: only those that could still become the largest are, so a few suffice; the bound is for the odd case.
CLOCK_SAMPLES_MAX: Final = 4_096

# The estimate of the broker's clock drifts with the local oscillator, a few ppm: some milliseconds in an hour.
CLOCK_SAMPLE_AGE_MS_MAX: Final = 3_600_000

# A request that a broker stamped this far ahead of what its time was taken for: its clock was set. Brokers of one
# cluster differ by less; where they do not, a record is written for nothing once in a while.
CLOCK_AHEAD_MS_MAX: Final = 500
CLOCK_DOUBT_MS: Final = 10_000

# An idle shard writes at least this often, so that the dispatch log never runs empty by retention.
BEAT_INTERVAL_MS_MAX: Final = 21_600_000

# Live topic settings can be changed by anybody at any time; ten minutes is short against any sane retention.
TOPIC_CHECK_INTERVAL_MS: Final = 600_000

# A request must never outlive its fate: the dispatch log keeps this much longer than a request's segment may live.
DISPATCH_LOG_RETENTION_MARGIN_MS: Final = 3_600_000

# Ten years: beyond it the hour ring of the wheel would pass 3 MiB a shard, and nobody means it.
HORIZON_MS_MAX: Final = 3_660 * 86_400_000

# RocketMQ has 18 levels; a longer table is a mistake in the file rather than a wish.
LEVELS_MAX: Final = 64

# Each worker is a process of some 100 MB with connections of its own.
WORKERS_MAX: Final = 64

# More partitions than a cluster's brokers should carry; a topic that asks for more has a digit too many.
PARTITIONS_MAX: Final = 10_000

# Every request topic of a process is in every rebalance and in every metadata request.
REQUEST_TOPICS_MAX: Final = 256

# A dead letter is larger than its request: reason, detail and origin fit 64 KiB with the longest names Kafka allows.
OWN_TOPIC_MESSAGE_MARGIN_BYTES: Final = 64 * 1024

# A configuration or properties file beyond this is some other file.
CONFIG_FILE_SIZE_BYTES_MAX: Final = 1024 * 1024

# How long a command waits for a broker before it says that it cannot be reached.
COMMAND_TIMEOUT_S: Final = 15.0

# A control is carried out as soon as it is ingested: what takes longer than this is a sidecar that is not there.
VERDICT_TIMEOUT_MS: Final = 30_000

# Dead letters that one command shows or puts back: more than a person looks through, and their summaries fit memory.
LETTERS_MAX_DEFAULT: Final = 1_000
LETTERS_MAX: Final = 100_000

# Dead letters that are put back between two waits for the broker.
REQUEUED_AT_ONCE_MAX: Final = 100
REQUEUED_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024

# How far the clocks of a cluster's brokers may be apart where timestamps of two topics are compared.
CLOCKS_APART_MS_MAX: Final = 3_600_000

# Targets a shard remembers: a few hundred bytes each; a request topic with more live targets looks some up again.
TARGETS_KNOWN_MAX: Final = 10_000

# A target that worked is looked at again this often, so that a deleted topic or a new size limit is noticed.
TARGET_LOOK_AGE_MS_MAX: Final = 30_000

# A message waits this long for the first look at its target, which takes some milliseconds; then it is parked, and the
# shard goes on with the others.
TARGET_LOOK_WAIT_MS: Final = 100.0

# An entry ends for a target that metadata shows as missing only if that was seen a moment ago: two looks of `tend`.
TARGET_FRESH_MS_MAX: Final = 1_000

# A failing target is looked at again after this, doubling up to the maximum: quick for a topic that was just created.
TARGET_PROBE_MS_MIN: Final = 500
TARGET_PROBE_MS_MAX: Final = 10_000

# A full transaction that took longer makes the next ones smaller: everybody who reads committed records waits for it.
HELD_BACK_MS_MAX: Final = 100.0
HELD_BACK_AIM_MS: Final = 40.0

# What a transaction is shrunk to at most, as a share of what the configuration allows: because it was slow, and because
# it could not be finished at all. Below 1,000 messages one is hardly quicker, and takes no turns (see there).
SLOW_BATCH_SHARE_MIN: Final = 0.1
BATCH_SHARE_MIN: Final = 1 / 65_536

# A backlog of more than so many full transactions is worth a second cursor. What that looks at in one step: some 100
# ms; how many targets it knows to be waiting: a set of names.
BACKLOG_TRANSACTIONS: Final = 2
LOOK_AHEAD_ENTRIES_MAX: Final = 150_000
LOOK_AHEAD_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
LOOK_AHEAD_TARGETS_MAX: Final = 10_000

# A target with this share of a full transaction makes the backlog, and the second cursor goes past it.
HEAVY_SHARE: Final = 1 / 8

# Of fewer messages that the second cursor took each target has a large share, and no share says anything.
HEAVY_TAKEN_MIN: Final = 20

# Refused entries of a target that are tried again alone: each costs a transaction, and is passed over in every trial.
REFUSED_MAX: Final = 1_000

# A transaction in which every message reports for itself, to find the one that is refused: a callback for each.
REPORTED_ENTRIES_MAX: Final = 1_000

# Entries of the transaction after one that a target's fault aborted. Other targets may be slow, too; if it is small, it
# waits for fewer of their messages.
AFTER_FAULT_ENTRIES_MAX: Final = 100

# Targets that are isolated at a time: a state of some hundred bytes, and a place in the round of trials.
ISOLATED_MAX: Final = 1_000

# After a trial the next one waits for so many times what it took: the others have three quarters of the time.
TRIAL_REST: Final = 3.0

# ... and at least this: the broker writes the markers of a trial, and a transaction right behind would wait for them.
TRIAL_REST_MS_MIN: Final = 20.0

# A refused entry is tried again alone after this, doubling up to the maximum, until its retry budget is used up.
REFUSED_RETRY_MS_MIN: Final = 1_000.0
REFUSED_RETRY_MS_MAX: Final = 15_000.0

# A target stays isolated for this long after its last fault: one that refuses a record in a hundred, or is slow now and
# then, would abort or delay the transactions of all others again and again.
PROBATION_MS: Final = 30_000.0

# A topic is slow if transactions in a row waited longest for it, and this many of its records took SLOW_RECORD_MS or
# longer. Two are enough if their times add up to SLOW_WAIT_MS: while they wait, more falls due, and each transaction
# takes about twice as long as the one before.
SLOW_IN_A_ROW: Final = 4
SLOW_RECORD_MS: Final = 20.0
SLOW_WAIT_MS: Final = 300.0

# How soon entries under key 0 are looked at again while they wait for their own topics to recover.
OWN_RETRY_MS: Final = 10.0

# Parked entries moved back in one local write: some milliseconds, so that dispatch is never held up.
UNPARK_ENTRIES_MAX: Final = 5_000

# Rates of targets, in messages a second of one shard: one in a quarter of an hour is a timer of its own rather than a
# rate, and no shard comes near the largest. Each rule is tried for each new target.
RATE_MIN: Final = 0.001
RATE_MAX: Final = 1_000_000
RATE_RULES_MAX: Final = 1_000

# A target that is over its rate leaves in slices of this length, so that it causes at most 20 transactions a second; it
# may save up twice that, or a shard that is a little late would fall behind its rate.
RATE_SLICE_S: Final = 0.05
RATE_SAVED_S: Final = 0.1

# How long until a target whose messages may not leave yet for another reason is looked at again.
RATE_RETRY_MS: Final = 50.0

# Waits between attempts where Kafka itself does not answer: short enough to be back soon, long enough not to hammer.
BACKOFF_MS_MIN: Final = 100
BACKOFF_MS_MAX: Final = 5_000

# After an unexpected exception a shard begins again, at most so often in a row: some four minutes in all. An hour
# without one ends the row.
INTERNAL_ATTEMPTS_MAX: Final = 8
INTERNAL_BACKOFF_MS_MIN: Final = 1_000
INTERNAL_BACKOFF_MS_MAX: Final = 60_000
INTERNAL_CALM_MS: Final = 3_600_000

# A call of init_transactions; the broker's answer waits for the end of the older transaction, 10 s at most.
FENCE_TIMEOUT_S: Final = 15.0

# Reading the gap between D and the first record of a tenure: with the flush before it, well inside the transaction
# time-out of 10 s. The gap holds some offsets; only a foreign open transaction, or a leader that is away, takes longer.
BOUND_CHECK_MS_MAX: Final = 4_000

# A halt that rests on a broker's answer must stand for longer than a deposed broker takes to learn that it is (its
# session time-out, 9 s by default, and some), and be found more than twice: a machine may have been suspended between.
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

# A shard in which so many of these looks have found nothing changed is at rest, and looks after itself only this often:
# its figures, its status and its wheel would be the same after the next look. Measured: 64 shards that look every
# second take 4 % of a core.
REST_LOOKS: Final = 3
REST_INTERVAL_MS: Final = 10_000

# Directories moved aside are kept for a person, the oldest beyond this many a shard are removed.
ASIDE_DIRECTORIES_MAX: Final = 3

# Directories used beside one that another process held: the newest may save a rebuild, older states are of no use.
BESIDE_DIRECTORIES_MAX: Final = 1

# Disk space of ended entries is given back when nothing is due for a while: measured, 1 s for 660 MB.
RECLAIM_INTERVAL_MS: Final = 10_000
RECLAIM_QUIET_MS: Final = 5_000

# What a person reads of a shard: fresh enough to watch, rare enough to cost nothing.
STATUS_INTERVAL_MS: Final = 2_000
STATUS_AGE_MS_MAX: Final = 10_000

# A shard at rest without a lag asks for it this often: what comes ends its rest.
LAG_AGE_MS_MAX: Final = 30_000

# After a question for the lag that Kafka did not answer: it held the shard up for as long as an admin request may take.
LAG_PAUSE_MS: Final = 600_000

# The shard's thread waits for the answer, and nothing is delivered meanwhile: a hung leader must not cost more.
LAG_PATIENCE_S: Final = 0.5

# What has said nothing for longer is taken for gone: three times what a living shard takes, at most.
STATUS_SILENT_MS_MAX: Final = 30_000

# A disk with less room is called full: a timer log takes more at a time, and a status may not fit any more.
DISK_FULL_SIZE_BYTES: Final = 1 << 20

# How long a command waits for a shard to take what it was asked; a shard in a takeover takes it later.
PICK_UP_S_MAX: Final = 5.0

# A shard looks this often whether a person asks something of it: one system call.
INSTRUCTION_INTERVAL_MS: Final = 1_000

# The status and the instruction of a shard are some hundred bytes; what is larger is some other file.
SHARD_FILE_SIZE_BYTES_MAX: Final = 64 * 1024

# Every delivery report comes within message.timeout.ms (2 s); beyond this the client has lost track.
FLUSH_TIMEOUT_S: Final = 8.0

# Records of a healthy transaction are acknowledged within some 10 ms. After this long the targets of the transaction
# are looked up: a deleted one would hold everybody up until message.timeout.ms.
FLUSH_SLICE_S: Final = 0.2

# What the client lets through: above any topic's limit, which is what decides. Its own default is 1 MB, below the limit
# of the dead letters, and a record that it refused could not leave at all.
PRODUCER_MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024

# The client library packs records of one partition into batches of up to this size, and a topic's limit is on batches.
CLIENT_BATCH_BYTES: Final = 1_000_000

# The headers that Postdate adds to a delivered record: names, an origin with the longest topic name, a due time, an id.
DELIVERED_HEADERS_SIZE_BYTES_MAX: Final = 1_024

# From this many fates on, a transaction is dominated by its messages, and a pause behind it only costs throughput.
LARGE_TRANSACTION_FATES: Final = 1_000

# Of these so many at once in a process, whose one core they share: measured with four shards, as many messages a second
# as with all of them at once, and transactions that are open for half as long. Where a transaction takes longer than
# it should, it waits for brokers rather than for the core, and the others go without a turn.
LARGE_TRANSACTIONS_AT_ONCE: Final = 1
TURN_TIMEOUT_S: Final = 0.05

# A transaction whose records are acknowledged only after this was made to wait for the markers of the one before: the
# client library waits a fixed 20 ms then, on top of the 3 to 6 ms that a transaction takes at its best.
MADE_TO_WAIT_MS: Final = 24.0

# The pause between small transactions: one that had to wait adds a lot, each other takes a little away, which keeps
# about one in a hundred waiting. The least is what the broker needs at its best. The most is a quarter of an unlucky
# wait: where a machine is busy anyway, transactions are slow for other reasons, and a longer pause helps none of them.
PACE_UP_MS: Final = 1.0
PACE_DOWN_MS: Final = 0.01
PACE_MS_MIN: Final = 1.0
PACE_MS_MAX: Final = 5.0

# Small transactions of one process that may run at a time, on average. The least leaves a process of a few shards
# alone; at the most, with some ms each, the budget of transactions a second is what bounds them. How often it is
# measured anew how quick one is, with the least of them at a time.
WINDOW_MIN: Final = 8.0
WINDOW_MAX: Final = 64.0
WINDOW_PROBE_MS: Final = 60_000.0

# What took longer waited for a broker that was away, and not for other transactions: one such must not hold the next
# ones up. So the least window lets 80 begin in a second.
WINDOW_TOOK_MS_MAX: Final = 100.0

# A shard at rest says in the dispatch log what has ended since its last record, and looks behind the markers it is at.
SETTLE_MS: Final = 60_000
MARKERS_READ_S: Final = 0.2

# It is done only where nothing is due for so long: nobody waits for it.
MARKERS_QUIET_MS: Final = 1_000

# With the gate "always", and nothing new to read: how often to ask whether the end of the topic was reached.
GATE_LOOK_INTERVAL_MS: Final = 100

# What is held of a shard lies in the metadata of a group offset, for which brokers allow 4,096 bytes by default.
HOLD_NOTE_CHARS_MAX: Final = 4_000

# Changes of what is held that wait for the poll thread: each is a person's, and the loop turns ten times a second.
HOLD_REQUESTS_MAX: Final = 64

# A fenced shard looks this often who has taken over.
FENCED_RECHECK_MS: Final = 1_000

# Whoever fenced a shard needs this long, at most, to say in the dispatch log who it is: a takeover that has its disk.
# Later a fence is taken for a stranger's, and the shard takes its transactional id back.
FENCED_PATIENCE_MS: Final = 10_000

# Failing targets and parked entries are looked after this often; each look is some point reads.
TEND_INTERVAL_MS: Final = 500

# A duty that Kafka does not answer is tried again after a delay that doubles up to this: each try may take 15 s.
DUTY_DELAY_MS_MAX: Final = 60_000

# Requests whose age is looked at in one sweep, by some point reads each: some 20 ms twice a second, and only while old
# requests are pending that are not stored.
SWEEP_OFFSETS_MAX: Final = 2_000

# Records of the store topic applied in one local write: some megabytes.
STORE_RECORDS_MAX: Final = 1_000

# One poll: large enough that the cost of a call vanishes, small enough that four of them fit an inbox.
POLL_RECORDS_MAX: Final = 5_000
POLL_TIMEOUT_S: Final = 0.1

# The group's offsets are for lag tools only; this often they are fresh enough.
GROUP_COMMIT_INTERVAL_S: Final = 5.0

# Measured: 64 shards with a producer each hold 518 descriptors; RocksDB keeps some tens of files open beside them.
OPEN_FILES_PER_SHARD: Final = 16

# One request to the coordinator for all fenced shards, beside the poll thread: a busy machine opens a connection within
# this time, and a shard that is not confirmed asks again.
CONFIRM_TIMEOUT_S: Final = 10.0

# A process that starts while brokers are away pauses this long between two attempts, each of which lasts for 15 s at
# most. The pause doubles to the most, which is lateness once the brokers are back.
START_PAUSE_S_MIN: Final = 1.0
START_PAUSE_S_MAX: Final = 10.0

# A failed client of the group is replaced after this pause, which doubles with each failure in a row. The most is less
# than CLIENT_STABLE_S: of two processes that fence each other, neither takes the pauses of the other for success.
CLIENT_PAUSE_S_MIN: Final = 1.0
CLIENT_PAUSE_S_MAX: Final = 16.0

# A client that served for this long has joined well: its failure is the first of a row. The failures in a row that end
# the process leave half a minute of pauses, more than a coordinator that moves needs.
CLIENT_STABLE_S: Final = 60.0
CLIENT_FAILURES_MAX: Final = 6

# A warning or error that repeats is logged this often, and so many different texts are told apart.
LOG_REPEAT_S: Final = 10.0
LOG_TEXTS_MAX: Final = 1_000

# A dead worker is started again at once the first time, and ever later while it keeps dying young.
WORKER_RESTART_S_MIN: Final = 0.5
WORKER_RESTART_S_MAX: Final = 30.0
WORKER_STABLE_S: Final = 60.0

# How often the parent looks at its workers, and how long they may take to end before they are killed.
WORKER_POLL_S: Final = 0.1
WORKER_STOP_S: Final = 25.0

# How often a shard lays out figures about its index: a scrape of metrics is rarer.
FIGURES_INTERVAL_MS: Final = 1_000
