"""Goal: after a test has chosen a port, no other program gets it before the test's server listens; otherwise the test
would connect to that program.

Method: compares the ports with the range from which the kernel serves requests for any port, and with the ports that
another process chooses.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from support.deployments.ports import free_port, free_ports
from support.repository import TESTS


def test_a_program_that_requests_any_port_gets_none_of_the_tests() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(free_port() for _ in range(50)) < lowest


def test_no_other_process_gets_the_same_port() -> None:
    """The other process starts to search at the same port."""
    program = f"import os; os.getpid = lambda: {os.getpid()}; from support.deployments.ports import free_port\n"
    program += "print(*(free_port() for _ in range(200)))"
    own = {free_port() for _ in range(200)}
    given = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run([sys.executable, "-c", program], env=given, capture_output=True, text=True, check=True)
    assert own.isdisjoint(map(int, done.stdout.split()))
    assert len(own) == len(done.stdout.split()) == 200


def test_a_port_in_use_is_skipped() -> None:
    first = free_port()
    with socket.create_server(("127.0.0.1", first + 1)):
        ports = {free_port() for _ in range(20)}
    assert first + 1 not in ports


def test_consecutive_ports_are_all_reserved() -> None:
    first = free_ports(3)
    later = {free_port() for _ in range(20)}
    assert later.isdisjoint(range(first, first + 3))
    for port in range(first, first + 3):
        socket.create_server(("127.0.0.1", port)).close()
