"""Cuts the entries under key 0 (controls and other entries that leave immediately) into several transactions.

This is needed only while Postdate's own topics are isolated, since they cannot accept all of these entries at once.

The pieces preserve rules 1 and 4 of docs/protocol.md. Entries that act on one another, directly or indirectly, form a
group: an entry that a control ends or stores again and all its controls, or an entry and its replacement. A piece
consists of whole groups, in the order of their last entries, so that no entry leaves before an entry that acts on it.
While an entry stays, the message on which it acts stays as well.

Example: entries at offsets 3, 5, 7, 9, where the control at 7 acts on 3. The groups are 5, then 3 with 7, then 9. If a
piece ended after 3, a successor would find 3 gone, and answer the successful cancel at 7 with `not-found`.

Thread rule: pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from postdate.wheel.entry import decode_entry
from postdate.wheel.keys import split_key


def first_piece(offsets: Sequence[int], acts_on: Sequence[int], entries_max: int) -> list[int]:
    """Returns the indices of the entries that leave first, ascending: whole groups with at most `entries_max` entries
    together, but at least one group. Practically O(entries).

    `offsets`: the offsets of the entries under key 0, ascending. `acts_on`: the field of each entry; for a control the
    request on which it acts; for an ended entry the request that ended it or, if kept or dropped, survived it; or -1.
    """
    index_of = {offset: index for index, offset in enumerate(offsets)}
    last = list(range(len(offsets)))  # a later entry of the group, or itself; the last one identifies the group

    def group_of(index: int) -> int:
        while last[index] != index:
            last[index] = last[last[index]]
            index = last[index]
        return index

    for index, other in enumerate(acts_on):
        if (acted_on_index := index_of.get(other)) is not None:
            first, second = sorted((group_of(index), group_of(acted_on_index)))
            last[first] = second
    groups: dict[int, list[int]] = {}
    for index in range(len(offsets)):
        groups.setdefault(group_of(index), []).append(index)
    piece: list[int] = []
    for name in sorted(groups):
        if piece and len(piece) + len(groups[name]) > entries_max:
            break
        piece += groups[name]
    return sorted(piece)


def acted_on(keys: Sequence[bytes], values: Sequence[bytes]) -> tuple[list[int], list[int]]:
    """Returns the offsets of entries under key 0, and for each entry the offset of the request that it acts on (-1:
    none). O(entries)."""
    return [split_key(key)[1] for key in keys], [decode_entry(raw).acts_on for raw in values]
