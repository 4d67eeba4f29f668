"""Goal: a moved message with an even spread gets no time in the past, whichever owner, disk or record moves it.

The owner of the message may have chosen a later time than the drawn one, and may have delivered messages that were due
between these times.

Method: a whole takeover without a disk (`support.shards.simulated_shard`), and single steps over a timer index
(`support.shards.long_delays`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest

from postdate.kafka.interface import Record
from postdate.sidecar.dispatch.after_commit import finish
from postdate.sidecar.dispatch.due.bulk_sweep import BulkSweep
from postdate.sidecar.index.bulk import in_force
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.limits import CLOCK_SAMPLE_AGE_MS_MAX
from postdate.sidecar.states import State
from postdate.wire.dispatch_log import (
    APPLIED,
    MOVED,
    STORED,
    SWEPT,
    BulkProgress,
    ChosenFate,
    Fate,
    Moved,
    PlainFate,
)
from support.shards.long_delays import BASE_MS, LongDelayShard, Make, request, schedule
from support.shards.simulated_shard import OWN, ShardEnvironment

MINUTE_MS = 60_000
#: The first due time, the due time after the move, and the present time, near the end of the window of the moved
#: message.
FIRST_MS, MOVED_MS, NOW_MS = BASE_MS + 30 * MINUTE_MS, BASE_MS + 2 * MINUTE_MS, BASE_MS + 2 * MINUTE_MS + 900
EVEN = {"window": "1s", "spread": "even"}
COUNT = 50


def draw_ms(offset: int, window_ms: int) -> int:
    """Returns the draw of request `offset`."""
    return ((window_ms + 1) * (crc32(b"requests/0/%d" % offset) >> 8)) >> 24


def test_a_rebuild_applies_a_move_of_a_stored_message_behind_the_last_record_of_the_log(tmp_path: Path) -> None:
    """Another pending message holds the low-water mark below the reschedule `c`, so the move is read again after
    STORE."""
    env = ShardEnvironment(tmp_path)
    env.format_version = 2
    shard = env.shard()
    started_ms, count = int(env.time.now_ms), 100
    even = env.schedule(
        *(
            started_ms + 120 * MINUTE_MS,
            ("postdate-window", b"60s"),
            ("postdate-spread", b"even"),
            ("postdate-id", b"m"),
        )
    )
    env.schedule(started_ms + 50 * MINUTE_MS)
    move_ms, c = started_ms + 5 * MINUTE_MS, even + 2 + count
    drawn_ms = move_ms + draw_ms(c, MINUTE_MS)
    for tick in range(count):  # all ticks behind the draw are taken
        env.schedule(drawn_ms + 100 * tick)
    env.until(shard, lambda: any(record.value for record in env.read(OWN.store)))
    move = [("postdate-action", b"reschedule"), ("postdate-id", b"m"), ("postdate-at", b"%d" % move_ms)]
    assert env.ask(*move) == c
    env.until(shard, lambda: any(fate.name == MOVED for each in env.log() for fate in each.fates))
    env.time.wait(drawn_ms + 2_000 - env.time.now_ms)
    env.until(shard, lambda: len(env.read("orders")) >= 20)
    logged_ms, logged = env.read(OWN.dispatch_log)[-1].timestamp_ms, len(env.log())
    assert drawn_ms < logged_ms
    shard.close()
    rebuilt = env.new_shard(place="b")
    env.until(rebuilt, lambda: rebuilt.state is State.RUNNING)
    env.until(rebuilt, lambda: len(env.read("orders")) == count + 1, 2 * MINUTE_MS)
    assert env.log()[logged - 1].low_water == even + 1
    (chosen,) = [fate for each in env.log()[logged:] for fate in each.fates if isinstance(fate, ChosenFate)]
    assert (chosen.offset, chosen.chosen_ms > logged_ms) == (even, True)
    rebuilt.close()


def test_a_draw_that_passed_while_the_process_was_paused_is_not_kept(tmp_path: Path) -> None:
    """Nothing was logged for an hour, so the broker's time is unknown when the request is read."""
    env = ShardEnvironment(tmp_path)
    env.format_version = 2
    shard = env.shard()
    env.time.wait(CLOCK_SAMPLE_AGE_MS_MAX)
    window_ms, due_ms = 20 * MINUTE_MS, int(env.time.now_ms)
    spread = [("postdate-window", b"20m"), ("postdate-spread", b"even"), ("postdate-grace", b"1m")]
    offset = env.schedule(due_ms, *spread)
    env.time.wait(draw_ms(offset, window_ms) + 2 * MINUTE_MS)
    woken_ms = env.time.now_ms
    assert woken_ms < due_ms + window_ms
    env.poll(shard)
    env.until(shard, lambda: env.ended() == 1, window_ms)
    assert env.dead_letters() == []
    (chosen,) = [fate for each in env.log() for fate in each.fates if isinstance(fate, ChosenFate)]
    assert woken_ms <= chosen.chosen_ms <= due_ms + window_ms
    shard.close()


def messages() -> list[Record]:
    return [schedule(offset, FIRST_MS, **EVEN) for offset in range(COUNT)]


def moves(control: int) -> list[Fate]:
    return [Moved(offset, FIRST_MS, MOVED, MOVED_MS, control) for offset in range(COUNT)]


def chosen(shard: LongDelayShard) -> list[int]:
    """Returns the chosen times of the messages, including messages under key 0."""
    return [entry.due for offset, (_, entry) in shard.entries().items() if offset < COUNT]


def by_a_mark(make: Make) -> LongDelayShard:
    """An owner without a disk reads the moves before the requests."""
    shard = make()
    shard.recover(BulkProgress(COUNT, 0, SWEPT, 0))
    shard.recover(*moves(COUNT), BulkProgress(COUNT, 0, APPLIED, COUNT))
    shard.feed(*messages(), now_ms=NOW_MS)
    return shard


def by_the_log(make: Make) -> LongDelayShard:
    """An owner with an old disk has read the requests, but not the bulk control."""
    shard = make()
    shard.feed(*messages())
    shard.commit()
    shard.recover(BulkProgress(COUNT, 0, SWEPT, 0))
    shard.recover(*moves(COUNT), BulkProgress(COUNT, 0, APPLIED, COUNT), logged_ms=NOW_MS)
    return shard


def by_a_control_in_the_log(make: Make) -> LongDelayShard:
    """As `by_the_log`, with a reschedule of each message."""
    shard = make()
    shard.feed(*messages())
    shard.commit()
    fates = [Moved(offset, FIRST_MS, MOVED, MOVED_MS, COUNT + offset) for offset in range(COUNT)]
    shard.recover(*fates, *(PlainFate(offset, FIRST_MS, STORED) for offset in range(COUNT)), logged_ms=NOW_MS)
    return shard


def by_the_sweep(make: Make) -> LongDelayShard:
    """The owner itself moves the messages, by a bulk control."""
    shard = make()
    shard.feed(*messages())
    shard.commit()
    earlier = {"select-topic": "orders", "by": f"-{FIRST_MS - MOVED_MS}ms"}
    shard.feed(request(COUNT, action="reschedule", **earlier), now_ms=NOW_MS)
    overlay, sweep = IndexOverlay(shard.index, BASE_MS), BulkSweep()
    bulk = in_force(overlay.bulks)
    assert bulk is not None
    due = sweep.read(shard.index, bulk, COUNT, 1 << 20)
    if not due.keys:  # nothing is parked
        sweep.committed()
        due = sweep.read(shard.index, bulk, COUNT, 1 << 20)
    due.now_ms = NOW_MS
    finish(overlay, shard._builder.build(overlay, due, 0.0))
    overlay.write()
    return shard


@pytest.mark.parametrize("moved", [by_a_mark, by_the_log, by_a_control_in_the_log, by_the_sweep])
def test_a_moved_message_gets_no_time_in_the_past(make: Make, moved: Callable[[Make], LongDelayShard]) -> None:
    times_ms = chosen(moved(make))
    assert len(times_ms) == COUNT
    assert min(times_ms) == NOW_MS + 1
    assert max(times_ms) <= MOVED_MS + 1_000
