"""The oracle of order, O12: messages of one shard for the same target leave by due time, then by request offset.

Stricter than what is promised, which is the order of each key: the code keeps that of each target. Two messages are
compared where the later one was known to who sent the earlier one: its request lies below the `next_request` of that
transaction. Not judged, as the promise says: targets that failed, and requests that were tried alone. Nor those that
were moved or stored, which are not among the messages for a while.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from support.simulation.judge import Origin, Outcome
from support.simulation.traffic import TARGETS, Traffic
from support.simulation.world import World


@dataclass(frozen=True)
class _Left:
    """One message: when it was due, with which transaction it left and where it lies in a topic of one partition."""

    key: tuple[int, int]
    seq: int
    place: int
    known: int


def judge_order(outcome: Outcome, traffic: Traffic, world: World) -> None:
    """What was overtaken is added to `outcome.wrong`."""
    by_target: dict[tuple[int, str], list[_Left]] = defaultdict(list)
    for origin, copies in outcome.delivered.items():
        target, record = copies[0]
        if origin not in traffic.asked or target in world.failed or _is_excepted(outcome, world, origin):
            continue
        said = outcome.ended_by[origin]
        place = record.offset if TARGETS[target] == 1 else 0
        key = (outcome.due_ms(traffic.asked[origin]), origin[1])
        by_target[origin[0], target].append(_Left(key, said.seq, place, said.next_request))
    for (part, target), left in by_target.items():
        outcome.reached["order judged"] += len(left) > 1
        left.sort(key=lambda each: (each.seq, each.place))
        for number, earlier in enumerate(left):
            for later in left[number + 1 :]:
                together = later.seq == earlier.seq and TARGETS[target] > 1
                if later.key < earlier.key and later.key[1] < earlier.known and not together:
                    outcome.wrong.append(
                        f"O12: {target} gets {earlier.key} of partition {part} by seq {earlier.seq}, and {later.key}, "
                        f"which was known, by seq {later.seq}"
                    )


def _is_excepted(outcome: Outcome, world: World, origin: Origin) -> bool:
    moved = origin in outcome.moved or origin in outcome.stored
    return moved or origin in world.alone or origin not in outcome.ended_by
