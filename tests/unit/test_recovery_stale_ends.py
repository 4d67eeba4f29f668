"""Goal: neither a stale end of the requests nor a mark behind a lost end of the log makes a shard deliver twice.

Method: the real shard over the simulated broker. A leader of the requests is deposed while a transaction is open, or
the dispatch log is truncated, and the shard starts without a disk.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from postdate.kafka.interface import Isolation
from postdate.sidecar.config.settings import RequestTopicConfig
from postdate.sidecar.shard.shard import Shard
from postdate.sidecar.states import State
from support.kafka_simulator import metadata
from support.shards.lost_fates import LOG, REQUESTS, accept_loss, break_seq, delivery_counts, open_transaction
from support.shards.simulated_shard import Bench, R

_HOUR_MS = 3_600_000
_TOPIC = RequestTopicConfig(R, store_after_ms=0)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    directory = tmp_path / "simulated" / R
    directory.mkdir(parents=True)
    return Bench(directory)


def _deliver(bench: Bench, shard: Shard, count: int) -> None:
    for _ in range(count):
        ended = bench.ended()
        bench.schedule(1)
        bench.until(shard, lambda: bench.ended() == ended + 1)  # noqa: B023  # used at once


def _end(bench: Bench) -> int:
    return bench.admin.end_offsets([LOG], Isolation.READ_UNCOMMITTED)[LOG]


def _start(bench: Bench, place: str = "0") -> Shard:
    shard = bench.new_shard(_TOPIC, place=place)
    bench.until(shard, lambda: shard.state in (State.HALTED, State.RUNNING))
    return shard


def _lose_fates(bench: Bench, shard: Shard, loss: str) -> None:
    if loss == "seq":
        break_seq(bench, shard)
        return
    shard.close()
    bench.admin.delete_records({LOG: _end(bench)})


def _end_requests_of_a_transaction_over_a_deposed_leader(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Shard:
    """Request 0 stays pending. The transaction with request 1 is open when the leader of the requests freezes, and 2
    and 3 lie behind it. Its successor gets the commit, and an owner ends 1 to 3."""
    bench.broker.brokers.grow(2)
    bench.broker.log(REQUESTS).leader = 1
    shard = bench.shard(_TOPIC)
    bench.schedule(bench.time.now_ms + 20 * _HOUR_MS)
    bench.until(shard, lambda: shard.next_request == 1)
    producer = open_transaction(bench, monkeypatch)
    assert bench.broker.brokers.freeze(1)
    bench.time.wait(12_000)
    assert bench.broker.brokers.nodes[1].is_deposed
    producer.commit()
    bench.until(shard, lambda: bench.ended() == 3)
    return shard


def _resume_deposed_leader(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "_ASKS_DEPOSED", 2.0)
    bench.broker.brokers.resume(1)
    bench.admin._metadata.forget(REQUESTS)


@pytest.mark.parametrize("when", ["at the last finding", "after a restart of the halted shard"])
@pytest.mark.parametrize("loss", ["seq", "empty"])
def test_a_deposed_leader_that_knows_an_open_transaction_does_not_end_the_range(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, loss: str, when: str
) -> None:
    _lose_fates(bench, _end_requests_of_a_transaction_over_a_deposed_leader(bench, monkeypatch), loss)
    shutil.rmtree(bench.directory / "0")
    if when == "at the last finding":
        shard, began_ms = bench.new_shard(_TOPIC), bench.time.now_ms
        bench.until(shard, lambda: bench.time.now_ms > began_ms + 19_000)
    else:
        _start(bench).close()
        shard = bench.new_shard(_TOPIC)
    _resume_deposed_leader(bench, monkeypatch)
    bench.until(shard, lambda: shard.state is State.HALTED)
    bench.broker.brokers.recover()
    bench.admin._metadata.forget(REQUESTS)
    accepted = accept_loss(bench, shard)
    assert delivery_counts(bench, shard) == {1: 1, 2: 1, 3: 1}, accepted
    shard.close()


def test_the_mark_of_an_older_disk_hides_no_lost_fate(bench: Bench) -> None:
    """B has ended requests that the index of A does not know. The dispatch log lost all records, A halts and leaves its
    mark, and C has no disk."""
    shard = bench.shard(_TOPIC)
    _deliver(bench, shard, 1)
    bench.until(shard, lambda: bench.log()[-1].low_water == 1, 200_000)
    shard.close()
    other = _start(bench, place="1")
    _deliver(bench, other, 3)
    other.close()
    bench.broker.log(LOG).truncate(0)
    shard = _start(bench)
    assert shard.state is State.HALTED
    shard.close()
    third = _start(bench, place="2")
    assert third.state is State.HALTED or set(delivery_counts(bench, third).values()) == {1}
    third.close()


def test_a_replay_that_begins_at_the_mark_behind_a_gap_halts(bench: Bench) -> None:
    """The log lost its end, and what is left of it is older than an hour before the first pending request."""
    shard = bench.shard(_TOPIC)
    _deliver(bench, shard, 1)
    bench.until(shard, lambda: bench.log()[-1].low_water == 1, 200_000)
    kept = _end(bench)
    bench.time.wait(2 * _HOUR_MS)
    bench.schedule(bench.time.now_ms + 20 * _HOUR_MS)
    _deliver(bench, shard, 3)
    shard.close()
    bench.broker.log(LOG).truncate(kept)
    shard = _start(bench)
    assert shard.state is State.HALTED
    shard.close()
    other = _start(bench, place="1")
    assert other.state is State.HALTED or set(delivery_counts(bench, other).values()) == {1}
    other.close()


def _end_requests_that_a_frozen_leader_does_not_know(bench: Bench, shard: Shard) -> None:
    assert bench.broker.brokers.freeze(1)
    bench.time.wait(12_000)
    _deliver(bench, shard, 3)
    shard.close()


def _halt_while_a_deposed_leader_answers_the_last_finding(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, findings_ms: float = 19_000
) -> Shard:
    shard, began_ms = bench.new_shard(_TOPIC), bench.time.now_ms
    bench.until(shard, lambda: bench.time.now_ms >= began_ms + findings_ms)
    _resume_deposed_leader(bench, monkeypatch)
    bench.until(shard, lambda: shard.state is State.HALTED or bench.time.now_ms > began_ms + 30_000)
    bench.broker.brokers.recover()
    bench.admin._metadata.forget(REQUESTS)
    bench.until(shard, lambda: shard.state is State.HALTED)
    return shard


@pytest.fixture
def pending(bench: Bench) -> Shard:
    """A shard that has read request 0, which stays pending. Another broker leads the requests."""
    bench.broker.brokers.grow(2)
    bench.broker.log(REQUESTS).leader = 1
    shard = bench.shard(_TOPIC)
    bench.schedule(bench.time.now_ms + 20 * _HOUR_MS)
    bench.until(shard, lambda: shard.next_request == 1)
    return shard


@pytest.mark.parametrize("has_halted", [False, True], ids=["the last finding", "a restart after the halt"])
def test_a_deposed_leader_does_not_end_the_range_of_an_empty_log(
    bench: Bench, pending: Shard, monkeypatch: pytest.MonkeyPatch, has_halted: bool
) -> None:
    """It does not know the requests that ended after it was frozen, while the findings before it named them."""
    _end_requests_that_a_frozen_leader_does_not_know(bench, pending)
    _lose_fates(bench, pending, "empty")
    shutil.rmtree(bench.directory / "0")
    if has_halted:
        _start(bench).close()
    shard = _halt_while_a_deposed_leader_answers_the_last_finding(bench, monkeypatch, 0 if has_halted else 19_000)
    accepted = accept_loss(bench, shard)
    assert delivery_counts(bench, shard) == {1: 1, 2: 1, 3: 1}, accepted
    shard.close()


def test_the_mark_names_requests_that_a_deposed_leader_does_not_know(
    bench: Bench, pending: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B has ended them, the dispatch log lost all records, and A, with an older disk, leaves its mark."""
    pending.close()
    _end_requests_that_a_frozen_leader_does_not_know(bench, _start(bench, place="1"))
    bench.broker.log(LOG).truncate(0)
    _halt_while_a_deposed_leader_answers_the_last_finding(bench, monkeypatch).close()
    assert [said.ingested_to for said in bench.log()] == [4]
