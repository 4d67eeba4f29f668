"""Goal: a piece of the entries under key 0 contains whole groups: entries that act on
one another leave together."""

from __future__ import annotations

import pytest

from postdate.sidecar.dispatch.due.control_pieces import first_piece


@pytest.mark.parametrize(
    ("acts_on", "most", "piece"),
    [
        ([-1, -1, -1, -1], 2, [3, 5]),
        ([-1, -1, 3, -1], 1, [5]),  # the control at 7 acts on 3, so 3 waits for it
        ([-1, -1, 3, -1], 2, [5]),
        ([-1, -1, 3, -1], 3, [3, 5, 7]),
        ([-1, 3, 3, -1], 1, [3, 5, 7]),  # no smaller piece is allowed
        ([-1, -1, 3, 5], 1, [3, 7]),
        ([-1, 1, -1, 8], 2, [3, 5]),  # the entries that these act on are not under key 0
        ([7, -1, -1, 7], 1, [5]),  # 3 was replaced by 7, which the control at 9 ends
        ([7, -1, -1, 7], 4, [3, 5, 7, 9]),
        ([-1, -1, -1, -1], 9, [3, 5, 7, 9]),
    ],
)
def test_a_piece_is_made_of_whole_groups(acts_on: list[int], most: int, piece: list[int]) -> None:
    offsets = [3, 5, 7, 9]
    assert [offsets[index] for index in first_piece(offsets, acts_on, most)] == piece
