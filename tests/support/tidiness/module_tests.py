"""The rule that each module of the product leads to its tests, as a pure function over the repository.

A module leads to its tests if a test file has its name (`test_<module>.py` or `test_<module>_<subject>.py`), if a test
file in the folder of its package imports it, or if `tests/README.md` names its tests. Bounds and errors are tested with
the code that uses them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_ROOTS = ("wheel", "connectors", "sidecar")
_EXEMPT = ("__init__", "__main__", "limits", "errors")
_ROW = re.compile(r"^\| `(postdate/[\w/]+\.py)` \| \[[^]]+\]\(([\w/.]+)\)", re.MULTILINE)


def module_complaints(root: Path) -> Iterator[str]:
    """Returns one sentence for each module without tests, and for each row of tests/README.md that is wrong."""
    tests = {path: _imported(path) for path in sorted((root / "tests").rglob("test_*.py"))}
    listed = dict(_ROW.findall((root / "tests/README.md").read_text(encoding="utf-8")))
    modules = [path for name in _ROOTS for path in sorted((root / name / "postdate").rglob("*.py"))]
    names = {module.relative_to(root).as_posix().partition("/")[2]: module for module in modules}
    for name, module in names.items():
        is_led = module.stem in _EXEMPT or _leads(name, module.stem, tests)
        if name in listed and is_led:
            yield f"tests/README.md: {name} leads to its tests already: remove the row"
        elif name not in listed and not is_led:
            yield f"{name}: no test file has its name, and none in its folder imports it: name one in tests/README.md"
    for name, place in listed.items():
        if name not in names:
            yield f"tests/README.md: there is no {name}"
        if not (root / "tests" / place).is_file():
            yield f"tests/README.md: there is no {place}"


def _leads(name: str, stem: str, tests: dict[Path, set[str]]) -> bool:
    package = name.removesuffix(".py").split("/")[1]
    dotted = name.removesuffix(".py").replace("/", ".")
    return any(
        path.stem == f"test_{stem}"
        or path.stem.startswith(f"test_{stem}_")
        or (dotted in imported and package in path.parts)
        for path, imported in tests.items()
    )


def _imported(path: Path) -> set[str]:
    """Returns the dotted names that a file imports, also those of `from package import module`."""
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return imported
