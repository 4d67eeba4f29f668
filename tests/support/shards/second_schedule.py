"""A schedule that fires each second: its requests and controls, its nominal times by arithmetic, and its entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from zlib import crc32

from postdate.kafka.interface import Record
from postdate.wheel.entry import Kind, Next
from postdate.wire.dispatch_log import APPLIED, STORED, Fate, PlainFate
from support.shards.long_delays import BASE_MS, OWN, LongDelayShard, request, timed, verdict_texts

EVERY_MS: Final = 1_000
FIRST_MS: Final = BASE_MS + EVERY_MS

#: The schedule at offset 0 is stored.
IS_STORED: Final = PlainFate(0, FIRST_MS, STORED)


def nominal_ms(number: int) -> int:
    """The nominal time of an occurrence."""
    return BASE_MS + number * EVERY_MS


def drawn_ms(number: int, window_ms: int) -> int:
    """The time of an occurrence of the schedule at offset 0, within its window: drawn as docs/protocol.md says."""
    return nominal_ms(number) + (((window_ms + 1) * (crc32(b"requests/0/0/%d" % number) >> 8)) >> 24)


def calendar(offset: int, **headers: str | int) -> Record:
    """The request for the schedule with the id `c`; `headers` change or complete it."""
    return request(offset, topic="orders", every="1s", **{"id": "c", **headers})


def control(offset: int, action: str, at_ms: int, **headers: str | int) -> Record:
    """A control with this timestamp, on the id `c` unless `headers` say otherwise."""
    return timed(request(offset, action=action, **(headers or {"id": "c"})), at_ms)


def applied(control: int) -> PlainFate:
    """The final fate of a control."""
    return PlainFate(control, 0, APPLIED)


def stored(shard: LongDelayShard, **headers: str | int) -> LongDelayShard:
    """The shard, once it has ingested and stored the schedule at offset 0."""
    shard.feed(calendar(0, **headers))
    shard.commit()
    return shard


def state(shard: LongDelayShard) -> tuple[Kind, int, Next | None]:
    """Kind, due time of the key and next occurrence of the schedule at offset 0."""
    due_ms, entry = shard.entries()[0]
    return Kind(entry.kind), due_ms, entry.next


def drained(shard: LongDelayShard, now_ms: int) -> list[Fate]:
    """The fates of all transactions up to a time."""
    found: list[Fate] = []
    while fates := shard.commit(now_ms).fates:
        found += fates
    return found


def recovered_twice(shard: LongDelayShard, fates: Sequence[Fate]) -> None:
    """Asserts that the fates, read a second time, change nothing."""
    shard.recover(*fates)
    once = shard.families()
    shard.recover(*fates)
    assert shard.families() == once


def refusal(shard: LongDelayShard) -> tuple[bytes | None, list[str]]:
    """The reason of the only dead letter of the next transaction, and its verdicts."""
    batch = shard.commit()
    (letter,) = [message for message in batch.messages if message[1] == OWN.dead_letters]
    return dict(letter[5])["postdate-dead-reason"], [verdict for verdict, *_ in verdict_texts(batch)]
