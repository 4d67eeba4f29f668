"""Fixtures of the tests that run shards. A test file may override them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.shards.long_delays import Make, new_shards
from support.shards.simulated_shard import R, ShardEnvironment


@pytest.fixture
def env(tmp_path: Path) -> ShardEnvironment:
    """An environment whose shards lie below `tmp_path` where those of a data directory do."""
    directory = tmp_path / "simulated" / R
    directory.mkdir(parents=True)
    return ShardEnvironment(directory)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes shards over a real timer index, without a cluster (`support.shards.long_delays`)."""
    with new_shards(tmp_path) as make:
        yield make
