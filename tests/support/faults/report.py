"""What came of a soak, as a page of Markdown."""

from __future__ import annotations

import os
import platform
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from support.faults.book import Book
from support.faults.course import Step
from support.faults.judgement import Judgement

#: Rows of the table of faults that no soak covers, and what does.
ELSEWHERE: dict[int, str] = {
    10: "a revocation that blocks: simulated schedules; a process stopped for longer than its session is row 4 here",
    12: "the coordinator away during EndTxn: simulated schedules; the broker killed and paused is row 11 here",
    24: "requests or fates deleted: the shard halts, tests/integration/test_recovery_halts.py",
    25: "topics created anew, partitions added: test_recovery_halts.py, test_recovery_partitions.py beside it",
    26: "clocks that are wrong: tests/unit/test_sidecar_clock.py and simulated schedules, by the injected clock",
}
#: Rows that are part of the load all the time.
IN_THE_LOAD: dict[int, str] = {
    27: "one request in a hundred is refused for one of twenty-three reasons",
    28: "unknown targets and records that are too large are among them; ACLs: tests/integration/test_isolation.py",
    29: "one request in fifty has an id, and is cancelled, replaced or moved around its due time",
}


@dataclass
class Run:
    """Everything that a report tells."""

    seed: int
    minutes: float
    per_second: int
    took_s: float
    steps: Sequence[Step]
    book: Book
    judgement: Judgement
    calm_ms: dict[str, int]
    version: str
    audit: str
    wrong: list[str] = field(default_factory=list)

    @property
    def cycles(self) -> int:
        return sum(cycles_of(step) for step in self.steps)

    @property
    def clean(self) -> bool:
        return not (self.wrong or self.judgement.wrong or any(step.wrong for step in self.steps))


def cycles_of(step: Step) -> int:
    """How often something was done: a course of kills counts each."""
    first = step.what.split(" ", 1)[0]
    many = step.fault.name in ("kill", "id taken", "connections reset", "joining and leaving")
    return int(first) if many and first.isdigit() else 1


def markdown(run: Run) -> str:
    return "\n".join([*_head(run), *_outcome(run), *_faults(run), *_coverage(run), *_wrong(run)]) + "\n"


def _head(run: Run) -> Iterator[str]:
    yield "# Soak"
    yield ""
    yield (
        "Written by `make soak`. Two sidecars and others that come and go, four partitions, a steady load, a broker "
        "behind proxies; every fault in a random order that follows from the seed. What is done and how it is judged "
        "is told in [testing.md](testing.md#real-faults). The figures are of one run on one machine, which "
        "ran the broker, the sidecars, the load and the judge alike."
    )
    yield ""
    yield "| | |"
    yield "| --- | --- |"
    yield f"| version | {run.version} |"
    yield f"| command | `make soak MINUTES={run.minutes:g} SEED={run.seed} RATE={run.per_second}` |"
    machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    yield f"| machine | {os.cpu_count()} cores, {machine} |"
    yield f"| time | {run.took_s / 60:.1f} min |"


def _outcome(run: Run) -> Iterator[str]:
    found, n = run.judgement, run.cycles
    late = ", ".join(f"{name} {value}" for name, value in found.late_ms.items())
    calm = ", ".join(f"{name} {value}" for name, value in run.calm_ms.items())
    rows = {
        "cycles of faults": n,
        "kills of a sidecar (SIGKILL at random moments)": sum(
            cycles_of(step) for step in run.steps if step.fault.name == "kill"
        ),
        "takeovers": len(run.book.owners),
        "transactions": sum(run.book.kinds.values()),
        "requests": f"{found.requests:,}",
        "delivered": f"{found.delivered:,}",
        "dead letters (all of them asked for)": f"{found.dead:,}",
        "cancelled, replaced": f"{found.cancelled:,}, {found.replaced:,}",
        "controls, each answered": f"{found.controls:,}",
        "**duplicates**": found.duplicates,
        "**losses**": found.lost,
        "**early**": found.early,
        "**changed**": found.changed,
        "lateness in ms, faults included": late,
        "lateness in ms between the faults": calm,
        "audit by Spark": run.audit,
    }
    yield ""
    yield "| outcome | |"
    yield "| --- | --- |"
    for name, value in rows.items():
        yield f"| {name} | {value} |"
    yield ""
    if run.clean:
        yield f"With {n} clean cycles the rate of failure per cycle is below 3/{n} = {3 / n:.2%} at 95 %."
    else:
        yield "This run was **not clean**; see the end."


def _faults(run: Run) -> Iterator[str]:
    by_name: dict[str, list[Step]] = defaultdict(list)
    for step in run.steps:
        by_name[step.fault.name].append(step)
    yield ""
    yield "## Faults"
    yield ""
    yield (
        "Recovery: how late the latest message was, counted from the end of the fault (for a process that was killed, "
        "from when it was started again). Outage: the same counted from when it was due, the length of the fault "
        "included. Milliseconds."
    )
    yield ""
    yield "| fault | row | cycles | recovery p50 | recovery max | outage max |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, steps in sorted(by_name.items(), key=lambda pair: (pair[1][0].fault.rows[0], pair[0])):
        recoveries = sorted(step.recovery_ms for step in steps)
        rows = ", ".join(str(row) for row in steps[0].fault.rows)
        yield (
            f"| {name} | {rows} | {sum(cycles_of(step) for step in steps)} | {recoveries[len(recoveries) // 2]} "
            f"| {recoveries[-1]} | {max(step.outage_ms for step in steps)} |"
        )


def _coverage(run: Run) -> Iterator[str]:
    done = {row for step in run.steps for row in step.fault.rows}
    yield ""
    yield "## Rows of the table of faults that have no line above"
    yield ""
    for row, where in sorted({**ELSEWHERE, **IN_THE_LOAD}.items()):
        if row in IN_THE_LOAD or row not in done:
            yield f"- {row}: {where}"
    reasons = ", ".join(f"{name} {count}" for name, count in sorted(run.book.reasons.items()))
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
