"""What the wheel file needs of the machine: which boot this is, room on the disk, and a write-back that has happened.

`LocalHost` is the real one. `PretendHost` is for tests and the simulation: it says which boot it is, and can refuse
room.

Thread rule: no state that changes on its own.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
from pathlib import Path
from typing import Protocol

NO_BOOT = bytes(16)


class Host(Protocol):
    """The seam; OSError is what the real calls raise."""

    def boot_id(self) -> bytes:
        """16 bytes that change with every boot; NO_BOOT where unknown, and then no unclean file is believed."""
        ...

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        """Give a file its disk blocks: a sparse file on a full disk kills the process with SIGBUS later on."""
        ...

    def sync(self, mapped: mmap.mmap) -> None:
        """Return once the mapped pages are on disk."""
        ...


class LocalHost:
    """This machine."""

    def boot_id(self) -> bytes:
        """Linux's boot id; NO_BOOT elsewhere."""
        try:
            text = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        except OSError:
            return NO_BOOT
        return hashlib.sha256(text.strip()).digest()[:16]

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        """posix_fallocate; ENOSPC where there is no room."""
        os.posix_fallocate(descriptor, 0, size_bytes)

    def sync(self, mapped: mmap.mmap) -> None:
        """msync of the whole mapping."""
        mapped.flush()


class PretendHost(LocalHost):
    """A machine whose boot and disk space the test decides."""

    def __init__(self, boot: str = "boot-1", room_bytes: int | None = None) -> None:
        """`room_bytes` None: whatever the real disk has."""
        self.boot = boot
        self.room_bytes = room_bytes

    def boot_id(self) -> bytes:
        """Derived from `boot`."""
        return hashlib.sha256(self.boot.encode()).digest()[:16]

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        """ENOSPC where the file is larger than the room."""
        if self.room_bytes is not None and size_bytes > self.room_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().allocate(descriptor, size_bytes)
