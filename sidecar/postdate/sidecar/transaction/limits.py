"""Bounds of one transaction, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# The producer of a transaction that writes to at least this many topics is not used again if a record was refused and
# the client dropped another one. A connection has at most five requests of an idempotent producer in flight, so further
# requests wait. When the transaction fails, the client drops the waiting requests without correcting the sequence
# numbers.
GAP_TOPICS_MIN: Final = 5

# The shortest time between two acknowledgements that `TopicOutcome.waits_ms` contains. `slow_topics` of `dispatch`
# decides whether the record of the later one was slow.
SLOW_RECORD_MS: Final = 20.0

# The longest time for reading the gap between the end of the replay and the first record of an ownership. After a flush
# that takes less than 6 s, the check ends within the transaction time-out of 10 s. The gap has few offsets, so only an
# open transaction of a foreign producer or a missing leader delays the read.
BOUND_CHECK_MS_MAX: Final = 4_000

# Every delivery report arrives within message.timeout.ms (2 s); a report that is missing after this time will never
# arrive.
FLUSH_TIMEOUT_S: Final = 8.0

# Records of a healthy transaction are acknowledged within about 10 ms. After FLUSH_UNCHECKED_S the targets of the
# transaction are looked up, since a deleted target would delay the others until message.timeout.ms. The answer is
# polled every FLUSH_SLICE_S.
FLUSH_UNCHECKED_S: Final = 0.1
FLUSH_SLICE_S: Final = 0.02
