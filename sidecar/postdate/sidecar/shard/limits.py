"""Bounds of a shard's thread, its inbox and its duties, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# A shard's inbox: several polled batches, so that ingest never waits for the poll thread and memory stays bounded.
INBOX_RECORDS_MAX: Final = 20_000
INBOX_SIZE_BYTES_MAX: Final = 32 * 1024 * 1024

# Waiting batches are ingested together up to this size: as many records as the poll thread offers at once. Their ingest
# takes some 50 ms, and due messages wait meanwhile.
TAKEN_RECORDS_MAX: Final = 5_000
TAKEN_SIZE_BYTES_MAX: Final = 4 * 1024 * 1024

# Each takeover reads the dispatch log and may rebuild an index; more of them at once would only compete for the same
# disk and core.
TAKEOVERS_AT_ONCE_MAX: Final = 8

# A takeover without progress for this long gives its slot to a waiting takeover: longer than a busy machine needs to
# connect, so that takeovers do not keep taking slots from each other, and shorter than most broker outages.
TAKEOVER_IDLE_S: Final = 10.0

# After an unexpected exception a shard starts again, at most this many consecutive times, with pauses of some three
# minutes in total. An hour without a failure resets the count.
INTERNAL_ATTEMPTS_MAX: Final = 8
INTERNAL_BACKOFF_MS_MIN: Final = 1_000
INTERNAL_BACKOFF_MS_MAX: Final = 60_000
INTERNAL_CALM_MS: Final = 3_600_000

# An idle shard checks its wheel this often (one bounded seek).
CONFIRM_INTERVAL_MS: Final = 1_000

# After REST_CHECKS checks without a change a shard rests, and checks only every REST_INTERVAL_MS, since its figures,
# its status and its wheel would stay the same. Measured: 64 shards that check every second take 4 % of a core.
REST_CHECKS: Final = 3
REST_INTERVAL_MS: Final = 10_000

# Free memory is returned to the system when a rest begins, but not more often than this, since that scans all memory of
# the process, and each of 64 shards may begin a rest every few seconds.
TRIM_INTERVAL_MS: Final = 60_000

# Disk space of ended entries is released every RECLAIM_INTERVAL_MS if nothing will be due within RECLAIM_QUIET_MS.
# Measured: 1 s for 660 MB.
RECLAIM_INTERVAL_MS: Final = 10_000
RECLAIM_QUIET_MS: Final = 5_000

# Markers are passed only if nothing will be due within this time, so that no message is delayed.
MARKERS_QUIET_MS: Final = 1_000

# With `cancel_gate` = always: how often a shard queries the end of the request topic, to open the gate up to the
# present time if it has read everything.
GATE_CHECK_INTERVAL_MS: Final = 100

# A fenced shard checks this often which process has taken over.
FENCED_RECHECK_MS: Final = 1_000

# A duty that Kafka does not answer is tried again after a delay that doubles up to this: each try may take 15 s.
DUTY_DELAY_MS_MAX: Final = 60_000
