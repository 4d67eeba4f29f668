"""Goal: the periodic duties of a shard run at their intervals.

Method: the real `Shard` runs over the simulated broker and a real timer log; the test counts the calls of its database.
"""

from __future__ import annotations

import pytest

from postdate.sidecar.shard.shard import Shard
from postdate.wheel.timer_log.database import Database
from support.shards.simulated_shard import ShardEnvironment


def pass_ms(env: ShardEnvironment, shard: Shard, for_ms: float) -> None:
    until_ms = env.time.now_ms + for_ms
    env.until(shard, lambda: env.time.now_ms >= until_ms)


def test_writes_are_synced_at_the_interval(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[float, int]] = []
    honest = Database.sync

    def sync(self: Database) -> None:
        honest(self)
        synced.append((env.time.now_ms, self.sequence()))

    monkeypatch.setattr(Database, "sync", sync)
    shard = env.shard()
    interval_ms = shard.ctx.config.index.sync_interval_ms
    index = shard._index
    assert index is not None
    for number in range(20):
        env.schedule(env.time.now_ms + 3_600_000)
        env.until(shard, lambda: shard.next_request == number + 1)  # noqa: B023  # used at once
        written, written_at_ms = index.timer_log.sequence(), env.time.now_ms
        pass_ms(env, shard, 2.5 * interval_ms)
        assert any(at_ms >= written_at_ms and upto >= written for at_ms, upto in synced)
    assert len(synced) <= 20 * 2.5 + 20, "no more often than the interval allows"
    shard.close()
