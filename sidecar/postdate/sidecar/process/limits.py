"""Bounds of a process and its workers, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# Thresholds of the garbage collector, by generation. Measured: at Python's default of 700 it takes a fifth to a third
# of the time of ingest, where it scans waiting records and finds nothing to free, and a sixth of the time of importing
# the modules.
GC_THRESHOLDS: Final = (50_000, 20, 50)

# Topic settings can change at any time; ten minutes are short compared with any reasonable retention.
TOPIC_CHECK_INTERVAL_MS: Final = 600_000

# At the end of a process, each thread that watches topics or assignments may take this long to end. A thread that waits
# for an unavailable broker would take 15 s; it ends with the process.
WATCH_END_S: Final = 0.2

# Measured: 64 shards with a producer each use 518 file descriptors, plus some tens of open files of RocksDB.
OPEN_FILES_PER_SHARD: Final = 16

# The pause between two attempts of a process that starts while brokers are unavailable. Each request of an attempt
# takes 15 s at most. The pause doubles up to the maximum, which adds to lateness once the brokers are back.
START_PAUSE_S_MIN: Final = 1.0
START_PAUSE_S_MAX: Final = 10.0

# The pause before a crashed worker is restarted: the minimum if the worker ran for longer than WORKER_STABLE_S,
# otherwise twice the previous pause, up to the maximum.
WORKER_RESTART_S_MIN: Final = 0.5
WORKER_RESTART_S_MAX: Final = 30.0
WORKER_STABLE_S: Final = 60.0

# How often the parent checks its workers, and how long they may take to end before they are killed.
WORKER_POLL_S: Final = 0.1
WORKER_STOP_S: Final = 25.0

# The most spans that are made at a time, and how often their thread checks whether the process is ending.
SPANS_TAKEN_MAX: Final = 500
SPANS_WAIT_S: Final = 0.5

# At the end of a process, the rest of the spans may take this long to be made, and this long again to be exported.
SPANS_CLOSE_S_MAX: Final = 3.0
