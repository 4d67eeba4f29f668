"""`python -m support.simulation --seed N [--count M]`: run schedules, and say what they led to."""

from __future__ import annotations

import logging
import sys
from collections import Counter

import click

from support.simulation.run import run_seed


@click.command()
@click.option("--seed", default=1, help="The first seed.")
@click.option("--count", default=1, help="How many seeds, one after the other.")
@click.option("--trace", is_flag=True, help="Print every step, and what the sidecar logs.")
def main(seed: int, count: int, trace: bool) -> None:
    """Run COUNT schedules from SEED on; exits with 1 where one of them went wrong."""
    reached: Counter[str] = Counter()
    failed = 0
    if trace:
        logging.basicConfig(level=logging.INFO, format="    %(message)s", stream=sys.stdout)
    for each in range(seed, seed + count):
        result = run_seed(each, tell=click.echo if trace else None)
        reached.update(result.reached)
        if result.wrong:
            failed += 1
            click.echo(f"seed {each}: {len(result.wrong)} violations", err=True)
            for line in result.wrong[:8]:
                click.echo(f"  {line}", err=True)
    for name, number in sorted(reached.items()):
        click.echo(f"{number:9} {name}")
    click.echo(f"{count} schedules, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
