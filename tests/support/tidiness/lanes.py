"""The lane of the test command to which each test file belongs; tests/lanes.toml declares the lanes."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from support.repository import TESTS


@cache
def lanes() -> dict[str, str]:
    """Returns the lane of each folder and file that tests/lanes.toml names, relative to `tests`."""
    return parse_lanes((TESTS / "lanes.toml").read_text())


def parse_lanes(text: str) -> dict[str, str]:
    """Returns place -> lane. Raises ValueError if two lanes name the same place."""
    declared: dict[str, list[str]] = tomllib.loads(text)
    found: dict[str, str] = {}
    for lane, places in declared.items():
        for place in places:
            if place in found:
                raise ValueError(f"{place} is in the lanes {found[place]} and {lane}")
            found[place] = lane
    return found


def lane_of(test_file: Path) -> str:
    """Returns the lane of a test file. Raises ValueError if neither the file nor its folder has one."""
    place = test_file.resolve().relative_to(TESTS)
    for each in (place, *place.parents):
        if lane := lanes().get(each.as_posix()):
            return lane
    raise ValueError(f"{place} is in no lane: name it, or its folder, in tests/lanes.toml")
