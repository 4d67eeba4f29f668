"""Bounds of ingest, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# Ingest stops at either of these bounds, since all entries under key 0, with the entries on which they act, must fit
# into one transaction. Each entry takes at most two fates, and one more request may add three: 10,000 fates fit into
# one dispatch-log record.
ENDING_ENTRIES_MAX: Final = 4_999
ENDING_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024

# The most bulk controls of a shard that have not ended. They run one after the other, and ingest waits while there are
# this many.
BULK_CONTROLS_MAX: Final = 16

# A shard that has committed nothing for this long publishes a new low-water mark. A quiet shard moves R past markers at
# this interval at most. To find the markers, it reads the request topic, with a time-out of MARKERS_READ_S.
SETTLE_MS: Final = 60_000
MARKERS_READ_S: Final = 0.2
