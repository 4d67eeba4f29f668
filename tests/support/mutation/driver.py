"""Runs the fast tests on each change: a pytest plugin that replaces pytest's loop over tests by a loop over changes.

pytest collects the tests once. One child process runs all of them and some runs of the simulation, and records the
lines of the modules that each test and run executes. Then a separate child applies each change, and runs the tests that
execute the changed line until one fails, starting with the test file declared for the module. So the work tree is never
changed, and a change costs no import.

A child has a limit of processor time, several times what its tests need, so a busy machine does not affect the result;
a change that exceeds the limit counts as detected. Results are appended to a file, so an interrupted run can continue.
A detected change runs again only if its module has changed; a change that survived also runs again if any test has
changed.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import itertools
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType, ModuleType
from typing import Any

import pytest

from support.mutation.changes import CodeChange, changes_of, take_effect
from support.mutation.report import DETECTED, SURVIVED, UNFIT
from support.repository import ROOT

_CODES = {0: SURVIVED, 1: DETECTED, 2: UNFIT}
_SPARE_CPU_S, _SPARE_FACTOR, _WALL_S_MAX = 20, 8, 900.0
_MEMORY = Path("/dev/shm")  # noqa: S108  # timer indexes sync often; if it is missing, the default directory
_SIMULATION = "simulation"

Lines = dict[str, list[int]]


@dataclass(frozen=True)
class Options:
    """`traced`: module -> its test file; `modules`: the traced modules to change. `sample`: the number of changes of
    each module, drawn by `seed`; 0: all. `runs`: seed and theme of each run of the simulation. `budget_s`: the
    processor time of the tests of one change. `kept`: the directory of the results."""

    modules: tuple[str, ...]
    traced: Mapping[str, str]
    sample: int
    seed: int
    jobs: int
    budget_s: float
    runs: tuple[tuple[int, str | None], ...]
    kept: Path


class Driver:
    """The plugin. `results`: the verdict on each change."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.results: dict[str, str] = {}
        self._tests = _digest(_sources("tests"))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Replaces pytest's own loop."""
        self._scratch = Path(tempfile.mkdtemp(prefix="mutants-", dir=_MEMORY if _MEMORY.is_dir() else None))
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(self._scratch / "hypothesis")
        try:
            self._loop(session)
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)
        return True

    def _loop(self, session: pytest.Session) -> None:
        covered = self._covered(session)
        modules = {path: importlib.import_module(_module_name(path)) for path in self._options.modules}
        waiting: list[tuple[CodeChange, ModuleType, str]] = []
        known = self._known()
        for path, module in modules.items():
            digest = _digest([ROOT / path])
            for change in self._drawn(path):
                name = change.name
                verdict, of_module, of_tests = known.get(name, ("", "", ""))
                if of_module == digest and (verdict != SURVIVED or of_tests == self._tests):
                    self.results[name] = verdict
                else:
                    waiting.append((change, module, digest))
        waiting.sort(key=lambda each: hashlib.sha256(each[0].name.encode()).digest())  # an interrupted run is a sample
        running: dict[int, tuple[str, str, float, Path]] = {}
        done = len(self.results)
        while waiting or running:
            while waiting and len(running) < self._options.jobs:
                change, module, digest = waiting.pop()
                tests, cpu_s = selected(change, self._options.traced[change.path], covered, self._options.budget_s)
                output_file = self._scratch / f"{len(waiting)}.txt"
                pid = self._fork(functools.partial(self._judge, session, change, module, tests, output_file), cpu_s)
                running[pid] = change.name, digest, time.monotonic() + _WALL_S_MAX, output_file
            for pid, (name, digest, until, output_file) in list(running.items()):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if not ended and time.monotonic() > until:
                    os.kill(pid, signal.SIGKILL)
                if ended:
                    self._remove_files(pid)
                    del running[pid]
                    done += 1
                    error = self._scratch / f"{pid}.error"
                    assert not error.exists(), f"{name}: {error.read_text(encoding='utf-8')}"
                    self._confirm(session, name, output_file)
                    self._note(
                        name, _verdict(status), digest, output_file, f"{done} of {done + len(waiting) + len(running)}"
                    )
            time.sleep(0.02)

    def _drawn(self, path: str) -> list[CodeChange]:
        changes = changes_of(ROOT, path)
        random = Random(f"{self._options.seed} {path}")
        return random.sample(changes, min(self._options.sample, len(changes))) if self._options.sample else changes

    def _known(self) -> dict[str, tuple[str, str, str]]:
        file = self._options.kept / "results.jsonl"
        rows = map(json.loads, file.read_text(encoding="utf-8").splitlines()) if file.exists() else ()
        return {row["change"]: (row["verdict"], row["module"], row["tests"]) for row in rows}

    def _note(self, name: str, verdict: str, digest: str, output_file: Path, progress: str) -> None:
        self.results[name] = verdict
        by = output_file.read_text(encoding="utf-8") if output_file.exists() else ""
        row = {"change": name, "verdict": verdict, "by": by, "module": digest, "tests": self._tests}
        with (self._options.kept / "results.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        if verdict != DETECTED:
            print(f"{progress}: {verdict}: {name}", flush=True)

    def _confirm(self, session: pytest.Session, change: str, output_file: Path) -> None:
        """Runs the test that detected a change once more, without the change: if the test still fails, it has detected
        nothing."""
        by = output_file.read_text(encoding="utf-8") if output_file.exists() else ""
        item = next((each for each in session.items if each.nodeid == by), None)
        if item is not None:
            pid = self._fork(lambda: self._run(session, [item], lambda name: os._exit(1), lambda name: None), 100)
            status = os.waitpid(pid, 0)[1]
            self._remove_files(pid)
            assert status == 0, f"{by} failed with the change {change}, and fails without it"

    # ---- children --------------------------------------------------------------------------------------------------

    def _fork(self, action: Callable[[], int | None], cpu_s: float) -> int:
        """Forks a child that runs `action` and exits with its result, None for 0; returns its process id."""
        pid = os.fork()
        if pid:
            return pid
        code = 3
        try:
            limit = int(cpu_s * _SPARE_FACTOR) + _SPARE_CPU_S
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            nothing = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(nothing, descriptor)
            code = action() or 0
        except BaseException:
            (self._scratch / f"{os.getpid()}.error").write_text(traceback.format_exc(), encoding="utf-8")
            raise
        finally:
            os._exit(code)

    def _judge(
        self, session: pytest.Session, change: CodeChange, module: ModuleType, tests: list[str], output_file: Path
    ) -> int:
        try:
            take_effect(change, module)
        except ValueError:
            return 2
        by_name = {item.nodeid: item for item in session.items}

        def failed(name: str) -> None:
            output_file.write_text(name, encoding="utf-8")
            os._exit(1)

        self._run(session, [by_name[name] for name in tests if name in by_name], failed, lambda name: None)
        for name in tests:
            if name.startswith(_SIMULATION) and not _run_passes(name):
                failed(name)
        return 0

    def _run(
        self,
        session: pytest.Session,
        items: list[pytest.Item],
        failed: Callable[[str], None],
        ended: Callable[[str], None],
    ) -> None:
        """Runs these tests in this child process."""

        class Reports:
            def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
                if report.failed:
                    failed(report.nodeid)

        config = session.config
        terminal = config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            config.pluginmanager.unregister(terminal)
        config.pluginmanager.register(Reports())
        folders: Any = config._tmp_path_factory  # type: ignore[attr-defined]
        folders._basetemp = self._folder(os.getpid())
        folders._basetemp.mkdir()
        for item, following in itertools.zip_longest(items, items[1:]):
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            ended(item.nodeid)

    def _folder(self, pid: int) -> Path:
        """Returns the temporary directory of the tests in a child."""
        return self._scratch / str(pid)

    def _remove_files(self, pid: int) -> None:
        """Removes the files of a child that has exited; a child that detects a change exits without clean-up."""
        shutil.rmtree(self._folder(pid), ignore_errors=True)

    # ---- which test executes which line ----------------------------------------------------------------------------

    def _covered(self, session: pytest.Session) -> dict[str, tuple[float, Lines]]:
        """Returns the processor time and the lines of each test that passes. Traces only tests that have changed."""
        product = [_digest(_sources("sidecar", "wheel", "connectors")), *self._options.traced]
        file = self._options.kept / "coverage.json"
        content = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        known = content["tests"] if content.get("product") == product else {}
        digests = {path: _digest([path]) for path in {item.path for item in session.items}}
        of_item = {item.nodeid: digests[item.path] for item in session.items}
        of_item |= dict.fromkeys(map(_run_name, self._options.runs), "")
        tests = {name: known[name] for name, digest in of_item.items() if name in known and known[name][2] == digest}
        items = [item for item in session.items if item.nodeid not in tests]
        runs = [each for each in map(_run_name, self._options.runs) if each not in tests]
        groups = [(list(each), list[str]()) for _, each in itertools.groupby(items, lambda item: item.path)]
        for group in (
            *groups,
            *(([], [each]) for each in runs),
        ):  # each result is saved, in case the run is interrupted
            output_file = self._scratch / "coverage.json"
            pid = self._fork(functools.partial(self._trace, session, *group, output_file), 10_000)
            assert os.waitpid(pid, 0)[1] == 0, "the tests could not be traced"
            self._remove_files(pid)
            traced = json.loads(output_file.read_text(encoding="utf-8"))
            names = [*(item.nodeid for item in group[0]), *group[1]]
            tests |= {name: (*traced.get(name, (0.0, None)), of_item[name]) for name in names}
            file.write_text(json.dumps({"product": product, "tests": tests}), encoding="utf-8")
        failed = [name for name, (_, lines, _) in tests.items() if lines is None]
        if failed:
            print(f"not used, since they fail without any change: {failed}", flush=True)
        return {name: (cpu_s, lines) for name, (cpu_s, lines, _) in tests.items() if lines}

    def _trace(self, session: pytest.Session, items: list[pytest.Item], runs: list[str], output_file: Path) -> int:
        paths = {str(ROOT / path): path for path in self._options.traced}
        seen: set[tuple[str, int]] = set()
        tests: dict[str, tuple[float, Lines]] = {}
        failed: set[str] = set()
        began = time.process_time()

        def line(frame: FrameType, _event: str, _argument: object) -> Any:
            seen.add((frame.f_code.co_filename, frame.f_lineno))
            return line

        def call(frame: FrameType, event: str, argument: object) -> Any:
            return line(frame, event, argument) if frame.f_code.co_filename in paths else None

        def ended(name: str) -> None:
            nonlocal began
            lines: Lines = {}
            for path, number in seen:
                lines.setdefault(paths[path], []).append(number)
            if name not in failed:
                tests[name] = time.process_time() - began, lines
            seen.clear()
            began = time.process_time()
            sys.settrace(call)
            threading.settrace(call)

        ended("")
        tests.clear()
        self._run(session, items, failed.add, ended)
        for name in runs:
            assert _run_passes(name), f"{name} fails without any change"
            ended(name)
        sys.settrace(None)
        output_file.write_text(json.dumps(tests), encoding="utf-8")
        return 0


def _run_name(run: tuple[int, str | None]) -> str:
    return f"{_SIMULATION} {run[0]} {run[1] or ''}"


def _run_passes(name: str) -> bool:
    from support.simulation.run import run_seed

    _, seed, theme = name.split(" ", 2)
    return not run_seed(int(seed), theme=theme or None).wrong


def selected(
    change: CodeChange, own: str, covered: Mapping[str, tuple[float, Lines]], budget_s: float
) -> tuple[list[str], float]:
    """Returns the tests that execute a change, then runs of the simulation, and their total time: at most the budget
    for the tests, and half of it for the runs. The tests in tests/unit/`own` come first, then the others, the fastest
    first."""
    found = sorted(
        (name.startswith(_SIMULATION), f"unit/{own}::" not in name, cpu_s, name)
        for name, (cpu_s, lines) in covered.items()
        if change.path in lines and (change.is_constant or not change.lines.isdisjoint(lines[change.path]))
    )
    chosen, spent_s = [], [0.0, 0.0]
    for is_run, _, cpu_s, name in found:
        if spent_s[is_run] + cpu_s <= budget_s / (1 + is_run):
            chosen.append(name)
            spent_s[is_run] += cpu_s
    return chosen, sum(spent_s)


def _verdict(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return DETECTED if code < 0 else _CODES[code]


def _sources(*folders: str) -> list[Path]:
    """Returns all modules in these folders except those of this package."""
    own = Path(__file__).parent
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")) if path.parent != own]


def _digest(paths: Iterable[Path]) -> str:
    total = hashlib.sha256()
    for path in paths:
        total.update(path.read_bytes())
    return total.hexdigest()[:16]


def _module_name(path: str) -> str:
    return ".".join(Path(path).with_suffix("").parts[1:])
