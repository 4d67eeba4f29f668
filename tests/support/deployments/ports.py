"""TCP ports of the loopback interface for the servers that a test starts.

Between the choice of a port and the moment a server listens on it, which takes seconds on a busy machine, another
program may take it, and the test would talk to that program. The kernel gives a port from here to no program that asks
for any port, since it lies below the range for these. A locked file keeps it from other test processes until this one
ends.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

_FIRST: Final = 15_000
_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LAST_OTHERWISE: Final = 32_767
_COUNT_MIN: Final = 1_000

#: The descriptors of the lock files: the kernel releases the locks when the process ends.
_locks: list[int] = []
_numbers = itertools.count(os.getpid() * 16)


def free_port() -> int:
    """A port that is free, and stays so until a server of this process or of its children takes it."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of `count` consecutive ports, each as `free_port`. Raises RuntimeError if there are none."""
    last = _last()
    for number in itertools.islice(_numbers, last - _FIRST):
        first = _FIRST + number % (last - _FIRST - count)
        locks = _claim(range(first, first + count))
        if locks is not None:
            _locks.extend(locks)
            return first
    raise RuntimeError(f"no free port from {_FIRST} to {last}: end programs that listen there, or other test runs")


def _last() -> int:
    """The last port below the range of the kernel; if that begins too low, or is unknown, only the locks protect."""
    with suppress(OSError):
        last = int(_RANGE.read_text().split()[0]) - 1
        if last >= _FIRST + _COUNT_MIN:
            return last
    return _LAST_OTHERWISE


def _claim(ports: range) -> list[int] | None:
    """The locks of these ports; None if one of them is in use or locked."""
    locks: list[int] = []
    try:
        for port in ports:
            locks.append(os.open(Path(tempfile.gettempdir()) / f"postdate-test-port-{port}", os.O_CREAT | os.O_RDWR))
            fcntl.flock(locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.create_server(("127.0.0.1", port)):
                pass
    except OSError:
        for lock in locks:
            os.close(lock)
        return None
    return locks
