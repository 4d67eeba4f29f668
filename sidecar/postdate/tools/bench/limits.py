"""Sizes and times of the benchmark, each with its unit and its reason."""

from __future__ import annotations

PARTITIONS = 4
"""Of the request topic: shards of the one sidecar process that is measured."""

MANY_PARTITIONS = 64
"""Shards of one process in the case that asks what many of them cost."""

TARGET_PARTITIONS = 4
"""Of the target topic."""

VALUE_SIZE_BYTES = 256
"""Of each message, as in the figures of the peers."""

COPY_BATCH_RECORDS = 2_000
"""Records of one transaction of the raw copy: beyond it, it gets no faster."""

START_TIMEOUT_S = 180.0
"""s. A sidecar starts and takes its shards over in about 3 s; a slow machine gets longer."""

FILL_PER_S_MIN = 10_000
"""Requests a second that a broker takes at least, a tenth of what fast ones do: for what must be written before it is
due."""

CASE_TIMEOUT_S = 900.0
"""s. Longer than the slowest case with a million messages takes on two slow cores."""

HTTP_TIMEOUT_S = 10.0
"""s. A busy process answers a question about its metrics in well under a second."""

LOOK_S = 0.05
"""s. Between two looks at what is going on: how exactly a time without a timestamp of its own is taken."""

IDLE_S = 10.0
"""s. How long a process that has nothing to do is watched."""

WARM_UP_S = 5.0
"""s. Traffic before the one that counts: a JVM that has just started compiles its code first."""

WARM_UP_RECORDS_MAX = 300_000
"""Copied twice by a broker that has just started, before the first case: measured, its compiler takes as much of the
two cores as the case itself until then, and the copy behind a case would find it done."""

FAR_MS = 1_800_000
"""ms. Due in half an hour: never while the benchmark looks."""

LONG_MS = 30 * 86_400_000
"""ms. Due in thirty days: beyond what a request topic keeps, so that requests are stored."""

READ_RECORDS_MAX = 2_000
"""Records of one read."""

REPEATS_MAX = 20
"""Runs of one case."""

BROKER_SETTINGS = ("min.insync.replicas", "flush.messages", "flush.ms", "compression.type", "segment.bytes")
"""Topic settings that the figures depend on, reported beside them."""
