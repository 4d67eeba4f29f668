"""The processor time of the sidecar beside that of a minimal sidecar and of a raw copy, in the same minutes.

    python -m benchmarks.floor [CASE]... [--messages 200000] [--seconds 20] [--rounds 3]

A round runs each case of `postdate bench` once, then the minimal sidecar (`benchmarks/minimal_sidecar.py`) and the raw
copy with the same records; `steady` has a new load for each program. The difference between the sidecar and the minimal
sidecar is the most that changes of Postdate's code could save. Processor time is compared and not rates, since other
programs on the machine disturb it less. Prints the medians and the values of all rounds.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import conditions
from postdate.kafka.client import ConfluentKafka
from postdate.kafka.interface import Isolation, Partition
from postdate.kafka.settings import KafkaSettings
from postdate.sidecar.cluster.connection import admin_of
from postdate.tools.bench.cases import CASES, Size
from postdate.tools.bench.environment import BenchEnvironment, result_of
from postdate.tools.bench.limits import COPY_BATCH_RECORDS, PARTITIONS, WARM_UP_RECORDS_MAX, WARM_UP_S
from postdate.tools.bench.steady import DELAY_MS, LoadGenerator
from postdate.tools.dev_broker.local_broker import PRODUCTION_JVM, LocalBroker
from postdate.wire.topics import OwnTopics

_STEADY_PER_S = 1_000
_FULL = ("intake", "through", "long", "cancel")
_Run = dict[str, float]


@dataclass
class FloorEnvironment(BenchEnvironment):
    """The environment of the cases. It also records the topics that a case creates."""

    made: list[tuple[str, list[str]]] = field(default_factory=list)

    def new_topics(self, *arguments: int, **more: int) -> tuple[str, list[str]]:
        self.made.append(super().new_topics(*arguments, **more))
        return self.made[-1]

    @contextmanager
    def minimal_sidecar(self, case: str, count: int, pause_ms: int = 0) -> Iterator[subprocess.Popen[str]]:
        """Starts a minimal sidecar for the first topics in `made`. It ends with the block at the latest."""
        requests, targets = self.made[0]
        command = [sys.executable, "-m", "benchmarks.minimal_sidecar", self.bootstrap, requests, targets[-1]]
        with subprocess.Popen(  # noqa: S603
            [*command, case, str(count), str(pause_ms)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=conditions.ROOT,
        ) as program:
            try:
                yield program
            finally:
                program.kill()


def full(environment: FloorEnvironment, case: str, count: int) -> dict[str, _Run]:
    """Returns the runs of a case that begins with a full request topic."""
    found = CASES[case].run(environment, Size(count, 0.0))
    runs = {"sidecar": {"cpu_us": found["sidecar_cpu_us"], "per_s": found["records_per_s"]}}
    requests, targets = environment.made[0]
    if case == "cancel":
        count = count * 2 // 3 // (2 * PARTITIONS) * 2 * PARTITIONS * 3 // 2
    with environment.minimal_sidecar(case, count) as program:
        runs["minimal sidecar"] = _of_one(result_of(program))
    copied = "" if case == "intake" else targets[-1]
    with environment.raw_program("raw_copy", requests, copied, str(count), str(COPY_BATCH_RECORDS)) as program:
        runs["raw copy"] = _of_one(result_of(program))
    return runs


def _of_one(done: _Run) -> _Run:
    return {"cpu_us": done["cpu_s"] * 1e6 / done["records"], "per_s": done["records"] / done["seconds"]}


def steady(environment: FloorEnvironment, seconds: float, pause_ms: int) -> dict[str, _Run]:
    """Sends 1,000 requests a second. Returns the used share of a core, and the processor time of a transaction."""
    found = CASES["steady 1000/s"].run(environment, Size(0, seconds))
    count = int(_STEADY_PER_S * (seconds + WARM_UP_S))
    lasted_s = seconds + WARM_UP_S + DELAY_MS[1] / 1_000
    runs = {"sidecar": _of_steady(found["core_share"], _transactions(environment) / lasted_s)}
    environment.made.clear()
    requests, (target,) = environment.new_topics()
    with (
        environment.minimal_sidecar("steady", count, pause_ms) as program,
        LoadGenerator(environment, requests, [target], _STEADY_PER_S, count, PARTITIONS) as sender,
    ):
        done = result_of(program)
        sender.check()
    runs["minimal sidecar"] = _of_steady(done["cpu_s"] / done["seconds"], done["transactions"] / done["seconds"])
    runs["raw producers"] = _of_steady(found["raw_core_share"], found["raw_transactions_per_s"])
    return runs


def _of_steady(core_share: float, per_s: float) -> _Run:
    return {"core_share": core_share, "transactions_per_s": per_s, "cpu_ms_per_transaction": core_share / per_s * 1_000}


def _transactions(environment: FloorEnvironment) -> float:
    """Returns the number of transactions of the sidecar. Each writes a record and a marker to the dispatch log."""
    log = OwnTopics.of(environment.made[0][0]).dispatch_log
    with admin_of(environment.kafka) as admin:
        ends = admin.end_offsets([Partition(log, each) for each in range(PARTITIONS)], Isolation.READ_UNCOMMITTED)
    return sum(ends.values()) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", default=[*_FULL, "steady"])
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--pause-ms", type=int, default=12, help="of the minimal sidecar between its transactions")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    print(f"{conditions.commit()}, {conditions.now()}, {conditions.machine()}")
    values: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="postdate-floor-") as made, ExitStack() as stack:
        broker = LocalBroker(0, Path(made) / "broker", jvm=PRODUCTION_JVM)
        stack.callback(broker.kill)
        broker.start()
        kafka = ConfluentKafka(KafkaSettings(broker.bootstrap_servers))
        environment = FloorEnvironment(kafka, broker.bootstrap_servers, Path(made), stack, lambda _: None, broker.pid)
        environment.warm_up(min(asked.messages, WARM_UP_RECORDS_MAX))
        for number in range(asked.rounds):
            for case in asked.cases:
                environment.made.clear()
                with environment.run():
                    runs = (
                        steady(environment, asked.seconds, asked.pause_ms)
                        if case == "steady"
                        else full(environment, case, asked.messages)
                    )
                for program, figures in runs.items():
                    for name, value in figures.items():
                        values[case, program, name].append(value)
                print(f"round {number + 1}: {case}", file=sys.stderr)
    print("\n| case | program | figure | median | values |\n| --- | --- | --- | --- | --- |")
    for (case, program, name), found in values.items():
        median, each = _rounded(statistics.median(found)), ", ".join(map(_rounded, found))
        print(f"| `{case}` | {program} | {name} | {median} | {each} |")


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


if __name__ == "__main__":
    main()
