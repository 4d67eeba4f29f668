"""Goal: no message leaves before its time by the broker's clock, and none is held for long, whatever any clock does.

Method: the real shard runs over the simulated broker. While messages wait, the machine's wall clock is stepped, its
steady clock drifts, or the broker's clock is stepped. The broker's timestamps show whether a message left early: the
append time of the dispatch-log record that names a message is not before its due time (I6).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from postdate.kafka.interface import Partition, Record
from postdate.sidecar.clock import BrokerClock
from postdate.sidecar.dispatch.dispatcher import Dispatcher
from postdate.sidecar.limits import CLOCK_AHEAD_MS_MAX, CLOCK_SAMPLE_AGE_MS_MAX
from postdate.sidecar.shard.shard import Shard
from postdate.wire.dispatch_log import DELIVERED, decode_record
from support.kafka_simulator import SimBroker, SimClock
from support.kafka_simulator.error_responses import refusal
from support.shards.simulated_shard import OWN, ShardEnvironment

_HOUR_MS = 3_600_000.0
#: Milliseconds by the broker's clock: the allowed lateness. A record that was stamped too early is tried again after
#: 100 ms.
_LATE_MS_MAX = 1_000


def _lateness(env: ShardEnvironment) -> list[int]:
    """Returns append time minus due time of each delivery, in the order of the log."""
    lateness_ms: list[int] = []
    for record in env.read(OWN.dispatch_log):
        lateness_ms += [
            record.timestamp_ms - fate.first_due_ms
            for fate in decode_record(record.value).fates
            if fate.name == DELIVERED
        ]
    return lateness_ms


def _deliver(env: ShardEnvironment, shard: Shard, in_ms: float, disturb: Callable[[], None] = lambda: None) -> int:
    """Delivers one message that is due after `in_ms` by the broker's clock, and calls `disturb` half way there. Returns
    the lateness of the message in ms."""
    already, due_ms = len(_lateness(env)), env.broker.now_ms() + in_ms
    env.schedule(due_ms)
    env.until(shard, lambda: env.broker.now_ms() >= due_ms - in_ms / 2, in_ms + 60_000)
    disturb()
    env.until(shard, lambda: len(_lateness(env)) == already + 1, 3 * _HOUR_MS)
    return _lateness(env)[-1]


@pytest.mark.parametrize("by_ms", [_HOUR_MS, -_HOUR_MS, -10_000.0, 10_000.0])
def test_a_step_of_the_local_clock_moves_no_delivery(tmp_path: Path, by_ms: float) -> None:
    env = ShardEnvironment(tmp_path)
    shard = env.shard()
    late_ms = _deliver(env, shard, 4_000, lambda: env.kafka.clock.step(by_ms))
    assert 0 <= late_ms < _LATE_MS_MAX
    assert shard.ctx.counts.skew_ms == pytest.approx(by_ms, abs=50)
    shard.close()


@pytest.mark.parametrize("by_ms", [_HOUR_MS, 10_000.0])
def test_messages_due_by_a_clock_that_went_forward_leave(tmp_path: Path, by_ms: float) -> None:
    """The broker's clock has passed the due time of the messages. No sample shows this, but the timestamp of the
    request does."""
    env = ShardEnvironment(tmp_path)
    shard = env.shard()
    env.broker.skew_ms += by_ms
    assert 0 <= _deliver(env, shard, 4_000) < _LATE_MS_MAX
    shard.close()


@pytest.mark.parametrize("by_ms", [-120_000.0, -10_000.0, -300.0])
def test_a_broker_clock_that_goes_back_delays_every_message(tmp_path: Path, by_ms: float) -> None:
    """This happens after a failover to a broker whose clock is behind. The earlier samples are then invalid."""
    env = ShardEnvironment(tmp_path)
    shard = env.shard()

    def go_back() -> None:
        env.broker.skew_ms += by_ms

    assert 0 <= _deliver(env, shard, 4_000, go_back) < _LATE_MS_MAX
    assert 0 <= _deliver(env, shard, 4_000) < _LATE_MS_MAX
    assert shard.ctx.counts.skew_ms == pytest.approx(-by_ms, abs=50)
    shard.close()


@pytest.mark.parametrize("rate", [1.01, 0.99, 1.0005, 0.9995])
def test_a_local_clock_that_runs_fast_or_slow_is_never_early(tmp_path: Path, rate: float) -> None:
    env = ShardEnvironment(tmp_path, clock=lambda broker: _drifting(broker, rate))
    shard = env.shard()
    late = [_deliver(env, shard, wait_ms) for wait_ms in (500, 20_000, 2_000, 60_000, 700)]
    assert min(late) >= 0
    assert max(late) < max(_LATE_MS_MAX, 60_000 * abs(rate - 1) * 1.1 + 200)
    shard.close()


def _drifting(broker: SimBroker, rate: float) -> SimClock:
    return SimClock(broker.time, rate=rate)


class _Steady:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_ms = 1_000.0
        self.wall = 5_000_000

    def steady_ms(self) -> float:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.wall

    def sleep(self, wait_ms: float) -> None:
        self.now_ms += wait_ms


def test_the_quickest_report_of_the_last_hour_decides() -> None:
    clock = _Steady()
    broker = BrokerClock(clock)
    assert not broker.known()
    broker.sample(100_000, reported_at=1_000.0)
    broker.sample(100_040, reported_at=1_090.0)  # 50 ms slower than the first, so its estimate is lower
    clock.now_ms = 1_100.0
    assert broker.now_ms() == 100_100
    broker.sample(100_130, reported_at=1_120.0)
    clock.now_ms = 1_120.0
    assert broker.now_ms() == 100_130
    assert broker.skew_ms() == 5_000_000 - 100_130


def test_a_sample_counts_for_an_hour() -> None:
    clock = _Steady()
    broker = BrokerClock(clock)
    broker.sample(100_000, reported_at=1_000.0)
    clock.now_ms = 1_000.0 + CLOCK_SAMPLE_AGE_MS_MAX
    assert broker.known()
    clock.now_ms += 1.0
    assert not broker.known()


def test_a_clock_that_went_back_is_sampled_again() -> None:
    clock = _Steady()
    broker = BrokerClock(clock)
    broker.sample(100_000, reported_at=1_000.0)
    broker.forget()
    assert not broker.known()
    broker.sample(90_000, reported_at=1_000.0)
    assert broker.now_ms() == 90_000


def test_requests_from_the_future_sample_the_broker_clock_at_a_bounded_rate() -> None:
    clock = _Steady()
    broker = BrokerClock(clock)
    broker.sample(100_000, reported_at=1_000.0)
    ahead, just = 100_000 + CLOCK_AHEAD_MS_MAX + 1, 100_000 + CLOCK_AHEAD_MS_MAX
    broker.observe(Record(0, just, True, None, None, []))
    broker.observe(Record(0, ahead, False, None, None, []))  # its producer's timestamp shows nothing
    assert broker.known()
    broker.observe(Record(0, ahead, True, None, None, []))
    assert not broker.known()
    assert broker.now_ms() == 100_000
    broker.sample(100_000, reported_at=1_000.0)
    broker.observe(Record(0, ahead, True, None, None, []))
    assert broker.known()


def test_a_cancel_is_in_time_although_no_record_can_be_written_and_the_time_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = ShardEnvironment(tmp_path)
    shard = env.shard()
    env.schedule(env.time.now_ms + 2 * _HOUR_MS)
    env.until(shard, lambda: shard.next_request == 1)
    with monkeypatch.context() as patched:
        patched.setattr(Dispatcher, "commit_beat", lambda *_: False)
        env.time.wait(_HOUR_MS + 1)
        env.ask(("postdate-action", b"cancel"), ("postdate-origin", b"requests/0/0"))
        env.until(shard, lambda: shard.next_request == 2)
    env.time.wait(2 * _HOUR_MS)
    env.until(shard, lambda: any((0, "cancelled") in fates for fates in env.fates()))
    assert env.read("orders") == []
    shard.close()


@pytest.mark.parametrize("ahead_ms", [2 * _HOUR_MS, -2 * _HOUR_MS])
def test_records_carry_the_time_of_the_broker(tmp_path: Path, ahead_ms: float) -> None:
    """Brokers refuse records that are stamped an hour ahead, so a machine with a wrong clock must not stamp them."""
    env = ShardEnvironment(tmp_path, lambda broker: SimClock(broker.time, ahead_ms))
    shard = env.shard()
    assert 0 <= _deliver(env, shard, 4_000) < _LATE_MS_MAX
    env.schedule(env.broker.now_ms() + 3 * _HOUR_MS)
    env.ask(("postdate-topic", b"orders"))
    env.until(shard, lambda: bool(env.read(OWN.store)) and bool(env.dead_letters()))
    stamped = [record.timestamp_ms for name in ("orders", OWN.store) for record in env.read(name)]
    assert all(abs(stamp - env.broker.now_ms()) < 60_000 for stamp in stamped)
    shard.close()


def test_a_rebuild_works_on_a_machine_whose_clock_is_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record that bounds STORE is written before the first record of the log shows the time of the broker."""
    honest = SimBroker.append

    def append(self: SimBroker, part: Partition, *rest: Any) -> tuple[int, int]:
        created_ms = rest[3]
        if not self.topics[part.topic].log_append and created_ms > self.now_ms() + _HOUR_MS:
            raise refusal(KafkaError.INVALID_TIMESTAMP, "the timestamp is too far ahead")
        return honest(self, part, *rest)

    monkeypatch.setattr(SimBroker, "append", append)
    env = ShardEnvironment(tmp_path, lambda broker: SimClock(broker.time, 2 * _HOUR_MS))
    env.broker.topics[OWN.store].config["message.timestamp.type"] = "CreateTime"
    env.kafka.clock.step(-2 * _HOUR_MS)
    shard = env.shard()
    env.schedule(env.broker.now_ms() + 3 * _HOUR_MS)
    env.until(shard, lambda: bool(env.read(OWN.store)))
    env.until(shard, lambda: env.log()[-1].low_water > 0, 300_000)  # otherwise a rebuild reads nothing from STORE
    shard.close()
    (tmp_path / "0").rename(tmp_path / "lost")
    env.kafka.clock.step(2 * _HOUR_MS)
    shard = env.shard()
    assert env.read(OWN.store)[-1].value is None, "the record that bounds STORE"
    shard.close()
