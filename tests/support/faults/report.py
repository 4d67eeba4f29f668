"""The report of a soak, as a page of Markdown."""

from __future__ import annotations

import os
import platform
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from support.faults.judgement import SoakJudgement
from support.faults.request_ledger import RequestLedger
from support.faults.sequence import FaultStep

#: Faults that a soak does not inject, and the tests that do.
ELSEWHERE: tuple[tuple[str, str], ...] = (
    ("a revocation that blocks", "simulated runs; a process stopped for longer than its session is above"),
    ("the coordinator away during EndTxn", "simulated runs; the broker killed and paused is above"),
    ("requests or fates deleted", "tests/integration/test_recovery_halts.py"),
    ("topics created again, partitions added", "tests/integration/test_recovery_halts.py, test_recovery_partitions.py"),
    ("wrong clocks", "tests/unit/sidecar/test_clock.py and simulated runs"),
    ("targets that may not be written to", "tests/integration/test_isolation.py"),
)
#: The parts of the load that every run contains.
IN_THE_LOAD: tuple[str, ...] = (
    "one request in a hundred is refused, for one of twenty-three reasons; unknown targets and records that are too "
    "large are among them",
    "one request in fifty has an id, and is cancelled, replaced or moved around its due time",
)


@dataclass
class Run:
    """The content of a report."""

    seed: int
    minutes: float
    each: int
    """The minimum number of injections of each fault."""
    per_second: int
    took_s: float
    steps: Sequence[FaultStep]
    ledger: RequestLedger
    judgement: SoakJudgement
    calm_ms: dict[str, int]
    version: str
    date: str
    audit: str
    clients_lost: int = 0
    """The number of the load's clients that lost all brokers and were replaced."""
    given_up: int = 0
    """The number of their requests without an acknowledgement."""
    wrong: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.wrong or self.judgement.wrong or any(step.wrong for step in self.steps))


def kills_of(step: FaultStep) -> int:
    """Returns the number of SIGKILLs in a step; all kills of a step share one recovery and one check."""
    first = step.what.split(" ", 1)[0]
    return int(first) if step.fault.name == "kill" and first.isdigit() else 0


def markdown(run: Run) -> str:
    return "\n".join([*_head(run), *_outcome(run), *_faults(run), *_coverage(run), *_wrong(run)]) + "\n"


def _head(run: Run) -> Iterator[str]:
    yield "# Soak"
    yield ""
    yield (
        "Written by `make soak`. Two sidecars run all the time and others start and stop, with four partitions, a "
        "steady load and a broker behind proxies. The seed determines the order of the faults. "
        "[The README of the fault rig](../tests/support/faults/README.md) describes the load and the judgement. The "
        "figures are those of one run on one machine, which ran the broker, the sidecars, the load and the judge."
    )
    yield ""
    yield "| | |"
    yield "| --- | --- |"
    yield f"| version | {run.version} |"
    command = f"make soak MINUTES={run.minutes:g} EACH={run.each} SEED={run.seed} RATE={run.per_second}"
    yield f"| command | `{command}` |"
    yield f"| date | {run.date} |"
    machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    yield f"| machine | {os.cpu_count()} cores, {machine} |"
    yield f"| time | {run.took_s / 60:.1f} min |"


def _outcome(run: Run) -> Iterator[str]:
    found, n = run.judgement, len(run.steps)
    late = ", ".join(f"{name} {value}" for name, value in found.late_ms.items())
    calm = ", ".join(f"{name} {value}" for name, value in run.calm_ms.items())
    rows = {
        "steps: a fault, its recovery and its check": n,
        "sidecars killed in these steps (SIGKILL at random moments)": sum(map(kills_of, run.steps)),
        "takeovers": len(run.ledger.owners),
        "transactions": sum(run.ledger.kinds.values()),
        "requests": f"{found.requests:,}",
        "delivered": f"{found.delivered:,}",
        "dead letters, all of them intended": f"{found.dead:,}",
        "cancelled, replaced": f"{found.cancelled:,}, {found.replaced:,}",
        "controls, each answered": f"{found.controls:,}",
        "**duplicates**": found.duplicates,
        "**losses**": found.lost,
        "**early**": found.early,
        "**changed**": found.changed,
        "messages judged for order, due and delivered between the faults": f"{found.ordered:,}",
        "lateness in ms, faults included": late,
        "lateness in ms between the faults": calm,
        "audit by Spark": run.audit,
    }
    if run.clients_lost:
        rows["clients of the load replaced after losing all brokers (librdkafka issue 5301)"] = run.clients_lost
        rows["requests that these gave up, on the topic or not"] = run.given_up
    yield ""
    yield "| outcome | |"
    yield "| --- | --- |"
    for name, value in rows.items():
        yield f"| {name} | {value} |"
    yield ""
    if run.clean:
        yield f"With {n} clean steps the rate of failure per step is below 3/{n} = {3 / n:.2%} at 95 %."
    else:
        yield "This run was **not clean**; see the end."


def _faults(run: Run) -> Iterator[str]:
    by_name: dict[str, list[FaultStep]] = defaultdict(list)
    for step in run.steps:
        by_name[step.fault.name].append(step)
    yield ""
    yield "## Faults"
    yield ""
    yield (
        "*Recovery* is the delay of the latest message, counted from the end of the fault (for a killed process, from "
        "its restart). *Outage* counts from its due time, so it includes the fault. Milliseconds."
    )
    yield ""
    yield "| fault | steps | recovery median | recovery max | outage max |"
    yield "| --- | --- | --- | --- | --- |"
    for name, steps in sorted(by_name.items()):
        recoveries = [step.recovery_ms for step in steps]
        yield (
            f"| {name} | {len(steps)} | {median(recoveries):.0f} | {max(recoveries)} "
            f"| {max(step.outage_ms for step in steps)} |"
        )


def _coverage(run: Run) -> Iterator[str]:
    yield ""
    yield "## Faults that a soak does not inject"
    yield ""
    for fault, where in ELSEWHERE:
        yield f"- {fault}: {where}"
    yield ""
    yield "## In the load all the time"
    yield ""
    for line in IN_THE_LOAD:
        yield f"- {line}"
    reasons = ", ".join(f"{name} {count}" for name, count in sorted(run.ledger.reasons.items()))
    yield f"- dead letters by reason: {reasons}"


def _wrong(run: Run) -> Iterator[str]:
    lines = [*run.wrong, *run.judgement.wrong]
    lines += [f"{step.fault.name} ({step.what}): {line}" for step in run.steps for line in step.wrong]
    if lines:
        yield ""
        yield "## Wrong"
        yield ""
        for line in lines[:100]:
            yield f"- {line}"
