"""Goal: the simulated database behaves like RocksDB, and a power failure loses only unsynced data.

Method: applies the same random batches to both and compares every read; then simulates a power failure at every point.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from rocksdict import WriteBatch

from postdate.wheel.errors import Closed, Locked
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.database import Database
from support.shards.timer_indexes import TINY
from support.simulation.runtime.disk import Disks, MemoryBatch, MemoryDatabase


def _alive() -> None:
    return


def _open(disks: Disks, path: Path, options: IndexOptions = TINY) -> MemoryDatabase:
    path.mkdir(parents=True, exist_ok=True)
    return MemoryDatabase(disks, _alive, path, options)


@pytest.mark.parametrize("seed", range(5))
def test_the_database_behaves_like_rocksdb(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    real, fake = Database(tmp_path / "real", TINY), _open(Disks(), tmp_path / "fake")
    keys = [b"%03d" % number for number in range(40)]
    for _ in range(30):
        real_batch, fake_batch = WriteBatch(raw_mode=True), MemoryBatch()
        for _ in range(random.randrange(1, 8)):
            family, key, value = random.choice(["entries", "ids"]), random.choice(keys), b"%d" % random.randrange(9)
            kind = random.choice(["put", "put", "put", "delete", "range"])
            pairs: list[tuple[Any, Any]] = [
                (real_batch, real.handle(family)),
                (fake_batch, fake.handle(family)),
            ]  # `Any`: the databases have different types of handles
            for batch, handle in pairs:
                if kind == "put":
                    batch.put(key, value, handle)
                elif kind == "delete":
                    batch.delete(key, handle)
                else:
                    batch.delete_range(key, key[:2] + b"\xff", handle)
        real.write(real_batch)
        fake.write(fake_batch)
        for family in ("entries", "ids"):
            start, before = sorted(random.sample(keys, 2))
            limit, size_max = random.randrange(1, 9), random.randrange(1, 9)
            for key in random.sample(keys, 5):
                assert fake.get(family, key) == real.get(family, key)
                assert fake.last_row(family, key) == real.last_row(family, key)
                assert fake.first_key(family, key, before) == real.first_key(family, key, before)
            assert fake.last_row(family) == real.last_row(family)
            found = [each.range(family, start, before).collect(limit, size_max) for each in (fake, real)]
            assert found[0] == found[1]
            found_keys = [each.range(family, start, None).collect_keys(limit) for each in (fake, real)]
            assert found_keys[0] == found_keys[1]
    real.close()


@pytest.mark.parametrize("seed", range(20))
def test_a_power_failure_keeps_synced_data_and_a_prefix_of_the_rest(tmp_path: Path, seed: int) -> None:
    disks = Disks()
    database = _open(disks, tmp_path / "a")
    for number in range(10):
        batch = MemoryBatch()
        batch.put(b"key", b"%d" % number, "meta")
        database.write(batch)
        if number == 4:
            database.sync()
    database.release()
    gone = disks.lose_power(tmp_path, Random(seed))
    reopened = _open(disks, tmp_path / "a")
    assert reopened.get("meta", b"key") == b"%d" % (9 - gone)
    assert 0 <= gone <= 5


def test_a_kill_loses_nothing_and_releases_the_lock(tmp_path: Path) -> None:
    disks = Disks()
    database = _open(disks, tmp_path / "a")
    batch = MemoryBatch()
    batch.put(b"key", b"value", "meta")
    database.write(batch)
    with pytest.raises(Locked):
        _open(disks, tmp_path / "a")
    database.release()
    with pytest.raises(Closed):
        database.get("meta", b"key")
    (tmp_path / "a").rename(tmp_path / "moved")
    assert _open(disks, tmp_path / "moved").get("meta", b"key") == b"value"
