"""Simulates the run of one seed: set-up, faults, recovery, judgement."""

from __future__ import annotations

import functools
import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from postdate.sidecar.states import State
from support.simulation.faults.losses import LOSER
from support.simulation.mutations.mutation import Mutation
from support.simulation.oracles.controls import judge_in_time, judge_verdicts
from support.simulation.oracles.counting import counted
from support.simulation.oracles.ids import judge_ids, settle_series
from support.simulation.oracles.invariants import Invariants
from support.simulation.oracles.order import judge_order
from support.simulation.oracles.outcomes import (
    gather,
    gather_fates,
    judge,
    judge_halts,
    judge_indexes,
    judge_lateness,
    settle_returns,
)
from support.simulation.oracles.stored_entries import judge_stores
from support.simulation.plan import RunPlan
from support.simulation.requests.bulk import judge_bulks
from support.simulation.requests.recurring import judge_recurrences
from support.simulation.requests.traffic import REQUESTS
from support.simulation.requests.volume import VOLUME
from support.simulation.runtime.patches import simulated
from support.simulation.runtime.simulated_run import SimulatedRun

#: Milliseconds: within this time after the last fault every request must end. In the slowest case a member is removed
#: from the group, a transaction times out, and only then the retry budget of an entry begins.
REST_MS_MAX = 90_000.0

#: Milliseconds: within this time after the last request that follows the recovery, all these requests must end. A
#: process that was fenced while idle detects this only at such a request; then it queries the group every 5 s, and the
#: shard is taken over again.
ENCORE_MS_MAX = 10_000.0

_MEMORY = Path("/dev/shm")  # noqa: S108  # only small files that are mapped; if it is missing, the default directory


@dataclass(frozen=True)
class Result:
    """The result of one run: `wrong` is empty if every promise was kept; identical runs have equal digests."""

    seed: int
    digest: str
    wrong: list[str]
    reached: Counter[str]


@contextmanager
def _silence(wanted: bool) -> Iterator[None]:
    """Suppresses the sidecar's log lines if `wanted`, and restores the level of the logger afterwards."""
    logger = logging.getLogger("postdate")
    before = logger.level
    if wanted:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def run_seed(
    seed: int,
    mutation: Mutation | None = None,
    theme: str | None = None,
    tell: Callable[[str], None] | None = None,
) -> Result:
    """Simulates one run. A `mutation` removes one safeguard from the code. `tell` gets a line for every step. `theme`
    replaces the theme that the seed would draw."""
    with _silence(tell is None), tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as directory:
        run = SimulatedRun(seed, Path(directory))
        run.tell = tell
        plan = RunPlan(run, seed, theme)
        # the content of the topics alone must reveal a mutation
        if mutation is None and plan.theme != VOLUME:
            run.check_index = Invariants(run, plan.traffic, plan.readings).check
        with simulated(run), counted(run), mutation(run) if mutation else nullcontext():
            _play(run, plan)
            plan.themes.before_judgement()
            outcome = gather(run.broker, plan.partitions, run.archive)
            settle_returns(run.broker, plan.traffic, run.archive)
            settle_series(outcome, plan.traffic)
            readings = plan.readings()
            judge(outcome, plan.traffic, readings, run.troubles, plan.losses.halted())
            judge_ids(outcome, plan.traffic, readings)
            judge_recurrences(outcome, plan.traffic, readings, run, plan.losses.halted())
            judge_stores(outcome, run.broker, plan.partitions)
            judge_lateness(outcome, plan.traffic, run)
            judge_bulks(outcome, plan.traffic, readings, run.broker, plan.partitions, run.archive)
            judge_in_time(outcome, plan.traffic, readings, run)
            plan.holding.judge(outcome, plan.traffic)
            plan.themes.judge(outcome)
            if plan.theme != VOLUME:  # the judge compares all pairs of messages
                judge_order(outcome, plan.traffic, readings, run)
            judge_verdicts(outcome, plan.traffic, run.broker, plan.partitions)
            judge_halts(outcome, run, {LOSER} if plan.losses.kind else set())
            judge_indexes(outcome, run, plan.traffic, plan.losses.halted())
            for process in list(run.processes):
                run.exited(process)
            run.scheduler.unwind()
    run.reached.update(outcome.reached)
    run.reached.update({f"transactions {name}": count for name, count in run.broker.transactions.decided.items()})
    run.reached.update({f"fault {name}": count for name, count in run.faults.struck.items()})
    run.reached["requests"] += len(plan.traffic.requests)
    wrong = run.wrong + outcome.wrong
    return Result(seed, run.digest, plan.losses.excused(wrong) if plan.losses.kind else wrong, run.reached)


def _play(run: SimulatedRun, plan: RunPlan) -> None:
    plan.prepare()
    run.run_until(run.time.now_ms + plan.duration_ms)
    while plan.themes.extra_wait_ms():
        run.run_until(run.time.now_ms + plan.themes.extra_wait_ms())
    plan.peace()
    peace_ms = run.time.now_ms
    _rest(run, plan, REST_MS_MAX)
    run.rest_ms = run.time.now_ms - peace_ms
    commits = run.reached["dispatch.committed"]
    _send_more(run, plan)
    if run.reached["dispatch.committed"] < commits + plan.partitions:
        # a gate may have delayed the first requests, and a fenced process detects this only by a transaction
        _send_more(run, plan)
    fences, before = run.reached["fenced"], set(plan.traffic.requests)
    _send_more(run, plan)
    run.encore = plan.traffic.requests.keys() - before
    if run.reached["fenced"] > fences:
        run.wrong.append(f"O9: {run.reached['fenced'] - fences} times fenced, though nobody else is there")
    run.trace(f"{len(plan.traffic.requests)} requests, {run.scheduler.steps} steps")


def _send_more(run: SimulatedRun, plan: RunPlan) -> None:
    """Sends some requests to each partition after the recovery."""
    for index in range(plan.partitions):
        for number in range(3):
            run.time.at(run.time.now_ms + 500.0 * number, functools.partial(plan.traffic.send_plain, index))
    run.run_until(run.time.now_ms + 1_500.0)
    _rest(run, plan, ENCORE_MS_MAX)


def _rest(run: SimulatedRun, plan: RunPlan, limit_ms: float) -> None:
    """Runs until all requests have ended, or the time limit is reached."""
    # different brokers with different clocks may stamp a request and its fate
    give_up_ms = run.time.now_ms + limit_ms + run.broker.brokers.apart_ms()
    at_rest = False
    while run.time.now_ms < give_up_ms:
        plan.holding.release_all()
        was_at_rest, at_rest = at_rest, _at_rest(run, plan)
        if at_rest and was_at_rest:  # idle for a while, so a fenced process has detected its fence
            break
        run.run_until(run.time.now_ms + (1_500.0 if at_rest else 500.0))


def _at_rest(run: SimulatedRun, plan: RunPlan) -> bool:
    """True if every request has ended, and every partition has exactly one owner."""
    shards = [actor for process in run.processes for actor in process.shards()]
    if plan.traffic.unsent or sorted(actor.part.index for actor in shards) != list(range(plan.partitions)):
        return False
    halted = plan.losses.halted()
    if plan.holding.is_held():
        return False
    if any(actor.shard.state is not State.RUNNING for actor in shards if actor.part.index not in halted):
        return False
    outcome = gather_fates(run.broker, plan.partitions, run.archive)
    open_yet = plan.traffic.origins() - {origin for origin, fates in outcome.fates.items() if fates}
    return all(index in halted for index, _ in open_yet)


__all__ = ["REQUESTS", "REST_MS_MAX", "Result", "run_seed"]
