"""Goal: exactly once holds in every schedule, the schedules reach what is dangerous, and they can see.

Method: the sidecar's own poller, shards and timer indexes over a simulated Kafka, clocks, disks and processes; one seed
decides one schedule of requests, crashes, losses of power, pauses, cuts, strangers and faults of the network. When all
has come to rest, what a read_committed reader finds is held against what was asked (O1 to O10). Then the same with one
safeguard taken out at a time: each must be caught.

`make simulate SEEDS=… SEED=…` runs more of them; a failed test names the one command that replays its schedule.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import pytest

from postdate.sidecar.failpoints import NAMES
from support.simulation.many import first_caught, replay, run_many, workers
from support.simulation.mutations import MUTATIONS
from support.simulation.run import Result, run_seed

TESTS = Path(__file__).resolve().parents[1]

#: Schedules of the test command; `make simulate` runs as many as it is told.
SEEDS = range(1, 301)

#: Schedules within which each mutation must be caught.
MUTATION_SEEDS = range(1, 151)

#: What a run must have met, or it proves nothing.
MUST_BE_REACHED = {
    "requests",
    "fenced",
    "transactions commit",
    "transactions abort",
    "transactions fenced",
    "transactions timeout",
    "transactions late",
    "record owner",
    "record beat",
    "fate delivered",
    "fate dead",
    "fate cancelled",
    "fate replaced",
    "fate applied",
    "fate moved",
    "fate stored",
    "entry read from STORE",
    "in STORE alone",
    "tombstone written",
    "store compacted",
    "requests deleted",
    "mark final",
    "mark stored",
    "mark moved",
    "mark stored and moved",
    "I3 looked at",
    "broker's clock stepped far",
    "kill",
    "pause",
    "stop",
    "cut",
    "power lost",
    "batches lost",
    "disk lost",
    "old disk",
    "stranger",
    "id taken",
    "leader gone",
    "coordinator away",
    "outage",
    "retention",
    "clock stepped",
    "broker's clock stepped",
    "wheel rebuilt",
    "takeover.store-applied",
    "unknown outcome",
    "recycled",
    "fault end-copied",
    "fault answer-lost",
    "fault request-lost",
    "fault markers-late",
    "fault slow",
} | NAMES - {"takeover.opened"}


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with workers() as processes:
        yield processes


@pytest.fixture(scope="module")
def caught(pool: ProcessPoolExecutor) -> dict[str, Future[Result | None]]:
    """All mutations at once, each in its own time."""
    return {name: pool.submit(first_caught, name, MUTATION_SEEDS) for name in MUTATIONS}


@pytest.mark.timeout(900)
def test_every_schedule_keeps_every_promise(pool: ProcessPoolExecutor) -> None:
    reached: Counter[str] = Counter()
    failed: list[str] = []
    for result in run_many(pool, SEEDS):
        reached.update(result.reached)
        if result.wrong:
            failed.append(f"{replay(result.seed)}\n    " + "\n    ".join(result.wrong[:5]))
    assert not failed, f"{len(failed)} of {len(SEEDS)} schedules failed:\n" + "\n".join(failed[:5])
    missing = {name for name in MUST_BE_REACHED if not reached[name]}
    assert not missing, f"{len(SEEDS)} schedules never met {sorted(missing)}: {reached}"
    sys.stdout.write(f"{len(SEEDS)} schedules reached {dict(sorted(reached.items()))}\n")


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_missing_safeguard_is_caught(name: str, caught: dict[str, Future[Result | None]]) -> None:
    result = caught[name].result()
    assert result is not None, f"{len(MUTATION_SEEDS)} schedules without this safeguard, and nothing was seen"


def test_the_same_seed_gives_the_same_run() -> None:
    seeds = (3, 17)
    here = [run_seed(seed).digest for seed in seeds]
    assert [run_seed(seed).digest for seed in seeds] == here
    assert len(set(here)) == len(seeds)
    program = f"from support.simulation.run import run_seed\nfor s in {seeds}: print(run_seed(s).digest)"
    path = os.pathsep.join([str(TESTS), *sys.path])
    for hash_seed in ("1", "2"):  # neither may the order of a set matter
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == here
