"""The shards of a data directory as seen by another process: the status that each has written, and its mapped wheel.

Read-only: takes no lock, opens no database, and sends no request to Kafka.

Thread rule: functions.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from postdate.sidecar.errors import ConfigError
from postdate.sidecar.operation.shard_status import BESIDE, ShardStatus, read_status
from postdate.sidecar.states import State
from postdate.wheel.timing_wheel.wheel_view import present_snapshot

_SHARD_NAME = re.compile(rf"(\d+)(?:{re.escape(BESIDE)}[0-9a-f]+)?")


@dataclass(frozen=True, slots=True)
class FoundShard:
    """One shard of a data directory; unknown values are None."""

    cluster_id: str
    requests: str
    partition: int
    directory: Path
    status: ShardStatus | None
    next_request: int | None
    pending: int | None

    @property
    def name(self) -> str:
        """The name of the shard on the command line."""
        return f"{self.requests}/{self.partition}"

    @property
    def state(self) -> State:
        """The last written state of the shard; UNASSIGNED if there is none."""
        return State.UNASSIGNED if self.status is None else self.status.state

    def disk_free_size_bytes(self) -> int | None:
        """Returns the free space of the shard's disk for this user; None if the system does not report it."""
        try:
            disk = os.statvfs(self.directory)
        except OSError:
            return None
        return disk.f_bavail * disk.f_frsize

    def age_ms(self, now_ms: int) -> int | None:
        """Returns the age of the shard's status by the local clock; None if there is no status."""
        return None if self.status is None else max(now_ms - self.status.written_ms, 0)


def require_directory(data: Path) -> Path:
    """Returns the data directory. Raises ConfigError if it does not exist, since `--data` is wrong then."""
    if not data.is_dir():
        raise ConfigError(f"there is no directory {data}: --data names the one that was given to postdate run")
    return data


def no_shard_in(data: Path) -> str:
    """Returns the sentence for a data directory without shards."""
    return f"no shard in {data}: --data names the directory that was given to postdate run"


def find_shards(data: Path) -> list[FoundShard]:
    """Returns every shard of a data directory, sorted by cluster, request topic and partition; empty if there is none.

    A shard with several directories is listed once, with the newest status.
    """
    latest: dict[tuple[str, str, int], FoundShard] = {}
    for directory in _directories(data):
        shard = _read(directory)
        key = shard.cluster_id, shard.requests, shard.partition
        if key not in latest or _written_ms(latest[key]) <= _written_ms(shard):
            latest[key] = shard
    return [latest[key] for key in sorted(latest)]


def _written_ms(shard: FoundShard) -> int:
    return -1 if shard.status is None else shard.status.written_ms


def _directories(data: Path) -> list[Path]:
    """Returns the directories `<data>/<cluster id>/<request topic>/<partition>`, and those beside them."""
    directories: list[Path] = []
    for cluster in _subdirectories(data):
        for topic in _subdirectories(cluster):
            directories += [path for path in _subdirectories(topic) if _SHARD_NAME.fullmatch(path.name)]
    return directories


def _subdirectories(directory: Path) -> list[Path]:
    try:
        with os.scandir(directory) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir())
    except OSError:
        return []


def _read(directory: Path) -> FoundShard:
    matched = _SHARD_NAME.fullmatch(directory.name)
    assert matched is not None, "only directories of shards are read"
    status = read_status(directory)
    next_request = None if status is None else status.next_request
    pending = None if status is None else status.pending
    if (snapshot := present_snapshot(directory)) is not None:  # otherwise use the last status
        next_request, pending = snapshot.next_request, snapshot.count
    return FoundShard(
        cluster_id=directory.parent.parent.name,
        requests=directory.parent.name,
        partition=int(matched.group(1)),
        directory=directory,
        status=status,
        next_request=next_request,
        pending=pending,
    )
