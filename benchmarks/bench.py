"""`python -m benchmarks.bench`: runs `postdate bench` with the same arguments; writes benchmarks/bench.json.

The file has the raw values and the conditions. The exit code is that of the command. If the command measures nothing,
no file is written.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from benchmarks import conditions

REPORT = conditions.ROOT / "benchmarks/bench.json"


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    began, commit, load = conditions.now(), conditions.commit(), os.getloadavg()[0]
    command = [sys.executable, "-m", "postdate.cli", "bench", *arguments, "--output", "json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603
    if done.stdout:
        head = {"command": " ".join(["postdate bench", *arguments]), "commit": commit, "began": began}
        head |= {"machine": conditions.machine(), "load_average": f"{load:.1f} to {os.getloadavg()[0]:.1f}"}
        REPORT.write_text(json.dumps(head | {"result": json.loads(done.stdout)}, indent=1) + "\n", encoding="utf-8")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
