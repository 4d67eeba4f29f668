"""The conditions of a measurement: commit, time and machine."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: The code on which figures depend. Changes of other files do not count as changes of the commit.
SOURCES = ("sidecar", "wheel", "connectors", "benchmarks/*.py", "benchmarks/peers")


def commit() -> str:
    """Returns the commit of this tree, followed by `with changes` if the code of the tree differs from the commit."""
    return _git("rev-parse", "--short", "HEAD") + (" with changes" if _git("status", "--porcelain", *SOURCES) else "")


def now() -> str:
    """Returns the present time in UTC, to the minute."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


def machine() -> str:
    """Returns the cores, the memory, the system and the Python version of this machine."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, {system}"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)  # noqa: S603, S607
    return done.stdout.strip()
