"""Goal: a shard whose disk was full goes on as soon as there is room, and nothing is lost or repeated.

Method: a shard on a simulated cluster, its timer log on a small disk of its own that is filled and freed. The cluster's
time passes in no time, so whatever the storage would do by itself after some seconds does not help it here.
"""

from __future__ import annotations

import os
from pathlib import Path

from postdate.sidecar.states import DELIVERING
from support.faults.small_disk import small_disk
from support.shard_bench import Bench


def test_a_shard_goes_on_once_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        bench = Bench(disk.directory)
        shard = bench.shard()
        for _ in range(20):
            bench.schedule(bench.time.now_ms + 500, value=bytes(20_000))
        bench.until(shard, lambda: bench.ended() == 20)
        disk.fill(os.getpid())
        try:
            for _ in range(20):
                bench.schedule(bench.time.now_ms + 500, value=bytes(20_000))
            bench.until(shard, lambda: shard.state not in DELIVERING)
            assert "space" in shard.why or "large" in shard.why, shard.why
        finally:
            disk.free(os.getpid())
        bench.until(shard, lambda: bench.ended() == 40)
        assert len(bench.read("orders")) == 40
        shard.close()
