"""`python -m support.fuzzing --seconds N [--target NAME] [--seed S] [--first N --cases M]`: searches for inputs with an
undeclared result, and prints the command that replays each case."""

from __future__ import annotations

import sys

import click

from support.fuzzing.driver import run
from support.fuzzing.targets import TARGETS

_SHOWN = 5


@click.command()
@click.option("--target", "names", multiple=True, type=click.Choice(sorted(TARGETS)), help="Repeatable. [all]")
@click.option("--seconds", default=60.0, show_default=True, help="For all targets together.")
@click.option("--seed", default=1, show_default=True)
@click.option("--first", default=0, help="Number of the first case.")
@click.option("--cases", default=10**9, help="How many at most.")
def main(names: tuple[str, ...], seconds: float, seed: int, first: int, cases: int) -> None:
    """Fuzz the parsers; exits with 1 if there is a finding."""
    chosen, failed = names or tuple(TARGETS), False
    for name in chosen:
        findings, tally = run(name, seed, first, cases, seconds / len(chosen))
        click.echo(f"{name}: {tally.taken} taken, {tally.refused} refused, {len(findings)} found")
        for finding in findings[:_SHOWN]:
            click.echo(str(finding))
        failed = failed or bool(findings)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(prog_name="python -m support.fuzzing")
