"""One seed, one schedule: set up, trouble, peace, judgement."""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from postdate.sidecar.shard import State
from support.simulation.judge import gather, judge, judge_indexes, judge_verdicts
from support.simulation.patches import simulated
from support.simulation.plan import Plan
from support.simulation.traffic import REQUESTS
from support.simulation.world import World

#: ms. After the last fault everything must have ended within this: the slowest is a member that is thrown out of the
#: group, a transaction that times out, and an entry whose retry budget runs from then on.
REST_MS_MAX = 90_000.0

_MEMORY = Path("/dev/shm")  # noqa: S108  # only small files that are mapped; where it is missing, the usual place


@dataclass(frozen=True)
class Result:
    """What one schedule led to: `wrong` is empty where everything was as promised; equal digests are equal runs."""

    seed: int
    digest: str
    wrong: list[str]
    reached: Counter[str]


def run_seed(
    seed: int, mutation: AbstractContextManager[object] | None = None, tell: Callable[[str], None] | None = None
) -> Result:
    """Run one schedule; with a mutation, over code that is broken in one way. `tell` is told every step."""
    if tell is None:
        logging.getLogger("postdate").setLevel(logging.CRITICAL + 1)
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as directory:
        world = World(seed, Path(directory))
        world.tell = tell
        plan = Plan(world, seed)
        with simulated(world), mutation or nullcontext():
            _play(world, plan)
            outcome = gather(world.broker, plan.partitions, world.archive)
            judge(outcome, plan.traffic, disturbed=any(world.reached[name] for name in ("cut", "leader gone")))
            judge_verdicts(outcome, plan.traffic, world.broker, plan.partitions)
            judge_indexes(outcome, world, plan.traffic)
            for process in list(world.processes):
                world.exited(process)
    world.reached.update(outcome.reached)
    world.reached.update({f"transactions {name}": count for name, count in world.broker.transactions.decided.items()})
    world.reached.update({f"fault {name}": count for name, count in world.faults.struck.items()})
    world.reached["requests"] += len(plan.traffic.asked)
    return Result(seed, world.digest, world.wrong + outcome.wrong, world.reached)


def _play(world: World, plan: Plan) -> None:
    plan.prepare()
    world.run_until(world.time.now_ms + plan.duration_ms)
    plan.peace()
    give_up_ms = world.time.now_ms + REST_MS_MAX
    at_rest = False
    while world.time.now_ms < give_up_ms:
        was_at_rest, at_rest = at_rest, _at_rest(world, plan)
        if at_rest and was_at_rest:  # nothing stirred for a while: who only believes to be the owner has learned better
            break
        world.run_until(world.time.now_ms + (1_500.0 if at_rest else 500.0))
    world.trace(f"{len(plan.traffic.asked)} requests, {world.steps} steps")


def _at_rest(world: World, plan: Plan) -> bool:
    """Every request has one of the ends there are, and every partition exactly one who acts for it."""
    shards = [actor for process in world.processes for actor in process.shards()]
    if plan.traffic.unsent or sorted(actor.part.index for actor in shards) != list(range(plan.partitions)):
        return False
    if any(actor.shard.state is not State.RUNNING for actor in shards):
        return False
    outcome = gather(world.broker, plan.partitions, world.archive)
    return plan.traffic.asked.keys() <= {origin for origin, fates in outcome.fates.items() if fates}


__all__ = ["REQUESTS", "REST_MS_MAX", "Result", "run_seed"]
