"""`python -m support.mutation`: makes many small changes of the product, and lists those that no fast test detects."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pytest

from support.mutation.deliberate import survivors
from support.mutation.driver import Driver, Options
from support.mutation.report import report
from support.mutation.undetectable import names
from support.repository import ROOT

_SIDECAR = "sidecar/postdate/sidecar"
#: The modules on which exactly-once delivery rests, and the parsers of foreign input, each with the file in tests/unit
#: that runs first.
MODULES = {
    f"{_SIDECAR}/index/apply_requests.py": "sidecar/index/test_apply_requests.py",
    f"{_SIDECAR}/index/apply_fates.py": "sidecar/index/test_apply_requests.py",
    f"{_SIDECAR}/index/moves.py": "sidecar/index/test_apply_requests.py",
    f"{_SIDECAR}/index/contradictions.py": "sidecar/index/test_id_policies.py",
    f"{_SIDECAR}/index/overlay.py": "sidecar/index/test_overlay.py",
    f"{_SIDECAR}/dispatch/batch.py": "sidecar/dispatch/test_batch.py",
    f"{_SIDECAR}/dispatch/undelivered_ends.py": "sidecar/dispatch/test_batch.py",
    f"{_SIDECAR}/dispatch/after_commit.py": "sidecar/dispatch/test_batch.py",
    f"{_SIDECAR}/dispatch/decisions.py": "sidecar/dispatch/test_batch.py",
    f"{_SIDECAR}/dispatch/dispatcher.py": "sidecar/dispatch/test_dispatcher.py",
    f"{_SIDECAR}/dispatch/due/due_reader.py": "sidecar/dispatch/due/test_due_reader.py",
    f"{_SIDECAR}/dispatch/targets/fault_attribution.py": "sidecar/dispatch/targets/test_fault_attribution.py",
    f"{_SIDECAR}/dispatch/targets/isolated_targets.py": "sidecar/dispatch/test_isolation.py",
    f"{_SIDECAR}/dispatch/aborts.py": "sidecar/dispatch/test_aborts.py",
    f"{_SIDECAR}/dispatch/targets/target_rates.py": "sidecar/dispatch/targets/test_target_rates.py",
    f"{_SIDECAR}/ingest/quota.py": "sidecar/ingest/test_quota.py",
    f"{_SIDECAR}/takeover/takeover.py": "sidecar/takeover/test_takeover_steps.py",
    "wheel/postdate/wheel/timer_log/timer_log.py": "wheel/test_timer_log.py",
    "wheel/postdate/wheel/timing_wheel/wheel_file.py": "wheel/test_wheel_file.py",
    "connectors/postdate/wire/requests/parser.py": "wire/test_parser.py",
}

#: The folders of tests/unit whose tests execute these modules.
FOLDERS = ("sidecar", "wheel", "wire", "client")

#: Runs of the simulation: the first seeds, and two of each theme that exercises these modules.
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
    files = sorted(path for name in FOLDERS for path in (ROOT / "tests/unit" / name).rglob("test_*.py"))
    options = ["-p", "no:cacheprovider", "-p", "no:randomly", "-q", "--hypothesis-seed=1"]
    pytest.main([*options, *map(str, files), str(ROOT / "tests/property")], plugins=[driver])
    text, is_enough = report(driver.results, names(ROOT))
    (kept / "report.md").write_text(text, encoding="utf-8")
    click.echo(text)
    sys.exit(0 if is_enough and not missed else 1)


if __name__ == "__main__":
    main()
