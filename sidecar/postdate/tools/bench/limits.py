"""Sizes and times of the benchmark, each with its unit and its reason."""

from __future__ import annotations

PARTITIONS = 4
"""Partitions of the request topic, and so shards of the sidecar process that is measured."""

MANY_PARTITIONS = 64
"""Shards of one process in the case `many`."""

TARGET_PARTITIONS = 4
"""Partitions of the target topic."""

VALUE_SIZE_BYTES = 256
"""The size of each message, as in the figures of the peers."""

COPY_BATCH_RECORDS = 2_000
"""Records of one transaction of the raw copy. Larger transactions do not make it faster."""

START_TIMEOUT_S = 180.0
"""Seconds: a sidecar starts and takes over its shards in about 3 s; a slow machine gets longer."""

FILL_PER_S_MIN = 10_000
"""Requests a second: the lowest expected rate of a broker, a tenth of that of a fast broker. It determines the due time
of requests that must be written before they are due."""

CASE_TIMEOUT_S = 900.0
"""Seconds: longer than the slowest case with a million messages takes on two slow cores."""

ACKNOWLEDGE_TIMEOUT_S = 60.0
"""Seconds: how long a request waits for its acknowledgement; the records of the raw copy wait as long. With the two
seconds of a shard's producer, requests would fail if a busy machine makes the broker pause."""

HTTP_TIMEOUT_S = 10.0
"""Seconds: a busy process answers a scrape in well under a second."""

POLL_INTERVAL_S = 0.05
"""Seconds: the interval of checks, which limits the precision of times that are not taken from timestamps of
records."""

IDLE_S = 10.0
"""Seconds: how long an idle process is measured."""

WARM_UP_S = 5.0
"""Seconds: how long the load runs before the measured time, since a JVM that has just started compiles its code
first."""

WARM_UP_RECORDS_MAX = 300_000
"""The largest number of records of one copy in the warm-up."""

WARM_COPIES_MAX = 8
"""The largest number of copies in the warm-up of a broker that has just started. Measured: while the JVM of the broker
compiles, it uses as much of two cores as the measured case."""

WARM_SPREAD_MAX = 0.05
"""The raw copy is stable when two copies in a row differ by at most this share."""

MEDIAN_SPREAD_MAX = 0.1
"""A case is repeated until half the 95 % confidence interval of the median of its main figure is at most this share of
the median, or until it has run as often as `--repeats-max` allows."""

RAW_PAUSES_MS = (3, 12)
"""Milliseconds between the transactions of each raw producer; the best pause counts. Measured with four producers at
1,000/s: p99 28 and 26 ms."""

RAW_MANY_PAUSES_MS = (20, 60, 120)
"""The same with 64 producers. Measured at 5,000/s: p99 225, 86 and 175 ms."""


FAR_MS = 1_800_000
"""Milliseconds: half an hour. Such requests do not become due during the benchmark."""

LONG_MS = 30 * 86_400_000
"""Milliseconds: thirty days. A request topic does not keep requests for so long, so they are written to STORE."""

READ_PAUSE_S = 0.001
"""Seconds: the pause after a read without records while lateness is measured. The measured lateness may include it."""

READ_RECORDS_MAX = 2_000
"""Records of one read."""

BROKER_SETTINGS = ("min.insync.replicas", "flush.messages", "flush.ms", "compression.type", "segment.bytes")
"""Topic settings on which the figures depend. The report includes them."""
