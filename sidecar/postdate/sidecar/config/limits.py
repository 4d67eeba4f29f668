"""Bounds of the configuration, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# Measured: 20,000 fates are 780 KB, and a broker's usual limit is 1 MB a record; half leaves room for long offsets.
FATES_PER_TRANSACTION_MAX: Final = 10_000

# A request must never outlive its fate: the dispatch log keeps this much longer than a request's segment may live.
DISPATCH_LOG_RETENTION_MARGIN_MS: Final = 3_600_000

# Ten years: beyond it the hour ring of the wheel would exceed 3 MiB per shard, and a longer horizon is a typing error.
HORIZON_MS_MAX: Final = 3_660 * 86_400_000

# RocketMQ has 18 levels; a longer table than this is a mistake in the file.
LEVELS_MAX: Final = 64

# Named retry policies of a request topic: every dispatch-log record repeats those that requests still need.
RETRY_POLICIES_MAX: Final = 64

# Each worker is a process of some 100 MB with separate connections.
WORKERS_MAX: Final = 64

# More partitions than the brokers of a cluster should hold; a larger number is a typing error.
PARTITIONS_MAX: Final = 10_000

# Every request topic of a process is in every rebalance and in every metadata request.
REQUEST_TOPICS_MAX: Final = 256

# A larger file is not a configuration or properties file.
CONFIG_FILE_SIZE_BYTES_MAX: Final = 1024 * 1024

# Rates of targets, in messages per second of one shard. The least is one message in a quarter of an hour; no shard
# comes near the largest. Each rule is matched against each new target.
RATE_MIN: Final = 0.001
RATE_MAX: Final = 1_000_000
RATE_RULES_MAX: Final = 1_000
