"""Goal: messages are delivered exactly once, in time and without an operator, even if brokers, the admin path, targets,
clocks or disks fail, and at every limit of the protocol.

Method: simulates runs of one theme each (`support/simulation/themes`), judged like all others. If only one target or
only the admin path fails, no message for a working target may be more than seconds late. Each theme must reach its
particular situations.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from support.simulation.many import replay, workers
from support.simulation.oracles.situations import THEME_SITUATIONS
from support.simulation.requests.volume import VOLUME
from support.simulation.run import run_seed
from support.simulation.themes import ADMIN, BAD_TARGET, BROKERS, DISKS, ENDS, STALLS, STAMPS

#: Theme -> its seeds in the test command.
SEEDS = {
    BROKERS: range(1, 61),
    ADMIN: range(1, 9),
    STALLS: range(1, 41),
    STAMPS: range(1, 21),
    BAD_TARGET: range(1, 25),
    DISKS: range(1, 31),
    ENDS: range(1, 41),
    VOLUME: range(1, 11),
}


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with workers() as processes:
        yield processes


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("theme", SEEDS)
def test_every_run_of_the_theme_keeps_every_promise(theme: str, pool: ProcessPoolExecutor) -> None:
    reached: Counter[str] = Counter()
    failed: list[str] = []
    for result in pool.map(functools.partial(run_seed, theme=theme), SEEDS[theme]):
        reached.update(result.reached)
        if result.wrong:
            failed.append(f"{replay(result.seed, theme)}\n    " + "\n    ".join(result.wrong[:5]))
    assert not failed, f"{len(failed)} of {len(SEEDS[theme])} runs failed:\n" + "\n".join(failed[:5])
    missing = {counter for counter in THEME_SITUATIONS[theme].values() if not reached[counter]}
    assert not missing, f"{len(SEEDS[theme])} runs never met {sorted(missing)}: {reached}"
    sys.stdout.write(f"{len(SEEDS[theme])} runs of {theme} reached {dict(sorted(reached.items()))}\n")


def test_every_theme_has_runs() -> None:
    assert SEEDS.keys() == THEME_SITUATIONS.keys()


def test_the_same_seed_gives_the_same_run() -> None:
    for theme, seed in ((BROKERS, 5), (STALLS, 4), (DISKS, 3), (ENDS, 6)):
        first, second = run_seed(seed, theme=theme), run_seed(seed, theme=theme)
        assert (first.digest, first.wrong, first.reached) == (second.digest, second.wrong, second.reached)
