"""Measures lateness in transactions instead of seconds: how many committed without a due message.

A shard builds a transaction before the dispatch log stamps it, so one stamped after a due time may rightly lack the
message, and the next one may not. The count is the same however slow the machine is. A transaction knows the requests
below its `next_request`.

After a fault a transaction takes few messages, so on a slow machine those that are due by then need several, in the
order of their due times. `out_of_turn` leaves these out: it counts only transactions that overtook the message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import inf

from postdate.wire.dispatch_log import DELIVERED
from postdate.wire.origins import format_origin
from support.oracles.exactly_once import Outcome

#: Transactions before its own that are looked at for each message; more than that are counted as so many.
_LOOKS_BACK = 50


def passed_by(outcome: Outcome, due: Mapping[bytes, int], out_of_turn: bool = False) -> Counter[int]:
    """Number of transactions -> how many of the messages in `due` (origin -> ms) were passed by so many: transactions
    of their shard that knew their request and were stamped after their due time. `out_of_turn`: only those that
    delivered no message of `due` that was due as early or earlier. O(messages).
    """
    late, before = Counter[int](), dict[int, list[tuple[int, int, float]]]()
    for seen, record in outcome.log:
        requests, passing = seen.topic.removesuffix(".dispatch-log"), before.setdefault(seen.partition, [])
        first_ms = inf
        for fate in record.fates:
            if fate.name == DELIVERED:
                due_ms = due.get(format_origin(requests, seen.partition, fate.offset))
                if due_ms is not None:
                    first_ms = min(first_ms, due_ms)
                    late[
                        sum(
                            at_ms > due_ms and known > fate.offset and not (out_of_turn and earliest_ms <= due_ms)
                            for at_ms, known, earliest_ms in passing[-_LOOKS_BACK:]
                        )
                    ] += 1
        passing.append((seen.timestamp_ms, record.next_request, first_ms))
    return late
