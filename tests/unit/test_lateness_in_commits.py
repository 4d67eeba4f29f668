"""Goal: lateness in transactions counts those that left without a due message, and only these.

Method: a log of transactions, each with the messages that it delivered, the next later than the one before.
"""

from __future__ import annotations

import pytest

from postdate.wire.dispatch_log import DispatchRecord, PlainFate
from support.oracles.exactly_once import Outcome, Seen
from support.waiting.lateness_in_commits import passed_by

_DUE = {b"requests/0/%d" % offset: due_ms for offset, due_ms in ((0, 100), (1, 200), (2, 210))}


def _log(*transactions: tuple[int, list[int]]) -> Outcome:
    """(time, delivered offsets) of each. Every one knows all requests."""
    log = []
    for seq, (at_ms, offsets) in enumerate(transactions):
        fates = [PlainFate(offset, 0, "delivered") for offset in offsets]
        record = DispatchRecord(
            seq=seq, takeover=1, instance="", group="", at=0, next_request=9, low_water=0, fates=list(fates)
        )
        log.append((Seen("requests.dispatch-log", 0, seq, None, None, [], at_ms, at_ms), record))
    return Outcome([], [], log)


@pytest.mark.parametrize(
    ("transactions", "passed", "overtook"),
    [
        ([(220, [0]), (250, [1, 2])], {0: 1, 1: 2}, {0: 3}),
        ([(90, []), (150, [0]), (250, [1]), (260, [2])], {0: 2, 1: 1}, {0: 3}),
        ([(220, [8]), (230, [8]), (240, [8]), (250, [0, 1, 2])], {3: 3}, {3: 3}),
        ([(220, [2]), (230, []), (250, [0, 1])], {0: 1, 2: 2}, {0: 1, 2: 2}),
        ([(220, [0]), (230, [0]), (240, [0]), (250, [1, 2])], {0: 1, 1: 1, 2: 1, 3: 2}, {0: 5}),
    ],
    ids=["usual", "in turn", "others first", "a later one first", "small ones in turn"],
)
def test_transactions_without_a_due_message(
    transactions: list[tuple[int, list[int]]], passed: dict[int, int], overtook: dict[int, int]
) -> None:
    outcome = _log(*transactions)
    assert dict(passed_by(outcome, _DUE)) == passed
    assert dict(passed_by(outcome, _DUE, out_of_turn=True)) == overtook
