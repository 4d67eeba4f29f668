"""Goal: no file enters the virtual environment or an image unless the repository contains its SHA-256, and no system
package is installed on the machine unless CI=true.

Method: reads the lock file entry by entry, and finds every call of pip in scripts and Dockerfiles. A call may install
the verified lock, use it as a constraint, or use no index at all. Scripts run with stand-in programs that only record
their calls.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.repository import ROOT

LOCK = ROOT / "requirements-dev.lock"
DOCS_LOCK = ROOT / "requirements-docs.lock"
CALLERS = [ROOT / "Dockerfile", ROOT / "audit.Dockerfile", *sorted(ROOT.glob("scripts/*"))]

_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
#: A call of pip that reads packages, up to the end of its command; a backslash at the end of a line continues it.
_CALL = re.compile(r"\bpip(?:\s+--[\w-]+(?:\s+/\S+)?)*\s+(?:install|download|wheel)\b(?:\\\n|[^\n&|])*")
#: With either of the first two options pip verifies hashes; with the other ones it uses only local files.
_VERIFIED = ("--require-hashes", "requirements-dev.lock", "--no-deps --no-index", "--no-deps --no-build-isolation")


def entries_without_hash(text: str) -> list[str]:
    entries = re.sub(r"\\\n", "", text).splitlines()
    return [entry for entry in entries if entry and not entry.startswith("#") and not _HASH.search(entry)]


def unverified_calls(text: str) -> Iterator[str]:
    code = re.sub(r"(?m)^ *#.*$", "", text)
    for found in _CALL.finditer(code):
        call = found.group()
        if not any(option in call for option in _VERIFIED):
            yield call


@pytest.mark.parametrize(("lock", "hashes_min"), [(LOCK, 1_000), (DOCS_LOCK, 100)], ids=["dev", "docs"])
def test_the_lock_file_has_a_hash_for_each_package(lock: Path, hashes_min: int) -> None:
    text = lock.read_text(encoding="utf-8")
    assert entries_without_hash(text) == []
    assert len(_HASH.findall(text)) > hashes_min


def test_an_entry_without_a_hash_is_reported() -> None:
    hashed = "a==1 \\\n    --hash=sha256:" + "0" * 64 + "\n"
    assert entries_without_hash(hashed) == []
    assert entries_without_hash(hashed + "b==2 ; sys_platform == 'win32'\n") == ["b==2 ; sys_platform == 'win32'"]


@pytest.mark.parametrize("path", CALLERS, ids=[path.name for path in CALLERS])
def test_every_call_of_pip_verifies_what_it_reads(path: Path) -> None:
    assert list(unverified_calls(path.read_text(encoding="utf-8"))) == []


def test_an_unverified_call_of_pip_is_reported() -> None:
    for call in ("python -m pip install -r x", "pip --python /a/b install \\\n  pyspark", "pip download x && y"):
        assert len(list(unverified_calls(call))) == 1, call
    found = sum(len(_CALL.findall(path.read_text(encoding="utf-8"))) for path in CALLERS)
    assert found >= 9, "the calls of the repository are seen"


def run_script(programs: Path, *command: str, **environment: str) -> tuple[int, str]:
    """Returns the exit code and output of a script; stand-ins in `programs` record its calls of root, apt-get and
    docker."""
    for name in ("bash", "env", "dirname", "sed", "awk"):
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    for name, body in (
        ("id", "echo 0"),
        ("apt-get", f'echo "$@" >>"{programs}/calls"'),
        ("docker", f'echo "$@" >>"{programs}/calls"; exit 1'),
    ):
        (programs / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (programs / name).chmod(0o755)
    done = subprocess.run(
        [str(ROOT / "scripts" / command[0]), *command[1:]],
        env={"PATH": str(programs), "HOME": str(programs), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


def calls(programs: Path) -> str:
    recorded = programs / "calls"
    return recorded.read_text() if recorded.exists() else ""


def test_system_packages_are_not_installed_outside_ci(tmp_path: Path) -> None:
    code, output = run_script(tmp_path, "prepare", "tools")
    assert code == 0
    assert calls(tmp_path) == ""
    assert "apt-get install kcat; with CI=true, root installs it here" in output


def test_system_packages_are_installed_in_ci(tmp_path: Path) -> None:
    run_script(tmp_path, "prepare", "tools", CI="true")
    assert "install -y -q --no-install-recommends kcat" in calls(tmp_path)
    assert "export POSTDATE_FORBID_SKIPS=1 CI=true" in (ROOT / ".ci/run").read_text(encoding="utf-8")


@pytest.mark.parametrize("base", ["python:3.11", "python:3.11@sha256:0123", "python@md5:" + "0" * 64])
def test_a_release_refuses_a_base_image_without_a_digest(tmp_path: Path, base: str) -> None:
    code, output = run_script(tmp_path, "release-images", "postdate:x", base)
    assert (code, calls(tmp_path)) == (2, "")
    assert f"the base image {base} has no digest" in output


def test_the_base_image_of_the_dockerfile_has_a_digest(tmp_path: Path) -> None:
    code, _ = run_script(tmp_path, "release-images", "postdate:x")
    assert code == 1, "Docker was called, and failed as the recorder does"
    assert re.search(
        r"^build --build-arg BASE=python:\S+@sha256:[0-9a-f]{64} --tag postdate:x \.$", calls(tmp_path), re.M
    )
