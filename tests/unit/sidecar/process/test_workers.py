"""Goal: if a worker ends with an exit code that a restart would only repeat, the parent logs this once, and the other
workers continue. If all workers end in this way, the parent ends with their exit code.

Method: real processes. Workers from port 65,536 on have no valid port, so they end at once; a worker below it waits for
a broker.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

from postdate.sidecar.errors import Exit
from postdate.sidecar.process import workers
from postdate.sidecar.process.workers import Workers
from support.deployments.ports import free_port
from support.deployments.sidecars import wait_until


@pytest.fixture(autouse=True)
def command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line of the parent and its workers. Nothing answers at the broker's address."""
    monkeypatch.setattr(sys, "argv", ["postdate", "run", "-b", f"127.0.0.1:{free_port()}"])


def test_a_worker_that_is_not_started_again_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    parent = Workers(2, http_port=65_535)
    parent.start()
    ended: list[int] = []
    watch = threading.Thread(target=lambda: ended.append(parent.wait()))
    watch.start()
    try:
        first, second = (worker.process for worker in parent.workers)
        wait_until(lambda: "worker 1 ended with 2" in caplog.text, "the parent says that a worker has ended")
        parent._restart_dead()
        assert second.returncode == Exit.USAGE
        assert first.poll() is None, "the other one goes on"
    finally:
        parent.stop()
        watch.join()
        for worker in parent.workers:
            worker._reader.join()
    assert caplog.text.count("is not restarted") == 1
    assert ended == [Exit.OK]


def test_the_parent_ends_when_no_worker_is_left_to_start() -> None:
    parent = Workers(2, http_port=65_536)
    parent.start()
    assert parent.wait() == Exit.USAGE
    for worker in parent.workers:
        worker._reader.join()


def test_each_worker_is_a_static_member_of_its_own_name() -> None:
    parent = Workers(2, http_port=65_536, instance_id="host")
    parent.start()
    commands = [worker.process.args for worker in parent.workers]
    assert parent.wait() == Exit.USAGE
    for number, (worker, command) in enumerate(zip(parent.workers, commands, strict=True)):
        worker._reader.join()
        assert isinstance(command, list)
        assert command[-2:] == ["--group-instance-id", f"host-{number}"]


def test_a_worker_that_starts_while_the_parent_stops_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal may arrive between the start of a process and the assignment of its handle."""
    parent = Workers(1, http_port=65_535)
    parent.start()
    (worker,) = parent.workers
    make_process = subprocess.Popen

    def interrupted(*args: Any, **options: Any) -> subprocess.Popen[str]:
        process = make_process(*args, **options)
        parent.stop()
        return process

    worker.process.kill()
    worker.process.wait()
    worker.restart_at = -1.0
    monkeypatch.setattr(subprocess, "Popen", interrupted)
    monkeypatch.setattr(workers, "WORKER_STOP_S", 5.0)
    assert parent.wait() == Exit.OK
    worker._reader.join()
    assert worker.process.returncode != -signal.SIGKILL
