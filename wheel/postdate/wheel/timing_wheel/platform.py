"""The services of the operating system that a wheel file needs: the boot id, allocation on the disk, and syncs.

`LocalPlatform` is the real implementation. The fake for tests simulates boot ids and a full disk.

Thread rule: stateless.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
from pathlib import Path
from typing import Protocol

NO_BOOT = bytes(16)


class Platform(Protocol):
    """The interface; `allocate` and `sync` raise OSError."""

    def boot_id(self) -> bytes:
        """Returns 16 bytes that change with every boot, or NO_BOOT if they are unknown. With NO_BOOT, a file that was
        not closed cleanly is invalid."""
        ...

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        """Allocates the disk blocks of a file. If the file were sparse and the disk full later, a write to the mapped
        pages would kill the process with SIGBUS."""
        ...

    def sync(self, mapped: mmap.mmap) -> None:
        """Returns once the mapped pages are on disk."""
        ...


def return_free_memory() -> None:
    """Makes the C library release its free memory to the operating system. Does nothing without glibc.

    Such memory remains after flushes and compactions of RocksDB. Takes some milliseconds and releases the GIL.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class LocalPlatform:
    """The operating system of this machine."""

    def boot_id(self) -> bytes:
        """Returns Linux's boot id, or NO_BOOT on other systems."""
        try:
            text = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        except OSError:
            return NO_BOOT
        return hashlib.sha256(text.strip()).digest()[:16]

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        """Calls posix_fallocate. Raises OSError with ENOSPC if the disk is full."""
        os.posix_fallocate(descriptor, 0, size_bytes)

    def sync(self, mapped: mmap.mmap) -> None:
        """Calls msync for the whole mapping."""
        mapped.flush()
