"""`postdate run --workers N`: a parent process that starts N workers with the same command, restarts crashed ones, and
adds up the shards that they deliver for. Each worker is a member of the consumer group, whose protocol distributes the
shards. If an HTTP port is configured, the first worker serves it, and each further worker serves the next port.
If `group_instance_id` is configured, each worker is a static member with its own name.

Thread rule: the main thread waits; one thread per worker reads its stdout.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from types import FrameType

from postdate.sidecar.config.settings import Config
from postdate.sidecar.errors import Exit
from postdate.sidecar.logs import configure_logging
from postdate.sidecar.privacy import forbid_core_dumps
from postdate.sidecar.process.daemon import announce
from postdate.sidecar.process.limits import (
    WORKER_POLL_S,
    WORKER_RESTART_S_MAX,
    WORKER_RESTART_S_MIN,
    WORKER_STABLE_S,
    WORKER_STOP_S,
)

log = logging.getLogger(__name__)

_RUNNING = "running: "
_FINAL = (Exit.USAGE, Exit.FENCED)  # exit codes that a restart would only repeat


class Worker:
    """One worker process, and the number of shards that it last reported."""

    def __init__(self, number: int, parent: Workers) -> None:
        self.number = number
        self.shards = 0
        self._parent = parent
        self._delay_s = WORKER_RESTART_S_MIN
        self.restart_at = 0.0
        self.is_given_up = False

    def start(self) -> None:
        """Starts a worker with the command line of this process."""
        command = [sys.executable, "-m", "postdate.cli", *sys.argv[1:], "--workers", "1"]
        if self._parent.http_port:
            command += ["--http-port", str(self._parent.http_port + self.number)]
        if self._parent.instance_id:  # two members with one name would fence each other
            command += ["--group-instance-id", f"{self._parent.instance_id}-{self.number}"]
        self.started_at, self._stops = time.monotonic(), 0
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=False)  # noqa: S603 - our own command line
        self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None, "the worker was started with a pipe"
        with process.stdout as lines:
            for line in lines:
                if line.startswith(_RUNNING):
                    self.shards = int(line.removeprefix(_RUNNING).split()[0])
                    self._parent.report()
        self.shards = 0
        self._parent.report()

    def stop(self, stops: int) -> None:
        """Sends SIGTERM to the running process, unless it has got that many of them."""
        if self._stops < stops:
            self._stops = stops
            self.process.send_signal(signal.SIGTERM)

    def schedule_restart(self) -> None:
        """Sets the time of the restart, after a pause that doubles if the worker did not run for long."""
        ran_s = time.monotonic() - self.started_at
        self._delay_s = (
            WORKER_RESTART_S_MIN if ran_s > WORKER_STABLE_S else min(self._delay_s * 2, WORKER_RESTART_S_MAX)
        )
        self.restart_at = time.monotonic() + self._delay_s
        log.error(
            "worker %d ended with %s; restarting it in %.1f s", self.number, self.process.returncode, self._delay_s
        )

    def give_up(self) -> None:
        """Logs once that the worker is not restarted, since it would end in the same way."""
        if not self.is_given_up:
            self.is_given_up = True
            log.error(
                "worker %d ended with %d, for the reason above, and is not restarted: the others take over its shards; "
                "remove the cause, then restart all",
                self.number,
                self.process.returncode,
            )


class Workers:
    """The workers of a parent process, and the sum of their shards. `start` starts their processes."""

    def __init__(self, count: int, http_port: int, instance_id: str = "") -> None:
        self.http_port = http_port
        self.instance_id = instance_id
        self._lock = threading.Lock()
        self._reported = 0
        self._stops = 0
        self.workers = [Worker(number, self) for number in range(count)]

    def start(self) -> None:
        """Starts all workers."""
        for worker in self.workers:
            worker.start()

    def report(self) -> None:
        """Announces the sum if it has changed."""
        with self._lock:
            total = sum(worker.shards for worker in self.workers)
            if total != self._reported:
                self._reported = total
                announce(total)

    def stop(self) -> None:
        """Makes `wait` stop every worker gracefully. May be called by a signal handler, also while a worker starts."""
        self._stops += 1

    def wait(self) -> int:
        """Watches and restarts the workers until all have finally ended; returns the exit code of the parent."""
        stop_by = 0.0
        while True:
            alive = [worker for worker in self.workers if worker.process.poll() is None]
            if self._stops:
                for worker in alive:
                    worker.stop(self._stops)
                stop_by = stop_by or time.monotonic() + WORKER_STOP_S
                if not alive:
                    return Exit.OK
                if time.monotonic() > stop_by:
                    for worker in alive:
                        worker.process.kill()
            elif all(worker.process.returncode in _FINAL for worker in self.workers):
                return max(worker.process.returncode for worker in self.workers)
            else:
                self._restart_dead()
            time.sleep(WORKER_POLL_S)

    def _restart_dead(self) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                continue
            if worker.process.returncode in _FINAL:
                worker.give_up()
            elif not worker.restart_at:
                worker.schedule_restart()
            elif time.monotonic() >= worker.restart_at:
                worker.restart_at = 0.0
                worker.start()


def run_workers(config: Config) -> int:
    """Runs `config.workers` processes until SIGTERM or SIGINT, or until each has ended with an exit code of `_FINAL`;
    returns the exit code."""
    configure_logging(config.log_level)
    forbid_core_dumps()
    workers = Workers(config.workers, config.http.port, config.group_instance_id)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        workers.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    workers.start()
    log.info("process %d runs %d workers", os.getpid(), config.workers)
    return workers.wait()
