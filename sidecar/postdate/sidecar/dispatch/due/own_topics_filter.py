"""Selects the messages of a transaction while some of Postdate's own topics are isolated.

Thread rule: belongs to the shard's thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from postdate.wheel.entry import Entry, Head
from postdate.wheel.keys import ENTRY_KEY_SIZE_BYTES, entry_key, split_key

MessageKey = tuple[str, bytes | None]
"""The target and the key of a message."""

_Name = TypeVar("_Name", str, MessageKey)


def due_order_of(key: bytes, entry: Entry | Head) -> bytes:
    """Returns the place (due time and offset) of an entry under key 0 in the order of messages."""
    return entry_key(entry.due, split_key(key)[1])


def note_first(places: dict[_Name, bytes], name: _Name, place: bytes) -> None:
    """Notes the place of a message in `places` if it is the lowest place of `name` so far."""
    places[name] = min(places.get(name, place), place)


@dataclass(slots=True)
class OwnTopicsFilter:
    """Selects the messages of a transaction while some of Postdate's own `topics` are isolated. If `own_left` is None,
    it takes only messages that write to none of these topics; otherwise it takes only messages that write to one of
    them, at most `own_left`. `acted_on`: requests that must not end yet, because an entry that stays under key 0 acts
    on them (rule 4). `behind`: by target and message key, the place (due time and offset) of the first message that
    stays under key 0. `skipped_own`: True once a message that writes to one of these topics was skipped. `waiting`:
    `behind`, and the places of skipped messages; later messages of the same target and key stay as well, so that their
    order is kept."""

    topics: Collection[str]
    own_left: int | None = None
    acted_on: Collection[int] = ()
    behind: Mapping[MessageKey, bytes] = field(default_factory=dict)
    skipped_own: bool = False
    waiting: dict[MessageKey, bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.waiting = dict(self.behind)

    def renewed(self) -> OwnTopicsFilter:
        """Returns a copy for one attempt to build the transaction, since each attempt changes `own_left`, `skipped_own`
        and `waiting`."""
        return replace(self)

    def takes(self, key: bytes, entry: Entry, is_dead: bool, needs_own: bool) -> bool:
        """True if the message under `key` may leave with this transaction. REQUIRES: calls in the order of due times.
        `is_dead`: the message becomes a dead letter, which has no order."""
        place, offset = key[-ENTRY_KEY_SIZE_BYTES:], split_key(key)[1]
        of_key = (entry.target, entry.key) if not is_dead and entry.key is not None else None
        must_wait = of_key in self.waiting and self.waiting[of_key] < place
        if offset not in self.acted_on and not must_wait:
            if not needs_own and self.own_left is None:
                return True
            if needs_own and self.own_left:
                self.own_left -= 1
                return True
        if of_key is not None:
            note_first(self.waiting, of_key, place)
        self.skipped_own = self.skipped_own or needs_own
        return False
