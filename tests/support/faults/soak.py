"""`python -m support.faults.soak --minutes 30 --seed N --report PATH`: injects every fault repeatedly under a load.

Exits with 1 if a promise was broken or another check failed; the report gives the reason. Only the report is kept,
unless `--keep` names a directory for the logs.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np

from support.deployments.command import run_postdate
from support.faults.fault import FAULTS
from support.faults.judgement import SoakJudgement, judge, judge_order
from support.faults.report import Run, markdown
from support.faults.rig import FaultRig, new_rig
from support.faults.sequence import FaultStep, run_faults
from support.repository import ROOT

_AUDIT_S = 1_800.0


@click.command()
@click.option("--minutes", default=30.0, help="Minimum duration in minutes.")
@click.option("--each", default=1, help="Inject every fault at least this many times.")
@click.option("--seed", default=0, help="Seed of the order of faults and of the load; 0: a random one.")
@click.option("--rate", default=1_000, help="Requests a second.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write a Markdown report to this file.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep the logs in this directory.")
@click.option("--only", multiple=True, type=click.Choice(sorted(FAULTS)), help="Inject only this fault; repeatable.")
@click.option("--audit/--no-audit", default=True, help="Also run the Spark audit.")
def main(
    minutes: float,
    each: int,
    seed: int,
    rate: int,
    report: Path | None,
    keep: Path | None,
    only: tuple[str, ...],
    audit: bool,
) -> None:
    """Inject every fault repeatedly into real sidecars under a load, and check every request."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # a SIGTERM also ends the child processes
    seed = seed or random.SystemRandom().randrange(1, 10**6)
    click.echo(f"seed {seed}: {minutes:g} min, {rate} requests/s")
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        run = soak(keep, minutes, each, seed, rate, only, audit)
    else:
        with tempfile.TemporaryDirectory(prefix="postdate-soak-", ignore_cleanup_errors=True) as directory:
            run = soak(Path(directory), minutes, each, seed, rate, only, audit)
    page = markdown(run)
    click.echo(page)
    if report is not None:
        report.parent.mkdir(exist_ok=True)
        report.write_text(page)
    sys.exit(0 if run.clean else 1)


def soak(directory: Path, minutes: float, each: int, seed: int, rate: int, only: tuple[str, ...], audit: bool) -> Run:
    """Injects the faults and checks the result; `only`: restricts the run to these faults."""
    began = time.monotonic()
    with new_rig(directory, seed, rate) as rig:
        rig.start()
        # The longer the run, the larger the share of kills: a short run needs its time for every fault.
        kills_between = 0.0 if only else min(1.0, max(0.1, (minutes - 8) / 16))
        steps = run_faults(rig, only or tuple(FAULTS), minutes, each, kills_between, click.echo)
        wrong: list[str] = []
        try:
            exits = rig.finish()
            wrong += [f"a sidecar ended with {code}" for code in exits if code]
        except AssertionError as error:
            wrong.append(f"the end: {error}")
        wrong += rig.look_through_logs()
        found = judge(rig.ledger)
        found.ordered, overtaken = judge_order(rig.ledger, [step.calm_ms for step in steps])
        wrong += overtaken
        if fault := rig.count_fault(found.requests):
            wrong.append(fault)
        verdict = _audit(rig) if audit else "not asked for"
        if audit and not verdict.startswith("clean"):
            wrong.append(f"the audit: {verdict}")
        wrong += _unreached(rig, steps, found)
        return Run(
            seed,
            minutes,
            each,
            rate,
            time.monotonic() - began,
            steps,
            rig.ledger,
            found,
            _calm_lateness(rig, steps),
            _version(),
            time.strftime("%Y-%m-%d", time.gmtime()),
            verdict,
            rig.load.clients_lost,
            rig.load.given_up,
            wrong,
        )


def _calm_lateness(rig: FaultRig, steps: list[FaultStep]) -> dict[str, int]:
    """Returns percentiles of the lateness of messages that were due and delivered while no fault was injected."""
    wanted, late = rig.ledger.lateness()
    chosen = np.zeros(len(wanted), dtype=np.bool_)
    for step in steps:
        chosen |= (wanted >= step.calm_ms[0]) & (wanted + late <= step.calm_ms[1])
    if not chosen.any():
        return {}
    points = {"p50": 50.0, "p99": 99.0, "p99.9": 99.9}
    return {name: int(np.percentile(late[chosen], point)) for name, point in points.items()}


def _audit(rig: FaultRig) -> str:
    """Returns the verdict of the audit, in a short form."""
    # Without `--strict`, an audit of so many records skips the check of their order, and is not clean.
    how = ("--verdicts", "control", "--strict", "--output", "json")
    done = run_postdate("audit", "-b", rig.deployment.bootstrap, "--requests", rig.requests, *how, timeout_s=_AUDIT_S)
    if not done.stdout.strip():
        return f"failed: {done.stderr[-1000:]}"
    result = json.loads(done.stdout.splitlines()[-1])
    if not result["clean"]:
        unverified = {name: result[name] for name in ("outcomes", "order_checked", "holes")}
        what = f"{result['violations']} violations, {json.dumps(result['samples'])[:4000]}"
        return f"not clean, exit code {done.returncode}: {what}; {json.dumps(unverified)[:1000]}"
    return f"clean, {result['origins']:,} requests judged in {result['seconds']:.0f} s"


def _unreached(rig: FaultRig, steps: list[FaultStep], found: SoakJudgement) -> list[str]:
    """Returns the events that must happen for the run to prove anything, but did not."""
    reached = {
        "messages judged for order": found.ordered,
        "takeovers": len(rig.ledger.owners),
        "transactions": rig.ledger.kinds["fates"],
        "dead letters": sum(rig.ledger.reasons.values()),
        "answers": len(rig.ledger.verdicts),
        "moves": len(rig.ledger.moves),
        "steps": len(steps),
    }
    return [f"there were no {what}: the run proves nothing" for what, count in reached.items() if not count]


def _version() -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
