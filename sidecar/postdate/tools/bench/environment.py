"""The environment of a case: a cluster, new topics, the sidecar under test, and the load.

Each process of Postdate is registered with the ExitStack of the caller before it starts; a raw program ends with its
`with` block. Thread rule: main thread.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from postdate.kafka.client import ConfluentKafka
from postdate.kafka.errors import KafkaFault
from postdate.kafka.interface import Kafka, NewTopic
from postdate.kafka.settings import KafkaSettings
from postdate.sidecar.cluster.connection import admin_of
from postdate.sidecar.dispatch.limits import HELD_BACK_MS_MAX
from postdate.sidecar.errors import PostdateError
from postdate.sidecar.http.metrics.metrics import TRANSACTION_SECONDS
from postdate.sidecar.process.children import Child
from postdate.tools.bench.limits import (
    ACKNOWLEDGE_TIMEOUT_S,
    BROKER_SETTINGS,
    CASE_TIMEOUT_S,
    COPY_BATCH_RECORDS,
    HTTP_TIMEOUT_S,
    PARTITIONS,
    POLL_INTERVAL_S,
    START_TIMEOUT_S,
    TARGET_PARTITIONS,
    VALUE_SIZE_BYTES,
    WARM_COPIES_MAX,
    WARM_SPREAD_MAX,
)
from postdate.tools.dev_broker.local_broker import free_port
from postdate.wheel.timing_wheel.wheel_view import WHEEL_NAME, present_snapshot
from postdate.wire import headers as names
from postdate.wire.headers import Headers
from postdate.wire.topics import OwnTopics

#: The source of values: random, so that compression does not shrink them.
_VALUES = random.Random(20).randbytes(16_384 * VALUE_SIZE_BYTES)  # noqa: S311  # not a secret
#: Records between two flushes, which the client library may buffer.
_FILL_RECORDS = 50_000
_PAGE_SIZE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

Request = tuple[bytes, Headers]
"""Key and headers of one request. Its value is `value_of(number)`."""


def load_clients(bootstrap: str) -> ConfluentKafka:
    """Returns the clients that write the load and read the results."""
    patient = {"message.timeout.ms": round(ACKNOWLEDGE_TIMEOUT_S * 1_000)}
    return ConfluentKafka(KafkaSettings(bootstrap, producer=patient))


@dataclass
class BenchEnvironment:
    """A cluster for measurements. `directory` has the timer indexes and the output of all processes."""

    kafka: Kafka
    bootstrap: str
    directory: Path
    stack: ExitStack
    report: Callable[[str], None]
    broker_pid: int | None = None
    """The process id of a broker that serves only the benchmark. With None, the broker's processor time is unknown."""
    _made: int = field(default=0)

    @contextmanager
    def run(self) -> Iterator[None]:
        """At the end of the block, ends its processes and deletes its topics, so that they do not disturb the next
        run."""
        outer = self.stack
        try:
            with ExitStack() as self.stack:
                yield
        finally:
            self.stack = outer

    def new_topics(
        self, targets: int = 1, partitions: int = PARTITIONS, target_partitions: int = TARGET_PARTITIONS
    ) -> tuple[str, list[str]]:
        """Creates a request topic with the topics beside it, and `targets` targets. Returns the names of the request
        topic and of the targets. Raises PostdateError if `postdate topics create` fails, or KafkaFault."""
        self._made += 1
        requests = f"bench.{os.getpid()}.{self._made}.requests"
        named = [f"bench.{os.getpid()}.{self._made}.target-{number}" for number in range(targets)]
        arguments = ["topics", "create", "-b", self.bootstrap, "--requests", requests]
        arguments += ["--partitions", str(partitions), "--replication-factor", "1"]
        self.stack.callback(self._remove, [*OwnTopics.of(requests).names(), *named])
        creation = self._child("topics", arguments)
        creation.start()
        with admin_of(self.kafka) as admin:
            admin.create_topics([NewTopic(name, target_partitions, 1, {}) for name in named])
        if creation.exit_code(START_TIMEOUT_S) != 0:
            raise PostdateError(f"postdate topics create failed:\n{creation.log_tail()}")
        return requests, named

    def _remove(self, names: list[str]) -> None:
        """Deletes the topics, since the cluster may have other users; reports a failure."""
        try:
            with admin_of(self.kafka) as admin:
                admin.delete_topics(sorted(admin.describe(names)))
        except KafkaFault as fault:
            self.report(f"left behind: {', '.join(names)} ({fault})")

    def sidecar(self, requests: str, shards: int = PARTITIONS, workers: int = 1, member: str = "") -> BenchSidecar:
        """Returns a sidecar that is to serve `shards` shards. It is not started, and keeps its data directory across
        restarts. `workers`: the number of its processes. `member`: its name if several sidecars share the directory. A
        single process without a name is a static member of the group; all others join dynamically."""
        return BenchSidecar(self, requests, self.directory / f"data-{requests}", shards, workers, member)

    def fill(self, requests: str, requests_to_send: Iterable[Request]) -> None:
        """Produces the requests, to the partitions in turn, and waits until all are acknowledged. Raises PostdateError
        if one is not, or KafkaFault."""
        producer, count, requests_to_send = self.kafka.plain_producer(), 0, iter(requests_to_send)
        lost: list[KafkaFault] = []

        def delivered(fault: KafkaFault | None, _offset: int, _timestamp_ms: int) -> None:
            if fault is not None:
                lost.append(fault)

        while part := list(islice(requests_to_send, _FILL_RECORDS)):
            for key, headers in part:
                producer.produce(requests, value_of(count), key, headers, count % PARTITIONS, delivered)
                count += 1
            left = producer.flush(ACKNOWLEDGE_TIMEOUT_S) + len(lost)
            if left:
                why = f": {lost[0]}" if lost else ""
                raise PostdateError(f"the broker did not acknowledge {left} requests{why}")
        producer.destroy()

    def warm_up(self, count: int) -> bool:
        """Copies `count` records until two copies in a row differ by at most WARM_SPREAD_MAX. Returns True if this
        happens within WARM_COPIES_MAX copies."""
        source, (target,) = self.new_topics()
        self.report(f"warming up the broker with {count:,} records until the raw copy is stable")
        self.fill(source, (request(number, target, 0) for number in range(count)))
        before = 0.0
        for number in range(WARM_COPIES_MAX):
            rate = self.raw_copy(source, target, count)
            self.report(f"raw copy {number + 1}: {rate:,.0f} records/s")
            if abs(rate - before) <= WARM_SPREAD_MAX * rate:
                return True
            before = rate
        return False

    def broker_cpu_s(self) -> float | None:
        """Returns the processor time of the broker so far, s, or None if `broker_pid` is None."""
        return None if self.broker_pid is None else cpu_s(self.broker_pid)

    def broker_settings(self) -> dict[str, str]:
        """Returns those settings of a new topic on which the figures depend."""
        name = f"bench.{os.getpid()}.settings"
        self.stack.callback(self._remove, [name])
        with admin_of(self.kafka) as admin:
            admin.create_topics([NewTopic(name, 1, 1, {})])
            return dict(admin.describe([name], BROKER_SETTINGS)[name].config)

    def raw_copy(self, source: str, target: str, count: int) -> float:
        """Returns records a second of a raw copy; of plain consumption if `target` is empty."""
        with self.raw_program("raw_copy", source, target, str(count), str(COPY_BATCH_RECORDS)) as program:
            return count / result_of(program)["seconds"]

    @contextmanager
    def raw_program(self, module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Starts `python -m postdate.tools.bench.baselines.MODULE BOOTSTRAP ARGUMENTS`, and ends it with the block."""
        command = [sys.executable, "-m", f"postdate.tools.bench.baselines.{module}", self.bootstrap, *arguments]
        paths = os.pathsep.join(filter(None, sys.path))
        with subprocess.Popen(  # noqa: S603
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        ) as program:
            try:
                yield program
            finally:
                program.kill()

    def _child(self, name: str, arguments: list[str]) -> Child:
        child = Child(name, self.directory, arguments)
        self.stack.callback(child.stop)
        return child


class BenchSidecar:
    """The process under test, or the parent of several processes that share the shards. `shards` is the number of
    shards that it serves; it is below the number of partitions if other sidecars serve the rest."""

    def __init__(
        self, environment: BenchEnvironment, requests: str, data: Path, shards: int, workers: int, member: str
    ) -> None:
        self._environment, self._requests, self._data, self._shards, self._workers = (
            environment,
            requests,
            data,
            shards,
            workers,
        )
        self._member = member
        self.format_version = 1
        """The setting `format_version`. Set it before the start."""
        self._http_port = 0 if workers > 1 or member else free_port()
        self._child: Child | None = None
        self._starts = 0

    def start(self) -> None:
        """Starts the process; returns immediately."""
        self._starts += 1
        arguments = ["run", "-b", self._environment.bootstrap, "--requests", self._requests, "--data", str(self._data)]
        arguments += ["--group-id", self._requests, "--http-port", str(self._http_port)]
        arguments += ["--workers", str(self._workers)]
        config = self._environment.directory / f"format-{self.format_version}.toml"
        config.write_text(f"format_version = {self.format_version}\n")
        arguments += ["--config", str(config)]
        if self._member:
            arguments += ["--instance", self._member]
        elif self._workers == 1:  # each of several workers gets a separate name
            arguments += ["--group-instance-id", "bench", "--instance", "bench"]
        child = Child(f"sidecar-{self._requests}-{self._member}{self._starts}", self._environment.directory, arguments)
        self._environment.stack.callback(child.stop)
        child.start()
        self._child = child

    def start_and_wait(self) -> float:
        """Starts the process, and waits until all of its shards may deliver. Returns the seconds that this took."""
        began = time.monotonic()
        self.start()
        self.wait_for_shards()
        return time.monotonic() - began

    def wait_for_shards(self) -> None:
        """Waits until all of its shards may deliver."""
        self._wait(
            lambda: self.child.shards() == self._shards, START_TIMEOUT_S, "the sidecar does not serve its shards"
        )

    def wait_for_pending(self, count: int) -> float:
        """Waits until the sidecar holds `count` entries. Returns the seconds since a check first found an entry."""
        began = 0.0
        deadline = time.monotonic() + CASE_TIMEOUT_S
        while (pending := self.pending()) < count:
            if pending and not began:
                began = time.monotonic()
            if time.monotonic() > deadline:
                raise PostdateError(
                    f"the sidecar holds {pending} of {count} entries; the end of its log:\n{self.log_tail()}"
                )
            self.check()
            time.sleep(POLL_INTERVAL_S)
        return time.monotonic() - (began or time.monotonic())

    def holds_before(self, count: int, due_ms: int) -> bool:
        """Waits until the sidecar holds `count` entries. Returns False if the time `due_ms` comes first."""
        while time.time_ns() // 1_000_000 < due_ms:
            if self.pending() >= count:
                return True
            self.check()
            time.sleep(POLL_INTERVAL_S)
        return False

    def pending(self) -> int:
        """Returns the number of pending entries in the data directory, from the mapped wheels that can be read."""
        wheels = (present_snapshot(path.parent, complete=False) for path in self._data.rglob(WHEEL_NAME))
        return sum(wheel.count for wheel in wheels if wheel is not None)

    def check(self) -> None:
        """Raises PostdateError if the process has ended."""
        if not self.child.is_running():
            raise PostdateError(f"the sidecar ended unexpectedly; the end of its log:\n{self.log_tail()}")

    def log_tail(self) -> str:
        """Returns the end of its log."""
        return self.child.log_tail()

    def memory_mb(self) -> float:
        """Returns the resident memory now, MiB, without the pages of mapped files."""
        statm = Path(f"/proc/{self.child.pid}/statm").read_text().split()
        return (int(statm[1]) - int(statm[2])) * _PAGE_SIZE_BYTES / 2**20

    def cpu_s(self) -> float:
        """Returns the processor time of the process so far, s."""
        return cpu_s(self.child.pid)

    def wait_for_takeover(self) -> None:
        """Waits until the sidecar serves a shard, so that its processor time is spent on work and no longer on its
        start."""
        self._wait(lambda: bool(self.child.shards()), START_TIMEOUT_S, "the sidecar serves no shard")

    def long_transactions_share(self) -> float:
        """Returns the share of its transactions since its start that held readers back for too long.

        REQUIRES: the sidecar runs in one process and without a name.
        """
        with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/metrics", timeout=HTTP_TIMEOUT_S) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        buckets = {
            sample.labels["le"]: sample.value
            for family in families
            if family.name == TRANSACTION_SECONDS.name
            for sample in family.samples
            if sample.name.endswith("_bucket")
        }
        return 1.0 - buckets[str(HELD_BACK_MS_MAX / 1_000)] / max(buckets["+Inf"], 1.0)

    def disk_bytes(self) -> int:
        """Returns the disk space that the files of the data directory occupy."""
        return sum(path.stat().st_blocks * 512 for path in self._data.rglob("*") if path.is_file())

    def stop(self) -> None:
        """Sends SIGTERM, and waits until the process has ended."""
        self.child.stop()

    def kill(self) -> None:
        """Kills the process."""
        self.child.kill()

    def lose_disk(self) -> None:
        """Removes the data directory. REQUIRES: the sidecar does not run."""
        shutil.rmtree(self._data)

    @property
    def child(self) -> Child:
        """The process. REQUIRES: it was started."""
        assert self._child is not None
        return self._child

    def _wait(self, condition: Callable[[], bool], timeout_s: float, error_text: str) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                raise PostdateError(f"{error_text}; the end of its log:\n{self.log_tail()}")
            time.sleep(POLL_INTERVAL_S)


def cpu_s(pid: int) -> float:
    """Returns the processor time of a process with all of its threads, s."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def result_of(program: subprocess.Popen[str]) -> dict[str, float]:
    """Waits for the JSON object that a raw program prints. Raises PostdateError if it fails or takes too long."""
    try:
        printed, errors = program.communicate(timeout=CASE_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise PostdateError(f"a raw program did not end within {CASE_TIMEOUT_S:.0f} s") from error
    if program.returncode != 0:
        raise PostdateError(f"a raw program failed:\n{errors}")
    return dict(json.loads(printed))


def value_of(number: int) -> bytes:
    """Returns the value of a message; values repeat after 16,384 messages."""
    first = number * VALUE_SIZE_BYTES % len(_VALUES)
    return _VALUES[first : first + VALUE_SIZE_BYTES]


def request(number: int, target: str, due_ms: int) -> Request:
    """Returns a plain request: the key, and headers with the target, the due time and one header of the message."""
    when = b"%d" % due_ms
    headers: Headers = [(names.TOPIC, target.encode()), (names.AT, when), ("n", b"%d" % number)]
    return b"key-%d" % (number % 1009), headers


def with_id(plain: Request, number: int) -> Request:
    """Returns the same request with an id. The id is its key too, so that a control goes to the same partition."""
    _, headers = plain
    id = b"id-%d" % number
    return id, [*headers, (names.ID, id)]


def cancel_of(number: int) -> Request:
    """Returns the cancel of the request with this id."""
    id = b"id-%d" % number
    return id, [(names.ACTION, b"cancel"), (names.ID, id)]
