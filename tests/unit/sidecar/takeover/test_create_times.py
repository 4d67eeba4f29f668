"""Goal: on a request topic with producers' timestamps, a loss causes no repeated message, and no shard halts without a
loss.

A producer's timestamp may be far in the future or in the past.

Method: the real shard runs over the simulated broker, whose request topic keeps CreateTime. The dispatch log is cut or
broken, and the shard starts without a disk.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from postdate.kafka.interface import Headers, Isolation, Partition
from postdate.sidecar.config.settings import RequestTopicConfig
from postdate.sidecar.operation.instructions import RESUME, Instruction, instruct
from postdate.sidecar.operation.shard_status import read_status
from postdate.sidecar.shard.shard import Shard
from postdate.sidecar.states import State
from postdate.wire.dispatch_log import BEAT, encode_record
from support.kafka_simulator.admin import SimAdmin
from support.shards.simulated_shard import OWN, R, ShardEnvironment

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_LOG = Partition(OWN.dispatch_log, 0)


@pytest.fixture
def env(tmp_path: Path) -> ShardEnvironment:
    """A broker that accepts any timestamp, as Kafka does by default before version 4."""
    directory = tmp_path / "simulated" / R
    directory.mkdir(parents=True)
    env = ShardEnvironment(directory)
    stamps = {"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": str(100 * _DAY_MS)}
    env.broker.topics[R].configure(stamps)
    return env


def _schedule(env: ShardEnvironment, created_ms: float) -> int:
    headers: Headers = [("postdate-topic", b"orders"), ("postdate-delay", b"1s")]
    return env.broker.append(Partition(R, 0), b"k", b"v", headers, int(created_ms))[0]


def _deliver(env: ShardEnvironment, shard: Shard, count: int) -> None:
    for _ in range(count):
        _schedule(env, env.time.now_ms)
        due = env.ended() + 1
        env.until(shard, lambda: env.ended() == due)  # noqa: B023  # used at once


def _start_without_disk(env: ShardEnvironment, shard: Shard) -> Shard:
    shard.close()
    shutil.rmtree(env.directory / "0")
    shard = env.new_shard()
    env.until(shard, lambda: shard.state in (State.HALTED, State.RUNNING))
    return shard


def _delete_log_but_the_last_record(env: ShardEnvironment) -> None:
    env.admin.delete_records({_LOG: env.read(OWN.dispatch_log)[-1].offset})


def _accept(env: ShardEnvironment, shard: Shard) -> None:
    status = read_status(env.directory / "0")
    assert status is not None
    instruct(env.directory / "0", Instruction(do=RESUME, accept=status.loss))
    env.until(shard, lambda: shard.state is State.RUNNING)
    until_ms = env.time.now_ms + 20_000
    env.until(shard, lambda: env.time.now_ms > until_ms)


def _delivered(env: ShardEnvironment) -> Counter[bytes | None]:
    return Counter(dict(record.headers or [])["postdate-origin"] for record in env.read("orders"))


def test_deleted_fates_are_noticed_behind_a_request_from_the_future(env: ShardEnvironment) -> None:
    """The request from the future stays pending and holds back the low-water mark. Meanwhile later requests end, and
    their fates expire."""
    shard = env.shard()
    _schedule(env, env.time.now_ms + 6 * _DAY_MS)
    _deliver(env, shard, 3)
    env.time.wait(2 * _HOUR_MS)
    _deliver(env, shard, 1)
    _delete_log_but_the_last_record(env)
    shard = _start_without_disk(env, shard)
    assert (shard.state, shard.why.split(":")[0]) == (State.HALTED, "fates-missing")
    late = _schedule(env, env.time.now_ms)  # no owner has read it, so it is not lost
    _accept(env, shard)
    delivered = {b"requests/0/%d" % offset: 1 for offset in (1, 2, 3, 4, late)}
    assert _delivered(env) == delivered
    shard.close()


def test_no_fate_counts_as_missing_behind_a_request_from_the_past(env: ShardEnvironment) -> None:
    """A program that repeats old input stamps its requests with the times of the input."""
    shard = env.shard()
    _deliver(env, shard, 3)
    env.until(shard, lambda: env.log()[-1].low_water == 3, 200_000)
    _delete_log_but_the_last_record(env)
    _schedule(env, env.time.now_ms - 10 * _DAY_MS)
    shard = _start_without_disk(env, shard)
    assert shard.state is State.RUNNING, shard.why
    env.until(shard, lambda: len(env.read("orders")) == 4)
    assert set(_delivered(env).values()) == {1}
    shard.close()


def test_a_request_from_the_future_bounds_no_loss_behind_a_break_of_seq(env: ShardEnvironment) -> None:
    """Requests after the request from the future have ended before the break."""
    shard = env.shard()
    _schedule(env, env.time.now_ms + 6 * _DAY_MS)
    _deliver(env, shard, 3)
    last = env.log()[-1]
    forged = encode_record(msgspec.structs.replace(last, seq=last.seq + 2, kind=BEAT, fates=[]))
    env.broker.append(_LOG, None, forged, [], 0)
    shard = _start_without_disk(env, shard)
    assert (shard.state, shard.why.split(":")[0]) == (State.HALTED, "seq-broken")
    end = env.admin.end_offsets([Partition(R, 0)], Isolation.READ_UNCOMMITTED)[Partition(R, 0)]
    assert f"requests [0, {end})" in shard.why
    _accept(env, shard)
    assert _delivered(env) == {b"requests/0/%d" % offset: 1 for offset in (1, 2, 3)}
    shard.close()


def test_an_owner_names_all_requests_that_another_one_has_ended(env: ShardEnvironment) -> None:
    """The owner's index has only marks of these requests, and the dispatch log has lost all records that name them."""
    env.shard().close()
    other = env.new_shard(place="1")
    env.until(other, lambda: other.state is State.RUNNING)
    _schedule(env, env.time.now_ms + 6 * _DAY_MS)
    _deliver(env, other, 3)
    other.close()
    shard = env.new_shard()
    env.until(shard, lambda: shard.state is State.CATCHING_UP)
    shard.close()
    env.admin.delete_records({_LOG: env.admin.end_offsets([_LOG], Isolation.READ_UNCOMMITTED)[_LOG]})
    shard = env.new_shard()
    env.until(shard, lambda: shard.state is State.CATCHING_UP)
    assert env.log()[-1].ingested_to == 4
    env.until(shard, lambda: shard.state is State.RUNNING)
    _delete_log_but_the_last_record(env)
    shard = _start_without_disk(env, shard)
    assert (shard.state, shard.why.split(":")[0]) == (State.HALTED, "fates-missing")
    shard.close()


def test_an_aborted_record_from_the_future_bounds_no_loss(
    env: ShardEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker returns the aborted record for the searched time, but the next committed request is older. The topic
    had CreateTime when the record was written."""
    env.broker.topics[R].configure({"message.timestamp.type": "LogAppendTime"})
    honest = SimAdmin.offset_for_time

    def offset_for_time(admin: SimAdmin, part: Partition, timestamp_ms: int) -> int | None:
        return 1 if part.topic == R else honest(admin, part, timestamp_ms)

    shard = env.shard()
    _deliver(env, shard, 3)
    last = env.log()[-1]
    forged = encode_record(msgspec.structs.replace(last, seq=last.seq + 2, kind=BEAT, fates=[], low_water=0))
    env.broker.append(_LOG, None, forged, [], 0)
    monkeypatch.setattr(SimAdmin, "offset_for_time", offset_for_time)
    shard = _start_without_disk(env, shard)
    assert (shard.state, shard.why.split(":")[0]) == (State.HALTED, "seq-broken")
    assert "requests [0, 3)" in shard.why
    shard.close()


def test_ids_that_were_delivered_before_a_break_of_seq_are_remembered(env: ShardEnvironment) -> None:
    """The first unread request has a producer's timestamp, so it does not show how far back its id must be known."""
    env.format_version = 2
    headers = [("postdate-topic", b"orders"), ("postdate-id", b"a"), ("postdate-if-ended", b"drop")]
    config = RequestTopicConfig(R, ended_window_ms=20 * _HOUR_MS, store_after_ms=0)

    def schedule() -> None:
        due = ("postdate-at", str(int(env.time.now_ms) + 1).encode())
        env.broker.append(Partition(R, 0), b"k", b"v", [*headers, due], int(env.time.now_ms))

    shard = env.shard(config)
    env.schedule(env.time.now_ms + 10 * _HOUR_MS)  # while it is pending, the whole log is replayed
    schedule()
    env.until(shard, lambda: env.ended() == 1)
    last = env.log()[-1]
    forged = msgspec.structs.replace(last, seq=last.seq + 2, kind=BEAT, fates=[], ids=msgspec.UNSET, remembers=True)
    env.broker.append(_LOG, None, encode_record(forged), [], int(env.time.now_ms))
    shard.close()
    shutil.rmtree(env.directory / "0")
    shard = env.new_shard(config)
    env.until(shard, lambda: shard.state is State.HALTED)
    schedule()
    _accept(env, shard)
    assert [name for fates in env.fates() for _, name in fates] == ["delivered", "dropped"]
    shard.close()
