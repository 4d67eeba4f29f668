"""Bounds of one transaction, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# A connection has at most five requests of an idempotent producer in flight. If a transaction writes to this many
# topics, further requests wait behind them. If the transaction fails, the client drops the waiting requests without
# correcting the sequence numbers.
GAP_TOPICS_MIN: Final = 5

# The least time between two acknowledgements for which the later one is reported. `slow_topics` of `dispatch` decides
# whether its record was slow.
SLOW_RECORD_MS: Final = 20.0

# The time to read the gap between the end of the replay and the first record of an ownership. Together with the flush
# before it, it is well inside the transaction time-out of 10 s. The gap has a few offsets; only an open transaction of
# a foreign producer or a missing leader takes longer.
BOUND_CHECK_MS_MAX: Final = 4_000

# Every delivery report arrives within message.timeout.ms (2 s); a report that is missing after this time will never
# arrive.
FLUSH_TIMEOUT_S: Final = 8.0

# Records of a healthy transaction are acknowledged within about 10 ms. After FLUSH_UNCHECKED_S the targets of the
# transaction are looked up, since a deleted target would delay the others until message.timeout.ms. The answer is
# polled every FLUSH_SLICE_S.
FLUSH_UNCHECKED_S: Final = 0.1
FLUSH_SLICE_S: Final = 0.02
