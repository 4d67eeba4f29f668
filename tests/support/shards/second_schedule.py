"""A schedule that fires every second: its requests, controls and entry, and its nominal times by arithmetic."""

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

#: The fates of the transaction that stores the schedule at offset 0.
IS_STORED: Final = PlainFate(0, FIRST_MS, STORED)


def nominal_ms(number: int) -> int:
    """Returns the nominal time of an occurrence."""
    return BASE_MS + number * EVERY_MS


def drawn_ms(number: int, window_ms: int) -> int:
    """Returns the time that is drawn within its window (docs/protocol.md) for an occurrence of the schedule at offset
    0."""
    return nominal_ms(number) + (((window_ms + 1) * (crc32(b"requests/0/0/%d" % number) >> 8)) >> 24)


def calendar(offset: int, **headers: str | int) -> Record:
    """Returns the request for the schedule with the id `c`; `headers` change or extend it."""
    return request(offset, topic="orders", every="1s", **{"id": "c", **headers})


def control(offset: int, action: str, at_ms: int, **headers: str | int) -> Record:
    """Returns a control with this timestamp. Its id is `c` unless `headers` contain another."""
    return timed(request(offset, action=action, **(headers or {"id": "c"})), at_ms)


def applied(control: int) -> PlainFate:
    """Returns the final fate of a control."""
    return PlainFate(control, 0, APPLIED)


def stored(shard: LongDelayShard, **headers: str | int) -> LongDelayShard:
    """Lets the shard ingest and store the schedule at offset 0; returns the shard."""
    shard.feed(calendar(0, **headers))
    shard.commit()
    return shard


def state(shard: LongDelayShard) -> tuple[Kind, int, Next | None]:
    """Returns kind, due time of the key and next occurrence of the schedule at offset 0."""
    due_ms, entry = shard.entries()[0]
    return Kind(entry.kind), due_ms, entry.next


def drained(shard: LongDelayShard, now_ms: int) -> list[Fate]:
    """Commits all transactions up to a time; returns their fates."""
    found: list[Fate] = []
    while fates := shard.commit(now_ms).fates:
        found += fates
    return found


def recovered_twice(shard: LongDelayShard, fates: Sequence[Fate]) -> None:
    """Replays the fates twice, and asserts that the second replay changes nothing."""
    shard.recover(*fates)
    once = shard.families()
    shard.recover(*fates)
    assert shard.families() == once


def refusal(shard: LongDelayShard) -> tuple[bytes | None, list[str]]:
    """Returns the reason of the only dead letter of the next transaction, and its verdicts."""
    batch = shard.commit()
    (letter,) = [message for message in batch.messages if message[1] == OWN.dead_letters]
    return dict(letter[5])["postdate-dead-reason"], [verdict for verdict, *_ in verdict_texts(batch)]
