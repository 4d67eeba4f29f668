"""Many runs in parallel, one process per core; runs share no state."""

from __future__ import annotations

import functools
import multiprocessing
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from support.simulation.mutations.known_seeds import KNOWN_SEEDS
from support.simulation.mutations.mutation import MUTATIONS
from support.simulation.run import Result, run_seed

_MISTAKE = re.compile(r"fails with (AttributeError|NameError|TypeError)\b")


@contextmanager
def workers(count: int = 0) -> Iterator[ProcessPoolExecutor]:
    """Yields a pool of `count` processes that simulate runs; 0: one per core."""
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count or os.cpu_count() or 1, mp_context=fresh) as pool:
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


def run_many(pool: ProcessPoolExecutor, seeds: Iterable[int], theme: str | None = None) -> Iterator[Result]:
    """Yields the result of each seed, in order."""
    return pool.map(functools.partial(run_seed, theme=theme), seeds, chunksize=4)


def first_detection(name: str, seeds: range) -> Result | None:
    """Returns a run that detects the mutation of this name: the run of its known seed, or the first run of `seeds` that
    detects it; None if no run does.

    Raises AssertionError if the mutation no longer fits the code that it changes: the error of the mutation itself
    would then count as a detection.
    """
    known = KNOWN_SEEDS.get(name, seeds.start)
    return search(name, (known, *(seed for seed in seeds if seed != known)))


def search(name: str, seeds: Iterable[int]) -> Result | None:
    """Returns the first of these runs that detects the mutation; raises like `first_detection`."""
    mutation, theme = MUTATIONS[name]
    for seed in seeds:
        result = run_seed(seed, mutation, theme)
        mistakes = [line for line in result.wrong if _MISTAKE.search(line)]
        assert not mistakes, f"the mutation {name!r} itself is wrong: {mistakes[0]}"
        if result.wrong:
            return result
    return None


def replay(seed: int, theme: str = "") -> str:
    """Returns the command that runs one seed again and prints every step; `theme` is empty if the seed drew its own."""
    about = f' THEME="{theme}"' if theme else ""
    return f"make simulate SEED={seed} SEEDS=1 TRACE=1{about}"
