"""Goal: each published figure has a record with its command, commit, date, machine and raw values in `benchmarks`.

Method: reads the documents' tables of records; each row must link existing files below `benchmarks`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.repository import ROOT

BENCHMARKS = ROOT / "benchmarks"
KEYS = ("command", "commit", "began", "machine")
_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def rows(text: str, head: str) -> Iterator[str]:
    """Yields the rows of the table whose first row is `head`."""
    table = text[text.index(head) :].partition("\n\n")[0]
    yield from table.splitlines()[2:]


def complaints(folder: Path, row: str, cell: int) -> Iterator[str]:
    """Yields a complaint unless the cell links at least one file below `benchmarks` and each of its links exists."""
    text = re.split(r"(?<!\\) \| ", row.strip("| "))[cell]
    links = [(folder / link).resolve() for link in _LINK.findall(text)]
    if not any(path.is_relative_to(BENCHMARKS) for path in links):
        yield f"no file of benchmarks: {text}"
    yield from (f"missing: {path}" for path in links if not path.is_file())
    if "not kept" in text.lower():
        yield f"figures without raw values: {text}"


def test_each_record_has_raw_values() -> None:
    table = rows((BENCHMARKS / "README.md").read_text(encoding="utf-8"), "| record | figures |")
    assert [found for row in table for found in complaints(BENCHMARKS, row, -1)] == []


def test_each_result_of_a_larger_form_has_a_record() -> None:
    table = rows((ROOT / "docs/testing.md").read_text(encoding="utf-8"), "| promise | command | date, commit |")
    assert [found for row in table for found in complaints(ROOT / "docs", row, -1)] == []


@pytest.mark.parametrize("cell", ["not kept", "[lost](raw/lost.txt)", "[kept](bench.json), earlier runs not kept"])
def test_a_row_without_raw_values_is_reported(cell: str) -> None:
    assert len(list(complaints(BENCHMARKS, f"| record | {cell} |", -1))) >= 1


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("raw/*.txt")), ids=lambda path: path.stem)
def test_raw_output_has_its_conditions(path: Path) -> None:
    head = path.read_text(encoding="utf-8").partition("\n\n")[0]
    assert [key for key in KEYS if f"{key}: " not in head] == []


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.json")), ids=lambda path: path.stem)
def test_raw_values_have_their_conditions(path: Path) -> None:
    assert [key for key in KEYS if not json.loads(path.read_text(encoding="utf-8")).get(key)] == []
