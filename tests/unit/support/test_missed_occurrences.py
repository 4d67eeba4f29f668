"""Goal: the outage test accepts correct decisions, in one transaction or several, and reports each wrong skip.

Method: handwritten histories of a `last` schedule that fires every second and has missed 150 occurrences.
"""

from __future__ import annotations

import pytest

from postdate.wire.dispatch_log import OCCURRED, SKIPPED, Occurred, Skipped
from support.audits.missed_occurrences import Calendar, MissedStep, faults
from support.oracles.exactly_once import Sent

_FIRST_MS = 1_700_000_000_000
_RESTARTED_MS = _FIRST_MS + 149_900


def _skip(first: int, last: int, at_ms: int) -> MissedStep:
    next_ms = _FIRST_MS + last * 1_000
    return MissedStep(Skipped(0, _FIRST_MS, SKIPPED, first, last, "missed", next_ms), _FIRST_MS + at_ms, "second")


def _delivery(number: int, at_ms: int) -> MissedStep:
    nominal_ms = _FIRST_MS + (number - 1) * 1_000
    fate = Occurred(0, _FIRST_MS, OCCURRED, number, nominal_ms, nominal_ms + 1_000)
    return MissedStep(fate, _FIRST_MS + at_ms, "second")


def _schedule(*steps: MissedStep) -> Calendar:
    return Calendar(Sent("target", b"key", b"0", []), "last", _FIRST_MS, 1_000, [*steps])


_TOGETHER = [_skip(1, 150, 150_200), _delivery(151, 150_200)]
_APART = [_skip(1, 150, 150_200), _skip(151, 151, 151_100), _delivery(152, 151_150)]
_STOPPED = [*_TOGETHER, _skip(152, 153, 153_100)]


@pytest.mark.parametrize("steps", [_TOGETHER, _APART, _STOPPED], ids=["together", "apart", "stopped"])
def test_any_division_into_transactions_is_accepted(steps: list[MissedStep]) -> None:
    assert [*faults(_schedule(*steps), "second", _RESTARTED_MS)] == []


@pytest.mark.parametrize(
    "steps",
    [
        [_skip(1, 150, 150_200)],
        [_skip(1, 150, 150_200), _skip(151, 151, 151_100)],
        [_skip(1, 151, 150_200), _delivery(152, 151_100)],
        [_skip(1, 150, 150_200), _skip(151, 151, 150_900), _delivery(152, 151_100)],
        [*_TOGETHER, _skip(152, 152, 151_100), _delivery(153, 152_100)],
    ],
    ids=["nothing delivered", "two skips and nothing delivered", "with others", "second skip", "after a delivery"],
)
def test_a_skip_of_the_newest_occurrence_is_a_violation(steps: list[MissedStep]) -> None:
    (fault,) = {each.partition(":")[0] for each in faults(_schedule(*steps), "second", _RESTARTED_MS)}
    assert fault == "skipped, but it was the newest"


def test_an_older_occurrence_must_not_be_delivered_after_an_outage() -> None:
    steps = [_skip(1, 148, 150_200), _delivery(149, 150_200), _skip(150, 150, 150_200), _delivery(151, 150_200)]
    (fault,) = faults(_schedule(*steps), "second", _RESTARTED_MS)
    assert fault.startswith(f"delivered, but {_FIRST_MS + 149_000} was due, too")


def test_a_last_schedule_is_decided_by_its_delivery() -> None:
    assert not _schedule(*_APART[:1]).is_decided(_RESTARTED_MS)
    assert not _schedule(*_APART[:2]).is_decided(_RESTARTED_MS)
    assert _schedule(*_APART).is_decided(_RESTARTED_MS)
    assert not _schedule(*_APART).is_decided(_FIRST_MS + 152_000)
