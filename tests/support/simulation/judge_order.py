"""The oracle of order, O12: messages of one shard for the same target leave by due time, then by request offset.

Stricter than what is promised, which is the order of each key: the code keeps that of each target. Two messages are
compared if the later one was known to the sender of the earlier one: its request lies below the `next_request` of that
transaction. Two of one transaction are compared by their offsets, if they lie in one partition of their target.

Not judged, as the promise says: a message that its target refused, which is tried again alone; a schedule in which
Postdate's own topics were isolated, since only messages of one key wait for each other then; what was moved; what was
stored, if the broker's clock was stepped, since the gate then lets a rebuilt index deliver before it has read all; and
what not every process understands in the same way.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from support.simulation.judge import JudgedOutcome, Origin
from support.simulation.readings import Readings
from support.simulation.traffic import SimulatedTraffic
from support.simulation.world import World


@dataclass(frozen=True)
class _Left:
    """One message: when it was due, with which transaction it left, and where it lies on its target."""

    key: tuple[int, int]
    seq: int
    partition: int
    place: int
    known: int


def judge_order(outcome: JudgedOutcome, traffic: SimulatedTraffic, readings: Readings, world: World) -> None:
    """What was overtaken is added to `outcome.wrong`."""
    by_target: dict[tuple[int, str], list[_Left]] = defaultdict(list)
    if world.key_zero_isolated:
        return
    is_stepped = world.reached["broker's clock stepped"] or world.reached["broker's clock stepped far"]
    for origin, copies in outcome.delivered.items():
        if origin not in traffic.asked or _is_excepted(outcome, traffic, readings, origin) or origin in world.refused:
            continue
        if is_stepped and origin in outcome.stored:
            continue
        arrival, said = copies[0], outcome.ended_by[origin]
        key = (outcome.leaves_ms(traffic.asked[origin]), origin[1])
        where = (arrival.partition, arrival.record.offset)
        by_target[origin[0], arrival.target].append(_Left(key, said.seq, *where, said.next_request))
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
    return origin in outcome.moved or origin not in outcome.ended_by or not readings.is_certain(traffic.asked[origin])
