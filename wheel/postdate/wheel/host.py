"""What the wheel file needs of the machine: which boot this is, room on the disk, and a write-back that has happened.

`LocalHost` is the real one; tests have one that decides which boot it is and how much room there is.

Thread rule: no state that changes on its own.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from pathlib import Path
from typing import Protocol

NO_BOOT = bytes(16)


class Host(Protocol):
    """The interface; OSError is what the real calls raise."""

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
