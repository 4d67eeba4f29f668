"""TCP ports of the loopback interface for servers that a test starts.

A server may start to listen seconds after the test has chosen its port. Meanwhile another program could take the port,
and the test would connect to that program. So these ports lie below the range from which the kernel assigns ports to
programs that request any port. A locked file keeps other test processes from choosing the same port until this process
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
    """Returns a port that stays free until a server of this process or its children takes it."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """Returns the first of `count` consecutive free ports, each like `free_port`. Raises RuntimeError if there are
    none."""
    last = _last()
    for number in itertools.islice(_numbers, last - _FIRST):
        first = _FIRST + number % (last - _FIRST - count)
        locks = _claim(range(first, first + count))
        if locks is not None:
            _locks.extend(locks)
            return first
    raise RuntimeError(f"no free port from {_FIRST} to {last}: end programs that listen there, or other test runs")


def _last() -> int:
    """Returns the last port to try: the one below the kernel's range. If that range starts too low or is unknown, only
    the locks reserve ports."""
    with suppress(OSError):
        last = int(_RANGE.read_text().split()[0]) - 1
        if last >= _FIRST + _COUNT_MIN:
            return last
    return _LAST_OTHERWISE


def _claim(ports: range) -> list[int] | None:
    """Locks these ports and returns the descriptors; None if one of them is in use or locked."""
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
