"""Programs and container images that a test needs and a machine may lack.

Only this module skips tests: the reason names the missing program and how to get it. CI does not permit skips.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from postdate.tools.dev_broker.docker import IMAGE, LOCAL_IMAGE, has_image
from support.repository import ROOT


def need_program(name: str, package: str) -> str:
    """Returns the path of program ``name``, or skips the test and names the Debian ``package`` that contains it."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed (Debian, Ubuntu: apt-get install {package})")
    return path


def need_go(module: Path) -> str:
    """Returns the path of a Go that is new enough for the ``go.mod`` at ``module``, or skips the test and names it."""
    path = need_program("go", "golang-go")
    wanted = re.search(r"^go (\d+)\.(\d+)", module.read_text(encoding="utf-8"), re.MULTILINE)
    output = subprocess.run([path, "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout
    present = re.match(r"go(\d+)\.(\d+)", output)
    assert wanted is not None, module
    if present is None or (int(present[1]), int(present[2])) < (int(wanted[1]), int(wanted[2])):
        pytest.skip(
            f"Go {wanted[1]}.{wanted[2]} or newer is not installed ({path} is {output.strip() or 'of no version'})"
        )
    return path


def need_commit(commit: str) -> None:
    """Ensures that the clone contains the commit: a shallow clone is deepened. Otherwise skips the test with advice."""
    git = need_program("git", "git")
    named = [git, "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"]
    done = subprocess.run(named, capture_output=True, text=True, check=False)
    if done.returncode != 0:  # CI makes shallow clones: fetch the rest from the origin
        deepen = [git, "-C", str(ROOT), "fetch", "--quiet", "--unshallow"]
        subprocess.run(deepen, capture_output=True, check=False, timeout=300)
        done = subprocess.run(named, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(
            f"this tree's history does not reach back to {commit[:12]} (git fetch --unshallow; a tree without git has "
            f"no history at all): {done.stderr.strip()}"
        )


def need_kafka_image() -> str:
    """Returns the image that tests with containers start, or skips the test and names what is missing.

    It is POSTDATE_KAFKA_IMAGE, or the first of apache/kafka and the locally built image that the engine has. Tests
    download nothing: `make test` first gets the image with scripts/container-image.
    """
    docker = _need_engine()
    for image in (os.environ.get("POSTDATE_KAFKA_IMAGE"), IMAGE, LOCAL_IMAGE):
        if image and has_image(docker, image):
            return image
    pytest.skip("the Docker engine has no image of Kafka (scripts/container-image fetches or makes one)")


def need_python_image() -> tuple[str, bool]:
    """Returns the base image for the Dockerfile, and True if the wheels in build/wheels fit it, so that the build needs
    no network. Skips the test and names what is missing if there is no image.

    It is POSTDATE_PYTHON_IMAGE, or the first of the Dockerfile's own base image and the locally built image.
    """
    docker = _need_engine()
    named = re.search(r"^ARG BASE=(\S+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert named is not None
    local = f"postdate-python:{sys.version_info.major}.{sys.version_info.minor}"
    for image in (os.environ.get("POSTDATE_PYTHON_IMAGE"), named[1], local):
        if image and has_image(docker, image):
            return image, image == local
    pytest.skip("the Docker engine has no image of Python (scripts/sidecar-image fetches or makes one)")


def _need_engine() -> str:
    if os.environ.get("POSTDATE_TEST_CONTAINERS") == "no":
        pytest.skip("POSTDATE_TEST_CONTAINERS is no")
    docker = need_program("docker", "docker.io")
    if subprocess.run([docker, "version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no Docker engine answers (scripts/container-image starts one, where it may)")
    return docker
