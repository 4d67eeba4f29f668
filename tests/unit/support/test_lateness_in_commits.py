"""Goal: lateness in transactions counts exactly the transactions that left without a due message, and can list them.

Method: a log of transactions at increasing times, each with the messages that it delivered.
"""

from __future__ import annotations

import pytest

from postdate.wire.dispatch_log import DispatchRecord, PlainFate
from support.oracles.exactly_once import Outcome, Seen, Sent
from support.waiting.lateness_in_commits import counted, explained, passed_by, passed_messages

_DUE = {b"requests/0/%d" % offset: due_ms for offset, due_ms in ((0, 100), (1, 200), (2, 210))}


def _log(*transactions: tuple[int, list[int]]) -> Outcome:
    """Returns a log of (time, delivered offsets); every transaction knows all requests."""
    log = []
    for seq, (at_ms, offsets) in enumerate(transactions):
        fates = [PlainFate(offset, 0, "delivered") for offset in offsets]
        record = DispatchRecord(
            seq=seq, takeover=1, instance="", group="", at=at_ms - 5, next_request=999, low_water=0, fates=list(fates)
        )
        log.append((Seen("requests.dispatch-log", 0, seq, None, None, [], at_ms, at_ms), record))
    return Outcome([], [], log)


@pytest.mark.parametrize(
    ("transactions", "passed", "overtook"),
    [
        ([(220, [0]), (250, [1, 2])], {0: 1, 1: 2}, {0: 3}),
        ([(90, []), (150, [0]), (250, [1]), (260, [2])], {0: 2, 1: 1}, {0: 3}),
        ([(220, [8]), (230, [8]), (240, [8]), (250, [0, 1, 2])], {3: 3}, {3: 3}),
        ([(220, [2]), (230, [8]), (250, [0, 1])], {0: 1, 2: 2}, {0: 1, 2: 2}),
        ([(220, []), (230, []), (240, []), (250, [0, 1, 2])], {3: 3}, {0: 3}),
        ([(220, [0]), (230, [0]), (240, [0]), (250, [1, 2])], {0: 1, 1: 1, 2: 1, 3: 2}, {0: 5}),
    ],
    ids=["usual", "in turn", "others first", "a later one first", "takeovers", "small ones in turn"],
)
def test_transactions_without_a_due_message_are_counted(
    transactions: list[tuple[int, list[int]]], passed: dict[int, int], overtook: dict[int, int]
) -> None:
    outcome = _log(*transactions)
    assert dict(passed_by(outcome, _DUE)) == passed
    assert dict(passed_by(outcome, _DUE, out_of_turn=True)) == overtook


def test_the_transactions_that_passed_a_message_are_shown() -> None:
    """The message that the most transactions passed comes first, with the messages that these transactions delivered
    instead."""
    outcome = _log((220, [2, 8]), (230, []), (250, [0, 1]))
    sent = {
        origin: Sent(f"target-{at}", None, None, [], due_ms, appended_ms=90)
        for at, (origin, due_ms) in enumerate(_DUE.items())
    }
    passed = [each for each in passed_messages(outcome, _DUE) if each.by]
    assert counted(passed) == {2: 2}
    assert explained(passed, sent, {b"requests/0/2": 241.0, b"requests/0/1": 262.0}).splitlines() == [
        "requests/0/0 for target-0, due at 100, requested at -10 ms, was passed by 2 transactions:",
        "  fates 0: built at +115 ms, logged at +120, read at +141: 1 delivered (others), 1 delivered (target-2)",
        "  fates 1: built at +125 ms, logged at +130, not read: nothing",
        "  fates 2: built at +145 ms, logged at +150, read at +162: 1 delivered (target-0), 1 delivered (target-1)",
        "requests/0/1 for target-1, due at 200, requested at -110 ms, was passed by 2 transactions:",
        "  fates 0: built at +15 ms, logged at +20, read at +41: 1 delivered (others), 1 delivered (target-2)",
        "  fates 1: built at +25 ms, logged at +30, not read: nothing",
        "  fates 2: built at +45 ms, logged at +50, read at +62: 1 delivered (target-0), 1 delivered (target-1)",
    ]


def test_the_explanation_is_bounded() -> None:
    due = {b"requests/0/%d" % offset: 100 for offset in range(200)}
    outcome = _log(*((150 + at, [998]) for at in range(60)), (300, list(range(200))))
    sent = {origin: Sent("target", None, None, [], 100) for origin in due}
    assert len(explained(passed_messages(outcome, due), sent, {}).splitlines()) == 100
