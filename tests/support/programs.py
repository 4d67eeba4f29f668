"""Programs that a test needs and a machine may lack.

The only place that skips: the reason names what is missing and how to get it, and CI forbids skips altogether.
"""

from __future__ import annotations

import shutil

import pytest


def need_program(name: str, package: str) -> str:
    """Returns the path of program ``name``, or skips the test, saying which Debian ``package`` brings it."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed (Debian, Ubuntu: apt-get install {package})")
    return path
