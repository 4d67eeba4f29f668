"""Small programs that use the helpers of `clients/`: each runs the conformance cases, or a scenario on a broker."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from postdate.tools.dev_broker.jars import kafka_libs
from support.clients.cases import FILE
from support.clients.foreign_clients import fetch_kafkajs
from support.deployments.programs import need_go, need_program
from support.waiting.timeouts import WAIT_TIMEOUT_S

LANGUAGES = ("java", "go", "javascript")

_HELPERS = FILE.parent
_PROGRAMS = Path(__file__).parent


class ClientPrograms:
    """Compiles the program of a language below `directory` on its first use."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._commands: dict[str, list[str]] = {}

    def conform(self, language: str) -> list[str]:
        """Returns the helper's result of each conformance case, one JSON object on each line."""
        return self._run(language, ["conformance", str(FILE)])

    def live(self, language: str, bootstrap: str, requests: str, partitions: int, target: str) -> list[str]:
        """Runs the scenario, which schedules three messages, cancels two, returns one and repeats a fourth; returns the
        program's output."""
        arguments = ["live", bootstrap, requests, str(partitions), target]
        return self._run(language, [*arguments, str(fetch_kafkajs())] if language == "javascript" else arguments)

    def _run(self, language: str, arguments: list[str]) -> list[str]:
        if language not in self._commands:
            self._commands[language] = getattr(self, f"_prepare_{language}")()
        return _output([*self._commands[language], *arguments])

    def _prepare_java(self) -> list[str]:
        java, javac = (need_program(name, "openjdk-17-jdk-headless") for name in ("java", "javac"))
        sources = [str(_HELPERS / "java/Postdate.java"), str(_PROGRAMS / "RunPostdate.java")]
        libraries = f"{kafka_libs()}/*"
        _output([javac, "-Xlint:all,-classfile,-processing", "-d", str(self._directory), "-cp", libraries, *sources])
        options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        options += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dstdout.encoding=UTF-8"]
        return [java, *options, "-cp", f"{self._directory}{os.pathsep}{libraries}", "RunPostdate"]

    def _prepare_go(self) -> list[str]:
        go = need_go(_PROGRAMS / "go/go.mod")
        program = self._directory / "run-postdate"
        for folder in (_HELPERS / "go", _PROGRAMS / "go"):
            _output([go, "vet", "./..."], folder)
            assert _output([str(Path(go).with_name("gofmt")), "-l", "."], folder) == []
        _output([go, "build", "-o", str(program), "."], _PROGRAMS / "go")
        return [str(program)]

    def _prepare_javascript(self) -> list[str]:
        return [need_program("node", "nodejs"), str(_PROGRAMS / "run_postdate.mjs")]


def _output(command: list[str], folder: Path | None = None) -> list[str]:
    """Returns the lines that a program prints; if it fails, the test fails with its error output."""
    environment = {**os.environ, "JAVA_TOOL_OPTIONS": ""}
    done = subprocess.run(
        command, cwd=folder, capture_output=True, timeout=WAIT_TIMEOUT_S, check=False, env=environment
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")
    return done.stdout.decode().splitlines()
