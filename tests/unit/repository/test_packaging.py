"""Goal: the built wheel is complete, and packages can be imported from each of the three source roots.

Method: builds the wheel once from this tree, without a network, and checks its list of files. A separate process
imports the packages from an empty directory, with the source roots on its path.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support.repository import ROOT

SOURCE_ROOTS = ("sidecar", "wheel", "connectors")
PACKAGES = tuple(
    f"postdate/{name}" for name in ("wheel", "wire", "kafka", "spark", "client", "sidecar", "tools", "cli", "testing")
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Returns the names of the files in the wheel built from this tree."""
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = out.glob("*.whl")
    with zipfile.ZipFile(archive) as files:
        return files.namelist()


def test_the_wheel_contains_only_the_namespace_and_its_metadata(built: list[str]) -> None:
    top = {name.split("/")[0] for name in built}
    assert {name for name in top if not name.endswith(".dist-info")} == {"postdate"}


def test_no_portion_of_the_namespace_closes_it(built: list[str]) -> None:
    assert "postdate/__init__.py" not in built
    for root in SOURCE_ROOTS:
        assert not (ROOT / root / "__init__.py").exists()
        assert not (ROOT / root / "postdate" / "__init__.py").exists()


def test_the_packages_are_marked_as_typed(built: list[str]) -> None:
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(built)


def test_the_licence_is_packed(built: list[str]) -> None:
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in built)


def test_every_module_of_the_tree_is_packed(built: list[str]) -> None:
    sources = {
        path.relative_to(ROOT / root).as_posix()
        for root in SOURCE_ROOTS
        for path in (ROOT / root / "postdate").rglob("*.py")
    }
    assert {name for name in built if name.endswith(".py")} == sources


_PROBE = """
import importlib.util, postdate, sys
assert postdate.__file__ is None, "postdate is no namespace package"
assert len(set(postdate.__path__)) == len(sys.argv[1:]), list(postdate.__path__)
for name in ("cli", "client", "kafka", "sidecar", "spark", "testing", "tools", "wheel", "wire"):
    assert importlib.util.find_spec("postdate." + name) is not None, name
assert importlib.util.find_spec("wheel") is None, "a source root makes a top-level wheel"
"""


def test_three_roots_make_one_namespace_and_no_top_level_wheel(tmp_path: Path) -> None:
    roots = [str(ROOT / root) for root in SOURCE_ROOTS]
    # -S excludes the site packages, so that neither PyPA's `wheel` nor an editable install affects the result.
    done = subprocess.run(
        [sys.executable, "-S", "-c", _PROBE, *roots],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(roots)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_git_ignores_what_the_quickstart_writes() -> None:
    quickstart = (ROOT / "README.md").read_text() + (ROOT / "docs" / "operations.md").read_text()
    written = set(re.findall(r"--data \./(\w+)", quickstart)) | set(re.findall(r"> (\w+)\)", quickstart))
    assert {"kafka", "data", "token"} <= written
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    assert written <= ignored
