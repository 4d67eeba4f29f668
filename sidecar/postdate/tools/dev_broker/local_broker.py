"""A single-node Apache Kafka as a child process, which can be stopped, killed, paused and restarted.

All files are in one directory: `kafka/` with the logs of the topics, `server.properties`, `broker.log` with the output
of the JVM, and `broker.pid` with the JVM's process id while it runs. A restart in the same directory is the same
cluster with the same data. Thread rule: any thread, one caller at a time.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self
from uuid import uuid4

from postdate.kafka.errors import DevBrokerFailed
from postdate.tools.dev_broker.class_archive import ClassArchive
from postdate.tools.dev_broker.jars import KAFKA_VERSION, Progress, kafka_libs, quiet
from postdate.tools.dev_broker.java import find_java
from postdate.tools.dev_broker.properties import node_settings, write_properties
from postdate.tools.dev_broker.readiness import wait_until_ready
from postdate.tools.dev_broker.uninterrupted import uninterrupted

#: Enough for a few hundred partitions; Kafka's speed depends on the page cache, which is not in the heap.
HEAP_MB = 512
#: The options of the JVM unless KAFKA_JVM_PERFORMANCE_OPTS, the variable of Kafka's own scripts, is set. Only the quick
#: compiler (C1) is used: the other compiler takes a third of a core in the first minutes, and such a broker seldom
#: runs for longer. C1 compiles a method after a tenth of the usual number of calls, since the interpreter took a fifth
#: of the processor time of the first 600 transactions.
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:CompileThresholdScaling=0.1 -XX:+UseG1GC -XX:MaxGCPauseMillis=20"
#: A cold start takes about 3 s on a fast machine. With a load of 12 on two cores, a container took more than 90 s.
START_TIMEOUT_S = 180.0
#: A clean stop takes about 1 s. After this time the broker process is killed, which loses no data.
STOP_TIMEOUT_S = 20.0
#: The number of log lines that an error message shows.
LOG_LINES_SHOWN = 15


@dataclass(frozen=True, slots=True)
class Jvm:
    """The JVM of a broker: the size of its heap, MiB, options that KAFKA_JVM_PERFORMANCE_OPTS replaces, and the version
    of Kafka that it runs."""

    heap_mb: int = HEAP_MB
    options: str = JVM_OPTIONS
    version: str = KAFKA_VERSION


QUICK_JVM = Jvm()
"""For a broker that runs for minutes."""

PRODUCTION_JVM = Jvm(1024, "-server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35")
"""The largest heap and the main options with which Kafka's own scripts start a broker if their variables are unset:
both compilers, G1."""


def free_port() -> int:
    """Returns a TCP port of the loopback interface that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class DevBroker(ABC):
    """A development broker, as a process or in a container. As a context manager, it starts and stops the broker."""

    host = "127.0.0.1"
    log_file: Path | None = None

    def __init__(self, port: int, progress: Progress) -> None:
        """Starts nothing. `port` 0: a free port, which this object keeps."""
        self.port = port or free_port()
        self._progress = progress
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Returns when a transaction has succeeded. If it raises DevBrokerFailed, it leaves nothing running."""

    @abstractmethod
    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stops the broker and waits. Does nothing if none runs."""

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients."""
        return f"{self.host}:{self.port}"

    def is_running(self) -> bool:
        """True if the process that this object started has not ended, even if it is paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_status(self) -> int:
        """The exit status of the broker; -N if signal N has ended it. Requires that the broker was started and has
        ended without a call of `stop` or `kill`, which forget the process."""
        assert self._process is not None
        assert self._process.returncode is not None
        return self._process.returncode

    def log_tail(self) -> str:
        """Returns the end of the broker's log, for an error message."""
        if self.log_file is None or not self.log_file.exists():
            return ""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _spawn_process(self, command: list[str], log: IO[bytes]) -> None:
        self._process = subprocess.Popen(  # noqa: S603
            with_parent_death_signal(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C in the terminal reaches only this process, which stops the broker
        )


class LocalBroker(DevBroker):
    """One broker on 127.0.0.1.

    `properties` are settings of server.properties that override the defaults. Example::

        with LocalBroker(0, Path("/tmp/broker")) as broker:
            AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    With a `cluster_id` it is one node of a larger cluster, and `properties` are all its settings except `log.dirs`,
    including the voters of the quorum. Such a node is not ready alone: launch every node, then wait for the cluster.
    """

    log_file: Path

    def __init__(
        self,
        port: int,
        data_dir: Path,
        *,
        properties: Mapping[str, str] | None = None,
        cluster_id: str = "",
        jvm: Jvm = QUICK_JVM,
        progress: Progress = quiet,
    ) -> None:
        super().__init__(port, progress)
        self.data_dir = data_dir.absolute()
        self.log_file = self.data_dir / "broker.log"
        self._properties = dict(properties or {})
        self._cluster_id = cluster_id
        self._jvm = jvm
        self._classes: ClassArchive | None = None

    @property
    def pid(self) -> int:
        """The process id of the broker. Raises DevBrokerFailed before the start, and after `stop` or `kill`."""
        if self._process is None:
            raise DevBrokerFailed("The broker has not been started.")
        return self._process.pid

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Returns when a transaction has succeeded, or at once if the process runs; downloads the jars first if they
        are missing.

        Raises DevBrokerFailed, and leaves no process behind, if Java, PySpark or the port is unavailable, or if the
        broker does not start.
        """
        if self.is_running():
            return
        try:
            self.launch()
            wait_until_ready(self.host, self.port, timeout_s, self._check_alive)
        except BaseException:
            self.kill()
            raise

    def launch(self) -> None:
        """Starts the process and returns without waiting until the broker is ready; the first start downloads the jars
        and formats the data directory. Raises as `start`, except for a broker that does not start.

        Requires that the broker does not run.
        """
        java = find_java()
        libs = kafka_libs(self._progress, self._jvm.version)
        properties = self.data_dir / "server.properties"
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            self._refuse_a_running_one()
            require_free(self.host, self.port)
            write_properties(properties, self._settings())
        except OSError as error:
            raise DevBrokerFailed(
                f"The data directory {self.data_dir} cannot be written ({error.strerror}). "
                "Choose another directory with --data."
            ) from error
        self._classes = ClassArchive(java, libs)
        if not (self.data_dir / "kafka" / "meta.properties").exists():
            self._progress("formatting the data directory", 0, 0)
            self._format([java, *self._classes.reading_options()], libs, properties)
        self._progress("starting the broker", 0, 0)
        with uninterrupted():
            self._spawn([java, *self._classes.options()], libs, properties)
        (self.data_dir / "broker.pid").write_text(f"{self.pid}\n")

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stops the broker and waits; kills it after `timeout_s`. Does nothing if none runs."""
        if self._process is None:
            return
        if self.is_running():
            self.resume()  # a paused process would not handle SIGTERM
            self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._forget()

    def kill(self) -> None:
        """Kills the process, as in a crash. Written data stays, since the page cache outlives the process."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._forget()

    def restart(self, *, hard: bool = False, timeout_s: float = START_TIMEOUT_S) -> None:
        """Stops (`hard`: kills) and starts again on the same port and data; returns when it is ready."""
        if hard:
            self.kill()
        else:
            self.stop()
        self.start(timeout_s)

    def pause(self) -> None:
        """Sends SIGSTOP: connections stay open, and nothing answers. Returns when every thread has stopped, which takes
        a while on a busy machine, or after STOP_TIMEOUT_S."""
        os.kill(self.pid, signal.SIGSTOP)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while not _is_stopped(self.pid) and time.monotonic() < deadline:
            time.sleep(0.01)

    def resume(self) -> None:
        """Sends SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Waits until the broker ends. Returns its exit status, or None if it still runs after `timeout_s`. Returns
        None immediately if there is no process."""
        if self._process is None:
            return None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def _settings(self) -> dict[str, str]:
        if self._cluster_id:
            return {"log.dirs": str(self.data_dir / "kafka"), **self._properties}
        controller_port = free_port()
        settings = node_settings(self.host, self.port, controller_port)
        settings["listeners"] = f"PLAINTEXT://{self.host}:{self.port},CONTROLLER://localhost:{controller_port}"
        settings["log.dirs"] = str(self.data_dir / "kafka")
        return settings | self._properties

    def _format(self, java: list[str], libs: Path, properties: Path) -> None:
        command = [*java, "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{libs}/*", "kafka.tools.StorageTool"]
        command += ["format", "-t", self._cluster_id or new_cluster_id(), "-c", str(properties)]
        command += [] if self._cluster_id else ["--standalone"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            raise DevBrokerFailed(f"{self.data_dir} could not be formatted for Kafka:\n{done.stdout}{done.stderr}")

    def _spawn(self, java: list[str], libs: Path, properties: Path) -> None:
        command = [*java, f"-Xmx{self._jvm.heap_mb}m", f"-Xms{self._jvm.heap_mb // 2}m", "-Djava.awt.headless=true"]
        command += jvm_options(self._jvm.options).split()
        command += ["-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command += ["-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX"]
        command += ["-cp", f"{libs}/*", "kafka.Kafka", str(properties)]
        with self.log_file.open("ab") as log:
            self._spawn_process(command, log)

    def _check_alive(self) -> None:
        if not self.is_running():
            raise DevBrokerFailed(
                f"The broker ended while starting; the end of its log ({self.log_file}):\n{self.log_tail()}"
            )

    def _refuse_a_running_one(self) -> None:
        """Raises DevBrokerFailed if a broker already runs in this directory. The message has its process id. Without
        /proc, the check is omitted."""
        try:
            pid = int((self.data_dir / "broker.pid").read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except (OSError, ValueError):
            return
        if str(self.data_dir / "server.properties") in command:
            raise DevBrokerFailed(
                f"A broker with the data directory {self.data_dir} is already running as process {pid}; "
                f"use it, or end it with: kill {pid}"
            )

    def _forget(self) -> None:
        if self._process is not None and self._classes is not None:
            self._classes.ended(self._process.returncode)
        self._process = None
        (self.data_dir / "broker.pid").unlink(missing_ok=True)


def _is_stopped(pid: int) -> bool:
    """True if all threads of a process are stopped, or if the system has no /proc."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            if stat.read_text().rpartition(")")[2].split()[0] not in "Tt":
                return False
        except FileNotFoundError:  # this thread has just ended
            continue
    return True


def jvm_options(default: str = JVM_OPTIONS) -> str:
    """Returns the options of a broker's JVM except for the size of its heap."""
    return os.environ.get("KAFKA_JVM_PERFORMANCE_OPTS", default)


def new_cluster_id() -> str:
    """Returns a random cluster id in Kafka's form: 16 bytes in URL-safe base64 without padding, no leading dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def with_parent_death_signal(command: list[str]) -> list[str]:
    """Returns a command whose process gets SIGTERM when this process dies. Returns `command` unchanged if the system
    has no `setpriv`, or if the caller is not the main thread.

    The kernel sends the signal when the *thread* that started the command ends, not when the process ends.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None or threading.current_thread() is not threading.main_thread():
        return command
    return [setpriv, "--pdeathsig", "TERM", *command]


def require_free(host: str, port: int) -> None:
    """Raises DevBrokerFailed if the port is in use. Waits a moment for a socket that is closing."""
    deadline = time.monotonic() + 2
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                return
            except OSError as error:
                if time.monotonic() >= deadline:
                    raise DevBrokerFailed(
                        f"Port {port} cannot be used on {host} ({error.strerror}): another program, perhaps another "
                        "broker, has it. Stop that program, or choose another port with --port."
                    ) from error
        time.sleep(0.1)
