"""Bounds of pacing, `beat` records, traces and figures, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# An idle shard writes a record at least this often, so that retention never empties the dispatch log.
BEAT_INTERVAL_MS_MAX: Final = 21_600_000

# From this many fates on, the messages dominate the cost of a transaction, and a pause after it only costs throughput.
LARGE_TRANSACTION_FATES: Final = 1_000

# Large transactions of a process that are open at once; they share one core. Measured with four shards: the same
# throughput as without the limit, and transactions that are open for half as long. A transaction that takes longer than
# the time-out waits for brokers rather than for the core, so the others proceed without a slot.
LARGE_TRANSACTIONS_AT_ONCE: Final = 1
SLOT_TIMEOUT_S: Final = 0.05

# If the records of a transaction are acknowledged later than this, the transaction had to wait for the markers of the
# previous one: the client library then waits a fixed 20 ms, in addition to the 3 to 6 ms of a fast transaction.
MADE_TO_WAIT_MS: Final = 24.0

# The pause between small transactions. A transaction that had to wait lengthens it by PACE_UP_MS, and any other
# shortens it by PACE_DOWN_MS, so about one in a hundred waits. The minimum is what the broker needs at best. The
# maximum is a quarter of the client's fixed wait: on a busy machine transactions are slow for other reasons, and a
# longer pause does not help.
PACE_UP_MS: Final = 1.0
PACE_DOWN_MS: Final = 0.01
PACE_MS_MIN: Final = 1.0
PACE_MS_MAX: Final = 5.0

# Small transactions of one process in progress, on average. The minimum does not limit a process with a few shards. At
# the maximum, transactions of a few ms reach the budget of transactions per second first. Every WINDOW_PROBE_MS the
# duration of the fastest transaction is measured again, with the minimum window.
WINDOW_MIN: Final = 8.0
WINDOW_MAX: Final = 64.0
WINDOW_PROBE_MS: Final = 60_000.0

# A longer duration counts as this one: the transaction waited for an unavailable broker, not for other transactions,
# and must not slow down the next ones. So even the minimum window lets 80 transactions begin in a second.
WINDOW_TOOK_MS_MAX: Final = 100.0

# Steps of traced messages that wait for the thread that makes spans: enough for one second at 10,000 messages a second,
# each with two steps. They take a few MB.
SPANS_QUEUED_MAX: Final = 20_000

# Bytes of the headers that such a step keeps. A `traceparent` has 55, and later versions may add fields; a vendor need
# not pass on a longer `tracestate` (W3C Trace Context, 3.3.1.5). Without these bounds the queue could hold the largest
# headers that a broker accepts.
TRACEPARENT_BYTES_MAX: Final = 256
TRACESTATE_BYTES_MAX: Final = 512

# How often a shard publishes figures about its index: scrapes of metrics are less frequent.
FIGURES_INTERVAL_MS: Final = 1_000
