"""Goal: the local disk is a cache: whatever happens to it between two runs, no delivery changes.

Method: a first process takes in requests and delivers some; it ends cleanly or is killed; its directory is deleted, or
its wheel file deleted, flipped bit by bit, cut, emptied or mixed with an older copy; a second process goes on. The
oracle then judges all deliveries of both. Each damage has a request topic of its own, all served by the same processes.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from postdate.connectors.wire.headers import AT, TOPIC, Headers
from support.bed import Bed
from support.oracle import Sent

_MESSAGES = 400


def _delete_directory(directory: Path) -> None:
    shutil.rmtree(directory)


def _delete_wheel(directory: Path) -> None:
    _wheel(directory).unlink()


def _flip_wheel(directory: Path) -> None:
    """A bit in every 64 bytes, in the headers of the file too."""
    content, chance = bytearray(_wheel(directory).read_bytes()), random.Random(3)
    for at in range(0, len(content), 64):
        content[min(at + chance.randrange(64), len(content) - 1)] ^= 1 << chance.randrange(8)
    _wheel(directory).write_bytes(content)


def _flip_wheel_body(directory: Path) -> None:
    """Only beyond the headers: what a checksum of the headers alone would not see."""
    content, chance = bytearray(_wheel(directory).read_bytes()), random.Random(5)
    for at in range(8192, len(content), 16):
        content[min(at + chance.randrange(16), len(content) - 1)] ^= 0xFF
    _wheel(directory).write_bytes(content)


def _cut_wheel(directory: Path) -> None:
    _wheel(directory).write_bytes(_wheel(directory).read_bytes()[:5000])


def _empty_wheel(directory: Path) -> None:
    _wheel(directory).write_bytes(bytes(len(_wheel(directory).read_bytes())))


def _flip_log(directory: Path) -> None:
    """Bytes in the middle of every file of the timer log that is large enough to hold entries."""
    for path in _timer_log_files(directory):
        content = bytearray(path.read_bytes())
        for at in range(len(content) // 3, len(content) // 3 + min(64, len(content) // 3)):
            content[at] ^= 0x55
        path.write_bytes(content)


def _wheel(directory: Path) -> Path:
    found = [path for path in directory.rglob("*") if path.is_file() and path.name.startswith("wheel")]
    assert len(found) == 1, f"one wheel file below {directory}, not {found}"
    return found[0]


def _timer_log_files(directory: Path) -> list[Path]:
    found = [path for path in directory.rglob("*") if path.suffix in (".log", ".sst") and path.stat().st_size > 100]
    assert found, f"no timer log below {directory}"
    return found


_DAMAGES: dict[str, Callable[[Path], None]] = {
    "directory deleted": _delete_directory,
    "wheel deleted": _delete_wheel,
    "wheel flipped": _flip_wheel,
    "wheel body flipped": _flip_wheel_body,
    "wheel cut": _cut_wheel,
    "wheel zeroed": _empty_wheel,
    "timer log flipped": _flip_log,
    "nothing": lambda directory: None,
}


@pytest.mark.parametrize("ends", ["cleanly", "killed"])
def test_no_damage_to_the_disk_changes_a_delivery(bed: Bed, ends: str) -> None:
    damaged = {name: bed.new_requests() for name in _DAMAGES}
    target = bed.new_target(2)
    sidecar = bed.new_sidecar()
    sidecar.start()
    sidecar.wait_for_shards(len(damaged))
    asked = _ask(bed, list(damaged.values()), target)
    bed.wait_for_ends(len(asked) // 4)
    if ends == "cleanly":
        assert sidecar.stop() == 0
    else:
        sidecar.kill()
    for name, requests in damaged.items():
        (directory,) = [path for path in sidecar.data_dir.rglob(requests) if path.is_dir()]
        _DAMAGES[name](directory / "0")
    sidecar.start()
    sidecar.wait_for_shards(len(damaged))
    bed.wait_for_ends(len(asked))
    assert sidecar.stop() == 0
    bed.judge(asked)
    assert "HALTED" not in sidecar.all_logs()


def _ask(bed: Bed, topics: list[str], target: str) -> list[Sent]:
    """Requests for all topics: some due before the damage, most after it, some at one and the same millisecond."""
    sender, first_due_ms = bed.sender(), int(time.time() * 1000) + 500
    asked = []
    for index in range(_MESSAGES):
        for requests in topics:
            due_ms = first_due_ms + (index if index % 4 == 0 else 6_000 + index // 8 * 8 * 5)
            given: Headers = [(TOPIC, target.encode()), (AT, b"%d" % due_ms)]
            asked.append(sender.send(requests, Sent(target, b"%d" % index, requests.encode(), given, due_ms)))
    sender.flush()
    return asked
