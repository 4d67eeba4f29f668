"""Goal: no shard delivers twice because of a stale end of the requests, or because of the mark that a halted owner
leaves in a truncated log.

Method: the real shard runs over the simulated broker. A leader of the requests is deposed while a transaction is open,
or the dispatch log is truncated. Then the shard starts without a disk.
"""

from __future__ import annotations

import shutil

import pytest

from postdate.kafka.interface import Isolation
from postdate.sidecar.config.settings import RequestTopicConfig
from postdate.sidecar.shard.shard import Shard
from postdate.sidecar.states import State
from support.kafka_simulator import metadata
from support.shards.lost_fates import LOG, REQUESTS, accept_loss, break_seq, delivery_counts, open_transaction
from support.shards.simulated_shard import R, ShardEnvironment

_HOUR_MS = 3_600_000
_TOPIC = RequestTopicConfig(R, store_after_ms=0)


def _deliver(env: ShardEnvironment, shard: Shard, count: int) -> None:
    for _ in range(count):
        ended = env.ended()
        env.schedule(1)
        env.until(shard, lambda: env.ended() == ended + 1)  # noqa: B023  # used at once


def _end(env: ShardEnvironment) -> int:
    return env.admin.end_offsets([LOG], Isolation.READ_UNCOMMITTED)[LOG]


def _start(env: ShardEnvironment, place: str = "0") -> Shard:
    shard = env.new_shard(_TOPIC, place=place)
    env.until(shard, lambda: shard.state in (State.HALTED, State.RUNNING))
    return shard


def _lose_fates(env: ShardEnvironment, shard: Shard, loss: str) -> None:
    if loss == "seq":
        break_seq(env, shard)
        return
    shard.close()
    env.admin.delete_records({LOG: _end(env)})


def _end_requests_of_a_transaction_over_a_deposed_leader(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> Shard:
    """Request 0 stays pending. The leader of the requests freezes while a transaction with request 1 is open. Requests
    2 and 3 follow it. The next leader gets the commit, and an owner ends requests 1 to 3."""
    env.broker.brokers.grow(2)
    env.broker.log(REQUESTS).leader = 1
    shard = env.shard(_TOPIC)
    env.schedule(env.time.now_ms + 20 * _HOUR_MS)
    env.until(shard, lambda: shard.next_request == 1)
    producer = open_transaction(env, monkeypatch)
    assert env.broker.brokers.freeze(1)
    env.time.wait(12_000)
    assert env.broker.brokers.nodes[1].is_deposed
    producer.commit()
    env.until(shard, lambda: env.ended() == 3)
    return shard


def _resume_deposed_leader(env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "_ASKS_DEPOSED", 2.0)
    env.broker.brokers.resume(1)
    env.admin._metadata.forget(REQUESTS)


@pytest.mark.parametrize("when", ["at the last finding", "after a restart of the halted shard"])
@pytest.mark.parametrize("loss", ["seq", "empty"])
def test_a_deposed_leader_that_knows_an_open_transaction_does_not_end_the_range(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, loss: str, when: str
) -> None:
    _lose_fates(env, _end_requests_of_a_transaction_over_a_deposed_leader(env, monkeypatch), loss)
    shutil.rmtree(env.directory / "0")
    if when == "at the last finding":
        shard, began_ms = env.new_shard(_TOPIC), env.time.now_ms
        env.until(shard, lambda: env.time.now_ms > began_ms + 19_000)
    else:
        _start(env).close()
        shard = env.new_shard(_TOPIC)
    _resume_deposed_leader(env, monkeypatch)
    env.until(shard, lambda: shard.state is State.HALTED)
    env.broker.brokers.recover()
    env.admin._metadata.forget(REQUESTS)
    accepted = accept_loss(env, shard)
    assert delivery_counts(env, shard) == {1: 1, 2: 1, 3: 1}, accepted
    shard.close()


def test_the_mark_of_an_older_disk_hides_no_lost_fate(env: ShardEnvironment) -> None:
    """B ends requests that the index of A does not know. The dispatch log loses all records. A halts and leaves its
    mark. Then C starts without a disk."""
    shard = env.shard(_TOPIC)
    _deliver(env, shard, 1)
    env.until(shard, lambda: env.log()[-1].low_water == 1, 200_000)
    shard.close()
    other = _start(env, place="1")
    _deliver(env, other, 3)
    other.close()
    env.broker.log(LOG).truncate(0)
    shard = _start(env)
    assert shard.state is State.HALTED
    shard.close()
    third = _start(env, place="2")
    assert third.state is State.HALTED or set(delivery_counts(env, third).values()) == {1}
    third.close()


def test_a_replay_that_begins_at_the_mark_behind_a_gap_halts(env: ShardEnvironment) -> None:
    """The log has lost its end, and its remaining records are more than an hour older than the first pending
    request."""
    shard = env.shard(_TOPIC)
    _deliver(env, shard, 1)
    env.until(shard, lambda: env.log()[-1].low_water == 1, 200_000)
    kept = _end(env)
    env.time.wait(2 * _HOUR_MS)
    env.schedule(env.time.now_ms + 20 * _HOUR_MS)
    _deliver(env, shard, 3)
    shard.close()
    env.broker.log(LOG).truncate(kept)
    shard = _start(env)
    assert shard.state is State.HALTED
    shard.close()
    other = _start(env, place="1")
    assert other.state is State.HALTED or set(delivery_counts(env, other).values()) == {1}
    other.close()


def _end_requests_that_a_frozen_leader_does_not_know(env: ShardEnvironment, shard: Shard) -> None:
    assert env.broker.brokers.freeze(1)
    env.time.wait(12_000)
    _deliver(env, shard, 3)
    shard.close()


def _halt_while_a_deposed_leader_answers_the_last_finding(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, findings_ms: float = 19_000
) -> Shard:
    shard, began_ms = env.new_shard(_TOPIC), env.time.now_ms
    env.until(shard, lambda: env.time.now_ms >= began_ms + findings_ms)
    _resume_deposed_leader(env, monkeypatch)
    env.until(shard, lambda: shard.state is State.HALTED or env.time.now_ms > began_ms + 30_000)
    env.broker.brokers.recover()
    env.admin._metadata.forget(REQUESTS)
    env.until(shard, lambda: shard.state is State.HALTED)
    return shard


@pytest.fixture
def pending(env: ShardEnvironment) -> Shard:
    """A shard that has read request 0, which stays pending. Another broker leads the requests."""
    env.broker.brokers.grow(2)
    env.broker.log(REQUESTS).leader = 1
    shard = env.shard(_TOPIC)
    env.schedule(env.time.now_ms + 20 * _HOUR_MS)
    env.until(shard, lambda: shard.next_request == 1)
    return shard


@pytest.mark.parametrize("has_halted", [False, True], ids=["the last finding", "a restart after the halt"])
def test_a_deposed_leader_does_not_end_the_range_of_an_empty_log(
    env: ShardEnvironment, pending: Shard, monkeypatch: pytest.MonkeyPatch, has_halted: bool
) -> None:
    """The deposed leader does not know the requests that ended after it was frozen. Earlier findings have named
    them."""
    _end_requests_that_a_frozen_leader_does_not_know(env, pending)
    _lose_fates(env, pending, "empty")
    shutil.rmtree(env.directory / "0")
    if has_halted:
        _start(env).close()
    shard = _halt_while_a_deposed_leader_answers_the_last_finding(env, monkeypatch, 0 if has_halted else 19_000)
    accepted = accept_loss(env, shard)
    assert delivery_counts(env, shard) == {1: 1, 2: 1, 3: 1}, accepted
    shard.close()


def test_the_mark_names_requests_that_a_deposed_leader_does_not_know(
    env: ShardEnvironment, pending: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B ends these requests. The dispatch log loses all records. Then A, with an older disk, leaves its mark."""
    pending.close()
    _end_requests_that_a_frozen_leader_does_not_know(env, _start(env, place="1"))
    env.broker.log(LOG).truncate(0)
    _halt_while_a_deposed_leader_answers_the_last_finding(env, monkeypatch).close()
    assert [record.ingested_to for record in env.log()] == [4]
