"""Goal: after a loss of fates nothing is delivered twice, and only requests that may have ended are given up.

Method: the real shard runs over the simulated broker. The dispatch log is cut, emptied or broken, the clocks of brokers
differ, or a transaction is open on the request topic. Then the shard starts without a disk.
"""

from __future__ import annotations

import shutil

import pytest

from postdate.kafka.interface import Isolation, Partition
from postdate.sidecar.config.settings import RequestTopicConfig
from postdate.sidecar.operation.shard_status import read_status
from postdate.sidecar.shard.shard import Shard
from postdate.sidecar.states import State
from postdate.wire.dispatch_log import BEAT
from support.shards.lost_fates import LOG, REQUESTS, accept_loss, break_seq, delivery_counts, open_transaction
from support.shards.simulated_shard import OWN, R, ShardEnvironment

_HOUR_MS = 3_600_000
#: Nothing is stored, so that a pending request holds back the low-water mark.
_TOPIC = RequestTopicConfig(R, store_after_ms=0)


def _keep_one_pending_and_deliver(env: ShardEnvironment, count: int) -> Shard:
    """Returns a shard with request 0 pending. It has ended the later requests, each in a separate record."""
    shard = env.shard(_TOPIC)
    env.schedule(env.time.now_ms + 20 * _HOUR_MS)
    for number in range(count):
        env.schedule(1)
        env.until(shard, lambda: env.ended() == number + 1)  # noqa: B023  # used at once
    return shard


def _end(env: ShardEnvironment, part: Partition) -> int:
    return env.admin.end_offsets([part], Isolation.READ_UNCOMMITTED)[part]


def _start_without_disk(env: ShardEnvironment) -> Shard:
    shutil.rmtree(env.directory / "0")
    shard = env.new_shard(_TOPIC)
    env.until(shard, lambda: shard.state in (State.HALTED, State.RUNNING))
    return shard


def _reason_and_range(env: ShardEnvironment, shard: Shard) -> tuple[str, str]:
    assert shard.state is State.HALTED
    status = read_status(env.directory / "0")
    assert status is not None
    assert status.loss is not None
    return shard.why.split(":")[0], status.loss.range


def test_the_clock_of_the_leader_of_the_requests_hides_no_deleted_fate(env: ShardEnvironment) -> None:
    """The leader's clock is ten minutes ahead, so the pending request seems younger than the oldest record of the
    dispatch log."""
    brokers = env.broker.brokers
    brokers.grow(2)
    brokers.nodes[1].skew_ms = 600_000
    env.broker.log(REQUESTS).leader = 1
    _keep_one_pending_and_deliver(env, 3).close()
    env.admin.delete_records({LOG: env.read(OWN.dispatch_log)[-1].offset})
    late = env.schedule(1)  # no owner has read it
    shard = _start_without_disk(env)
    assert _reason_and_range(env, shard) == ("fates-missing", "0-4")
    accept_loss(env, shard)
    assert delivery_counts(env, shard) == {1: 1, 2: 1, 3: 1, late: 1}
    shard.close()


def test_no_fate_counts_as_missing_behind_the_beat_of_a_shard_whose_log_had_expired(env: ShardEnvironment) -> None:
    """The `beat` is written before the pending request is read. So no earlier record can have ended this request."""
    shard = env.shard(_TOPIC)
    env.schedule(1)
    env.until(shard, lambda: env.ended() == 1)
    env.until(shard, lambda: env.log()[-1].low_water == 1, 200_000)
    env.time.wait(2 * _HOUR_MS)
    env.admin.delete_records({LOG: _end(env, LOG)})
    pending = env.schedule(env.time.now_ms + 10_000)
    env.until(shard, lambda: shard.next_request == pending + 1)
    shard.close()
    assert [(record.kind, record.ingested_to) for record in env.log()] == [(BEAT, pending)]
    shard = _start_without_disk(env)
    assert shard.state is State.RUNNING, shard.why
    assert delivery_counts(env, shard) == {0: 1, pending: 1}
    shard.close()


def test_no_request_of_more_than_an_hour_after_a_break_of_seq_is_given_up(env: ShardEnvironment) -> None:
    break_seq(env, _keep_one_pending_and_deliver(env, 3))
    env.time.wait(2 * _HOUR_MS)
    late = env.schedule(1)
    shard = _start_without_disk(env)
    assert _reason_and_range(env, shard) == ("seq-broken", "0-4")
    accept_loss(env, shard)
    assert delivery_counts(env, shard) == {1: 1, 2: 1, 3: 1, late: 1}
    shard.close()


@pytest.mark.parametrize("waited_ms", [0, 2 * _HOUR_MS], ids=["at once", "two hours later"])
def test_no_request_behind_an_open_transaction_is_given_up_for_a_break_of_seq(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch, waited_ms: int
) -> None:
    """No owner has read past the start of the open transaction. After two hours, the first request that is certainly
    younger than the break is in this transaction."""
    break_seq(env, _keep_one_pending_and_deliver(env, 3))
    env.time.wait(waited_ms)
    producer = open_transaction(env, monkeypatch)
    shard = _start_without_disk(env)
    assert _reason_and_range(env, shard) == ("seq-broken", "0-4")
    producer.commit()
    accept_loss(env, shard)
    assert delivery_counts(env, shard) == dict.fromkeys(range(1, 7), 1)
    shard.close()


def test_no_later_owner_goes_back_to_requests_that_an_accepted_break_needed(env: ShardEnvironment) -> None:
    """Since the break was accepted, the requests have been stored, and retention has deleted them. A rebuild still
    reads the break."""
    topic = RequestTopicConfig(R, store_after_ms=1_000)
    break_seq(env, _keep_one_pending_and_deliver(env, 1))
    shard = _start_without_disk(env)
    accept_loss(env, shard)
    shard.close()
    shard = env.shard(topic)
    kept = env.schedule(env.time.now_ms + 200_000)
    env.until(shard, lambda: env.log()[-1].low_water == kept + 1, 200_000)
    shard.close()
    env.admin.delete_records({REQUESTS: kept + 1})
    late = env.schedule(1)
    shutil.rmtree(env.directory / "0")
    shard = env.new_shard(topic)
    env.until(shard, lambda: shard.state is State.RUNNING, 300)
    env.time.wait(200_000)
    assert delivery_counts(env, shard) == {1: 1, kept: 1, late: 1}
    shard.close()
