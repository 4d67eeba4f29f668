"""Goal: a shard resumes as soon as its full disk has space, and loses or repeats nothing. Meanwhile its status gives
the reason and the remedy.

Method: a shard runs on a simulated cluster. Its timer log is on a separate small disk, which the test fills and frees.
Waits on the simulated cluster take no real time, so the storage engine gets no seconds in which to free space.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from postdate.cli import postdate
from postdate.sidecar.states import DELIVERING
from support.faults.small_disk import small_disk
from support.shards.simulated_shard import R, ShardEnvironment


def status_of(data: Path) -> str:
    done = CliRunner().invoke(postdate, ["shard", "status", "--data", str(data)])
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("left_bytes", [0, 300_000])
def test_a_shard_on_a_full_disk_reports_it_and_resumes_when_there_is_space(tmp_path: Path, left_bytes: int) -> None:
    with small_disk(tmp_path / "disk") as disk:
        env = ShardEnvironment(disk.directory / "simulated" / R)
        env.directory.mkdir(parents=True)
        shard = env.shard()
        for _ in range(20):
            env.schedule(env.time.now_ms + 500, value=bytes(20_000))
        env.until(shard, lambda: env.ended() == 20)
        assert "disk" not in status_of(disk.directory)
        disk.fill(os.getpid(), left_bytes)
        try:
            for _ in range(20):
                env.schedule(env.time.now_ms + 500, value=bytes(20_000))
            env.until(shard, lambda: shard.state not in DELIVERING)
            assert "space" in shard.why or "large" in shard.why, shard.why
            status = status_of(disk.directory)
            if disk.means == "tmpfs" and not left_bytes:
                assert "disk: 0 bytes free" in status
                assert "free space or enlarge the volume" in status
            else:
                assert f"why: {shard.why}" in status
            assert "no process of this machine" not in status
        finally:
            disk.free(os.getpid())
        env.until(shard, lambda: env.ended() == 40)
        assert len(env.read("orders")) == 40
        shard.close()
