"""Goal: the local disk is a cache: no damage between two runs changes a delivery.

Method: a first process takes in requests and is stopped; its disk is copied. A second process goes on, delivers some,
and ends cleanly or is killed. Then its directory is deleted, or the old copy is put back, or its wheel file is deleted,
flipped bit by bit, cut, emptied, replaced by an older one or mixed with it, or a file of its timer log is deleted,
flipped or cut, one kind at a time. A third process goes on. The oracle then judges all deliveries of all. Each damage
has a request topic of its own, all served by the same processes.
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
#: Under the data directory of a process: what its disk held before.
_COPY = "copied"

Damage = Callable[[Path, Path], None]
"""What happens to a directory, given also the copy of it that was taken before."""


def _delete_directory(directory: Path, _: Path) -> None:
    shutil.rmtree(directory)


def _put_back(directory: Path, before: Path) -> None:
    shutil.rmtree(directory)
    shutil.copytree(before, directory)


def _delete_wheel(directory: Path, _: Path) -> None:
    _wheel(directory).unlink()


def _flip_wheel(directory: Path, _: Path) -> None:
    """A bit in every 64 bytes, in the headers of the file too."""
    content, chance = bytearray(_wheel(directory).read_bytes()), random.Random(3)
    for at in range(0, len(content), 64):
        content[min(at + chance.randrange(64), len(content) - 1)] ^= 1 << chance.randrange(8)
    _wheel(directory).write_bytes(content)


def _flip_wheel_body(directory: Path, _: Path) -> None:
    """Only beyond the headers: what a checksum of the headers alone would not see."""
    content, chance = bytearray(_wheel(directory).read_bytes()), random.Random(5)
    for at in range(8192, len(content), 16):
        content[min(at + chance.randrange(16), len(content) - 1)] ^= 0xFF
    _wheel(directory).write_bytes(content)


def _cut_wheel(directory: Path, _: Path) -> None:
    _wheel(directory).write_bytes(_wheel(directory).read_bytes()[:5000])


def _empty_wheel(directory: Path, _: Path) -> None:
    _wheel(directory).write_bytes(bytes(len(_wheel(directory).read_bytes())))


def _old_wheel(directory: Path, before: Path) -> None:
    shutil.copy(_wheel(before), _wheel(directory))


def _half_old_wheel(directory: Path, before: Path) -> None:
    """Every other page is that of the old file, as after a power loss."""
    content, old = bytearray(_wheel(directory).read_bytes()), _wheel(before).read_bytes()
    for at in range(0, len(content), 2 * 4096):
        content[at : at + 4096] = old[at : at + 4096]
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
    """What was written last is gone, as after a power loss: the log opens at an earlier state. A process that ended
    cleanly may have left nothing there to lose."""
    path = max((directory / "log").glob("*.log"), key=lambda path: path.stat().st_size)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])


def _flip(path: Path) -> None:
    """Bytes in the middle of a file."""
    content = bytearray(path.read_bytes())
    for at in range(len(content) // 3, len(content) // 3 + min(64, len(content) // 3)):
        content[at] ^= 0x55
    path.write_bytes(content)


def _wheel(directory: Path) -> Path:
    found = [path for path in directory.rglob("*") if path.is_file() and path.name.startswith("wheel")]
    assert len(found) == 1, f"one wheel file below {directory}, not {found}"
    return found[0]


def _timer_log_files(directory: Path, *patterns: str) -> list[Path]:
    """Those large enough to hold entries."""
    found = [path for pattern in patterns for path in (directory / "log").glob(pattern) if path.stat().st_size > 100]
    assert found, f"no {patterns} in {directory}"
    return found


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
def test_no_damage_to_the_disk_changes_a_delivery(env: SidecarDeployment, ends: str) -> None:
    damaged = dict(zip(_DAMAGES, env.new_request_topics(len(_DAMAGES)), strict=True))
    target = env.new_target(2)
    sidecar = env.new_sidecar()
    sidecar.start()
    sidecar.wait_for_shards(len(damaged))
    asked = _ask(env, list(damaged.values()), target)
    env.wait_for_ends(len(damaged))
    assert sidecar.stop() == 0
    before = sidecar.data_dir.with_name(_COPY)
    shutil.copytree(sidecar.data_dir, before)
    sidecar.start()
    sidecar.wait_for_shards(len(damaged))
    asked += _ask(env, list(damaged.values()), target)
    env.wait_for_ends(len(asked) // 4)
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
    env.wait_for_ends(len(asked))
    assert sidecar.stop() == 0
    env.judge(asked)
    assert "HALTED" not in sidecar.all_logs()


def _ask(env: SidecarDeployment, topics: list[str], target: str) -> list[Sent]:
    """Requests for all topics: some due before the damage, most after it, some at one and the same millisecond."""
    sender, first_due_ms = env.sender(), int(time.time() * 1000) + 500
    asked = []
    for index in range(_MESSAGES // 2):
        for requests in topics:
            due_ms = first_due_ms + (index if index % 4 == 0 else 6_000 + index // 8 * 8 * 5)
            given: Headers = [(TOPIC, target.encode()), (AT, b"%d" % due_ms)]
            asked.append(sender.send(requests, Sent(target, b"%d" % index, requests.encode(), given, due_ms)))
    sender.flush()
    return asked
