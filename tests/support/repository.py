"""The folders of this repository, for tests that read its files."""

from __future__ import annotations

from pathlib import Path

#: The folder that contains `README.md`.
ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
