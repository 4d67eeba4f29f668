"""`python -m support.simulation --seed N [--count M] [--trace]`: simulates runs and prints their results."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterable

import click

from support.simulation.many import replay, run_many, workers
from support.simulation.run import Result, run_seed


@click.command()
@click.option("--seed", default=1, help="The first seed.")
@click.option("--count", default=1, help="How many seeds, one after the other.")
@click.option("--theme", help="What the runs are about, one of those in `plan` and `themes`; drawn if not given.")
@click.option("--trace", is_flag=True, help="Print every step, and what the sidecar logs.")
def main(seed: int, count: int, theme: str | None, trace: bool) -> None:
    """Simulate COUNT runs from SEED on; exit with 1 if one of them failed."""
    seeds = range(seed, seed + count)
    if trace or count == 1:
        if trace:
            logging.basicConfig(level=logging.INFO, format="    %(message)s", stream=sys.stdout)
        failed = _tell((run_seed(each, theme=theme, tell=click.echo if trace else None) for each in seeds), theme)
    else:
        with workers() as pool, click.progressbar(run_many(pool, seeds, theme), count, file=sys.stderr) as results:
            failed = _tell(results, theme)
    sys.exit(1 if failed else 0)


def _tell(results: Iterable[Result], theme: str | None) -> int:
    """Prints the violations, with the command that replays them, and the counters; returns the number of failed
    runs."""
    reached: Counter[str] = Counter()
    count = failed = 0
    for result in results:
        count += 1
        reached.update(result.reached)
        if result.wrong:
            failed += 1
            click.echo(
                f"\nseed {result.seed}: {len(result.wrong)} violations; {replay(result.seed, theme or '')}", err=True
            )
            for line in result.wrong[:8]:
                click.echo(f"  {line}", err=True)
    for name, number in sorted(reached.items()):
        click.echo(f"{number:9} {name}")
    click.echo(f"{count} runs, {failed} failed")
    return failed


if __name__ == "__main__":
    main()
