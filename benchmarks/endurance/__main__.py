"""`python -m benchmarks.endurance`: the load, the kills, the count and the audit.

Exits with 1 if a message, an acknowledgement, the exit code of a sidecar, a log or the audit is wrong. Growth of
memory, files or disk is reported, and does not change the exit code.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import click
import numpy as np

from benchmarks import conditions
from benchmarks.endurance import figures
from benchmarks.endurance.plan import Outcomes
from benchmarks.endurance.report import Run, markdown, write
from benchmarks.endurance.system import PARTITIONS, SIDECARS, TARGET_PARTITIONS, EnduranceSystem, Sample, SystemFailed

_SAMPLE_EACH_S = 10.0
_SAY_EACH_S = 60.0
_POLL_INTERVAL_S = 0.5
#: Seconds: the wait after the last due time. A sidecar that was killed just before this due time recovers meanwhile.
_REST_S = 120.0
#: Seconds: the wait for repeats after all messages have arrived.
_QUIET_S = 10.0
_AUDIT_S = 3_600.0
#: The heap of the audit. With the default of 2 GB, the audit of 21.6 million requests fails.
_AUDIT_HEAP = "8g"


@click.command()
@click.option(
    "--minutes", type=click.FloatRange(0.1, 1_440), default=30.0, show_default=True, help="Duration of the load."
)
@click.option("--rate", type=click.IntRange(20, 100_000), default=12_000, show_default=True, help="Requests a second.")
@click.option("--delay-max", type=click.IntRange(11), default=600, show_default=True, help="Longest delay, seconds.")
@click.option(
    "--kill-each", type=click.FloatRange(5), default=120.0, show_default=True, help="Seconds between two kills."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the load.")
@click.option("--audit/--no-audit", "has_audit", default=True, help="Run the audit by Spark at the end.")
@click.option(
    "--report",
    "page",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the record to this file, and its JSON beside it.",
)
def main(
    minutes: float, rate: int, delay_max: int, kill_each: float, seed: int, has_audit: bool, page: Path | None
) -> None:
    """Send requests at a steady rate to two sidecars, kill them in turn, and check every message and the audit."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that children end too
    head = {
        "command": " ".join(["python -m benchmarks.endurance", *sys.argv[1:]]),
        "commit": conditions.commit(),
        "began": conditions.now(),
        "machine": conditions.machine(),
        "load average before": f"{os.getloadavg()[0]:.1f}",
    }
    with (
        tempfile.TemporaryDirectory(prefix="postdate-endurance-", ignore_cleanup_errors=True) as made,
        ExitStack() as stack,
    ):
        directory, count = Path(made), round(minutes * 60 * rate)
        outcomes = Outcomes(directory, count, create=True)
        system = EnduranceSystem(directory, stack)
        system.start()
        endurance = Endurance(system, directory, outcomes, rate, delay_max, kill_each)
        endurance.run(seed)
        run = endurance.judge(head, has_audit)
    click.echo(markdown(run, "endurance.json"))
    if page is not None:
        write(run, page)
    sys.exit(1 if run.wrong else 0)


@dataclass
class Endurance:
    """One run."""

    system: EnduranceSystem
    directory: Path
    outcomes: Outcomes
    rate: int
    delay_max_s: int
    kill_each_s: float
    began: float = 0.0
    began_ms: int = 0
    load_s: float = 0.0
    load_behind_ms: float = 0.0
    kills_ms: list[int] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    cores: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def run(self, seed: int) -> None:
        """Sends the load, kills sidecars until it ends, and waits for the last message. Raises SystemFailed."""
        system, count = self.system, len(self.outcomes.due_ms)
        sizes = [str(PARTITIONS), str(self.rate), str(count), str(self.delay_max_s * 1_000), str(seed)]
        where = str(self.directory)
        with system.program("arrivals", system.target, str(TARGET_PARTITIONS), str(count), where) as reader:
            before = system.cpu_s()
            self.began, self.began_ms = time.monotonic(), time.time_ns() // 1_000_000
            with system.program("load", system.requests, system.target, *sizes, where) as load:
                while load.poll() is None:
                    self._step(reader, may_kill=True)
                assert load.stdout is not None, "the program was started with a pipe"
                self.load_behind_ms = float(load.stdout.read() or -1)
                if load.returncode:
                    self.wrong.append("requests were not acknowledged")
            self.load_s = time.monotonic() - self.began
            self.cores = {name: (used - before[name]) / self.load_s for name, used in system.cpu_s().items()}
            deadline = time.monotonic() + self.delay_max_s + _REST_S
            while not self._all_arrived() and time.monotonic() < deadline:
                self._step(reader, may_kill=False)
            time.sleep(_QUIET_S)

    def _step(self, reader: subprocess.Popen[str], may_kill: bool) -> None:
        """Takes samples and kills a sidecar if the interval for each has passed, and waits for one poll interval."""
        now_s = time.monotonic() - self.began
        self.system.check()
        if reader.poll() is not None:
            raise SystemFailed("the reader of the target has ended")
        if may_kill and now_s >= self.kill_each_s * (len(self.kills_ms) + 1):
            self.kills_ms.append(self.system.kill(SIDECARS[len(self.kills_ms) % len(SIDECARS)]))
        if not self.samples or now_s >= self.samples[-1].at_s + _SAMPLE_EACH_S:
            self.samples += self.system.samples(now_s)
            if now_s % _SAY_EACH_S < _SAMPLE_EACH_S:
                self._report(now_s)
        time.sleep(_POLL_INTERVAL_S)

    def _report(self, now_s: float) -> None:
        latest = self.samples[-len(SIDECARS) :]
        pending = sum(each.pending for each in latest)
        memory = ", ".join(f"{each.memory_mb:.0f} MB, {each.files} files" for each in latest)
        arrived = int(np.count_nonzero(self.outcomes.arrived))
        click.echo(f"{now_s / 60:.0f} min: {arrived:,} arrived, {pending:,} pending; {memory}")

    def _all_arrived(self) -> bool:
        return not ((self.outcomes.due_ms > 0) & (self.outcomes.arrived == 0)).any()

    def judge(self, head: dict[str, str], has_audit: bool) -> Run:
        """Counts the outcomes, checks how the sidecars end, and runs the audit if `has_audit`."""
        counts = figures.counts(self.outcomes)
        bad = ("not sent", "lost", "repeated", "delivered although cancelled", "with another due time", "early")
        self.wrong += [f"{counts[name]} {name}" for name in bad if counts[name]]
        self.wrong += [f"a sidecar ended with {code}" for code in self.system.stop() if code]
        for log in self.system.logs():
            text = log.read_text(errors="replace")
            self.wrong += [f"{log.name} has a {word}" for word in ("Traceback", "HALTED") if word in text]
        audit = self._audit() if has_audit else "not run"
        if has_audit and not audit.startswith("clean"):
            self.wrong.append(f"the audit: {audit}")
        steady_s = min(self.delay_max_s, self.load_s / 3)
        return Run(
            conditions={**head, "load average after": f"{os.getloadavg()[0]:.1f}", "ended": conditions.now()},
            counts=counts,
            examples=figures.examples(self.outcomes),
            lateness=figures.lateness(self.outcomes, self.kills_ms),
            by_minute=figures.by_minute(self.outcomes, self.began_ms),
            trend=figures.trend(self.samples, steady_s, self.load_s),
            kills_s=[round((at_ms - self.began_ms) / 1_000, 1) for at_ms in self.kills_ms],
            cores={name: round(share, 2) for name, share in self.cores.items()},
            load_behind_ms=self.load_behind_ms,
            audit=audit,
            wrong=self.wrong,
            samples=self.samples,
        )

    def _audit(self) -> str:
        """Returns the verdict of the audit, in a short form."""
        command = [sys.executable, "-m", "postdate.cli", "audit", "-b", self.system.bootstrap]
        command += ["--requests", self.system.requests, "--strict", "--output", "json"]
        command += ["--spark-conf", f"spark.driver.memory={_AUDIT_HEAP}"]
        paths = os.pathsep.join(filter(None, sys.path))
        try:
            done = subprocess.run(  # noqa: S603
                command,
                capture_output=True,
                text=True,
                timeout=_AUDIT_S,
                check=False,
                env={**os.environ, "PYTHONPATH": paths},
            )
        except subprocess.TimeoutExpired:
            return f"did not end within {_AUDIT_S:.0f} s"
        if not done.stdout.strip():
            return f"failed: {done.stderr[-1000:]}"
        said = json.loads(done.stdout.splitlines()[-1])
        if not said["clean"] or done.returncode:
            return f"not clean, exit code {done.returncode}: {json.dumps(said)[:2000]}"
        return f"clean, {said['origins']:,} requests judged in {said['seconds']:.0f} s"


if __name__ == "__main__":
    main()
