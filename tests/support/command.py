"""A command of Postdate as a child process, run to its end whatever its exit code; its output is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


def run_postdate(*arguments: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    """The finished process, with stdout and stderr as text."""
    path = os.pathsep.join(str(_ROOT / source) for source in ("sidecar", "wheel", "connectors"))
    return subprocess.run(
        [sys.executable, "-m", "postdate.sidecar.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
