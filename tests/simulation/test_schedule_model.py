"""Goal: with the rules of docs/protocol.md, "Schedules", each occurrence is delivered once, and each of these rules is
needed.

Method: explores every state of a small model: two members, two occurrences, controls, restarts from each earlier disk
and from an empty one. With all rules, no trace breaks a promise, and each situation is reached. If any one rule is
removed, the exploration finds a trace that breaks a promise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from support.models.schedule_worlds import CANCEL, EXTRA, PAUSE, RESUME, SCHEDULE, ModelRequest
from support.models.schedules import Model, Rules

_SCHEDULE: Final = ModelRequest(0, SCHEDULE)
_SAME: Final = ((1, 2), (1, 2))

#: Each check: the model to explore, and the situations that it must reach.
CHECKS: Final = {
    "killed twice": (
        Model((_SCHEDULE,), _SAME, end=2, crashes_max=2),
        {"occurred", "a fate before its request", "an empty start after its schedule", "came to its end"},
    ),
    "two versions of the time zones": (
        Model((_SCHEDULE,), ((1, 2), (2, 3)), end=3, crashes_max=1),
        {"occurred", "a fate before its request", "an empty start after its schedule", "came to its end"},
    ),
    "only the newest of the missed ones": (
        Model((_SCHEDULE,), _SAME, end=2, late="last", crashes_max=1),
        {"occurred", "skipped missed", "came to its end"},
    ),
    "a cancel races an occurrence": (
        Model((_SCHEDULE, ModelRequest(1, CANCEL)), _SAME, end=2, crashes_max=1),
        {"occurred", "an empty start after its schedule", "came to its end"},
    ),
    "a pause races an occurrence": (
        Model((_SCHEDULE, ModelRequest(1, PAUSE), ModelRequest(2, RESUME)), _SAME, end=2, crashes_max=0),
        {"occurred", "skipped paused", "an empty start after its schedule", "came to its end"},
    ),
    "killed while it is paused": (
        Model((_SCHEDULE, ModelRequest(0, PAUSE), ModelRequest(2, RESUME)), ((1,), (1,)), end=2, crashes_max=1),
        {"skipped paused", "a fate before its request", "an empty start after its schedule", "came to its end"},
    ),
    "a pause ends before it is in the log": (
        Model((_SCHEDULE, ModelRequest(2, PAUSE), ModelRequest(2, RESUME)), _SAME, end=2, crashes_max=1, mortal=(0,)),
        {"occurred", "an empty start after its schedule", "came to its end"},
    ),
    "a trigger races the last occurrence": (
        Model((_SCHEDULE, ModelRequest(1, EXTRA)), ((1,), (1,)), end=1, crashes_max=1),
        {"extra", "a fate before its request", "an empty start after its schedule", "came to its end"},
    ),
    "a backfill of two times": (
        Model((_SCHEDULE, ModelRequest(1, EXTRA, (0, 1))), ((0, 1), (0, 1)), end=1, crashes_max=1, mortal=(0,)),
        {"extra", "extras after the last occurrence", "an empty start after its schedule", "came to its end"},
    ),
    "a backfill by two versions of the time zones": (
        Model((_SCHEDULE, ModelRequest(1, EXTRA, (0, 1))), ((0, 2), (1, 2)), end=2, crashes_max=1, mortal=(0,)),
        {"extra", "an index that contradicts the log", "an empty start after its schedule", "came to its end"},
    ),
    "a backfill of no time by one of two versions": (
        Model((_SCHEDULE, ModelRequest(1, EXTRA, (0, 1))), ((0, 2), (2, 3)), end=3, crashes_max=1, mortal=(0,)),
        {"extra", "an index that contradicts the log", "an empty start after its schedule", "came to its end"},
    ),
    "a cancel races a trigger": (
        Model(
            (_SCHEDULE, ModelRequest(1, EXTRA), ModelRequest(1, CANCEL)),
            ((2,), (2,)),
            end=2,
            crashes_max=1,
            mortal=(0,),
        ),
        {"extra", "an empty start after its schedule", "came to its end"},
    ),
}

#: The removed rule, the check, and the beginning of the violation that the check must find.
MUTATIONS: Final = {
    "next_from_fate": ("two versions of the time zones", "LOST"),
    "first_from_stored": ("two versions of the time zones", "OTHER TIME"),
    "marks_number": ("killed twice", "REPEATED"),
    "store_in_transaction": ("killed twice", "REPEATED"),
    "tombstone": ("killed twice", "AFTER ITS END"),
    "advance_after_commit": ("killed twice", "MISSING"),
    "next_from_nominal": ("killed twice", "PASSED OVER"),
    "skips_in_log": ("only the newest of the missed ones", "MISSING"),
    "paused_until_resume": ("a pause races an occurrence", "WRONGLY SKIPPED"),
    "cancel_in_log": ("a cancel races an occurrence", "LOST"),
    "pauses_in_log": ("killed while it is paused", "PAUSE LOST"),
    "pauses_in_marks": ("killed while it is paused", "PAUSE LOST"),
    "pauses_in_store": ("killed while it is paused", "PAUSE LOST"),
    "pauses_added_once": ("a pause ends before it is in the log", "LOST"),
    "extras_in_log": ("a trigger races the last occurrence", "EXTRA LOST"),
    "extras_in_marks": ("a trigger races the last occurrence", "EXTRA LOST"),
    "extras_in_store": ("a trigger races the last occurrence", "LOST"),
    "extras_numbered": ("a trigger races the last occurrence", "REPEATED"),
    "extras_awaited": ("a trigger races the last occurrence", "EXTRA LOST"),
    "extras_as_published": ("a backfill by two versions of the time zones", "REPEATED"),
}


@pytest.mark.parametrize("name", CHECKS)
def test_every_state_keeps_every_promise(name: str) -> None:
    model, wanted = CHECKS[name]
    model = replace(model, reached={})
    wrong, trace, worlds = model.run()
    assert not wrong, f"{wrong}: {' > '.join(trace)}"
    assert wanted <= model.reached.keys(), f"{worlds} worlds reached only {model.reached}"


@pytest.mark.parametrize("rule", MUTATIONS)
def test_each_rule_is_needed(rule: str) -> None:
    name, expected = MUTATIONS[rule]
    model = replace(CHECKS[name][0], rules=replace(Rules(), **{rule: False}), reached={})
    wrong, trace, worlds = model.run()
    assert wrong, f"{worlds} worlds without {rule}, and nothing is broken"
    assert wrong.startswith(expected), f"{wrong}: {' > '.join(trace)}"


def test_every_rule_has_a_mutation() -> None:
    assert MUTATIONS.keys() == vars(Rules()).keys()
