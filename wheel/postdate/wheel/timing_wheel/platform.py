"""The services of the operating system that a wheel file needs: the boot id, allocation on the disk, and syncs.

`LocalPlatform` is the real one; the fake of the tests sets the boot and the room.

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
    """The interface; its methods raise OSError."""

    def boot_id(self) -> bytes:
        """16 bytes that change with every boot; NO_BOOT if unknown: then no unclean file is valid."""
        ...

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        """Allocates the disk blocks of a file: with a sparse file, a full disk later kills the process with SIGBUS."""
        ...

    def sync(self, mapped: mmap.mmap) -> None:
        """Returns once the mapped pages are on disk."""
        ...


def return_free_memory() -> None:
    """Returns memory that is free, but that the C library keeps, to the system; does nothing without glibc.

    RocksDB's memtables and compactions leave such memory. Takes some milliseconds (the GIL is released).
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class LocalPlatform:
    """This machine."""

    def boot_id(self) -> bytes:
        """Linux's boot id; NO_BOOT on other systems."""
        try:
            text = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        except OSError:
            return NO_BOOT
        return hashlib.sha256(text.strip()).digest()[:16]

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        """posix_fallocate; ENOSPC if there is no room."""
        os.posix_fallocate(descriptor, 0, size_bytes)

    def sync(self, mapped: mmap.mmap) -> None:
        """msync of the whole mapping."""
        mapped.flush()
