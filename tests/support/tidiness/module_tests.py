"""The rule that each module of the product leads to its tests, as a pure function over the repository.

A module leads to its tests if a test file has its name (`test_<module>.py` or `test_<module>_<subject>.py`), if a test
file below the folder of its top-level package (`cli`, `spark`, `sidecar`, …) imports it, or if `tests/README.md` names
its tests. The name of a test file counts only below that folder; for `kafka` and `sidecar` also in `tests/contract` and
`tests/integration`. If several modules share the name, the test file must also import the module. Bounds and errors are
tested with the code that uses them.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_ROOTS = ("wheel", "connectors", "sidecar")
_EXEMPT = ("__init__", "__main__", "limits", "errors")
_ROW = re.compile(r"^\| `(postdate/[\w/]+\.py)` \| \[[^]]+\]\(([\w/.]+)\)", re.MULTILINE)
#: Packages that are also tested against a broker, and the folders of these tests.
_WITH_BROKER, _BROKER_TESTS = {"kafka", "sidecar"}, {"contract", "integration"}
_UNTESTED = "no test file of its package has its name or imports it: name one in tests/README.md"


def module_complaints(root: Path) -> Iterator[str]:
    """Yields one sentence for each module without tests, and for each row of tests/README.md that is wrong."""
    folder = root / "tests"
    tests = {path.relative_to(folder): _imported(path) for path in sorted(folder.rglob("test_*.py"))}
    listed = dict(_ROW.findall((folder / "README.md").read_text(encoding="utf-8")))
    modules = [path for name in _ROOTS for path in sorted((root / name / "postdate").rglob("*.py"))]
    names = {module.relative_to(root).as_posix().partition("/")[2]: module for module in modules}
    stems = Counter(module.stem for module in modules)
    for name, module in names.items():
        is_led = module.stem in _EXEMPT or _leads(name, module.stem, tests, is_unique=stems[module.stem] == 1)
        if name in listed and is_led:
            yield f"tests/README.md: {name} leads to its tests already: remove the row"
        elif name not in listed and not is_led:
            yield f"{name}: {_UNTESTED}"
    for name, place in listed.items():
        if name not in names:
            yield f"tests/README.md: there is no {name}"
        if not (root / "tests" / place).is_file():
            yield f"tests/README.md: there is no {place}"


def _leads(name: str, stem: str, tests: dict[Path, set[str]], is_unique: bool) -> bool:
    package = name.split("/")[1]
    dotted = name.removesuffix(".py").replace("/", ".")
    for path, imported in tests.items():
        is_below = package in path.parts[:-1]
        if is_below and dotted in imported:
            return True
        has_name = path.stem == f"test_{stem}" or path.stem.startswith(f"test_{stem}_")
        is_broker_test = package in _WITH_BROKER and path.parts[0] in _BROKER_TESTS
        if has_name and is_unique and (is_below or is_broker_test):
            return True
    return False


def _imported(path: Path) -> set[str]:
    """Returns the dotted names that a file imports, also those of `from package import module`."""
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return imported
