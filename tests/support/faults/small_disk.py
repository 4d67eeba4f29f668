"""A disk of a few MiB that can be filled and freed: a tmpfs if mounting is allowed, otherwise a limit on file sizes.

Without the right to mount, `prlimit` sets RLIMIT_FSIZE on the running process: a write that exceeds this file size
fails with EFBIG instead of ENOSPC. The limit is not zero, because the log of the process is a file as well. `means`
names the method in use.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SIZE_MIB = 24
#: Bytes: the limit on file sizes. It is larger than the log of a process that has just started, and smaller than a
#: timer log after some seconds of load.
LIMIT_BYTES = 256 * 1024
_BALLAST = "ballast"
#: The maximum number of attempts to fill the disk: one fails if a process uses space while the free space is measured.
_TRIES_MAX = 200


@dataclass
class SmallDisk:
    """The disk for the data of a sidecar, at `directory`; `means`: `tmpfs`, or the name of the limit."""

    directory: Path
    means: str

    def fill(self, pid: int | None, left_bytes: int = 0) -> None:
        """Fills the disk except for `left_bytes`. `pid`: the process to limit, if the method is a limit on file
        sizes."""
        if self.means == "tmpfs":
            assert any(self._filled(left_bytes) for _ in range(_TRIES_MAX)), "somebody writes to it all the time"
        elif pid is not None:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (LIMIT_BYTES + left_bytes, resource.RLIM_INFINITY))

    def _filled(self, left_bytes: int) -> bool:
        """Fills the disk; False if a process used space while it was measured."""
        disk = os.statvfs(self.directory)
        ballast = self.directory / _BALLAST
        size = ballast.stat().st_size if ballast.exists() else 0
        with ballast.open("ab") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, size + disk.f_bavail * disk.f_frsize - left_bytes)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                return False
        return True

    def free(self, pid: int | None) -> None:
        if self.means == "tmpfs":
            (self.directory / _BALLAST).unlink(missing_ok=True)
        elif pid is not None:
            unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)


@contextmanager
def small_disk(directory: Path, size_mib: int = SIZE_MIB) -> Iterator[SmallDisk]:
    """Yields a new, empty disk at `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(directory)]
    done = mount is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield SmallDisk(directory, "tmpfs" if done else "limit on the size of files (mounting is not allowed here)")
    finally:
        if done:
            subprocess.run(["umount", "--lazy", str(directory)], check=True)
