"""Goal: a test in rounds fails only if every round is late; a failure that does not depend on time counts immediately.

Method: scenarios that succeed or fail as planned.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.waiting.rounds import LONGER, expect, first_round_in_time


def _keeping(times: int, played: list[int]) -> Callable[[int], str]:
    """Returns a scenario that succeeds in rounds that assume a machine at least `times` slower."""

    def play(slower: int) -> str:
        played.append(slower)
        expect(slower >= times, f"{slower} is not {times}")
        return f"kept at {slower}"

    return play


def test_a_successful_round_is_the_last() -> None:
    played: list[int] = []
    assert first_round_in_time(_keeping(1, played), LONGER) == "kept at 1"
    assert first_round_in_time(_keeping(4, played), LONGER) == "kept at 4"
    assert played == [1, 1, 4]


def test_if_no_round_succeeds_each_reason_is_reported() -> None:
    played: list[int] = []
    with pytest.raises(AssertionError) as failed:
        first_round_in_time(_keeping(100, played), LONGER)
    assert played == [*LONGER]
    _, *said = str(failed.value).splitlines()
    assert [line.rpartition(": ")[2] for line in said] == [f"{slower} is not 100" for slower in LONGER]


def test_a_failure_that_does_not_depend_on_speed_is_not_retried() -> None:
    played: list[int] = []

    def twice(slower: int) -> None:
        played.append(slower)
        raise AssertionError("delivered twice")

    with pytest.raises(AssertionError, match="delivered twice"):
        first_round_in_time(twice, LONGER)
    assert played == [1]
