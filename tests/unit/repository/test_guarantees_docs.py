"""Goal: docs/testing.md names a test for each promise of docs/guarantees.md. docs/guarantees.md names a test for each
broker, client and tool. Each named test exists.

Method: reads the tables as text. A test is a link whose text is a function and whose address is its file; the file is
parsed, so a comment does not count as a test. The rules also run on pages that violate them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from support.repository import ROOT

GUARANTEES = ROOT / "docs/guarantees.md"
TESTING = ROOT / "docs/testing.md"

_TEST = re.compile(r"\[`(test_\w+)`\]\(\.\./(tests/[\w/]+\.py)\)")


def table(text: str, heading: str) -> dict[str, str]:
    """Returns the rows of the first table below a heading: first cell -> the rest of the row."""
    below = text.partition(f"\n{heading}\n")[2].partition("\n#")[0]
    rows = [line.strip("| ").split(" | ", 1) for line in below.splitlines() if line.startswith("| ")]
    return {row[0]: row[1] for row in rows[2:]}


def complaints(guarantees: str, testing: str) -> Iterator[str]:
    """Yields each promise without a test, each row of tests without a promise, and each test that does not exist."""
    promises, tested = table(guarantees, "## What is promised"), table(testing, "## How each promise is tested")
    for promise in promises.keys() ^ tested.keys():
        yield f"{promise!r} is in one of the two tables only"
    for promise, cell in tested.items():
        if not _TEST.search(cell):
            yield f"{promise!r} names no test"
    for name, place in _TEST.findall(testing):
        file = ROOT / place
        if not file.is_file():
            yield f"{place} does not exist"
        elif name not in functions(file):
            yield f"{place} has no function {name}"


def functions(file: Path) -> set[str]:
    """Returns the names of the functions of a module."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def test_each_promise_names_tests_that_exist() -> None:
    guarantees, testing = (path.read_text(encoding="utf-8") for path in (GUARANTEES, TESTING))
    assert len(table(guarantees, "## What is promised")) > 20
    assert list(complaints(guarantees, testing)) == []


def test_a_promise_without_a_test_and_a_missing_test_are_reported() -> None:
    place = "../tests/unit/repository/test_guarantees_docs.py"
    guarantees = """
## What is promised
| promise | meaning |
| --- | --- |
| once | x |
| kept | x |
| placed | x |
| early | x |
"""
    testing = f"""
## How each promise is tested
| promise | tests |
| --- | --- |
| once | [`test_each_promise_names_tests_that_exist`]({place}) |
| kept | by its author |
| placed | [`test_nobody`]({place}), [`test_nothing`](../tests/unit/test_nowhere.py) |
"""
    assert sorted(complaints(guarantees, testing)) == [
        "'early' is in one of the two tables only",
        "'kept' names no test",
        "tests/unit/repository/test_guarantees_docs.py has no function test_nobody",
        "tests/unit/test_nowhere.py does not exist",
    ]


def test_each_row_of_works_with_has_a_state_and_a_test_that_exists() -> None:
    text = GUARANTEES.read_text(encoding="utf-8").partition("\n## Works with\n")[2]
    rows = [row.strip("| ").split(" | ") for row in text.splitlines() if row.startswith("| ")]
    rows = [row for row in rows if row[0] != "---" and row[1] != "state"]
    assert len(rows) > 20
    for row in rows:
        assert len(row) == 3, row
        assert "run" in row[1] or row[1].startswith("documented only"), row
        assert _TEST.search(row[2]) or "test" in row[2] or row[1] == "documented only", row
    for name, place in _TEST.findall(text):
        assert name in functions(ROOT / place), f"{place} has no function {name}"
