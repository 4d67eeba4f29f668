"""The oracle of order, O12: messages of one shard for the same target leave by due time, then by request offset.

This is stricter than the promise, which covers the order of each key: the code keeps the order of each target. Two
messages are compared if the process that sent the first one knew the second one: its request lies below the
`next_request` of the first transaction. Two messages of one transaction are compared by their offsets, if they are in
the same partition of their target.

The promise has exceptions, which are not checked. A message that its target refused is retried alone. If Postdate's own
topics were isolated, only messages of one key wait for each other. If the broker's clock was stepped, the gate lets a
rebuilt index deliver stored messages before it has read all requests. Moved messages, and messages that the processes
interpret differently, are also exempt.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from support.simulation.oracles.interpretations import Readings
from support.simulation.oracles.outcomes import JudgedOutcome, Origin
from support.simulation.requests.traffic import SimulatedTraffic
from support.simulation.runtime.simulated_run import SimulatedRun


@dataclass(frozen=True)
class _Left:
    """One delivered message: its due time, its transaction, and its position on the target."""

    key: tuple[int, int]
    seq: int
    partition: int
    place: int
    known: int


def judge_order(outcome: JudgedOutcome, traffic: SimulatedTraffic, readings: Readings, run: SimulatedRun) -> None:
    """Adds overtaken messages to `outcome.wrong`."""
    by_target: dict[tuple[int, str], list[_Left]] = defaultdict(list)
    if run.key_zero_isolated:
        return
    is_stepped = run.reached["broker's clock stepped"] or run.reached["broker's clock stepped far"]
    for origin, copies in outcome.delivered.items():
        if origin not in traffic.requests or _is_excepted(outcome, traffic, readings, origin) or origin in run.refused:
            continue
        if is_stepped and origin in outcome.stored:
            continue
        arrival, transaction = copies[0], outcome.ended_by[origin]
        key = (outcome.leaves_ms(traffic.requests[origin]), origin[1])
        where = (arrival.partition, arrival.record.offset)
        by_target[origin[0], arrival.target].append(_Left(key, transaction.seq, *where, transaction.next_request))
    for (part, target), left in by_target.items():
        outcome.reached["order judged"] += len(left) > 1
        left.sort(key=lambda each: (each.seq, each.partition, each.place))
        for number, earlier in enumerate(left):
            for later in left[number + 1 :]:
                apart = later.seq == earlier.seq and later.partition != earlier.partition
                if later.key < earlier.key and later.key[1] < earlier.known and not apart:
                    outcome.wrong.append(
                        f"O12: {target} gets {earlier.key} of partition {part} by seq {earlier.seq}, and {later.key}, "
                        f"which was known, by seq {later.seq}"
                    )


def _is_excepted(outcome: JudgedOutcome, traffic: SimulatedTraffic, readings: Readings, origin: Origin) -> bool:
    return (
        origin in outcome.moved or origin not in outcome.ended_by or not readings.is_certain(traffic.requests[origin])
    )
