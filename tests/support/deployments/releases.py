"""Builds an earlier version of Postdate from this repository's history, and installs it beside this tree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.deployments.programs import need_commit
from support.deployments.sidecars import environment
from support.repository import ROOT

#: The starting point of upgrades as long as there is no release: the last commit before holds, rights and the page,
#: with the present formats (docs/formats.md). POSTDATE_TEST_EARLIER names another commit.
EARLIER = os.environ.get("POSTDATE_TEST_EARLIER", "d47f23412b6b041d1ba02e753e981864f51e82d2")


def install_earlier(directory: Path) -> Path:
    """Builds the wheel of EARLIER and returns its directory for `Sidecar.release`; skips the test if the history does
    not contain the commit. Takes some seconds and needs no network."""
    need_commit(EARLIER)
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", EARLIER], capture_output=True, check=True).stdout
    (directory / "source").mkdir()
    subprocess.run(["tar", "-x", "-C", directory / "source"], input=archive, check=True)
    _run("build", "--wheel", "--no-isolation", "--outdir", str(directory), str(directory / "source"))
    (wheel,) = directory.glob("*.whl")
    release = directory / "installed"
    _run(
        "pip", "--disable-pip-version-check", "install", "--no-deps", "--no-index", "--target", str(release), str(wheel)
    )
    _judge(release)
    return release


def _judge(release: Path) -> None:
    """Checks that a process with this release imports nothing of this tree."""
    program = "import postdate.sidecar as s, postdate.wheel as w, postdate.client as c; print(*(p.__file__ for p in "
    program += "(s, w, c)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment(release)
    )
    assert all(Path(each).is_relative_to(release) for each in done.stdout.split()), done.stdout


def _run(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
