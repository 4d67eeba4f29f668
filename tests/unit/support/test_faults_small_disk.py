"""Goal: a filled disk refuses writes, and accepts them again once it is freed, with and without the right to mount.

Method: a child process appends to a file on request and reports the result. The test runs with the right to mount, if
the machine grants it, and without.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.faults.small_disk import SmallDisk, small_disk

_APPENDER = """
import os, sys
for line in sys.stdin:
    try:
        with open(line.strip(), "ab") as file:
            file.write(bytes(100_000))
            os.fsync(file.fileno())
        print("written", flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
"""


@pytest.fixture
def appender() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", _APPENDER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def _append(appender: subprocess.Popen[str], file: Path) -> str:
    assert appender.stdin is not None
    assert appender.stdout is not None
    appender.stdin.write(f"{file}\n")
    appender.stdin.flush()
    return appender.stdout.readline().strip()


def _fill_and_free(disk: SmallDisk, appender: subprocess.Popen[str]) -> str:
    file = disk.directory / "data"
    assert _append(appender, file) == "written"
    disk.fill(appender.pid)
    refused = next(said for said in (_append(appender, file) for _ in range(20)) if said != "written")
    disk.free(appender.pid)
    assert _append(appender, file) == "written"
    return refused


def test_a_full_disk_refuses_writes_until_it_is_freed(appender: subprocess.Popen[str], tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size_mib=1) as disk:
        assert _fill_and_free(disk, appender) in ("No space left on device", "File too large")


def test_without_the_right_to_mount_files_are_limited(
    appender: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with small_disk(tmp_path / "disk") as disk:
        assert "limit" in disk.means
        assert _fill_and_free(disk, appender) == "File too large"
