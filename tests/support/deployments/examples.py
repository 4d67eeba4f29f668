"""The programs of `examples/`, and the commands that `examples/README.md` gives for them.

A command is one line of a shell block of that document, for the root of the repository. Tests run it unchanged.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from postdate.tools.dev_broker.jars import kafka_libs
from support.clients.foreign_clients import fetch_kafkajs
from support.deployments.programs import need_go, need_program
from support.repository import ROOT
from support.waiting.timeouts import WAIT_TIMEOUT_S

EXAMPLES = ROOT / "examples"
README = EXAMPLES / "README.md"
LANGUAGES = {".py": "python", ".java": "java", ".js": "javascript", ".go": "go"}
"""Suffix of a program's name -> its language."""

RECIPES = "airflow"
"""A folder whose programs run inside another scheduler; `tests/unit/repository/test_recipes.py` runs them."""

COMPOSED = "compose"
"""A folder whose program is a service of its compose file; `tests/integration/test_compose.py` runs it."""

#: The escape sequence that ends Maven's last message, even in output without colours.
_COLOURS_OFF = "\x1b[0m"

_SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def keda_trigger() -> dict[str, str]:
    """Returns the metadata of the trigger in the KEDA example, which queries Postdate."""
    text = (EXAMPLES / "kubernetes" / "keda-scaledobject.yaml").read_text(encoding="utf-8")
    _, scaled = yaml.safe_load_all(text)
    (found,) = (each["metadata"] for each in scaled["spec"]["triggers"] if each["type"] == "metrics-api")
    return dict(found)


def programs() -> list[str]:
    """Returns every example as `<folder>/<file>` below `examples/`."""
    found = (path.relative_to(EXAMPLES) for suffix in LANGUAGES for path in EXAMPLES.rglob(f"*{suffix}"))
    return sorted(path.as_posix() for path in found if not {"node_modules", RECIPES, COMPOSED} & {*path.parts})


def commands(text: str, program: str) -> list[str]:
    """Returns the lines of the document's shell blocks that run this program."""
    lines = [line for block in _SHELL.findall(text) for line in block.splitlines()]
    return [line for line in lines if re.search(rf"(^|[/ ]){re.escape(Path(program).name)}\b", line)]


def listing_complaints(text: str, present: list[str], tests: str) -> Iterator[str]:
    """Yields a complaint for each example that has no row, does not have exactly one command, or is named by no
    test."""
    for program in present:
        if not re.search(rf"^\| \[{re.escape(program)}\]\({re.escape(program)}\) \| \S", text, re.MULTILINE):
            yield f"examples/README.md has no row for {program}"
        if len(commands(text, program)) != 1:
            yield f"examples/README.md has {len(commands(text, program))} commands for {program}"
        if f'"{program}"' not in tests:
            yield f"no test runs {program}"


def run_example(program: str, bootstrap: str, requests: str) -> list[str]:
    """Returns the lines that an example prints; if it fails, the test fails with its error output."""
    (command,) = commands(README.read_text(encoding="utf-8"), program)
    given = _environment(program, bootstrap, requests)
    with subprocess.Popen(
        ["bash", "-c", command],
        cwd=ROOT,
        env=given,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as started:
        try:
            output, errors = started.communicate(timeout=WAIT_TIMEOUT_S)
        except subprocess.TimeoutExpired as late:
            os.killpg(started.pid, signal.SIGKILL)  # the shell and all its children
            output = (late.stdout or b"") + (late.stderr or b"")
            raise AssertionError(f"{program} did not end; it printed:\n{output.decode(errors='replace')}") from late
    assert started.returncode == 0, (output + errors).decode(errors="replace")
    return output.decode().replace(_COLOURS_OFF, "").splitlines()


@contextmanager
def running_example(
    program: str, bootstrap: str, requests: str, output: Path, **more: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Yields a Python or Java example as a process that appends its output to a file; kills it when the context exits.
    `more` is added to its environment."""
    given = _environment(program, bootstrap, requests) | more
    starter = ["java", "-cp", f"{given['KAFKA_LIBS']}/*"] if program.endswith(".java") else [sys.executable]
    command = [*starter, str(EXAMPLES / program)]
    with (
        output.open("ab") as file,
        subprocess.Popen(command, cwd=ROOT, env=given, stdout=file, stderr=subprocess.STDOUT) as started,
    ):
        try:
            yield started
        finally:
            started.kill()


def _environment(program: str, bootstrap: str, requests: str) -> dict[str, str]:
    given = {name: value for name, value in os.environ.items() if not name.startswith("POSTDATE_")}
    given |= {"BOOTSTRAP": bootstrap, "REQUESTS": requests, "JAVA_TOOL_OPTIONS": "", **_needs(program)}
    given["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), given["PATH"]])
    given["PYTHONPATH"] = os.pathsep.join(str(ROOT / source) for source in ("sidecar", "wheel", "connectors"))
    return given


def _needs(program: str) -> dict[str, str]:
    """Skips the test if the language's tools are missing; returns additional environment variables."""
    match LANGUAGES[Path(program).suffix]:
        case "java":
            need_program("javac", "openjdk-17-jdk-headless")  # running a source file takes the compiler of a JDK
            if program.startswith("java-spring/"):
                need_program("mvn", "maven")
            return {"KAFKA_LIBS": str(kafka_libs())}
        case "javascript":
            need_program("node", "nodejs")
            fetch_kafkajs()
        case "go":
            need_go(EXAMPLES / "go" / "go.mod")
    return {}
