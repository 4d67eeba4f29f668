"""A fake platform with a settable boot id, which can run out of disk space."""

from __future__ import annotations

import errno
import hashlib

from postdate.wheel.timing_wheel.platform import LocalPlatform


class FakePlatform(LocalPlatform):
    """A machine with a boot id and free disk space that the test sets."""

    def __init__(self, boot: str = "boot-1", free_bytes: int | None = None) -> None:
        """`free_bytes`: the free space; None: that of the real disk."""
        self.boot = boot
        self.free_bytes = free_bytes

    def boot_id(self) -> bytes:
        """Returns an id derived from `boot`."""
        return hashlib.sha256(self.boot.encode()).digest()[:16]

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        """Allocates the file; raises ENOSPC if it is larger than the free space."""
        if self.free_bytes is not None and size_bytes > self.free_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().allocate(descriptor, size_bytes)
