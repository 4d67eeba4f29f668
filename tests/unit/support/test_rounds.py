"""Goal: a test in rounds fails only if every round is late; a failure that does not depend on time counts at once.

Method: plays that miss and keep as they are told.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.waiting.rounds import LONGER, expect, first_kept


def _keeping(times: int, played: list[int]) -> Callable[[int], str]:
    """A play that is kept where it takes the machine to be this slow at least."""

    def play(slower: int) -> str:
        played.append(slower)
        expect(slower >= times, f"{slower} is not {times}")
        return f"kept at {slower}"

    return play


def test_a_round_that_is_kept_is_the_last() -> None:
    played: list[int] = []
    assert first_kept(_keeping(1, played), LONGER) == "kept at 1"
    assert first_kept(_keeping(4, played), LONGER) == "kept at 4"
    assert played == [1, 1, 4]


def test_if_no_round_is_valid_each_gives_its_reason() -> None:
    played: list[int] = []
    with pytest.raises(AssertionError) as failed:
        first_kept(_keeping(100, played), LONGER)
    assert played == [*LONGER]
    _, *said = str(failed.value).splitlines()
    assert [line.rpartition(": ")[2] for line in said] == [f"{slower} is not 100" for slower in LONGER]


def test_what_does_not_hang_on_speed_is_not_tried_again() -> None:
    played: list[int] = []

    def twice(slower: int) -> None:
        played.append(slower)
        raise AssertionError("delivered twice")

    with pytest.raises(AssertionError, match="delivered twice"):
        first_kept(twice, LONGER)
    assert played == [1]
