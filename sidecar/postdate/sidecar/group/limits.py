"""Bounds of the membership in the consumer group, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# The wait for all shards together when they are released: well inside the session time-out, which is 15 s with the
# group protocol classic.
REVOKE_WAIT_MS_MAX: Final = 5_000

# The holds of a shard are in the metadata of a group offset, for which brokers allow 4,096 bytes by default.
HOLD_NOTE_CHARS_MAX: Final = 4_000

# Changes of holds that wait for the poll thread: operators request them, and unless it releases shards, the loop runs
# some ten times a second or more.
HOLD_REQUESTS_MAX: Final = 64

# Records of one poll: large enough to make the cost of the call negligible, small enough that four polls fit an inbox.
POLL_RECORDS_MAX: Final = 5_000
POLL_TIMEOUT_S: Final = 0.1

# The interval of commits of the group's offsets, whose values only lag tools use.
GROUP_COMMIT_INTERVAL_S: Final = 5.0

# The time-out of the request to the coordinator that confirms all fenced shards, outside the poll thread. A busy
# machine opens a connection within this time. If a shard is not confirmed, the request is repeated.
CONFIRM_TIMEOUT_S: Final = 10.0

# A failed client of the group is replaced after this pause, which doubles with each consecutive failure. The maximum is
# less than CLIENT_STABLE_S: if two processes fence each other, a pause of one must not be so long that the other counts
# as stable.
CLIENT_PAUSE_S_MIN: Final = 1.0
CLIENT_PAUSE_S_MAX: Final = 16.0

# After a client has served for this long, its next failure counts as the first again. The consecutive failures that end
# the process include half a minute of pauses, more than the move of a coordinator takes.
CLIENT_STABLE_S: Final = 60.0
CLIENT_FAILURES_MAX: Final = 6

# How often a member looks for partitions without an owner, and how many times in a row it must find the same ones. A
# rebalance ends sooner than that, and every live member should serve shards again within a minute after any fault.
UNASSIGNED_CHECK_INTERVAL_S: Final = 15.0
UNASSIGNED_CHECKS_MIN: Final = 2

# With the group protocol consumer a killed static member keeps its name until its session has timed out: after 45 s by
# default, and after 60 s at most unless the brokers allow more (group.consumer.max.session.timeout.ms). The rest is a
# reserve.
NAME_IN_USE_S_MAX: Final = 90.0
# The pause between two attempts of a process that waits for other members. An attempt costs a client and some requests.
# A longer pause would leave the shards without an owner for longer after the other members have left.
REFUSED_PAUSE_S: Final = 2.0
