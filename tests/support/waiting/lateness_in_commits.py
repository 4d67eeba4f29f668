"""Measures the lateness of a message in transactions instead of seconds: the number that were committed without it
after it was due.

A shard builds a transaction before the dispatch log stamps it, so a transaction stamped after a due time may rightly
lack the message; the next one may not. This count does not depend on the speed of the machine. A transaction knows the
requests below its `next_request`.

After a fault a transaction takes few messages, so on a slow machine a backlog of due messages needs several
transactions, in the order of due times. On a busy machine a shard may also take over several times in a row.
`out_of_turn` excludes both: it counts only transactions that delivered a later message first. The record of a takeover
delivers no message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from postdate.wire.dispatch_log import DELIVERED, DispatchRecord, Fate
from postdate.wire.origins import format_origin
from support.oracles.exactly_once import Outcome, Seen, Sent

#: The maximum number of earlier transactions that are checked for each message, which limits the count.
_LOOKS_BACK = 50

#: The maximum number of messages that `explained` lists, and of transactions for each of them.
_MESSAGES_SHOWN = 10
_TRANSACTIONS_SHOWN = 8

#: The record of a transaction in the dispatch log.
Transaction = tuple[Seen, DispatchRecord]


@dataclass(frozen=True, slots=True)
class Passed:
    """The transactions that overtook a message, and the one that delivered it."""

    origin: bytes
    by: list[Transaction]
    delivered_by: Transaction


def passed_messages(outcome: Outcome, due: Mapping[bytes, int], out_of_turn: bool = False) -> list[Passed]:
    """Returns for each message in `due` (origin -> ms) the transactions of its shard that knew its request and were
    stamped after its due time. `out_of_turn`: only transactions that ended some message, but delivered no message of
    `due` that was due at the same time or earlier. O(messages).
    """
    found, before = list[Passed](), dict[int, list[tuple[Transaction, float]]]()
    for seen, record in outcome.log:
        passing, first_ms = before.setdefault(seen.partition, []), inf
        for fate in record.fates:
            origin = _origin(seen, fate)
            if fate.name == DELIVERED and origin in due:
                due_ms = due[origin]
                first_ms = min(first_ms, due_ms)
                by = [
                    (stamp, earlier)
                    for (stamp, earlier), earliest_ms in passing[-_LOOKS_BACK:]
                    if stamp.timestamp_ms > due_ms
                    and earlier.next_request > fate.offset
                    and not (out_of_turn and (earliest_ms <= due_ms or not earlier.fates))
                ]
                found.append(Passed(origin, by, (seen, record)))
        passing.append(((seen, record), first_ms))
    return found


def passed_by(outcome: Outcome, due: Mapping[bytes, int], out_of_turn: bool = False) -> Counter[int]:
    """Returns number of transactions -> how many messages in `due` that many transactions passed: see
    `passed_messages`."""
    return counted(passed_messages(outcome, due, out_of_turn))


def counted(passed: Iterable[Passed]) -> Counter[int]:
    """Returns number of transactions -> how many of these messages that many transactions passed."""
    return Counter(len(each.by) for each in passed)


def explained(passed: Iterable[Passed], sent: Mapping[bytes, Sent], arrived_ms: Mapping[bytes, float]) -> str:
    """Describes each of these messages in a few lines, the most passed ones first: the transactions that passed it and
    the one that delivered it, with the numbers of their messages, and all times relative to the due time.

    `sent`: all requests by origin, including other messages. `arrived_ms`: the time at which a read_committed reader
    received a message, an upper bound for the commit of its transaction. Returns at most about 100 lines.
    """
    lines = []
    for each in sorted(passed, key=lambda each: -len(each.by))[:_MESSAGES_SHOWN]:
        message = sent[each.origin]
        due_ms = message.due_ms
        times = f"due at {due_ms}, requested at {message.appended_ms - due_ms:+d} ms"
        number = f"was passed by {len(each.by)} transactions"
        lines.append(f"{each.origin.decode()} for {message.target}, {times}, {number}:")
        shown = [*each.by[:_TRANSACTIONS_SHOWN], each.delivered_by]
        lines += [_line(transaction, due_ms, sent, arrived_ms) for transaction in shown]
    return "\n".join(lines)


def _line(transaction: Transaction, due_ms: int, sent: Mapping[bytes, Sent], arrived_ms: Mapping[bytes, float]) -> str:
    """Describes a transaction: when it was built, logged and read, and how many messages of each target it ended."""
    seen, record = transaction
    origins = [_origin(seen, fate) for fate in record.fates]
    counts = Counter(
        (fate.name, sent[origin].target if origin in sent else "others")
        for fate, origin in zip(record.fates, origins, strict=True)
    )
    arrivals = [arrived_ms[origin] for origin in origins if origin in arrived_ms]
    read = f"read at {min(arrivals) - due_ms:+.0f}" if arrivals else "not read"
    content = ", ".join(f"{count} {name} ({target})" for (name, target), count in sorted(counts.items()))
    times = f"built at {record.at - due_ms:+d} ms, logged at {seen.timestamp_ms - due_ms:+d}, {read}"
    return f"  {record.kind} {record.seq}: {times}: {content or 'nothing'}"


def _origin(seen: Seen, fate: Fate) -> bytes:
    """Returns the origin of the request that a fate in this record names."""
    return format_origin(seen.topic.removesuffix(".dispatch-log"), seen.partition, fate.offset)
