"""Holds: what operators have paused on a shard (all delivery, delivery to some targets, or intake).

A hold belongs to a shard, not to a process or a disk. So it is stored in the metadata of the group's committed offset,
where Kafka keeps a string for each partition of a group. A process that was assigned the partition reads the hold
before it delivers. Only the member that owns the partition can write it, and every commit of R repeats it.

Held messages are never lost, early or duplicated. While all delivery of a shard is held, the shard still reads
requests, ends cancelled entries and writes its `beat` records. Entries for a held target are parked, without a retry
budget.

Thread rule: `HoldState.current` is replaced as a whole, by the shard's thread during its first takeover and after that
only by the poll thread; any thread may read it.
"""

from __future__ import annotations

import logging
from typing import Final, Literal

import msgspec

from postdate.kafka.interface import Admin, Partition

log = logging.getLogger(__name__)

DELIVERY: Final = "delivery"
INTAKE: Final = "intake"
TARGET: Final = "target"


class Holds(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The holds of one shard. Unknown fields are ignored, missing ones have their defaults."""

    delivery: bool = False
    intake: bool = False
    targets: frozenset[str] = frozenset()

    def words(self) -> list[str]:
        """Returns the holds, named as on the command line; empty if there are none."""
        words = [word for word, held in ((DELIVERY, self.delivery), (INTAKE, self.intake)) if held]
        return words + [f"{TARGET} {name}" for name in sorted(self.targets)]

    def encode(self) -> str:
        """Returns the metadata for the group's offset; empty if nothing is held."""
        return "" if self == NOTHING else msgspec.json.encode(_Note(holds=self)).decode()

    def before_ms(self, before_ms: int) -> int:
        """Returns the time before which entries must be due in order to leave. `before_ms`: this time without holds.
        Entries with due time 0 end without a delivery, and may always leave."""
        return min(before_ms, 1) if self.delivery else before_ms

    def changed(self, kind: str, is_held: bool, target: str = "") -> Holds:
        """Returns a copy with one hold added or removed."""
        if kind == DELIVERY:
            return msgspec.structs.replace(self, delivery=is_held)
        if kind == INTAKE:
            return msgspec.structs.replace(self, intake=is_held)
        targets = self.targets | {target} if is_held else self.targets - {target}
        return msgspec.structs.replace(self, targets=targets)


class _Note(msgspec.Struct, kw_only=True, frozen=True):
    """The metadata as stored in Kafka."""

    v: Literal[1] = 1
    holds: Holds


NOTHING: Final = Holds()
_decoder = msgspec.json.Decoder(_Note)


class HoldState:
    """The present holds of one shard."""

    def __init__(self) -> None:
        self.current = NOTHING
        self._is_loaded = False

    def load(self, admin: Admin, group_id: str, part: Partition) -> None:
        """Reads the holds from the group, once; later changes come from this process. One request to Kafka.

        Raises KafkaFault while the holds are unknown.
        """
        if self._is_loaded:
            return
        note = admin.group_note(group_id, part)
        try:
            self.current = _decoder.decode(note).holds if note else NOTHING
        except msgspec.MsgspecError as error:
            log.error(
                "shard %s/%d: the metadata of its group offset is not Postdate's: %s", part.topic, part.index, error
            )
            self.current = NOTHING
        self._is_loaded = True
        if self.current != NOTHING:
            log.warning("shard %s/%d: held by an operator: %s", part.topic, part.index, ", ".join(self.current.words()))
