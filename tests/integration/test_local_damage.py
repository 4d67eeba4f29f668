"""Goal: the local disk is a cache: no damage to it between two runs changes a delivery.

Method: a first process ingests requests and is stopped, and the test copies its disk. A second process continues,
delivers some messages, and ends cleanly or is killed. Then the disk is damaged. Either the directory is deleted or
replaced by the old copy; or the wheel file is deleted, corrupted, cut, zeroed, or replaced by an older one in whole or
in part; or a file of the timer log is deleted, corrupted or cut. A third process continues, and the oracle checks all
deliveries. The processes serve a separate request topic for each kind of damage.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from postdate.wire.headers import AT, TOPIC, Headers
from support.deployments.sidecar_deployment import SidecarDeployment
from support.oracles.exactly_once import Sent

_MESSAGES = 200
#: The name of the copy of the data directory, beside it.
_COPY = "copied"

Damage = Callable[[Path, Path], None]
"""Damages the first directory. The second one is an earlier copy of it."""


def _delete_directory(directory: Path, _: Path) -> None:
    shutil.rmtree(directory)


def _put_back(directory: Path, before: Path) -> None:
    shutil.rmtree(directory)
    shutil.copytree(before, directory)


def _delete_wheel(directory: Path, _: Path) -> None:
    _wheel(directory).unlink()


def _flip_wheel(directory: Path, _: Path) -> None:
    """Flips a bit in every 64 bytes, also in the headers of the file."""
    content, chance = bytearray(_wheel(directory).read_bytes()), random.Random(3)
    for start in range(0, len(content), 64):
        content[min(start + chance.randrange(64), len(content) - 1)] ^= 1 << chance.randrange(8)
    _wheel(directory).write_bytes(content)


def _flip_wheel_body(directory: Path, _: Path) -> None:
    """Inverts a byte in every 16 bytes after the headers, which a checksum of the headers alone does not detect."""
    content, chance = bytearray(_wheel(directory).read_bytes()), random.Random(5)
    for start in range(8192, len(content), 16):
        content[min(start + chance.randrange(16), len(content) - 1)] ^= 0xFF
    _wheel(directory).write_bytes(content)


def _cut_wheel(directory: Path, _: Path) -> None:
    _wheel(directory).write_bytes(_wheel(directory).read_bytes()[:5000])


def _empty_wheel(directory: Path, _: Path) -> None:
    _wheel(directory).write_bytes(bytes(len(_wheel(directory).read_bytes())))


def _old_wheel(directory: Path, before: Path) -> None:
    shutil.copy(_wheel(before), _wheel(directory))


def _half_old_wheel(directory: Path, before: Path) -> None:
    """Replaces every second page by that of the old file, as after a power loss."""
    content, old = bytearray(_wheel(directory).read_bytes()), _wheel(before).read_bytes()
    for start in range(0, len(content), 2 * 4096):
        content[start : start + 4096] = old[start : start + 4096]
    _wheel(directory).write_bytes(content)


def _flip_log(directory: Path, _: Path) -> None:
    for path in _timer_log_files(directory, "*.log", "*.sst"):
        _flip(path)


def _flip_tables(directory: Path, _: Path) -> None:
    for path in _timer_log_files(directory, "*.sst"):
        _flip(path)


def _delete_table(directory: Path, _: Path) -> None:
    _timer_log_files(directory, "*.sst")[0].unlink()


def _flip_manifest(directory: Path, _: Path) -> None:
    for path in _timer_log_files(directory, "MANIFEST-*"):
        _flip(path)


def _flip_current(directory: Path, _: Path) -> None:
    (directory / "log" / "CURRENT").write_bytes(b"MANIFEST-" + bytes(6))


def _delete_current(directory: Path, _: Path) -> None:
    (directory / "log" / "CURRENT").unlink()


def _cut_log(directory: Path, _: Path) -> None:
    """Cuts the end of the write-ahead log, as after a power loss, so that the timer log opens in an earlier state.

    After a clean end the file may be empty.
    """
    path = max((directory / "log").glob("*.log"), key=lambda path: path.stat().st_size)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])


def _flip(path: Path) -> None:
    """Changes up to 64 bytes in the middle of a file."""
    content = bytearray(path.read_bytes())
    for position in range(len(content) // 3, len(content) // 3 + min(64, len(content) // 3)):
        content[position] ^= 0x55
    path.write_bytes(content)


def _wheel(directory: Path) -> Path:
    files = [path for path in directory.rglob("*") if path.is_file() and path.name.startswith("wheel")]
    assert len(files) == 1, f"one wheel file below {directory}, not {files}"
    return files[0]


def _timer_log_files(directory: Path, *patterns: str) -> list[Path]:
    """Returns the files of these patterns that are large enough to hold entries."""
    files = [path for pattern in patterns for path in (directory / "log").glob(pattern) if path.stat().st_size > 100]
    assert files, f"no {patterns} in {directory}"
    return files


_DAMAGES: dict[str, Damage] = {
    "directory deleted": _delete_directory,
    "old copy put back": _put_back,
    "wheel deleted": _delete_wheel,
    "wheel flipped": _flip_wheel,
    "wheel body flipped": _flip_wheel_body,
    "wheel cut": _cut_wheel,
    "wheel zeroed": _empty_wheel,
    "wheel old": _old_wheel,
    "wheel half old": _half_old_wheel,
    "timer log flipped": _flip_log,
    "tables flipped": _flip_tables,
    "table deleted": _delete_table,
    "manifest flipped": _flip_manifest,
    "current flipped": _flip_current,
    "current deleted": _delete_current,
    "write-ahead log cut": _cut_log,
    "nothing": lambda directory, before: None,
}


@pytest.mark.parametrize("ends", ["cleanly", "killed"])
def test_no_damage_to_the_disk_changes_a_delivery(deployment: SidecarDeployment, ends: str) -> None:
    damaged = dict(zip(_DAMAGES, deployment.new_request_topics(len(_DAMAGES)), strict=True))
    target = deployment.new_target(2)
    sidecar = deployment.new_sidecar()
    sidecar.start()
    sidecar.wait_for_shards(len(damaged))
    requested = _send(deployment, list(damaged.values()), target)
    deployment.wait_for_ends(len(damaged))
    assert sidecar.stop() == 0
    before = sidecar.data_dir.with_name(_COPY)
    shutil.copytree(sidecar.data_dir, before)
    sidecar.start()
    sidecar.wait_for_shards(len(damaged))
    requested += _send(deployment, list(damaged.values()), target)
    deployment.wait_for_ends(len(requested) // 4)
    if ends == "cleanly":
        assert sidecar.stop() == 0
    else:
        sidecar.kill()
    for name, requests in damaged.items():
        (directory,) = [path for path in sidecar.data_dir.rglob(requests) if path.is_dir()]
        (copy,) = [path for path in before.rglob(requests) if path.is_dir()]
        _DAMAGES[name](directory / "0", copy / "0")
    sidecar.start()
    sidecar.wait_for_shards(len(damaged))
    deployment.wait_for_ends(len(requested))
    assert sidecar.stop() == 0
    deployment.judge(requested)
    assert "HALTED" not in sidecar.all_logs()


def _send(deployment: SidecarDeployment, topics: list[str], target: str) -> list[Sent]:
    """Sends requests to all topics, and returns them. Most are due after the damage, and some share a due time."""
    sender, first_due_ms = deployment.sender(), int(time.time() * 1000) + 500
    requested = []
    for index in range(_MESSAGES // 2):
        for requests in topics:
            due_ms = first_due_ms + (index if index % 4 == 0 else 6_000 + index // 8 * 8 * 5)
            headers: Headers = [(TOPIC, target.encode()), (AT, b"%d" % due_ms)]
            requested.append(sender.send(requests, Sent(target, b"%d" % index, requests.encode(), headers, due_ms)))
    sender.flush()
    return requested
