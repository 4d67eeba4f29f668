"""`python -m benchmarks.record NAME COMMAND...`: runs a command and writes its output to benchmarks/raw/NAME.txt.

The file begins with the command, the commit, the time, the machine and the load average. The exit code is that of the
command; the file is written even if the command fails. Paths below this tree are written relative to it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks import conditions

RAW = conditions.ROOT / "benchmarks/raw"


def main(name: str, command: list[str], folder: Path = RAW) -> int:
    """Returns the exit code. `command` may begin with variables for its environment: NAME=VALUE."""
    began, commit, load, started = conditions.now(), conditions.commit(), os.getloadavg()[0], time.monotonic()
    variables = dict(word.split("=", 1) for word in command[: _first_program(command)])
    code, output = _run(command[len(variables) :], os.environ | variables)
    seconds = time.monotonic() - started
    head = {
        "command": shlex.join(command),
        "commit": commit,
        "began": began,
        "machine": conditions.machine(),
        "load average": f"{load:.1f} to {os.getloadavg()[0]:.1f}",
        "seconds": f"{seconds:.0f}",
        "exit code": str(code),
    }
    folder.mkdir(exist_ok=True)
    lines = [f"{key}: {value}" for key, value in head.items()]
    text = output.replace(f"{conditions.ROOT}/", "").replace(str(conditions.ROOT), ".")
    (folder / f"{name}.txt").write_text("\n".join([*lines, "", text]), encoding="utf-8")
    return code


def _first_program(command: list[str]) -> int:
    """Returns the number of words of `command` before the program."""
    return next((place for place, word in enumerate(command) if "=" not in word), len(command))


def _run(command: list[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Returns the exit code and the output of the command, which is also printed as it arrives."""
    lines = []
    with subprocess.Popen(  # noqa: S603
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return process.returncode, "".join(lines)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("Name the record and the command: python -m benchmarks.record NAME COMMAND...")
    sys.exit(main(sys.argv[1], sys.argv[2:]))
