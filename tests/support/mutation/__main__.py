"""`python -m support.mutation`: change the product a little, many times, and list what no fast test detects."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pytest

from support.mutation.deliberate import survivors
from support.mutation.driver import ROOT, Driver, Options
from support.mutation.report import report
from support.mutation.undetectable import names

#: The modules on which exactly-once delivery rests, and those that read what strangers write; and of each the file of
#: unit tests, test_….py, that runs first.
MODULES = {
    "sidecar/postdate/sidecar/index/apply_requests.py": "sidecar_apply_requests",
    "sidecar/postdate/sidecar/index/apply_fates.py": "sidecar_apply_requests",
    "sidecar/postdate/sidecar/index/moves.py": "sidecar_apply_requests",
    "sidecar/postdate/sidecar/index/contradictions.py": "sidecar_id_policies",
    "sidecar/postdate/sidecar/index/overlay.py": "sidecar_overlay",
    "sidecar/postdate/sidecar/dispatch/batch.py": "sidecar_batch",
    "sidecar/postdate/sidecar/dispatch/undelivered_ends.py": "sidecar_batch",
    "sidecar/postdate/sidecar/dispatch/after_commit.py": "sidecar_batch",
    "sidecar/postdate/sidecar/dispatch/decisions.py": "sidecar_batch",
    "sidecar/postdate/sidecar/dispatch/dispatcher.py": "sidecar_dispatcher",
    "sidecar/postdate/sidecar/dispatch/due/due_reader.py": "sidecar_due_reader",
    "sidecar/postdate/sidecar/dispatch/targets/fault_attribution.py": "sidecar_fault_attribution",
    "sidecar/postdate/sidecar/dispatch/targets/isolated_targets.py": "sidecar_isolation",
    "sidecar/postdate/sidecar/dispatch/aborts.py": "sidecar_aborts",
    "sidecar/postdate/sidecar/dispatch/targets/target_rates.py": "sidecar_target_rates",
    "sidecar/postdate/sidecar/ingest/quota.py": "ingest_quota",
    "sidecar/postdate/sidecar/takeover/takeover.py": "sidecar_takeover_steps",
    "wheel/postdate/wheel/timer_log/timer_log.py": "wheel_timer_log",
    "wheel/postdate/wheel/timing_wheel/wheel_file.py": "wheel_file",
    "connectors/postdate/wire/requests/parser.py": "wire_parser",
}

#: The files of tests that execute these modules and need no broker.
TESTS = ("sidecar", "recovery", "wheel", "wire", "ingest", "config", "client", "http", "message")

#: Runs of the simulation: the first seeds, and two of each theme of what the modules do.
THEMES = ("controls", "store", "moves", "burst", "power", "stranger", "unknown", "bad target")


@click.command()
@click.option("--only", multiple=True, help="The end of the name of a module, without .py; all if not given.")
@click.option("--sample", default=0, help="The number of changes of each module, drawn at random; 0: all.")
@click.option("--seed", default=1, help="Determines the sample.")
@click.option("--jobs", default=2, help="How many changes run at the same time.")
@click.option("--budget", default=20.0, help="The processor time of the tests of one change, in seconds.")
@click.option("--kept", default="build/mutants", type=click.Path(path_type=Path), help="The folder of the results.")
def main(only: tuple[str, ...], sample: int, seed: int, jobs: int, budget: float, kept: Path) -> None:
    """Exits with 1 if less than 95 per cent of the changes that can be detected are, or if one by hand is not."""
    kept.mkdir(parents=True, exist_ok=True)
    missed = [] if only else survivors(ROOT, jobs)
    for name in missed:
        click.echo(f"no test detects: {name}")
    modules = tuple(path for path in MODULES if not only or path.endswith(tuple(f"{name}.py" for name in only)))
    runs = (*((each, None) for each in range(1, 9)), *((each, theme) for theme in THEMES for each in (1, 2)))
    driver = Driver(Options(modules, MODULES, sample, seed, jobs, budget, runs, kept.resolve()))
    files = sorted(path for name in TESTS for path in (ROOT / "tests/unit").glob(f"test_{name}_*.py"))
    options = ["-p", "no:cacheprovider", "-p", "no:randomly", "-q", "--hypothesis-seed=1"]
    pytest.main([*options, *map(str, files), str(ROOT / "tests/property")], plugins=[driver])
    text, is_enough = report(driver.results, names(ROOT))
    (kept / "report.md").write_text(text, encoding="utf-8")
    click.echo(text)
    sys.exit(0 if is_enough and not missed else 1)


if __name__ == "__main__":
    main()
