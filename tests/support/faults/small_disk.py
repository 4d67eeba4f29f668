"""A disk of a few MiB that can be filled and emptied again: a tmpfs where mounting is allowed, else a limit on files.

Without the right to mount, the process is forbidden to make a file larger than some (RLIMIT_FSIZE, by `prlimit` on the
running process): its writes fail then as well, with EFBIG where a full disk gives ENOSPC, once a file has grown so far.
Its log is a file, too, which is why the limit is not nothing. `means` says which it is.
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
#: Larger than the log of a process that has just started, smaller than a timer log is after some seconds of load.
LIMIT_BYTES = 256 * 1024
_BALLAST = "ballast"
#: A process takes room while it is measured now and then, and not so often.
_TRIES_MAX = 200


@dataclass
class SmallDisk:
    """`directory` is where a sidecar may keep its data."""

    directory: Path
    means: str

    def fill(self, pid: int | None, left_bytes: int = 0) -> None:
        """Leaves this much room. `pid`: the process that shall feel it, where the means is a limit."""
        if self.means == "tmpfs":
            assert any(self._filled(left_bytes) for _ in range(_TRIES_MAX)), "somebody writes to it all the time"
        elif pid is not None:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (LIMIT_BYTES + left_bytes, resource.RLIM_INFINITY))

    def _filled(self, left_bytes: int) -> bool:
        """False where a process has taken of the room while it was measured."""
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
    """A disk of its own at `directory`, empty."""
    directory.mkdir(parents=True, exist_ok=True)
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(directory)]
    done = mount is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield SmallDisk(directory, "tmpfs" if done else "limit on the size of files (mounting is not allowed here)")
    finally:
        if done:
            subprocess.run(["umount", "--lazy", str(directory)], check=True)
