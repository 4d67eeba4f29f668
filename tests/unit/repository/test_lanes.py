"""Goal: every test is in exactly one lane of the test command.

Method: compares the declared lanes with the files of the repository; checks that wrong declarations are refused.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.repository import TESTS
from support.tidiness.lanes import lane_of, lanes, parse_lanes


def test_every_test_has_a_lane_and_every_named_place_exists() -> None:
    assert {lane_of(path) for path in TESTS.glob("**/test_*.py")} == {*lanes().values()}
    assert [place for place in lanes() if not (TESTS / place).exists()] == []


def test_the_test_command_starts_the_declared_lanes() -> None:
    """The program that runs the tests reads the names of the lanes with sed."""
    (line,) = (
        each
        for each in (TESTS.parent / "scripts/run-tests").read_text().splitlines()
        if "sed -n" in each and "lanes.toml" in each
    )
    command = line[line.index("<(") + 2 : line.rindex(")")]
    names = subprocess.run(["bash", "-c", command], cwd=TESTS.parent, capture_output=True, text=True, check=True).stdout
    assert names.split() == list(dict.fromkeys(lanes().values()))


def test_a_wrong_declaration_is_refused() -> None:
    with pytest.raises(ValueError, match="unit is in the lanes one and two"):
        parse_lanes('one = ["unit"]\ntwo = ["unit"]')
    with pytest.raises(ValueError, match=r"elsewhere/test_x\.py is in no lane"):
        lane_of(TESTS / "elsewhere" / "test_x.py")


def test_the_lane_of_a_file_overrides_that_of_its_folder() -> None:
    named = next(place for place in lanes() if place.endswith(".py"))
    assert lane_of(TESTS / named) != lanes()[Path(named).parent.as_posix()]
