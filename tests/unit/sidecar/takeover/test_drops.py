"""Goal: every owner drops the same repetitions of delivered messages, whatever the state of its disk and its clock.

Method: the real shard plays the traces of docs/protocol.md ("Policies for ids") over the simulated broker.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec import UNSET

from postdate.sidecar.config.settings import RequestTopicConfig
from postdate.sidecar.dispatch.dispatcher import Dispatcher
from postdate.sidecar.shard.shard import Shard
from support.shards.simulated_shard import R, ShardEnvironment

_HOUR_MS = 3_600_000
_WINDOW_MS = 20 * _HOUR_MS
_ID, _DROP = ("postdate-id", b"a"), ("postdate-if-ended", b"drop")


@pytest.fixture
def env(tmp_path: Path) -> ShardEnvironment:
    directory = tmp_path / "simulated" / R
    directory.mkdir(parents=True)
    made = ShardEnvironment(directory)
    made.format_version = 2
    return made


def _shard(env: ShardEnvironment, window_ms: int = _WINDOW_MS, store_after_ms: int = 0) -> Shard:
    return env.shard(RequestTopicConfig(R, ended_window_ms=window_ms, store_after_ms=store_after_ms))


def _ends(env: ShardEnvironment) -> dict[int, str]:
    return {offset: name for fates in env.fates() for offset, name in fates}


def _end(env: ShardEnvironment, shard: Shard, count: int) -> None:
    env.until(shard, lambda: env.ended() == count)


def _lose_disk(env: ShardEnvironment) -> None:
    shutil.rmtree(env.directory / "0")


def _deliver(env: ShardEnvironment) -> None:
    """Delivers request 0, and waits until a `beat` records that request 0 is no longer needed."""
    shard = _shard(env)
    env.schedule(1, _ID, _DROP)
    _end(env, shard, 1)
    env.until(shard, lambda: env.log()[-1].low_water == 1, 200_000)
    shard.close()


def test_an_empty_disk_drops_although_nothing_is_left_to_read(env: ShardEnvironment) -> None:
    """No request lies at L, so the replay begins at the end of the dispatch log."""
    _deliver(env)
    env.time.wait(15 * _HOUR_MS)
    _lose_disk(env)
    shard = _shard(env)
    env.schedule(1, _ID, _DROP)
    _end(env, shard, 2)
    assert _ends(env) == {0: "delivered", 1: "dropped"}
    shard.close()


def test_an_empty_disk_drops_for_a_delivery_long_before_the_oldest_pending_request(env: ShardEnvironment) -> None:
    _deliver(env)
    env.time.wait(15 * _HOUR_MS)
    shard = _shard(env)
    env.schedule(env.time.now_ms + _HOUR_MS)
    env.until(shard, lambda: shard.next_request == 2)
    shard.close()
    _lose_disk(env)
    env.schedule(1, _ID, _DROP)
    shard = _shard(env)
    _end(env, shard, 2)
    assert _ends(env) == {0: "delivered", 2: "dropped"}
    shard.close()


@pytest.mark.parametrize("loses_disk", [False, True])
def test_a_request_that_waited_for_a_sidecar_is_dropped_by_its_timestamp(
    env: ShardEnvironment, loses_disk: bool
) -> None:
    """The request's timestamp lies within the window after the delivery, but the time at which it is read does not."""
    _deliver(env)
    env.time.wait(_HOUR_MS // 2)
    env.schedule(1, _ID, _DROP)
    env.time.wait(30 * _HOUR_MS)
    if loses_disk:
        _lose_disk(env)
    shard = _shard(env, _HOUR_MS)
    env.time.wait(1_000)
    shard.turn()
    _end(env, shard, 2)
    env.schedule(1, _ID, _DROP)
    _end(env, shard, 3)
    assert _ends(env) == {0: "delivered", 1: "dropped", 2: "delivered"}
    shard.close()


def test_a_record_shows_whether_ids_are_remembered_until_no_id_is_needed(env: ShardEnvironment) -> None:
    """Otherwise each owner without a disk would read the log of a whole window."""
    shard = _shard(env, _HOUR_MS)
    env.schedule(1, _ID)
    _end(env, shard, 1)
    assert {record.remembers for record in env.log()} == {UNSET}
    env.schedule(1, _ID, _DROP)
    _end(env, shard, 2)
    env.schedule(1)
    _end(env, shard, 3)
    assert env.log()[-1].remembers is True
    env.time.wait(4 * _HOUR_MS)
    for count in (4, 5):
        env.schedule(1)
        _end(env, shard, count)
        env.time.wait(2_000)
        shard.turn()
    assert env.log()[-1].remembers is UNSET
    shard.close()


def test_a_window_of_0_drops_nothing(env: ShardEnvironment) -> None:
    shard = _shard(env, 0)
    for count in (1, 2):
        env.schedule(1, _ID, _DROP)
        _end(env, shard, count)
    assert [*_ends(env).values()] == ["delivered"] * 2
    shard.close()


def test_an_index_that_replaced_a_message_which_the_log_delivered_is_rebuilt(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reads request 1, which replaces request 0, and stops before it commits the replacement. B, with an older disk,
    delivers request 0. Then A takes over with its own disk."""
    due_ms = env.time.now_ms + 10_000
    shard = _shard(env)
    env.schedule(due_ms, _ID, _DROP)
    env.until(shard, lambda: shard.next_request == 1)
    shard.close()
    shutil.copytree(env.directory / "0", env.directory / "older")
    with monkeypatch.context() as patched:
        patched.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
        shard = _shard(env)
        second = env.schedule(due_ms + 20_000, _ID, _DROP)
        env.until(shard, lambda: shard.next_request == second + 1)
        shard.close()
    (env.directory / "0").rename(env.directory / "newer")
    (env.directory / "older").rename(env.directory / "0")
    with monkeypatch.context() as patched:
        patched.setattr("postdate.sidecar.shard.shard.ingest", lambda *_, **__: 0)
        shard = _shard_that_delivers(env)
        shard.close()
    (env.directory / "0").rename(env.directory / "older")
    (env.directory / "newer").rename(env.directory / "0")
    shard = _shard(env)
    _end(env, shard, 2)
    assert _ends(env) == {0: "delivered", second: "dropped"}
    assert [path.name for path in env.directory.glob("0.*")] == ["0.old-1"]
    shard.close()


def _shard_that_delivers(env: ShardEnvironment) -> Shard:
    """Returns a shard that delivers request 0 and reads no more."""
    shard = env.new_shard(RequestTopicConfig(R, ended_window_ms=_WINDOW_MS, store_after_ms=0, cancel_gate="off"))
    _end(env, shard, 1)
    return shard
