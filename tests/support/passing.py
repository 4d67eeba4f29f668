"""Measures lateness in transactions instead of seconds: how many committed without a due message.

A shard builds a transaction before the dispatch log stamps it, so one stamped after a due time may rightly lack the
message, and the next one may not. The count is the same however slow the machine is. A transaction knows the requests
below its `next_request`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from postdate.wire.dispatch_log import DELIVERED
from postdate.wire.origins import format_origin
from support.oracle import Outcome

#: Transactions before its own that are looked at for each message; more than that are counted as so many.
_LOOKS_BACK = 50


def passed_by(outcome: Outcome, due: Mapping[bytes, int]) -> Counter[int]:
    """Number of transactions -> how many of the messages in `due` (origin -> ms) were passed by so many: transactions
    of their shard that knew their request and were stamped after their due time. O(messages).
    """
    late, before = Counter[int](), dict[int, list[tuple[int, int]]]()
    for seen, record in outcome.log:
        requests, passing = seen.topic.removesuffix(".dispatch-log"), before.setdefault(seen.partition, [])
        for fate in record.fates:
            if fate.name == DELIVERED:
                due_ms = due.get(format_origin(requests, seen.partition, fate.offset))
                if due_ms is not None:
                    late[sum(at_ms > due_ms and known > fate.offset for at_ms, known in passing[-_LOOKS_BACK:])] += 1
        passing.append((seen.timestamp_ms, record.next_request))
    return late
