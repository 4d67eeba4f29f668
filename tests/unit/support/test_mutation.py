"""Goal: `make mutants` makes exactly the changes that it reports, and names each change that no test detects.

Method: applies each change of a small module; runs a small repository with one effective and one ineffective test.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from support.mutation.__main__ import FOLDERS, MODULES
from support.mutation.changes import CodeChange, changes_of, take_effect
from support.mutation.declaration import Undetectable
from support.mutation.deliberate import COPIED, DELIBERATE, Deliberate, survivors
from support.mutation.driver import selected
from support.mutation.report import DETECTED, SURVIVED, report
from support.mutation.undetectable import UNDETECTABLE, names
from support.repository import ROOT

_TEXT = '''
"""A module."""
from __future__ import annotations

LIMIT = 3
log = None


class Box:
    def __init__(self, size: int = 5) -> None:
        self.size = size

    @property
    def twice(self) -> int:
        return self.size * 2

    @staticmethod
    def least(first: int, second: int) -> int:
        return min(first, second)


def is_small(size: int, given: bool) -> bool:
    """A text."""
    assert size > 0, "1"
    log.info("size %d", size + 1)
    if size < LIMIT and not given:
        return True
    for _ in zip([], [], strict=True):
        break
    raise ValueError(f"{size + 1}")
'''

_CHANGES = {
    "LIMIT: 3 → 4",
    "LIMIT: 3 → 2",
    "Box.__init__: self.size = size → pass",
    "Box.twice: return self.size * 2 → return None",
    "Box.twice: self.size * 2 → self.size // 2",
    "Box.twice: 2 → 3",
    "Box.twice: 2 → 1",
    "Box.least: return min(first, second) → return None",
    "Box.least: min(first, second) → max(first, second)",
    "is_small: if size < LIMIT and (not given): → if not (size < LIMIT and (not given)):",
    "is_small: size < LIMIT and (not given) → size < LIMIT or not given",
    "is_small: size < LIMIT → size <= LIMIT",
    "is_small: not given → given",
    "is_small: True → False",
    "is_small: break → pass",
    "is_small: raise ValueError(f'{size + 1}') → pass",
}


def _changes(folder: Path) -> dict[str, CodeChange]:
    (folder / "small.py").write_text(_TEXT)
    return {change.name.split(": ", 1)[1]: change for change in changes_of(folder, "small.py")}


def _module(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("small", folder / "small.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_kind_of_change_is_made_except_in_texts_for_people(tmp_path: Path) -> None:
    assert set(_changes(tmp_path)) == _CHANGES


@pytest.mark.parametrize(
    ("name", "expression", "before", "after"),
    [
        ("Box.twice: 2 → 3", "Box(5).twice", 10, 15),
        ("Box.least: min(first, second) → max(first, second)", "Box.least(1, 2)", 1, 2),
        ("Box.__init__: self.size = size → pass", "hasattr(Box(), 'size')", True, False),
    ],
)
def test_a_change_takes_effect_in_a_function_that_was_imported_before(
    tmp_path: Path, name: str, expression: str, before: object, after: object
) -> None:
    change = _changes(tmp_path)[name]
    module = _module(tmp_path)
    held = {"Box": module.Box}
    assert eval(expression, held) == before  # noqa: S307  # the test's own text
    take_effect(change, module)
    assert eval(expression, held) == after  # noqa: S307


def test_a_change_of_a_constant_reaches_all_modules_that_hold_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = _changes(tmp_path)["LIMIT: 3 → 4"]
    module, other = _module(tmp_path), ModuleType("other")
    vars(other)["LIMIT"] = module.LIMIT
    monkeypatch.setitem(sys.modules, "small", module)
    monkeypatch.setitem(sys.modules, "other", other)
    take_effect(change, module)
    assert (module.LIMIT, vars(other)["LIMIT"]) == (4, 4)


@pytest.mark.parametrize("change", DELIBERATE, ids=lambda change: change.name)
def test_a_deliberate_change_still_fits_the_code(change: Deliberate) -> None:
    assert (ROOT / change.path).read_text(encoding="utf-8").count(change.old) == 1
    file, _, test = change.test.partition("::")
    assert f"def {test}" in (ROOT / "tests" / file).read_text(encoding="utf-8")


def test_a_change_that_its_test_does_not_detect_is_named(tmp_path: Path) -> None:
    for name in COPIED:
        path = tmp_path / name
        path.mkdir() if "." not in name else path.write_text("")
    (tmp_path / "sidecar/small.py").write_text("def double(value):\n    return value * 2\n")
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["sidecar"]\n')
    for name, value in (("good", 3), ("blind", 0)):
        text = f"from small import double\n\ndef test_it():\n    assert double({value}) == {2 * value}\n"
        (tmp_path / f"tests/test_{name}.py").write_text(text)
    changes = tuple(Deliberate(name, "sidecar/small.py", "* 2", "* 3", f"test_{name}.py") for name in ("good", "blind"))
    assert survivors(tmp_path, 2, changes) == ["blind"]


@pytest.mark.parametrize("declared", UNDETECTABLE, ids=lambda each: f"{each.function}: {each.what}")
def test_every_undetectable_change_is_generated(declared: Undetectable) -> None:
    assert len(names(ROOT, (declared,))) == len(declared.changes)


def test_only_generated_changes_can_be_declared_undetectable(tmp_path: Path) -> None:
    _changes(tmp_path)
    made, other = ("* 2", "* 3"), ("self.size", "self.length")
    with pytest.raises(AssertionError, match="does not make"):
        names(tmp_path, (Undetectable("small.py", "Box.twice", "", "", (made, other)),))
    with pytest.raises(AssertionError, match="0 times"):
        names(tmp_path, (Undetectable("small.py", "Box.twice", "", "", (("* 5", "* 6"),)),))
    (name,) = names(tmp_path, (Undetectable("small.py", "Box.twice", "", "", (made,)),))
    assert name.endswith(": Box.twice: 2 → 3")


@pytest.mark.parametrize(("detected", "enough"), [(94, False), (95, True)])
def test_the_report_gives_the_score_of_all_changes_and_of_those_that_can_be_detected(
    detected: int, enough: bool
) -> None:
    made = [f"a.py:{number}: f: 1 → 2" for number in range(110)]
    results = {name: DETECTED if number < detected else SURVIVED for number, name in enumerate(made)}
    text, is_enough = report(results, {*made[100:], "b.py:1: g: 1 → 2"})
    assert is_enough == enough
    assert f"| a.py | 110 | {detected} | 10 | {100 - detected} |" in text
    assert f"all changes: {detected} of 110, {detected / 1.1:.1f} %" in text
    assert f"can be detected: {detected} of 100, {detected}.0 %" in text
    assert [name in text for name in (made[99], made[100])] == [True, False]


def test_a_change_that_was_detected_cannot_be_declared_undetectable() -> None:
    text, is_enough = report({"a.py:1: f: 1 → 2": DETECTED}, {"a.py:1: f: 1 → 2"})
    assert not is_enough
    assert "declared undetectable, but detected: a.py:1: f: 1 → 2" in text


def test_the_tests_in_the_declared_file_run_first_then_the_fastest(tmp_path: Path) -> None:
    change = _changes(tmp_path)["Box.twice: 2 → 3"]
    lines = {change.path: sorted(change.lines)}
    names = ("unit/sidecar/test_box.py::a", "unit/box/test_own.py::b", "unit/test_fast.py::c", "simulation 1 ")
    covered = {f"tests/{name}": (seconds, lines) for name, seconds in zip(names[:3], (2.0, 5.0, 1.0), strict=True)}
    covered |= {names[3]: (0.5, lines), "tests/unit/test_elsewhere.py::d": (0.1, {})}
    ran, cpu_s = selected(change, "box/test_own.py", covered, 20.0)
    assert ran == [f"tests/{names[1]}", f"tests/{names[2]}", f"tests/{names[0]}", names[3]]
    assert cpu_s == 8.5


def test_each_module_has_a_test_file_that_runs() -> None:
    for module, own in MODULES.items():
        assert (ROOT / module).is_file()
        assert (ROOT / "tests/unit" / own).is_file()
        assert own.split("/")[0] in FOLDERS
