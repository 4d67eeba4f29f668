"""The status of a shard for other processes on this machine: `status.json` in its directory.

The shard replaces this small file from time to time; `postdate shard status` reads it together with the mapped wheel,
whether the process runs or not. The file is for people and tools, with one exception: when a process opens the shard,
it reads the last halt and the accepted losses, since a log that was truncated and has grown again no longer shows the
loss.

Thread rule: functions; a file has one writer, the shard that acts for the directory.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from postdate.sidecar.errors import HaltReason, Loss
from postdate.sidecar.operation.limits import SHARD_FILE_SIZE_BYTES_MAX
from postdate.sidecar.states import State

STATUS_NAME: Final = "status.json"

BESIDE: Final = ".beside-"
"""In the name of a directory that is used while another process holds the shard's own."""


class ShardStatus(msgspec.Struct, kw_only=True, frozen=True):
    """The status that a shard writes. Unknown fields are ignored, missing ones have their defaults."""

    v: int = 1
    requests: str
    partition: int
    cluster_id: str
    state: State
    instance: str
    process_id: int
    served: bool = True
    """False if the process has released the shard gracefully."""
    written_ms: int
    """The time of this status by the local clock, epoch ms. A delivering shard writes about every STATUS_AGE_MS_MAX,
    and sooner after a change."""
    since_ms: int = 0
    """The time at which the shard entered this state, by the local clock, epoch ms."""
    reason: HaltReason | None = None
    """The reason of the shard's last halt; kept until the next successful takeover."""
    why: str = ""
    loss: Loss | None = None
    """The loss that an operator must accept to resume it."""
    accepted: list[Loss] = []
    """The losses accepted for the next takeover."""
    next_request: int | None = None
    next_dispatch: int | None = None
    low_water: int | None = None
    seq: int = 0
    takeover: int = 0
    pending: int = 0
    lag: int | None = None
    """The number of offsets of the request topic from `next_request` on; None if unknown, for example if Kafka did not
    answer."""
    held: list[str] = []
    """The holds of the shard: delivery, intake, target NAME."""
    skew_ms: float | None = None
    """Local clock minus the broker's; None before the first sample."""


_decoder = msgspec.json.Decoder(ShardStatus)


def write_status(directory: Path, status: ShardStatus) -> None:
    """Replaces the file atomically: a reader sees the old file or the new one. Raises OSError.

    A status with a loss is synced to disk, since the shard itself relies on it; others are not.
    """
    write_whole(directory / STATUS_NAME, msgspec.json.encode(status), durable=status.loss is not None)


def read_status(directory: Path) -> ShardStatus | None:
    """Returns the last written status of a directory; None if there is none, or if it cannot be read."""
    data = read_bounded(directory / STATUS_NAME)
    try:
        return None if data is None else _decoder.decode(data)
    except msgspec.MsgspecError:
        return None


def write_whole(path: Path, data: bytes, durable: bool) -> None:
    """Creates or replaces a small file atomically; creates its directory if it is missing.

    `durable`: after a power failure there is the old or the new file, and never an empty one. Raises OSError.
    """
    os.makedirs(path.parent, mode=0o700, exist_ok=True)
    new_path = path.with_name(f"{path.name}.new")
    with new_path.open("wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.replace(new_path, path)
    if durable:
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def read_bounded(path: Path) -> bytes | None:
    """Returns the content of a status or instruction file; None if it does not exist, cannot be read, or is too large
    for one."""
    try:
        with path.open("rb") as file:
            data = file.read(SHARD_FILE_SIZE_BYTES_MAX + 1)
    except OSError:
        return None
    return data if len(data) <= SHARD_FILE_SIZE_BYTES_MAX else None
