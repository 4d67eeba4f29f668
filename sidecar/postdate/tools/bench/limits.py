"""Sizes and times of the benchmark, each with its unit and its reason."""

from __future__ import annotations

PARTITIONS = 4
"""Of the request topic: shards of the one sidecar process that is measured."""

MANY_PARTITIONS = 64
"""Shards of one process in the case `many`."""

TARGET_PARTITIONS = 4
"""Of the target topic."""

VALUE_SIZE_BYTES = 256
"""Of each message, as in the figures of the peers."""

COPY_BATCH_RECORDS = 2_000
"""Records of one transaction of the raw copy: beyond it, it gets no faster."""

START_TIMEOUT_S = 180.0
"""s. A sidecar starts and takes over its shards in about 3 s; a slow machine gets longer."""

FILL_PER_S_MIN = 10_000
"""The least requests a second that a broker accepts, a tenth of a fast one's, for requests that must be written before
they are due."""

CASE_TIMEOUT_S = 900.0
"""s. Longer than the slowest case with a million messages takes on two slow cores."""

ACKNOWLEDGE_TIMEOUT_S = 60.0
"""s. How long a request waits for its acknowledgement; the records of the raw copy wait as long. After two seconds, as
in a shard's producer, requests would fail if a busy machine makes the broker pause."""

HTTP_TIMEOUT_S = 10.0
"""s. A busy process answers a scrape in well under a second."""

POLL_INTERVAL_S = 0.05
"""s. The interval of checks, which is the precision of times without a timestamp."""

IDLE_S = 10.0
"""s. How long an idle process is measured."""

WARM_UP_S = 5.0
"""s. Traffic before the measured time: a JVM that has just started compiles its code first."""

WARM_UP_RECORDS_MAX = 300_000
"""Records of one copy of the warm-up."""

WARM_COPIES_MAX = 8
"""Copies of the warm-up of a broker that has just started. Measured: while the JVM compiles, it uses as much of two
cores as the measured case."""

WARM_SPREAD_MAX = 0.05
"""The raw copy is stable when two copies in a row differ by at most this share."""

MEDIAN_SPREAD_MAX = 0.1
"""A case is repeated until half the 95 % confidence interval of the median of its main figure is at most this share of
the median, or until it has run as often as `--repeats-max` allows."""

RAW_PAUSES_MS = (3, 12)
"""ms between the transactions of each raw producer; the best one counts. Measured with four producers at 1,000/s: p99
28 and 26 ms."""

RAW_MANY_PAUSES_MS = (20, 60, 120)
"""The same with 64 producers. Measured at 5,000/s: p99 225, 86 and 175 ms."""


FAR_MS = 1_800_000
"""ms. Due in half an hour: never during the benchmark."""

LONG_MS = 30 * 86_400_000
"""ms. Due in thirty days: beyond what a request topic keeps, so that requests are stored."""

READ_PAUSE_S = 0.001
"""s. The interval of a reader that measures lateness, which is part of its figures."""

READ_RECORDS_MAX = 2_000
"""Records of one read."""

BROKER_SETTINGS = ("min.insync.replicas", "flush.messages", "flush.ms", "compression.type", "segment.bytes")
"""Topic settings on which the figures depend. The report includes them."""
