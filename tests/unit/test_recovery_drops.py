"""Goal: an owner drops the same repetitions of delivered messages, whatever disk it takes over with and whatever its
clock says.

Method: the traces of docs/protocol.md ("Policies for ids"), played by the real shard over the simulated broker.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec import UNSET

from postdate.sidecar.config.settings import RequestTopicConfig
from postdate.sidecar.dispatch.dispatcher import Dispatcher
from postdate.sidecar.shard.shard import Shard
from support.shards.simulated_shard import Bench, R

_HOUR_MS = 3_600_000
_WINDOW_MS = 20 * _HOUR_MS
_ID, _DROP = ("postdate-id", b"a"), ("postdate-if-ended", b"drop")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    directory = tmp_path / "simulated" / R
    directory.mkdir(parents=True)
    made = Bench(directory)
    made.format_version = 2
    return made


def _shard(bench: Bench, window_ms: int = _WINDOW_MS, store_after_ms: int = 0) -> Shard:
    return bench.shard(RequestTopicConfig(R, ended_window_ms=window_ms, store_after_ms=store_after_ms))


def _ends(bench: Bench) -> dict[int, str]:
    return {offset: name for fates in bench.fates() for offset, name in fates}


def _end(bench: Bench, shard: Shard, count: int) -> None:
    bench.until(shard, lambda: bench.ended() == count)


def _lose_disk(bench: Bench) -> None:
    shutil.rmtree(bench.directory / "0")


def _deliver(bench: Bench) -> None:
    """Request 0 is delivered, and a beat says that it is not needed any more."""
    shard = _shard(bench)
    bench.schedule(1, _ID, _DROP)
    _end(bench, shard, 1)
    bench.until(shard, lambda: bench.log()[-1].low_water == 1, 200_000)
    shard.close()


def test_an_empty_disk_drops_although_nothing_is_left_to_read(bench: Bench) -> None:
    """No request lies at L, so the replay begins at the end of the dispatch log."""
    _deliver(bench)
    bench.time.wait(15 * _HOUR_MS)
    _lose_disk(bench)
    shard = _shard(bench)
    bench.schedule(1, _ID, _DROP)
    _end(bench, shard, 2)
    assert _ends(bench) == {0: "delivered", 1: "dropped"}
    shard.close()


def test_an_empty_disk_drops_for_a_delivery_long_before_the_oldest_pending_request(bench: Bench) -> None:
    _deliver(bench)
    bench.time.wait(15 * _HOUR_MS)
    shard = _shard(bench)
    bench.schedule(bench.time.now_ms + _HOUR_MS)
    bench.until(shard, lambda: shard.next_request == 2)
    shard.close()
    _lose_disk(bench)
    bench.schedule(1, _ID, _DROP)
    shard = _shard(bench)
    _end(bench, shard, 2)
    assert _ends(bench) == {0: "delivered", 2: "dropped"}
    shard.close()


@pytest.mark.parametrize("loses_disk", [False, True])
def test_a_request_that_waited_for_a_sidecar_is_dropped_by_its_timestamp(bench: Bench, loses_disk: bool) -> None:
    """Its timestamp lies within the window of the delivery, and the time at which it is read does not."""
    _deliver(bench)
    bench.time.wait(_HOUR_MS // 2)
    bench.schedule(1, _ID, _DROP)
    bench.time.wait(30 * _HOUR_MS)
    if loses_disk:
        _lose_disk(bench)
    shard = _shard(bench, _HOUR_MS)
    bench.time.wait(1_000)
    shard.turn()
    _end(bench, shard, 2)
    bench.schedule(1, _ID, _DROP)
    _end(bench, shard, 3)
    assert _ends(bench) == {0: "delivered", 1: "dropped", 2: "delivered"}
    shard.close()


def test_a_record_says_whether_ids_are_remembered_until_none_is_needed(bench: Bench) -> None:
    """Otherwise each empty start would read the log of a whole window back."""
    shard = _shard(bench, _HOUR_MS)
    bench.schedule(1, _ID)
    _end(bench, shard, 1)
    assert {record.remembers for record in bench.log()} == {UNSET}
    bench.schedule(1, _ID, _DROP)
    _end(bench, shard, 2)
    bench.schedule(1)
    _end(bench, shard, 3)
    assert bench.log()[-1].remembers is True
    bench.time.wait(4 * _HOUR_MS)
    for count in (4, 5):
        bench.schedule(1)
        _end(bench, shard, count)
        bench.time.wait(2_000)
        shard.turn()
    assert bench.log()[-1].remembers is UNSET
    shard.close()


def test_a_window_of_0_drops_nothing(bench: Bench) -> None:
    shard = _shard(bench, 0)
    for count in (1, 2):
        bench.schedule(1, _ID, _DROP)
        _end(bench, shard, count)
    assert [*_ends(bench).values()] == ["delivered"] * 2
    shard.close()


def test_an_index_that_replaced_a_message_which_the_log_delivered_is_rebuilt(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reads request 1, which replaces request 0, and is stopped before it commits that. B, with the disk from
    before, delivers request 0. A takes over with its disk."""
    due_ms = bench.time.now_ms + 10_000
    shard = _shard(bench)
    bench.schedule(due_ms, _ID, _DROP)
    bench.until(shard, lambda: shard.next_request == 1)
    shard.close()
    shutil.copytree(bench.directory / "0", bench.directory / "older")
    with monkeypatch.context() as patched:
        patched.setattr(Dispatcher, "dispatch", lambda *_: (0, False))
        shard = _shard(bench)
        second = bench.schedule(due_ms + 20_000, _ID, _DROP)
        bench.until(shard, lambda: shard.next_request == second + 1)
        shard.close()
    (bench.directory / "0").rename(bench.directory / "newer")
    (bench.directory / "older").rename(bench.directory / "0")
    with monkeypatch.context() as patched:
        patched.setattr("postdate.sidecar.shard.shard.ingest", lambda *_, **__: 0)
        shard = _shard_that_delivers(bench)
        shard.close()
    (bench.directory / "0").rename(bench.directory / "older")
    (bench.directory / "newer").rename(bench.directory / "0")
    shard = _shard(bench)
    _end(bench, shard, 2)
    assert _ends(bench) == {0: "delivered", second: "dropped"}
    assert [path.name for path in bench.directory.glob("0.*")] == ["0.old-1"]
    shard.close()


def _shard_that_delivers(bench: Bench) -> Shard:
    """A shard that delivers request 0 and reads no more."""
    shard = bench.new_shard(RequestTopicConfig(R, ended_window_ms=_WINDOW_MS, store_after_ms=0, cancel_gate="off"))
    _end(bench, shard, 1)
    return shard
